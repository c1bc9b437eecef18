//! Collectives of ranks that share memory: peers' buffers are read where they are, nothing is packed or staged.
//!
//! Every rank lends its source buffer to those who need a part of it, reads theirs straight into its result, in the
//! schedule's order, and waits until its own buffer is back. An `all_reduce` of two ranks adds both buffers whole: each
//! reads as many bytes as the schedule moves. With more ranks each reduces its own chunk, lends it, and copies the others'.
//! In both, an element's terms are added in the order of its chunk's owner, as in the schedule.
//!
//! Nobody waits for a peer before it has lent what peers wait for, so that no cycle of waits can arise.

use std::sync::Arc;

use shardgrad_core::schedule::{Buffer, Combine, Region, Round};
use shardgrad_core::{Block, TransitionKind};

use crate::collective::merge;
use crate::comm::{SharedMemory, Tag};
use crate::error::Error;
use crate::kernels::elementwise::zip;
use crate::number::{Number, checked};
use crate::pool::Pool;
use crate::region::Pair;
use crate::tensor::Data;

/// A peer that reads this rank's buffer: its rank, and how many elements it reads.
type Lend = (usize, usize);

/// One rank's part.
#[derive(Clone, Debug)]
pub(crate) enum Direct {
    /// Parts of peers' sources into the result.
    Exchange { lends: Vec<Lend>, reads: Vec<Read> },
    /// The all_reduce of two ranks.
    Both { peer: usize, lent: usize, len: usize, mine: std::ops::Range<usize>, combine: Combine },
    /// The all_reduce of more.
    Chunks(Chunks),
}

/// What is read from a peer's source: a walk of (result, source), and the source's length.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    from: usize,
    len: usize,
    region: Pair,
    combine: Combine,
}

/// A reduction by chunks. Chunks are ranges of the block's elements.
#[derive(Clone, Debug)]
pub(crate) struct Chunks {
    len: usize,
    combine: Combine,
    mine: std::ops::Range<usize>,
    /// Who reads this rank's terms, and whose terms of its chunk it adds, in order.
    lends: Vec<Lend>,
    terms: Vec<usize>,
    /// Who reads its reduced chunk, and whose chunks it copies.
    results: Vec<Lend>,
    chunks: Vec<(usize, std::ops::Range<usize>)>,
}

impl Direct {
    /// From the schedule of a group of so many ranks; `source` gives a rank's source block.
    pub(crate) fn new(
        kind: TransitionKind,
        group: usize,
        combine: Combine,
        rounds: &[Round],
        result: &Block,
        source: impl Fn(usize) -> Block,
    ) -> Self {
        if kind == TransitionKind::AllReduce && !rounds.is_empty() {
            return Self::all_reduce(group, combine, rounds, result.len());
        }
        let sends = rounds.iter().filter_map(|round| round.send.as_ref());
        let receives = rounds.iter().filter_map(|round| round.receive.as_ref());
        let reads = receives.map(|receive| {
            let theirs = source(receive.from);
            let inner = match &receive.region {
                Region::Box(inner) => inner,
                Region::Flat(_) => result,
            };
            let region = Pair::of_box(inner, result, &theirs);
            Read { from: receive.from, len: theirs.len(), region, combine: receive.combine }
        });
        Direct::Exchange {
            lends: sends.map(|send| (send.to, send.region.len())).collect(),
            reads: reads.collect(),
        }
    }

    fn all_reduce(group: usize, combine: Combine, rounds: &[Round], len: usize) -> Self {
        let flat = |region: &Region| match region {
            Region::Flat(range) => range.clone(),
            Region::Box(_) => 0..0,
        };
        let mut all = Chunks {
            len,
            combine,
            mine: 0..0,
            lends: Vec::new(),
            terms: Vec::new(),
            results: Vec::new(),
            chunks: Vec::new(),
        };
        for round in rounds {
            match &round.send {
                Some(send) if send.buffer == Buffer::Source => {
                    all.lends.push((send.to, send.region.len()));
                }
                Some(send) => all.results.push((send.to, send.region.len())),
                None => {}
            }
            match &round.receive {
                Some(receive) if receive.combine == Combine::Copy => {
                    all.chunks.push((receive.from, flat(&receive.region)));
                }
                Some(receive) => {
                    all.terms.push(receive.from);
                    all.mine = flat(&receive.region);
                }
                None => {}
            }
        }
        if group == 2 {
            let peer = all.lends.iter().chain(&all.results).map(|lend| lend.0).next();
            let lent = all.lends.iter().chain(&all.results).map(|lend| lend.1).sum();
            if let Some(peer) = peer.or_else(|| all.terms.first().copied()) {
                return Direct::Both { peer, lent, len, mine: all.mine, combine };
            }
        }
        Direct::Chunks(all)
    }

    /// Runs it. The result already holds what it starts with, if this is an exchange.
    pub(crate) fn run<T: Number>(
        &self,
        memory: &mut dyn SharedMemory,
        tag: Tag,
        name: &'static str,
        source: Option<&mut Data>,
        result: &mut Data,
        pool: &mut Pool,
    ) -> Result<(), Error> {
        let mut overflow = false;
        match self {
            Direct::Exchange { lends, reads } => {
                let Some(source) = source else { return Ok(()) }; // Exchanges do not run in place.
                let own = lend::<T>(memory, tag, source, lends)?;
                for read in reads {
                    let theirs = memory.borrow(read.from, tag)?;
                    let elements = expect::<T>(&theirs, read.len)?;
                    if let Some(result) = T::slice_mut(result) {
                        read.region.each(result, elements, |into, new| {
                            merge(read.combine, into, new, &mut overflow);
                        });
                    }
                    memory.give_back(read.from, tag, theirs);
                }
                reclaim(memory, tag, lends, own, source)?;
            }
            Direct::Both { peer, lent, len, mine, combine } => {
                let lends = [(*peer, *lent)];
                let mut target = match &source {
                    Some(_) => std::mem::replace(result, Data::empty(T::DTYPE)),
                    None => pool.take(T::DTYPE, *len),
                };
                let in_place = source.is_none();
                let source = source.unwrap_or(result);
                let own = lend::<T>(memory, tag, source, &lends)?;
                let theirs = memory.borrow(*peer, tag)?;
                let (a, b) = (expect::<T>(&own, *len)?, expect::<T>(&theirs, *len)?);
                if let Some(target) = T::slice_mut(&mut target) {
                    // Within its own chunk this rank's term comes first.
                    let mut part = |range: std::ops::Range<usize>, first: &[T], second: &[T]| {
                        let (first, second) =
                            (Some(&first[range.clone()]), Some(&second[range.clone()]));
                        let target = &mut target[range];
                        match combine {
                            Combine::Max => zip(target, first, second, T::larger),
                            Combine::Sum | Combine::Copy => {
                                zip(target, first, second, |x, y| x.add(y, &mut overflow));
                            }
                        }
                    };
                    part(0..mine.start, b, a);
                    part(mine.clone(), a, b);
                    part(mine.end..*len, b, a);
                }
                memory.give_back(*peer, tag, theirs);
                reclaim(memory, tag, &lends, own, source)?;
                if in_place {
                    pool.put(std::mem::replace(result, target));
                } else {
                    *result = target;
                }
            }
            Direct::Chunks(chunks) => {
                chunks.run::<T>(memory, tag, source, result, pool, &mut overflow)?;
            }
        }
        checked(overflow, name, T::DTYPE)
    }
}

impl Chunks {
    fn run<T: Number>(
        &self,
        memory: &mut dyn SharedMemory,
        tag: Tag,
        source: Option<&mut Data>,
        result: &mut Data,
        pool: &mut Pool,
        overflow: &mut bool,
    ) -> Result<(), Error> {
        let mut reduced = pool.take(T::DTYPE, self.mine.len());
        {
            let apart = source.is_some();
            let mut in_place = Data::empty(T::DTYPE);
            let source = match source {
                Some(source) => source,
                None => {
                    in_place = std::mem::replace(result, in_place);
                    &mut in_place
                }
            };
            let own = lend::<T>(memory, tag, source, &self.lends)?;
            if let (Some(sum), terms) = (T::slice_mut(&mut reduced), expect::<T>(&own, self.len)?) {
                sum.copy_from_slice(&terms[self.mine.clone()]);
                for &from in &self.terms {
                    let theirs = memory.borrow(from, tag)?;
                    let new = &expect::<T>(&theirs, self.len)?[self.mine.clone()];
                    merge(self.combine, sum, new, overflow);
                    memory.give_back(from, tag, theirs);
                }
            }
            reclaim(memory, tag, &self.lends, own, source)?;
            if !apart {
                *result = in_place;
            }
        }
        let reduced_chunk = lend::<T>(memory, tag, &mut reduced, &self.results)?;
        if let Some(result) = T::slice_mut(result) {
            if !self.mine.is_empty() {
                let own = expect::<T>(&reduced_chunk, self.mine.len())?;
                result[self.mine.clone()].copy_from_slice(own);
            }
            for (from, range) in &self.chunks {
                let theirs = memory.borrow(*from, tag)?;
                result[range.clone()].copy_from_slice(expect::<T>(&theirs, range.len())?);
                memory.give_back(*from, tag, theirs);
            }
        }
        reclaim(memory, tag, &self.results, reduced_chunk, &mut reduced)?;
        pool.put(reduced);
        Ok(())
    }
}

/// Lends a buffer; it is empty until it is back.
fn lend<T: Number>(
    memory: &mut dyn SharedMemory,
    tag: Tag,
    buffer: &mut Data,
    lends: &[Lend],
) -> Result<Arc<Data>, Error> {
    let own = Arc::new(std::mem::replace(buffer, Data::empty(T::DTYPE)));
    for &(to, elements) in lends {
        memory.lend(to, tag, Arc::clone(&own), (elements * T::DTYPE.size()) as u64)?;
    }
    Ok(own)
}

/// Waits for a lent buffer.
fn reclaim(
    memory: &mut dyn SharedMemory,
    tag: Tag,
    lends: &[Lend],
    own: Arc<Data>,
    buffer: &mut Data,
) -> Result<(), Error> {
    for &(to, _) in lends {
        memory.reclaim(to, tag)?;
    }
    *buffer = Arc::try_unwrap(own).map_err(|_| Error::WrongBuffer {
        what: "a lent buffer",
        expected: "no reader left".to_owned(),
        found: "one".to_owned(),
    })?;
    Ok(())
}

fn expect<T: Number>(data: &Data, len: usize) -> Result<&[T], Error> {
    T::slice(data).filter(|elements| elements.len() == len).ok_or_else(|| Error::WrongBuffer {
        what: "a lent buffer",
        expected: format!("{len} elements of {}", T::DTYPE),
        found: format!("{} of {}", data.len(), data.dtype()),
    })
}
