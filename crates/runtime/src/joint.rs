//! The `all_reduce` of large buffers of ranks that share memory: one rank has the buffers of all, adds them up with a thread
//! for each chunk, and hands them back.
//!
//! One pass reads every operand once and writes every result once; where each rank makes its own result, it reads the
//! others' buffers too, and of large buffers the time is that of reading and writing. Threads that write parts of one buffer
//! are borrowing it, which a scope of threads that one rank opens can do and ranks on threads of their own cannot. To start
//! such threads and to wake the other ranks takes some 100 µs, so that only large buffers are worth it ([`LARGE`]).
//!
//! A chunk's terms are added in its owner's order, as in the schedule.

use std::thread;

use shardgrad_core::schedule::{Combine, RankSchedule, Region};
use smallvec::SmallVec;

use crate::collective::{join, merge};
use crate::number::Number;

/// Bytes of a launch's block from which on it is reduced this way. Measured with two ranks on two cores before it was built in, in µs:
/// 1 MB takes 111 by one pass of both and 112 by this, 4 MB 496 and 242, 16 MB 1,948 and 745.
pub(crate) const LARGE: usize = if cfg!(shuttle) { 16 } else { 2 << 20 };
/// Ranks of the largest group that is reduced this way: there is a thread for each.
pub(crate) const MOST: usize = 8;
/// Elements that are summed before the next are read: a few such runs of each operand fit a first-level cache.
const RUN: usize = 1024;

/// A chunk of a block: its elements, and the group's members in the order in which their terms are added.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    len: usize,
    order: SmallVec<[usize; 2]>,
}

impl Chunk {
    /// The chunks of all members of a group, in order.
    pub(crate) fn all(group: &[usize], schedule: impl Fn(usize) -> RankSchedule) -> Vec<Self> {
        let position = |rank: usize| group.iter().position(|&r| r == rank);
        let chunk = |(owner, &rank): (usize, &usize)| {
            let rounds = schedule(rank).rounds;
            let terms = rounds.iter().filter_map(|round| round.receive.as_ref());
            let terms = || terms.clone().filter(|receive| receive.combine != Combine::Copy);
            let len = terms().next().map_or(0, |receive| match &receive.region {
                Region::Flat(range) => range.len(),
                Region::Box(_) => 0,
            });
            let others = terms().filter_map(|receive| position(receive.from));
            Self { len, order: [owner].into_iter().chain(others).collect() }
        };
        group.iter().enumerate().map(chunk).collect()
    }
}

/// A rank's operand, unless it lies in the result's buffer, and its result.
#[derive(Debug)]
pub(crate) struct Held<'a, T> {
    pub(crate) source: Option<&'a [T]>,
    pub(crate) result: &'a mut [T],
}

impl<'a, T> Held<'a, T> {
    /// The first elements, and the others.
    fn split(self, at: usize) -> (Self, Self) {
        let (result, results) = self.result.split_at_mut(at);
        let sources = self.source.map(|source| source.split_at(at));
        (
            Self { source: sources.map(|s| s.0), result },
            Self { source: sources.map(|s| s.1), result: results },
        )
    }
}

/// What all ranks hold of one collective, by their order in the group.
pub(crate) type Group<'a, T> = SmallVec<[Held<'a, T>; 2]>;

/// What one thread adds up: a chunk of each collective.
struct Share<'a, T> {
    chunks: Vec<(Combine, &'a [usize], Group<'a, T>)>,
    overflow: bool,
    done: bool,
}

/// Reduces collectives, each with its chunks: every rank's result holds the sum. Returns whether integers overflowed.
pub(crate) fn reduce<'a, T: Number>(
    ranks: usize,
    collectives: impl Iterator<Item = (Combine, &'a [Chunk], Group<'a, T>)>,
) -> bool {
    let share = || Share { chunks: Vec::new(), overflow: false, done: false };
    let mut shares: Vec<Share<'_, T>> = (0..ranks).map(|_| share()).collect();
    for (combine, chunks, mut left) in collectives {
        for (share, Chunk { len, order }) in shares.iter_mut().zip(chunks) {
            let (part, rest) = left.into_iter().map(|held| held.split(*len)).unzip();
            share.chunks.push((combine, order, part));
            left = rest;
        }
    }
    thread::scope(|scope| {
        let mut shares = shares.iter_mut();
        let own = shares.next();
        for share in shares {
            // What no thread can be had for is left to this one, below.
            let _ = thread::Builder::new().spawn_scoped(scope, || share.run());
        }
        own.into_iter().for_each(Share::run);
    });
    shares.iter_mut().filter(|share| !share.done).for_each(Share::run);
    shares.iter().any(|share| share.overflow)
}

impl<T: Number> Share<'_, T> {
    fn run(&mut self) {
        let mut sum = [T::ZERO; RUN];
        for (combine, order, ranks) in &mut self.chunks {
            let len = ranks.first().map_or(0, |held| held.result.len());
            for start in (0..len).step_by(RUN) {
                let range = start..len.min(start + RUN);
                let sum = &mut sum[..range.len()];
                let term = |&rank: &usize| {
                    let Held { source, result } = &ranks[rank];
                    &source.unwrap_or(result)[range.clone()]
                };
                if let [first, second, others @ ..] = *order {
                    join(*combine, sum, term(first), term(second), &mut self.overflow);
                    for other in others {
                        merge(*combine, sum, term(other), &mut self.overflow);
                    }
                    for held in ranks.iter_mut() {
                        held.result[range.clone()].copy_from_slice(sum);
                    }
                }
            }
        }
        self.done = true;
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use shardgrad_core::{DType, Layout, Mesh, TensorType};
    use smallvec::smallvec;

    use super::*;
    use crate::collective::{Buffers, Collective};
    use crate::comm::Communicator;
    use crate::error::Error;
    use crate::pool::Pool;
    use crate::tensor::Data;
    use crate::threads::ThreadComm;
    use crate::world::World;

    /// Elements of a block that is large.
    const MANY: usize = LARGE / 4;

    fn member(p: usize, rank: usize, len: usize, dtype: DType, from: &str) -> Collective {
        let mesh: Mesh = format!("d={p}").parse().unwrap();
        let layout = |text: &str| Layout::parse(&format!("d: {text}"), &mesh).unwrap();
        let ty = TensorType::new([len], dtype);
        Collective::new(&mesh, &ty, &layout(from), &layout("R"), rank).unwrap()
    }

    /// Operands whose sum depends on the order of additions; with a NaN for maxima.
    fn operand(rank: usize, len: usize) -> Data {
        let scale = [1.0, 1e7, -1e7, 3e-3, -0.7, 1e4, -1e4, 0.1][rank];
        let mut all: Vec<f32> = (0..len).map(|i| scale * ((i * 37 + 11) % 1013) as f32).collect();
        if let (1, Some(some)) = (rank, all.get_mut(len / 3)) {
            *some = f32::NAN;
        }
        Data::F32(all)
    }

    /// Runs a launch; every second member has a result of its own.
    fn run(
        comm: &mut ThreadComm,
        launch: &Collective,
        operands: Vec<Data>,
        lend: bool,
    ) -> Result<Vec<Buffers>, Error> {
        let buffers = operands.into_iter().enumerate().map(|(at, operand)| match at % 2 {
            0 => Buffers { source: None, result: operand },
            _ => Buffers {
                result: Data::zeros(operand.dtype(), operand.len()),
                source: Some(operand),
            },
        });
        let flight = launch.start(comm, buffers.collect(), lend)?;
        Ok(launch.finish(comm, flight, &mut Pool::default())?.buffers.into_vec())
    }

    fn bits(data: &Data) -> Vec<u32> {
        f32::slice(data).unwrap().iter().map(|v| v.to_bits()).collect()
    }

    #[test]
    fn a_launch_has_the_bits_and_bytes_of_its_schedule() {
        for (p, from) in [(2, "P"), (3, "P"), (5, "P"), (8, "P"), (2, "Pmax"), (3, "Pmax")] {
            let lens = [MANY + 3, 1, 1021, 0];
            let results = World::new(p).run(move |comm| {
                let rank = comm.rank();
                let members = lens.map(|len| member(p, rank, len, DType::F32, from));
                let launch = Collective::together(members.into())?;
                let operands = || lens.map(|len| operand(rank, len)).into();
                let packed = run(comm, &launch, operands(), false)?;
                let bytes = comm.traffic().bytes;
                let joint = run(comm, &launch, operands(), true)?;
                assert_eq!(comm.traffic().bytes, 2 * bytes);
                for ((packed, joint), len) in packed.iter().zip(&joint).zip(lens) {
                    assert_eq!(bits(&joint.result), bits(&packed.result), "{p} {from} {len}");
                    if let Some(source) = &joint.source {
                        assert_eq!(bits(source), bits(&operand(rank, len)), "the operand");
                    }
                }
                Ok(bits(&joint[0].result))
            });
            let first = results[0].as_ref().unwrap();
            assert!(results.iter().all(|result| result.as_ref() == Ok(first)), "{p} {from}");
        }
    }

    #[test]
    fn an_overflow_in_any_chunk_is_found() {
        for at in [0, MANY / 2 + 1, MANY - 1] {
            let results = World::new(2).run(move |comm| {
                let mut operand = vec![1; MANY];
                operand[at] = i32::MAX;
                let launch = member(2, comm.rank(), MANY, DType::I32, "P");
                run(comm, &launch, vec![Data::I32(operand)], true).map(|_| ())
            });
            let codes = results.into_iter().map(|result| result.unwrap_err().code());
            assert_eq!(codes.collect::<Vec<_>>(), ["E307", "E301"], "{at}");
        }
    }

    #[test]
    fn ranks_that_fail_or_differ_leave_nobody_waiting() {
        // Before their buffers are handed over, and after.
        for (failing, started) in [(0, false), (1, false), (0, true), (1, true)] {
            let results = World::new(3).run(move |comm| {
                let launch = member(3, comm.rank(), MANY, DType::F32, "P");
                let buffers =
                    smallvec![Buffers { source: None, result: operand(comm.rank(), MANY) }];
                let fails = comm.rank() == failing;
                let fault = || Error::MissingInput { name: "x".into(), known: "none".into() };
                if fails && !started {
                    return Err(fault());
                }
                let flight = launch.start(comm, buffers, true)?;
                if fails {
                    return Err(fault());
                }
                launch.finish(comm, flight, &mut Pool::default()).map(|_| ())
            });
            for (rank, result) in results.into_iter().enumerate() {
                match result {
                    Ok(()) => assert!(started && failing == 1),
                    Err(error) => {
                        assert_eq!(error.code(), if rank == failing { "E308" } else { "E301" });
                    }
                }
            }
        }
        // As many elements, in other parts.
        let results = World::new(2).run(|comm| {
            let rank = comm.rank();
            let lens = if rank == 0 { vec![MANY] } else { vec![MANY - 1, 1] };
            let members = lens.iter().map(|&len| member(2, rank, len, DType::F32, "P")).collect();
            let operands = lens.iter().map(|&len| operand(rank, len)).collect();
            run(comm, &Collective::together(members)?, operands, true).map(|_| ())
        });
        assert!(results.iter().all(Result::is_err));
        assert!(results[0].as_ref().is_err_and(|e| e.to_string().contains("lent buffer")));
    }
}
