//! Algorithms of collectives: other rounds for the same change of layout.
//!
//! | algorithm | all_reduce | all_gather |
//! |---|---|---|
//! | direct | 2(p−1) rounds, 2(p−1)/p · n | p−1 rounds, (p−1)/p · n |
//! | ring | the same, to the next rank only | the same, to the next rank only |
//! | halving | 2 log₂ p rounds, 2(p−1)/p · n | log₂ p rounds, (p−1)/p · n |
//! | tree | 2⌈log₂ p⌉ rounds, up to ⌈log₂ p⌉ · n | |
//!
//! *Ring*: partial sums, then sums, go round (Patarasuk and Yuan 2009). *Halving*: ranks a power of two apart exchange
//! halves of what they still answer for and add, then double what they hold (Rabenseifner 2004; Thakur, Rabenseifner and
//! Gropp 2005); p must be a power of two, and an all_gather be on one axis. *Tree*: terms are added up a binomial tree, the
//! sum goes down it. In each, every sum is completed on one rank and copied from there, so that replicas have the same bits.
//! A reduce_scatter, an all_to_all and a reshard are always direct: what they would forward has no place in a result's
//! block.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::geometry::{Block, block_at, split};
use crate::layout::Layout;
use crate::mesh::Mesh;
use crate::schedule::{Buffer, Combine, RankSchedule, Receive, Region, Round, Send, Start};
use crate::transition::{Transition, TransitionKind};

/// How a collective is carried out.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// Each element comes straight from its owner.
    #[default]
    Direct,
    /// Neighbours pass on what they have.
    Ring,
    /// Recursive halving, then doubling.
    Halving,
    /// Up and down a binomial tree.
    Tree,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Algorithm; 4] =
        [Algorithm::Direct, Algorithm::Ring, Algorithm::Halving, Algorithm::Tree];

    /// Name as printed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Direct => "direct",
            Algorithm::Ring => "ring",
            Algorithm::Halving => "halving",
            Algorithm::Tree => "tree",
        }
    }

    /// Whether it is [`Algorithm::Direct`].
    #[must_use]
    #[allow(clippy::trivially_copy_pass_by_ref)]
    pub fn is_direct(&self) -> bool {
        *self == Algorithm::Direct
    }

    /// Whether a collective of this kind can be carried out so.
    #[must_use]
    pub fn fits(self, transition: Transition, mesh: &Mesh) -> bool {
        let even = mesh.group_size(transition.axes).is_power_of_two();
        match (self, transition.kind) {
            (Algorithm::Direct, _)
            | (Algorithm::Ring, TransitionKind::AllReduce | TransitionKind::AllGather)
            | (Algorithm::Tree, TransitionKind::AllReduce) => true,
            (Algorithm::Halving, TransitionKind::AllReduce) => even,
            (Algorithm::Halving, TransitionKind::AllGather) => even && transition.axes.len() == 1,
            (Algorithm::Ring | Algorithm::Halving | Algorithm::Tree, _) => false,
        }
    }

    /// That a collective can be carried out so.
    ///
    /// # Errors
    /// [`Algorithm::fits`] says no.
    pub fn check(self, transition: Transition, mesh: &Mesh) -> Result<(), Error> {
        if self.fits(transition, mesh) {
            return Ok(());
        }
        let (kind, devices) = (transition.kind, mesh.group_size(transition.axes));
        Err(Error::NoAlgorithm { algorithm: self, kind, devices })
    }

    /// Rounds of a rank that has something to send in each, over a group of p ranks.
    pub(crate) fn rounds(self, kind: TransitionKind, p: usize) -> usize {
        let passes = if kind == TransitionKind::AllReduce { 2 } else { 1 };
        match self {
            Algorithm::Direct | Algorithm::Ring => passes * (p - 1),
            Algorithm::Halving | Algorithm::Tree => {
                passes * p.next_power_of_two().trailing_zeros() as usize
            }
        }
    }
}

impl std::fmt::Display for Algorithm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// One rank's place in its group.
struct Member {
    group: Vec<usize>,
    me: usize,
    rounds: Vec<Round>,
}

impl Member {
    fn round(
        &mut self,
        number: usize,
        out: Option<(usize, Region)>,
        into: Option<(usize, Region, Combine)>,
    ) {
        let send = out.filter(|(_, region)| !region.is_empty()).map(|(to, region)| Send {
            to: self.group[to],
            buffer: Buffer::Result,
            region,
        });
        let receive = into
            .filter(|(_, region, _)| !region.is_empty())
            .map(|(from, region, combine)| Receive { from: self.group[from], region, combine });
        if send.is_some() || receive.is_some() {
            self.rounds.push(Round { number, send, receive });
        }
    }

    /// What is in place `me` goes to the next, and on; `from` is the number of the first round.
    fn pass_on(
        &mut self,
        from: usize,
        first: usize,
        part: impl Fn(usize) -> Region,
        combine: Combine,
    ) {
        let p = self.group.len();
        let (next, previous) = ((self.me + 1) % p, (self.me + p - 1) % p);
        for k in 0..p - 1 {
            let mine = (first + p - k) % p;
            let arrives = (mine + p - 1) % p;
            let into = (previous, part(arrives), combine);
            self.round(from + k, Some((next, part(mine))), Some(into));
        }
    }

    /// Halves what the rank answers for until it is one part; where the partner's half goes.
    fn halve(&mut self, part: impl Fn(Range<usize>) -> Region, combine: Combine) {
        let mut mine = 0..self.group.len();
        let mut distance = self.group.len() / 2;
        let mut number = 0;
        while distance > 0 {
            let middle = mine.start + distance;
            let (low, high) = (mine.start..middle, middle..mine.end);
            let (kept, given) = if self.me & distance == 0 { (low, high) } else { (high, low) };
            let partner = self.me ^ distance;
            let into = (partner, part(kept.clone()), combine);
            self.round(number, Some((partner, part(given))), Some(into));
            mine = kept;
            distance /= 2;
            number += 1;
        }
    }

    /// Doubles what the rank holds, from its own part to all; `from` is the number of the first round.
    fn double(&mut self, from: usize, part: impl Fn(Range<usize>) -> Region) {
        let mut distance = 1;
        let mut number = from;
        while distance < self.group.len() {
            let start = self.me & !(distance - 1);
            let theirs = start ^ distance;
            let partner = self.me ^ distance;
            self.round(
                number,
                Some((partner, part(start..start + distance))),
                Some((partner, part(theirs..theirs + distance), Combine::Copy)),
            );
            distance *= 2;
            number += 1;
        }
    }

    /// Up a binomial tree to the first rank, and down again.
    fn climb(&mut self, whole: &Region, combine: Combine) {
        let (p, me) = (self.group.len(), self.me);
        let levels = p.next_power_of_two().trailing_zeros() as usize;
        let all = || whole.clone();
        for level in 0..levels {
            let distance = 1 << level;
            if me.is_multiple_of(2 * distance) && me + distance < p {
                self.round(level, None, Some((me + distance, all(), combine)));
            } else if me % (2 * distance) == distance {
                self.round(level, Some((me - distance, all())), None);
            }
        }
        for (down, level) in (0..levels).rev().enumerate() {
            let (number, distance) = (levels + down, 1 << level);
            if me.is_multiple_of(2 * distance) && me + distance < p {
                self.round(number, Some((me + distance, all())), None);
            } else if me % (2 * distance) == distance {
                self.round(number, None, Some((me - distance, all(), Combine::Copy)));
            }
        }
    }
}

/// What one rank does in an all_reduce of its block.
pub(crate) fn all_reduce(
    transition: Transition,
    mesh: &Mesh,
    source: &Block,
    combine: Combine,
    rank: usize,
) -> RankSchedule {
    let group = mesh.group(rank, transition.axes);
    let (p, len) = (group.len(), source.len());
    let me = mesh.index_in_group(rank, transition.axes);
    let mut member = Member { group, me, rounds: Vec::new() };
    let chunk = |i: usize| Region::Flat(split(len, p, i));
    let chunks = |range: Range<usize>| {
        Region::Flat(split(len, p, range.start).start..split(len, p, range.end - 1).end)
    };
    match transition.algorithm {
        Algorithm::Direct => {
            return crate::schedule::direct_all_reduce(&member.group, me, len, combine);
        }
        Algorithm::Ring => {
            member.pass_on(0, me, chunk, combine);
            member.pass_on(p - 1, (me + 1) % p, chunk, Combine::Copy);
        }
        Algorithm::Halving => {
            member.halve(chunks, combine);
            member.double(p.trailing_zeros() as usize, chunks);
        }
        Algorithm::Tree => member.climb(&Region::Flat(0..len), combine),
    }
    RankSchedule { start: Start::CopyAll, rounds: member.rounds }
}

/// What one rank does in an all_gather that is not direct.
pub(crate) fn all_gather(
    transition: Transition,
    mesh: &Mesh,
    shape: &[usize],
    from: &Layout,
    rank: usize,
) -> RankSchedule {
    let group = mesh.group(rank, transition.axes);
    let me = mesh.index_in_group(rank, transition.axes);
    let blocks: Vec<Block> =
        group.iter().map(|&r| block_at(shape, from, mesh, &mesh.coords(r))).collect();
    let own = blocks[me].clone();
    let mut member = Member { group, me, rounds: Vec::new() };
    if transition.algorithm == Algorithm::Halving {
        // Neighbouring blocks of one dim make a box.
        member.double(0, |range| {
            let (first, last) = (&blocks[range.start], &blocks[range.end - 1]);
            let ranges = first.ranges.iter().zip(&last.ranges).map(|(a, b)| a.start..b.end);
            Region::Box(Block { ranges: ranges.collect() })
        });
    } else {
        member.pass_on(0, me, |i| Region::Box(blocks[i].clone()), Combine::Copy);
    }
    RankSchedule { start: Start::CopyInto { own, fill: None }, rounds: member.rounds }
}
