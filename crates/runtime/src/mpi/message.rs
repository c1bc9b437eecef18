//! What stands before the elements of a message, so that ranks which disagree find out.
//!
//! Few elements follow in the same message; many follow in messages of their own, which go from buffer to buffer
//! without a copy, in pieces whose lengths fit MPI's 32-bit counts. Ranks run one build on one kind of machine (`agree`),
//! so bytes are in its own order.

use shardgrad_core::{AxisSet, DType, TransitionKind};

use crate::comm::{CollectiveId, Tag};
use crate::pool::Pool;
use crate::tensor::Data;

/// Bytes of a head.
pub(crate) const HEAD: usize = 5 * 8;
/// Most bytes of elements that follow in the message of the head.
pub(crate) const INLINE: usize = 32 << 10;

const TYPES: [DType; 4] = [DType::F32, DType::F64, DType::I32, DType::I64];

/// The head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) tag: Tag,
    /// Type and number of the elements.
    pub(crate) dtype: DType,
    pub(crate) len: usize,
    /// Elements of a piece; 0 if they follow in this message.
    pub(crate) piece: usize,
}

fn index_of<T: PartialEq>(all: &[T], one: &T) -> u64 {
    all.iter().position(|other| other == one).unwrap_or(all.len()) as u64
}

impl Head {
    /// Replaces the buffer's content by the head, followed by `payload` if it is inline.
    pub(crate) fn write(&self, payload: &Data, buffer: &mut Vec<u8>) {
        let (form, number, elements) = match self.tag {
            Tag::User(tag) => (0, tag, 0),
            Tag::Collective(id) => {
                let axes = id.axes.iter().fold(0_u64, |bits, axis| bits | 1 << axis);
                let kind = index_of(&TransitionKind::ALL, &id.kind);
                let form = 1 | kind << 8 | index_of(&TYPES, &id.dtype) << 16 | axes << 32;
                (form, id.sequence, id.elements as u64)
            }
        };
        let form = form | index_of(&TYPES, &self.dtype) << 24;
        buffer.clear();
        for word in [form, number, elements, self.len as u64, self.piece as u64] {
            buffer.extend_from_slice(&word.to_ne_bytes());
        }
        if self.piece == 0 {
            extend(buffer, payload);
        }
    }

    /// The head of a message, if it has one.
    pub(crate) fn read(message: &[u8]) -> Option<Self> {
        let (words, _) = message.get(..HEAD)?.as_chunks::<8>();
        let word = |i: usize| u64::from_ne_bytes(words[i]);
        let size = |i: usize| usize::try_from(word(i)).ok();
        let byte = |shift: u32| (word(0) >> shift & 0xff) as usize;
        let tag = match byte(0) {
            0 => Tag::User(word(1)),
            1 => Tag::Collective(CollectiveId {
                sequence: word(1),
                kind: *TransitionKind::ALL.get(byte(8))?,
                axes: (0..8).filter(|axis| word(0) >> (32 + axis) & 1 == 1).collect::<AxisSet>(),
                dtype: *TYPES.get(byte(16))?,
                elements: size(2)?,
            }),
            _ => return None,
        };
        let dtype = *TYPES.get(byte(24))?;
        let head = Self { tag, dtype, len: size(3)?, piece: size(4)? };
        let inline = message.len() - HEAD;
        let wanted = if head.piece == 0 { head.len.checked_mul(dtype.size())? } else { 0 };
        (inline == wanted).then_some(head)
    }

    /// The elements that follow in the message.
    pub(crate) fn elements(&self, message: &[u8], pool: &mut Pool) -> Data {
        let bytes = message.get(HEAD..).unwrap_or_default();
        let mut data = pool.take(self.dtype, self.len);
        match &mut data {
            Data::F32(into) => fill(into, bytes, f32::from_ne_bytes),
            Data::F64(into) => fill(into, bytes, f64::from_ne_bytes),
            Data::I32(into) => fill(into, bytes, i32::from_ne_bytes),
            Data::I64(into) => fill(into, bytes, i64::from_ne_bytes),
        }
        data
    }
}

fn extend(buffer: &mut Vec<u8>, data: &Data) {
    match data {
        Data::F32(all) => all.iter().for_each(|v| buffer.extend_from_slice(&v.to_ne_bytes())),
        Data::F64(all) => all.iter().for_each(|v| buffer.extend_from_slice(&v.to_ne_bytes())),
        Data::I32(all) => all.iter().for_each(|v| buffer.extend_from_slice(&v.to_ne_bytes())),
        Data::I64(all) => all.iter().for_each(|v| buffer.extend_from_slice(&v.to_ne_bytes())),
    }
}

fn fill<T, const N: usize>(into: &mut [T], bytes: &[u8], read: impl Fn([u8; N]) -> T) {
    let (chunks, _) = bytes.as_chunks::<N>();
    into.iter_mut().zip(chunks).for_each(|(element, chunk)| *element = read(*chunk));
}

/// Whether elements follow in the message of the head.
pub(crate) fn is_inline(payload: &Data) -> bool {
    payload.bytes() <= INLINE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_and_elements_come_back() {
        let id = |dtype| CollectiveId {
            sequence: u64::MAX - 1,
            kind: TransitionKind::Reshard,
            axes: [0, 3, 7].into_iter().collect(),
            dtype,
            elements: usize::MAX,
        };
        let payloads = [
            Data::F32(vec![1.5, -0.0, f32::NEG_INFINITY]),
            Data::F64(vec![]),
            Data::I32(vec![i32::MIN, 7]),
            Data::I64(vec![-1]),
        ];
        let (mut buffer, pool) = (Vec::new(), &mut Pool::default());
        for payload in payloads {
            for tag in [Tag::User(3), Tag::Collective(id(payload.dtype()))] {
                let (dtype, len) = (payload.dtype(), payload.len());
                let head = Head { tag, dtype, len, piece: 0 };
                head.write(&payload, &mut buffer);
                assert_eq!(Head::read(&buffer), Some(head));
                assert_eq!(head.elements(&buffer, pool), payload);
                buffer.push(0);
                assert_eq!(Head::read(&buffer), None, "too long");
                let apart = Head { piece: 2, ..head };
                apart.write(&payload, &mut buffer);
                assert_eq!((Head::read(&buffer), buffer.len()), (Some(apart), HEAD));
            }
        }
        assert_eq!(Head::read(&[0; HEAD - 1]), None);
    }
}
