//! Collectives of ranks that share memory: peers' buffers are read where they are, nothing is packed or staged.
//!
//! Every rank lends its source buffers to those who need a part of them, reads theirs straight into its results, in the
//! schedule's order, and waits until its own are back. A launch of several collectives lends the buffers of all its members
//! as one loan. An `all_reduce` of two ranks adds both buffers whole: each reads as many bytes as the schedule moves. With
//! more ranks each reduces its own chunk, lends it, and copies the others'. In both, an element's terms are added in the
//! order of its chunk's owner, as in the schedule.
//!
//! To *start* is to lend; all else is done when the rank has to *finish*. Nobody waits for a peer before it has lent what
//! peers wait for, and all start and finish in one order, so that no cycle of waits can arise: the first launch in that
//! order that is not done on all ranks has been started by all who have come to finish it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use shardgrad_core::schedule::{Buffer, Combine, Region, Round};
use shardgrad_core::{Block, TransitionKind};
use smallvec::SmallVec;

use crate::collective::{Buffers, merge};
use crate::comm::{Loan, SharedMemory, Tag};
use crate::error::Error;
use crate::kernels::elementwise::zip;
use crate::number::{Number, checked};
use crate::pool::Pool;
use crate::region::Pair;
use crate::tensor::Data;

/// A peer that reads this rank's buffers: its rank, and how many bytes it reads.
type Lend = (usize, u64);
/// Members, each with a number of its own: what it reads from a peer.
type Uses = SmallVec<[(usize, usize); 1]>;
/// The tag of a launch, and its name for messages.
type Call = (Tag, &'static str);

/// One rank's part of one collective.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// Parts of peers' sources into the result.
    Exchange { lends: Vec<Numbered<usize>>, reads: Vec<Numbered<Read>> },
    /// An all_reduce.
    Reduce(Chunks),
}

/// What happens with a peer in a round of this number.
#[derive(Clone, Debug)]
pub(crate) struct Numbered<W> {
    number: usize,
    peer: usize,
    what: W,
}

/// What is read from a peer's source: a walk of (result, source), and the source's length.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    len: usize,
    region: Pair,
    combine: Combine,
}

/// A reduction by chunks. Chunks are ranges of the block's elements.
#[derive(Clone, Debug)]
pub(crate) struct Chunks {
    len: usize,
    combine: Combine,
    mine: Range<usize>,
    /// Who reads how many of this rank's terms, and whose terms of its chunk it adds, in order.
    lends: Vec<Numbered<usize>>,
    terms: Vec<Numbered<()>>,
    /// Who reads its reduced chunk, and whose chunks it copies.
    results: Vec<Numbered<usize>>,
    chunks: Vec<Numbered<Range<usize>>>,
}

impl Part {
    /// From the schedule of one collective; `source` gives a rank's source block.
    pub(crate) fn new(
        kind: TransitionKind,
        combine: Combine,
        rounds: &[Round],
        result: &Block,
        source: impl Fn(usize) -> Block,
    ) -> Self {
        if kind == TransitionKind::AllReduce {
            return Part::Reduce(Chunks::new(combine, rounds, result.len()));
        }
        let numbered = |number, peer, what| Numbered { number, peer, what };
        let sends = rounds.iter().filter_map(|r| Some((r.number, r.send.as_ref()?)));
        let receives = rounds.iter().filter_map(|r| Some((r.number, r.receive.as_ref()?)));
        let reads = receives.map(|(number, receive)| {
            let theirs = source(receive.from);
            let inner = match &receive.region {
                Region::Box(inner) => inner,
                Region::Flat(_) => result,
            };
            let region = Pair::of_box(inner, result, &theirs);
            let read = Read { len: theirs.len(), region, combine: receive.combine };
            Numbered { number, peer: receive.from, what: read }
        });
        Part::Exchange {
            reads: reads.collect(),
            lends: sends.map(|(n, send)| numbered(n, send.to, send.region.len())).collect(),
        }
    }
}

impl Chunks {
    fn new(combine: Combine, rounds: &[Round], len: usize) -> Self {
        let flat = |region: &Region| match region {
            Region::Flat(range) => range.clone(),
            Region::Box(_) => 0..0,
        };
        let (lends, terms, results, chunks) = Default::default();
        let mut all = Self { len, combine, mine: 0..0, lends, terms, results, chunks };
        for round in rounds {
            let number = round.number;
            if let Some(send) = &round.send {
                let lend = Numbered { number, peer: send.to, what: send.region.len() };
                match send.buffer {
                    Buffer::Source => all.lends.push(lend),
                    Buffer::Result => all.results.push(lend),
                }
            }
            match &round.receive {
                Some(receive) if receive.combine == Combine::Copy => {
                    let what = flat(&receive.region);
                    all.chunks.push(Numbered { number, peer: receive.from, what });
                }
                Some(receive) => {
                    all.terms.push(Numbered { number, peer: receive.from, what: () });
                    all.mine = flat(&receive.region);
                }
                None => {}
            }
        }
        all
    }
}

/// How a launch goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Exchange,
    /// The all_reduce of two ranks.
    Both,
    /// The all_reduce of more.
    Chunks,
}

/// One rank's part of a launch.
#[derive(Clone, Debug)]
pub(crate) struct Direct {
    way: Way,
    /// Who reads the sources; whose sources are read, and for which of the members' reads or terms.
    lends: Vec<Lend>,
    reads: Vec<(usize, Uses)>,
    /// Likewise for reduced chunks.
    results: Vec<Lend>,
    chunks: Vec<(usize, Uses)>,
}

/// Sources that peers may be reading.
#[derive(Debug)]
pub(crate) struct Lent(Arc<Loan>);

/// Adds up what goes to each peer, in order of rounds.
#[derive(Default)]
struct ByRound {
    lends: BTreeMap<usize, Lend>,
    reads: BTreeMap<usize, (usize, Uses)>,
}

impl ByRound {
    fn lend(&mut self, lends: &[Numbered<usize>], size: usize) {
        for lend in lends {
            let entry = self.lends.entry(lend.number).or_insert((lend.peer, 0));
            entry.1 += (lend.what * size) as u64;
        }
    }

    fn read<W>(&mut self, member: usize, reads: &[Numbered<W>]) {
        for (at, read) in reads.iter().enumerate() {
            let entry = self.reads.entry(read.number).or_insert((read.peer, Uses::new()));
            entry.1.push((member, at));
        }
    }

    fn take(self) -> (Vec<Lend>, Vec<(usize, Uses)>) {
        (self.lends.into_values().collect(), self.reads.into_values().collect())
    }
}

impl Direct {
    /// Of these members of a group of so many ranks, whose elements have so many bytes.
    pub(crate) fn new<'p>(
        group: usize,
        size: usize,
        parts: impl Iterator<Item = &'p Part>,
    ) -> Self {
        let (mut sources, mut reduced) = (ByRound::default(), ByRound::default());
        let mut way = Way::Exchange;
        for (member, part) in parts.enumerate() {
            match part {
                Part::Exchange { lends, reads } => {
                    sources.lend(lends, size);
                    sources.read(member, reads);
                }
                Part::Reduce(chunks) if group == 2 => {
                    way = Way::Both;
                    // Terms and results in one go: each rank reads the other's terms whole.
                    let all = [chunks.lends.as_slice(), &chunks.results].concat();
                    let once: Vec<_> =
                        all.into_iter().map(|lend| Numbered { number: 0, ..lend }).collect();
                    sources.lend(&once, size);
                    let peer = once.first().map(|lend| lend.peer);
                    let peer = peer.or_else(|| chunks.terms.first().map(|term| term.peer));
                    if let Some(peer) = peer {
                        sources.read(member, &[Numbered { number: 0, peer, what: () }]);
                    }
                }
                Part::Reduce(chunks) => {
                    way = Way::Chunks;
                    sources.lend(&chunks.lends, size);
                    sources.read(member, &chunks.terms);
                    reduced.lend(&chunks.results, size);
                    reduced.read(member, &chunks.chunks);
                }
            }
        }
        let ((lends, reads), (results, chunks)) = (sources.take(), reduced.take());
        Self { way, lends, reads, results, chunks }
    }

    /// Whether results are made from the operands where these are, not from a copy of the rank's own elements.
    pub(crate) fn is_reduction(&self) -> bool {
        self.way != Way::Exchange
    }

    /// Lends the operands.
    pub(crate) fn start(
        &self,
        memory: &mut dyn SharedMemory,
        tag: Tag,
        buffers: &mut [Buffers],
    ) -> Result<Lent, Error> {
        let take = |b: &mut Buffers| {
            let operand = b.source.as_mut().unwrap_or(&mut b.result);
            std::mem::replace(operand, Data::empty(operand.dtype()))
        };
        lend(memory, tag, buffers.iter_mut().map(take).collect(), &self.lends).map(Lent)
    }

    /// Reads what peers lend, and waits until its own buffers are back. Results of an exchange hold what they start with.
    pub(crate) fn finish<T: Number>(
        &self,
        memory: &mut dyn SharedMemory,
        (tag, name): Call,
        parts: &[&Part],
        Lent(own): Lent,
        buffers: &mut [Buffers],
        pool: &mut Pool,
    ) -> Result<(), Error> {
        let mut overflow = false;
        match self.way {
            Way::Exchange => {
                for (from, uses) in &self.reads {
                    let theirs = memory.borrow(*from, tag)?;
                    for &(member, at) in uses {
                        let Part::Exchange { reads, .. } = parts[member] else { continue };
                        let Read { len, region, combine } = &reads[at].what;
                        let elements = expect::<T>(&theirs, member, *len)?;
                        if let Some(result) = T::slice_mut(&mut buffers[member].result) {
                            region.each(result, elements, |into, new| {
                                merge(*combine, into, new, &mut overflow);
                            });
                        }
                    }
                    memory.give_back(*from, tag, theirs);
                }
                restore(memory, tag, &self.lends, own, buffers)?;
            }
            Way::Both => self.both::<T>(memory, tag, parts, own, buffers, pool, &mut overflow)?,
            Way::Chunks => {
                self.by_chunks::<T>(memory, tag, parts, own, buffers, pool, &mut overflow)?;
            }
        }
        checked(overflow, name, T::DTYPE)
    }

    #[allow(clippy::too_many_arguments)]
    fn both<T: Number>(
        &self,
        memory: &mut dyn SharedMemory,
        tag: Tag,
        parts: &[&Part],
        own: Arc<Loan>,
        buffers: &mut [Buffers],
        pool: &mut Pool,
        overflow: &mut bool,
    ) -> Result<(), Error> {
        // Results in place come into a buffer of their own, since the peer still reads the operand.
        let mut targets: Loan = buffers
            .iter_mut()
            .zip(own.iter())
            .map(|(b, operand)| match b.source {
                Some(_) => std::mem::replace(&mut b.result, Data::empty(T::DTYPE)),
                None => pool.take(T::DTYPE, operand.len()),
            })
            .collect();
        for (peer, uses) in &self.reads {
            let theirs = memory.borrow(*peer, tag)?;
            for &(member, _) in uses {
                let Part::Reduce(Chunks { len, mine, combine, .. }) = parts[member] else {
                    continue;
                };
                let (a, b) =
                    (expect::<T>(&own, member, *len)?, expect::<T>(&theirs, member, *len)?);
                let Some(target) = T::slice_mut(&mut targets[member]) else { continue };
                // Within its own chunk this rank's term comes first.
                let mut part = |range: Range<usize>, first: &[T], second: &[T]| {
                    let (first, second) =
                        (Some(&first[range.clone()]), Some(&second[range.clone()]));
                    let target = &mut target[range];
                    match combine {
                        Combine::Max => zip(target, first, second, T::larger),
                        Combine::Sum | Combine::Copy => {
                            zip(target, first, second, |x, y| x.add(y, overflow));
                        }
                    }
                };
                part(0..mine.start, b, a);
                part(mine.clone(), a, b);
                part(mine.end..*len, b, a);
            }
            memory.give_back(*peer, tag, theirs);
        }
        restore(memory, tag, &self.lends, own, buffers)?;
        for (b, target) in buffers.iter_mut().zip(targets) {
            let old = std::mem::replace(&mut b.result, target);
            if b.source.is_none() {
                pool.put(old);
            }
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    fn by_chunks<T: Number>(
        &self,
        memory: &mut dyn SharedMemory,
        tag: Tag,
        parts: &[&Part],
        own: Arc<Loan>,
        buffers: &mut [Buffers],
        pool: &mut Pool,
        overflow: &mut bool,
    ) -> Result<(), Error> {
        let chunks = |member: usize| match parts[member] {
            Part::Reduce(chunks) => Some(chunks),
            Part::Exchange { .. } => None,
        };
        let mut reduced = Loan::new();
        for (member, terms) in own.iter().enumerate() {
            let Some(Chunks { len, mine, .. }) = chunks(member) else { continue };
            let mut sum = pool.take(T::DTYPE, mine.len());
            if let (Some(sum), true) = (T::slice_mut(&mut sum), terms.len() == *len) {
                sum.copy_from_slice(&expect::<T>(&own, member, *len)?[mine.clone()]);
            }
            reduced.push(sum);
        }
        for (from, uses) in &self.reads {
            let theirs = memory.borrow(*from, tag)?;
            for &(member, _) in uses {
                let Some(Chunks { len, mine, combine, .. }) = chunks(member) else { continue };
                let new = &expect::<T>(&theirs, member, *len)?[mine.clone()];
                if let Some(sum) = T::slice_mut(&mut reduced[member]) {
                    merge(*combine, sum, new, overflow);
                }
            }
            memory.give_back(*from, tag, theirs);
        }
        restore(memory, tag, &self.lends, own, buffers)?;
        let reduced = lend(memory, tag, reduced, &self.results)?;
        for (member, buffers) in buffers.iter_mut().enumerate() {
            let Some(Chunks { mine, .. }) = chunks(member) else { continue };
            if let (Some(result), false) = (T::slice_mut(&mut buffers.result), mine.is_empty()) {
                let own = expect::<T>(&reduced, member, mine.len())?;
                result[mine.clone()].copy_from_slice(own);
            }
        }
        for (from, uses) in &self.chunks {
            let theirs = memory.borrow(*from, tag)?;
            for &(member, at) in uses {
                let Some(range) = chunks(member).map(|c| c.chunks[at].what.clone()) else {
                    continue;
                };
                if let Some(result) = T::slice_mut(&mut buffers[member].result) {
                    let chunk = expect::<T>(&theirs, member, range.len())?;
                    result[range].copy_from_slice(chunk);
                }
            }
            memory.give_back(*from, tag, theirs);
        }
        reclaim(memory, tag, &self.results, reduced)?.into_iter().for_each(|sum| pool.put(sum));
        Ok(())
    }
}

/// Lends buffers, all in one loan.
fn lend(
    memory: &mut dyn SharedMemory,
    tag: Tag,
    buffers: Loan,
    lends: &[Lend],
) -> Result<Arc<Loan>, Error> {
    let own = Arc::new(buffers);
    for &(to, bytes) in lends {
        memory.lend(to, tag, Arc::clone(&own), bytes)?;
    }
    Ok(own)
}

/// Waits for lent buffers.
fn reclaim(
    memory: &mut dyn SharedMemory,
    tag: Tag,
    lends: &[Lend],
    own: Arc<Loan>,
) -> Result<Loan, Error> {
    for &(to, _) in lends {
        memory.reclaim(to, tag)?;
    }
    Arc::try_unwrap(own).map_err(|_| Error::WrongBuffer {
        what: "a lent buffer",
        expected: "no reader left".to_owned(),
        found: "one".to_owned(),
    })
}

/// Waits for lent operands and puts them where they came from.
fn restore(
    memory: &mut dyn SharedMemory,
    tag: Tag,
    lends: &[Lend],
    own: Arc<Loan>,
    buffers: &mut [Buffers],
) -> Result<(), Error> {
    for (b, operand) in buffers.iter_mut().zip(reclaim(memory, tag, lends, own)?) {
        *b.source.as_mut().unwrap_or(&mut b.result) = operand;
    }
    Ok(())
}

fn expect<T: Number>(loan: &Loan, member: usize, len: usize) -> Result<&[T], Error> {
    let found = loan.get(member);
    let wanted = |elements: &&[T]| elements.len() == len;
    found.and_then(|data| T::slice(data)).filter(wanted).ok_or_else(|| Error::WrongBuffer {
        what: "a lent buffer",
        expected: format!("{len} elements of {}", T::DTYPE),
        found: found
            .map_or("none".to_owned(), |data| format!("{} of {}", data.len(), data.dtype())),
    })
}
