//! Fused steps: runs of consecutive elementwise ops, executed together over chunks that stay in the cache.
//!
//! A group is a run of steps whose results all have the same element type and number of elements: elementwise ops, and
//! broadcasts of a scalar, a row or a column. Chunk by chunk, every op of the group runs on the chunk before the next
//! chunk is touched. Since elementwise ops read and write the same places only, the result is that of running the steps
//! one after the other, to the last bit. Values that are born and die inside the group never leave the cache: their
//! slots get no buffer. (Loop fusion with vector-at-a-time interpretation: Boncz, Zukowski and Nes 2005.)
//!
//! A broadcast's operand is read at other places than the chunk's, so no step of the group may write it.

use shardgrad_core::DType;
use shardgrad_graph::SlotId;
use smallvec::SmallVec;

use crate::error::Error;
use crate::kernels::broadcast::Repeat;
use crate::kernels::elementwise::Functions;
use crate::kernels::gemm::Gemm;
use crate::kernels::{Binary, Kernel};
use crate::number::{Number, with_number};
use crate::slots::Slots;
use crate::tensor::Data;

/// Elements of a chunk: several chunks of the widest type fit a first-level cache.
const CHUNK: usize = 1024;

/// A group, ready to run.
#[derive(Debug)]
pub(crate) struct Fused {
    dtype: DType,
    len: usize,
    ops: Vec<Member>,
    /// Where each local value lives: in a slot's buffer, or in scratch of one chunk.
    places: Vec<Place>,
    /// Scratch of the values without a buffer.
    scratch: Vec<Data>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Slot(SlotId),
    Scratch(usize),
}

#[derive(Debug)]
struct Member {
    name: &'static str,
    work: MemberWork,
    result: usize,
    operands: SmallVec<[usize; 2]>,
}

#[derive(Debug)]
enum MemberWork {
    Kernel(Kernel),
    /// Repeats elements of a slot that the group only reads.
    Repeat(Repeat, SlotId),
    /// Arithmetic with a scalar in such a slot, which stands on the right or on the left; the other operand, if it is no
    /// value of the result's place, is the member's only one.
    Scalar {
        binary: Binary,
        scalar: SlotId,
        right: bool,
    },
}

/// What a step offers to a group.
pub(crate) struct Candidate {
    pub(crate) name: &'static str,
    pub(crate) kernel: Kernel,
    pub(crate) result: SlotId,
    pub(crate) operands: SmallVec<[SlotId; 2]>,
    pub(crate) dtype: DType,
    pub(crate) len: usize,
}

/// A group being put together.
#[derive(Default)]
pub(crate) struct Group {
    candidates: Vec<Candidate>,
}

impl Group {
    /// Number of steps in it.
    pub(crate) fn len(&self) -> usize {
        self.candidates.len()
    }

    /// Whether a step may join: same type and length, and what a broadcast reads is neither written nor read element by
    /// element by another member, which would have taken the buffer out of its slot.
    pub(crate) fn admits(&self, candidate: &Candidate) -> bool {
        let repeats = |c: &Candidate| matches!(c.kernel, Kernel::Rearrange(_));
        let takes = |c: &Candidate, slot: SlotId| {
            c.result == slot || !repeats(c) && c.operands.contains(&slot)
        };
        let clash =
            |a: &Candidate, b: &Candidate| repeats(a) && a.operands.iter().any(|&s| takes(b, s));
        let fits = candidate.kernel.is_elementwise()
            || matches!(&candidate.kernel, Kernel::Rearrange(r) if r.repeat().is_some());
        fits && candidate.len > 0
            && self.candidates.iter().all(|c| {
                c.dtype == candidate.dtype
                    && c.len == candidate.len
                    && !clash(c, candidate)
                    && !clash(candidate, c)
            })
            && !clash(candidate, candidate)
    }

    pub(crate) fn push(&mut self, candidate: Candidate) {
        self.candidates.push(candidate);
    }

    /// The group, ready to run. `inside` says whether a slot is born and dies in it.
    pub(crate) fn finish(self, inside: impl Fn(SlotId) -> bool) -> Option<Fused> {
        let (dtype, len) = self.candidates.first().map(|c| (c.dtype, c.len))?;
        let mut known: Vec<SlotId> = Vec::new();
        let mut places: Vec<Place> = Vec::new();
        let mut scratch = 0;
        let mut place = |slot: SlotId| {
            known.iter().position(|&k| k == slot).unwrap_or_else(|| {
                known.push(slot);
                places.push(if inside(slot) {
                    scratch += 1;
                    Place::Scratch(scratch - 1)
                } else {
                    Place::Slot(slot)
                });
                known.len() - 1
            })
        };
        let mut ops = Vec::new();
        for candidate in self.candidates {
            let (work, operands) = match candidate.kernel {
                Kernel::Rearrange(rearrange) => {
                    let source = *candidate.operands.first()?;
                    (MemberWork::Repeat(rearrange.repeat()?, source), SmallVec::new())
                }
                kernel => (
                    MemberWork::Kernel(kernel),
                    candidate.operands.iter().map(|&o| place(o)).collect(),
                ),
            };
            let result = place(candidate.result);
            ops.push(Member { name: candidate.name, work, result, operands });
        }
        let ops = fold_scalars(ops, &places);
        let scratch = (0..scratch).map(|_| Data::zeros(dtype, CHUNK.min(len))).collect();
        Some(Fused { dtype, len, ops, places, scratch })
    }
}

/// A scalar that is repeated for arithmetic only is read where it is, and never repeated.
fn fold_scalars(mut ops: Vec<Member>, places: &[Place]) -> Vec<Member> {
    let mut at = 0;
    while at < ops.len() {
        let value = ops[at].result;
        let scalar = match &ops[at].work {
            MemberWork::Repeat(repeat, slot) if repeat.is_scalar() => Some(*slot),
            _ => None,
        };
        // Written once, and every reader is an arithmetic op with one other operand.
        let folds = matches!(places[value], Place::Scratch(_))
            && ops.iter().filter(|op| op.result == value).count() == 1
            && ops.iter().filter(|op| op.operands.contains(&value)).all(|op| {
                matches!(op.work, MemberWork::Kernel(Kernel::Binary(_)))
                    && op.operands.iter().filter(|&&o| o == value).count() == 1
            });
        let Some(scalar) = scalar.filter(|_| folds) else {
            at += 1;
            continue;
        };
        ops.remove(at);
        for op in ops.iter_mut().filter(|op| op.operands.contains(&value)) {
            if let MemberWork::Kernel(Kernel::Binary(binary)) = op.work {
                let right = op.operands.get(1) == Some(&value);
                op.work = MemberWork::Scalar { binary, scalar, right };
                op.operands.retain(|o| *o != value);
            }
        }
    }
    ops
}

impl Fused {
    /// Runs the group.
    ///
    /// # Errors
    /// Integers that overflow.
    pub(crate) fn run(&mut self, slots: &mut Slots) -> Result<(), Error> {
        with_number!(self.dtype, T => self.typed::<T>(slots))
    }

    fn typed<T: Functions + Gemm>(&mut self, slots: &mut Slots) -> Result<(), Error> {
        let mut values: SmallVec<[Vec<T>; 12]> = SmallVec::new();
        for place in &self.places {
            let data = match *place {
                Place::Slot(slot) => slots.take(slot),
                Place::Scratch(at) => {
                    std::mem::replace(&mut self.scratch[at], Data::empty(self.dtype))
                }
            };
            values.push(<T as Number>::from_data(data).unwrap_or_default());
        }
        let result = self.chunks(&mut values, slots);
        for (place, value) in self.places.iter().zip(values) {
            match *place {
                Place::Slot(slot) => slots.put(slot, T::into_data(value)),
                Place::Scratch(at) => self.scratch[at] = T::into_data(value),
            }
        }
        result
    }

    fn chunks<T: Functions + Gemm>(
        &self,
        values: &mut [Vec<T>],
        slots: &Slots,
    ) -> Result<(), Error> {
        let mut start = 0;
        while start < self.len {
            let end = (start + CHUNK).min(self.len);
            let within = |value: usize| match self.places[value] {
                Place::Slot(_) => start..end,
                Place::Scratch(_) => 0..end - start,
            };
            for op in &self.ops {
                let mut result = std::mem::take(&mut values[op.result]);
                let target = &mut result[within(op.result)];
                match &op.work {
                    MemberWork::Repeat(repeat, source) => {
                        if let Some(source) = T::slice(slots.data(*source)) {
                            repeat.run(source, start, target);
                        }
                    }
                    MemberWork::Scalar { binary, scalar, right } => {
                        let a = op.operands.first().filter(|&&o| o != op.result);
                        let a = a.map(|&o| &values[o][within(o)]);
                        let scalar = T::slice(slots.data(*scalar)).and_then(<[T]>::first);
                        let scalar = scalar.copied().unwrap_or_default();
                        binary.with_scalar(op.name, scalar, *right, target, a)?;
                    }
                    MemberWork::Kernel(kernel) => {
                        let mut operands: SmallVec<[Option<&[T]>; 2]> = SmallVec::new();
                        for &operand in &op.operands {
                            operands.push(
                                (operand != op.result).then(|| &values[operand][within(operand)]),
                            );
                        }
                        kernel.typed::<T>(op.name, &operands, target)?;
                    }
                }
                values[op.result] = result;
            }
            start = end;
        }
        Ok(())
    }
}
