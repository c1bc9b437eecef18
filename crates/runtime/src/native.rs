//! Transitions by the transport's own collectives: what goes into which buffer.
//!
//! A collective of the transport knows no boxes: it moves runs of elements by member of the group. What a member gets is packed
//! before, and what comes is put in its place after. A reduce_scatter of blocks that differ in length is one of blocks
//! of the longest. Sums are added in the transport's order: equal to the schedule's within rounding. Sums of integers, whose
//! overflow must be found, and maxima of floats, whose NaN must stay, are left to the schedule.
//!
//! All members of a group decide alike, from what they all know.

use shardgrad_core::schedule::Combine;
use shardgrad_core::{Block, TensorType, TransitionKind};

use crate::comm::NativeCollectives;
use crate::error::Error;
use crate::number::Number;
use crate::pool::Pool;
use crate::region::Local;
use crate::tensor::Data;

/// Most elements of a tensor: counts of transports are 32-bit numbers, and blocks are made equally long.
const MOST: usize = 1 << 30;

/// One rank's part, with the ranks along the transition's own axes.
#[derive(Clone, Debug)]
pub(crate) struct Native {
    group: Vec<usize>,
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    AllReduce {
        combine: Combine,
    },
    /// Where each member's block lies in the result.
    AllGather {
        places: Vec<Local>,
    },
    /// Where each member's block lies in the source, and the length of the longest.
    ReduceScatter {
        combine: Combine,
        parts: Vec<Local>,
        longest: usize,
    },
    /// Where what each member gets lies in the source, and what it gives in the result.
    AllToAll {
        parts: Vec<Local>,
        places: Vec<Local>,
    },
}

impl Native {
    /// Of a rank in a group, whose members have these blocks before and after, in order. `None` if there is no such
    /// collective.
    pub(crate) fn new(
        kind: TransitionKind,
        combine: Combine,
        ty: &TensorType,
        (group, rank): (Vec<usize>, usize),
        blocks: impl Fn(usize) -> (Block, Block),
    ) -> Option<Self> {
        if ty.elements() > MOST || group.len() < 2 {
            return None;
        }
        let (sources, results): (Vec<Block>, Vec<Block>) = group.iter().map(|&r| blocks(r)).unzip();
        let (source, result) = blocks(rank);
        let by_transport = match combine {
            Combine::Sum | Combine::Copy => ty.dtype.is_float(),
            // Of floats a transport's maximum may lose a NaN.
            Combine::Max => !ty.dtype.is_float(),
        };
        let form = match kind {
            TransitionKind::AllReduce => by_transport.then_some(Form::AllReduce { combine })?,
            TransitionKind::AllGather => {
                let place = |theirs: &Block| Local::of_box(theirs, &result);
                Form::AllGather { places: sources.iter().map(place).collect() }
            }
            TransitionKind::ReduceScatter => {
                let part = |theirs: &Block| Local::of_box(theirs, &source);
                let longest = results.iter().map(Block::len).max().unwrap_or(0);
                let small = longest.checked_mul(sources.len())? <= MOST;
                let parts = results.iter().map(part).collect();
                (by_transport && small).then_some(Form::ReduceScatter {
                    combine,
                    parts,
                    longest,
                })?
            }
            TransitionKind::AllToAll => Form::AllToAll {
                parts: results
                    .iter()
                    .map(|theirs| Local::of_box(&source.intersect(theirs), &source))
                    .collect(),
                places: sources
                    .iter()
                    .map(|theirs| Local::of_box(&theirs.intersect(&result), &result))
                    .collect(),
            },
            TransitionKind::Relabel
            | TransitionKind::Slice
            | TransitionKind::Mask
            | TransitionKind::Pad
            | TransitionKind::Reshard => return None,
        };
        Some(Self { group, form })
    }

    /// Runs it; without a source, on the result's buffer, which only an all_reduce can.
    pub(crate) fn run<T: Number>(
        &self,
        transport: &mut dyn NativeCollectives,
        source: Option<&Data>,
        result: &mut Data,
        pool: &mut Pool,
    ) -> Result<(), Error> {
        let group = &self.group[..];
        match &self.form {
            Form::AllReduce { combine } => match source {
                Some(source) => transport.all_reduce(group, *combine, source, result),
                None => {
                    let mut sum = pool.take(T::DTYPE, result.len());
                    transport.all_reduce(group, *combine, result, &mut sum);
                    pool.put(std::mem::replace(result, sum));
                }
            },
            Form::AllGather { places } => {
                let counts: Vec<usize> = places.iter().map(Local::len).collect();
                let mut all = pool.take(T::DTYPE, counts.iter().sum());
                transport.all_gather(group, apart(source)?, &counts, &mut all);
                put::<T>(places, &all, result);
                pool.put(all);
            }
            Form::ReduceScatter { combine, parts, longest } => {
                let mut message = pool.empty::<T>(longest * parts.len());
                if let Some(source) = T::slice(apart(source)?) {
                    for (end, part) in (1..).zip(parts) {
                        part.pack(source, &mut message);
                        message.resize(end * longest, T::ZERO);
                    }
                }
                let message = T::into_data(message);
                let mut sum = pool.take(T::DTYPE, *longest);
                transport.reduce_scatter(group, *combine, &message, &mut sum);
                if let (Some(sum), Some(result)) = (T::slice(&sum), T::slice_mut(result)) {
                    let own = result.len();
                    result.copy_from_slice(&sum[..own]);
                }
                pool.put(message);
                pool.put(sum);
            }
            Form::AllToAll { parts, places } => {
                let lengths = |all: &[Local]| all.iter().map(Local::len).collect::<Vec<usize>>();
                let (counts, received) = (lengths(parts), lengths(places));
                let mut message = pool.empty::<T>(counts.iter().sum());
                if let Some(source) = T::slice(apart(source)?) {
                    parts.iter().for_each(|part| part.pack(source, &mut message));
                }
                let message = T::into_data(message);
                let mut all = pool.take(T::DTYPE, received.iter().sum());
                transport.all_to_all(group, &message, &counts, &mut all, &received);
                put::<T>(places, &all, result);
                pool.put(message);
                pool.put(all);
            }
        }
        Ok(())
    }
}

/// Only an all_reduce runs without a source of its own.
fn apart(source: Option<&Data>) -> Result<&Data, Error> {
    source.ok_or_else(|| Error::WrongBuffer {
        what: "the result of this transition",
        expected: "a buffer of its own".to_owned(),
        found: "the operand's buffer".to_owned(),
    })
}

/// Puts what came in a row in its places.
fn put<T: Number>(places: &[Local], all: &Data, result: &mut Data) {
    let (Some(all), Some(result)) = (T::slice(all), T::slice_mut(result)) else { return };
    let mut at = 0;
    for place in places {
        let part = &all[at..at + place.len()];
        place.unpack(result, part, |into, new| into.copy_from_slice(new));
        at += part.len();
    }
}
