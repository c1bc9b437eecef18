//! Collectives of ranks that share memory: peers' buffers are read where they are, nothing is packed or staged.
//!
//! Every rank lends its source buffers to those who need a part of them, reads theirs straight into its results, in the
//! schedule's order, and waits until its own are back. A launch of several collectives lends the buffers of all its members
//! as one loan. An `all_reduce` of two ranks adds both buffers whole: each reads as many bytes as the schedule moves. With
//! more ranks each reduces its own chunk, lends it, and copies the others'. Large buffers are handed over to the first rank,
//! which reduces them all (`joint`). In all three, an element's terms are added in the order of its chunk's owner, as in
//! the schedule.
//!
//! To *start* is to lend or to hand over; all else is done when the rank has to *finish*. Nobody waits for a peer before it
//! has lent what peers wait for, and all start and finish in one order, so that no cycle of waits can arise: the first
//! launch in that order that is not done on all ranks has been started by all who have come to finish it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use shardgrad_core::schedule::{Buffer, Combine, RankSchedule, Region, Round};
use shardgrad_core::{Block, TransitionKind};
use smallvec::SmallVec;

use crate::collective::{Buffers, join, merge};
use crate::comm::{Loan, SharedMemory, Tag};
use crate::error::Error;
use crate::joint::{self, Chunk, Held};
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
    /// On the first rank of a group: the chunks of all.
    all: Vec<Chunk>,
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
        let (lends, terms, results, chunks, all) = Default::default();
        let mut own = Self { len, combine, mine: 0..0, lends, terms, results, chunks, all };
        for round in rounds {
            let number = round.number;
            if let Some(send) = &round.send {
                let lend = Numbered { number, peer: send.to, what: send.region.len() };
                match send.buffer {
                    Buffer::Source => own.lends.push(lend),
                    Buffer::Result => own.results.push(lend),
                }
            }
            match &round.receive {
                Some(receive) if receive.combine == Combine::Copy => {
                    let what = flat(&receive.region);
                    own.chunks.push(Numbered { number, peer: receive.from, what });
                }
                Some(receive) => {
                    own.terms.push(Numbered { number, peer: receive.from, what: () });
                    own.mine = flat(&receive.region);
                }
                None => {}
            }
        }
        own
    }

    /// Makes it the part of a group's first rank, which reduces large buffers for all.
    pub(crate) fn lead(&mut self, group: &[usize], schedule: impl Fn(usize) -> RankSchedule) {
        if group.len() <= joint::MOST {
            self.all = Chunk::all(group, schedule);
        }
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
    /// The all_reduce of large buffers, at the first rank.
    Joint,
}

impl Way {
    /// All ranks of a group decide alike: their blocks have one length.
    fn of(ranks: usize, size: usize, parts: &[&Part]) -> Self {
        let mut bytes = 0;
        for part in parts {
            match part {
                Part::Exchange { .. } => return Way::Exchange,
                Part::Reduce(chunks) => bytes += chunks.len * size,
            }
        }
        match ranks {
            2..=joint::MOST if bytes >= joint::LARGE => Way::Joint,
            2 => Way::Both,
            _ => Way::Chunks,
        }
    }
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
    /// To whom buffers are handed over, before all is reduced or, from the first rank, then.
    hands: Vec<Lend>,
    leads: bool,
}

/// What a launch that was started lets peers use.
#[derive(Debug)]
pub(crate) enum Lent {
    /// Sources that they may be reading.
    Sources(Arc<Loan>),
    /// All buffers, which are the first rank's: `None` elsewhere.
    All(Option<Loan>),
}

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
    /// Of these members of a group of ranks, whose elements have so many bytes.
    pub(crate) fn new(group: &[usize], rank: usize, size: usize, parts: &[&Part]) -> Self {
        let (mut sources, mut reduced) = (ByRound::default(), ByRound::default());
        let mut hands: BTreeMap<usize, u64> = BTreeMap::new();
        let way = Way::of(group.len(), size, parts);
        let leader = group.first().copied().unwrap_or(rank);
        let leads = rank == leader;
        if way == Way::Joint {
            // Also to and from those who have no chunk.
            let peers = group.iter().filter(|&&peer| peer != rank && (leads || peer == leader));
            hands.extend(peers.map(|&peer| (peer, 0)));
        }
        for (member, part) in parts.iter().enumerate() {
            match part {
                Part::Exchange { lends, reads } => {
                    sources.lend(lends, size);
                    sources.read(member, reads);
                }
                Part::Reduce(chunks) if way == Way::Joint => {
                    for Numbered { peer, what, .. } in chunks.lends.iter().chain(&chunks.results) {
                        let to = if leads { *peer } else { leader };
                        *hands.entry(to).or_default() += (what * size) as u64;
                    }
                }
                Part::Reduce(chunks) if way == Way::Both => {
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
                    sources.lend(&chunks.lends, size);
                    sources.read(member, &chunks.terms);
                    reduced.lend(&chunks.results, size);
                    reduced.read(member, &chunks.chunks);
                }
            }
        }
        let ((lends, reads), (results, chunks)) = (sources.take(), reduced.take());
        let hands = hands.into_iter().collect();
        Self { way, lends, reads, results, chunks, hands, leads }
    }

    /// Whether results are made from the operands where these are, not from a copy of the rank's own elements.
    pub(crate) fn is_reduction(&self) -> bool {
        self.way != Way::Exchange
    }

    /// Lends the operands, or hands all over.
    pub(crate) fn start(
        &self,
        memory: &mut dyn SharedMemory,
        tag: Tag,
        buffers: &mut [Buffers],
    ) -> Result<Lent, Error> {
        let take = |data: &mut Data| {
            let empty = Data::empty(data.dtype());
            std::mem::replace(data, empty)
        };
        if self.way == Way::Joint {
            let mut all: Loan = buffers.iter_mut().map(|b| take(&mut b.result)).collect();
            let empty = Data::empty;
            let sources =
                buffers.iter_mut().map(|b| b.source.as_mut().map_or(empty(b.result.dtype()), take));
            all.extend(sources);
            let Some(&(leader, bytes)) = self.hands.first().filter(|_| !self.leads) else {
                return Ok(Lent::All(Some(all)));
            };
            memory.hand_over(leader, tag, all, bytes)?;
            return Ok(Lent::All(None));
        }
        let operand = |b: &mut Buffers| take(b.source.as_mut().unwrap_or(&mut b.result));
        lend(memory, tag, buffers.iter_mut().map(operand).collect(), &self.lends).map(Lent::Sources)
    }

    /// Reads what peers lend, and waits until its own buffers are back. Results of an exchange hold what they start with.
    pub(crate) fn finish<T: Number>(
        &self,
        memory: &mut dyn SharedMemory,
        (tag, name): Call,
        parts: &[&Part],
        lent: Lent,
        buffers: &mut [Buffers],
        pool: &mut Pool,
    ) -> Result<(), Error> {
        let mut overflow = false;
        let own = match lent {
            Lent::Sources(own) => own,
            Lent::All(own) => {
                return self.jointly::<T>(memory, (tag, name), parts, own, buffers);
            }
        };
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
            Way::Chunks | Way::Joint => {
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
                    let (first, second) = (&first[range.clone()], &second[range.clone()]);
                    join(*combine, &mut target[range], first, second, overflow);
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

    /// The first rank reduces the buffers of all; the others wait for theirs.
    fn jointly<T: Number>(
        &self,
        memory: &mut dyn SharedMemory,
        (tag, name): Call,
        parts: &[&Part],
        own: Option<Loan>,
        buffers: &mut [Buffers],
    ) -> Result<(), Error> {
        let mut back = Loan::new();
        if let Some(own) = own {
            let mut loans = vec![own];
            for &(peer, _) in &self.hands {
                loans.push(memory.take_over(peer, tag)?);
            }
            // Before anybody goes on with wrong sums.
            checked(reduce::<T>(parts, &mut loans)?, name, T::DTYPE)?;
            let mut loans = loans.into_iter();
            back.extend(loans.next().into_iter().flatten());
            for (&(peer, bytes), loan) in self.hands.iter().zip(loans) {
                memory.hand_over(peer, tag, loan, bytes)?;
            }
        } else {
            for &(leader, _) in &self.hands {
                back = memory.take_over(leader, tag)?;
            }
        }
        let mut back = back.into_iter();
        for (b, data) in buffers.iter_mut().zip(&mut back) {
            b.result = data;
        }
        for (b, data) in buffers.iter_mut().zip(back) {
            b.source = b.source.take().map(|_| data);
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

/// Reduces what all ranks of a group hold, in their order: of each the results, then the operands that are apart, or empty.
/// Returns whether integers overflowed.
fn reduce<T: Number>(parts: &[&Part], loans: &mut [Loan]) -> Result<bool, Error> {
    let mut groups: Vec<joint::Group<'_, T>> = parts.iter().map(|_| SmallVec::new()).collect();
    let chunks = || {
        parts.iter().filter_map(|part| match part {
            Part::Reduce(chunks) => Some(chunks),
            Part::Exchange { .. } => None,
        })
    };
    let ranks = loans.len();
    for loan in loans {
        for (member, Chunks { len, .. }) in chunks().enumerate() {
            expect::<T>(loan, member, *len)?;
            let source = parts.len() + member;
            if loan.get(source).is_none_or(|data| !data.is_empty()) {
                expect::<T>(loan, source, *len)?;
            }
        }
        let (results, sources) = loan.split_at_mut(parts.len());
        for ((result, source), group) in results.iter_mut().zip(sources).zip(&mut groups) {
            let source = T::slice(source).filter(|source| !source.is_empty());
            group.extend(T::slice_mut(result).map(|result| Held { source, result }));
        }
    }
    let collectives = chunks().zip(groups);
    Ok(joint::reduce(ranks, collectives.map(|(c, group)| (c.combine, c.all.as_slice(), group))))
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
