//! Collectives as data: what each rank sends and receives, round by round.
//!
//! The direct schedule, which every collective has, is one idea: each element a rank needs comes straight from its
//! one owner. On axes where the source layout is `R` (or pending and staying so) the owner has the receiver's own
//! coordinate, so that replicas share the sending; on axes where it is `S` the element decides; on axes whose pending
//! sum is being reduced every coordinate contributes. In round k of p−1 a rank sends to the peer k ahead of it in the group and
//! receives from the peer k behind, so that the order of additions is fixed by block and group alone.
//!
//! A reshard moves elements and reduces terms in any combination: [`crate::transition`] says when, the module `reshard` how.
//!
//! Some collectives have other [algorithms](crate::algorithm) for the same change, with fewer rounds.
//!
//! The direct `all_reduce` is a reduce_scatter over p flat chunks of the local block followed by an all_gather of them: 2(p−1)/p
//! of the block, the volume of the ring (Rabenseifner 2004; Thakur et al. 2005).
//!
//! [`crate::schedule_proof`] executes schedules on symbolic elements and proves them right.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::algorithm;
use crate::dtype::TensorType;
use crate::geometry::{Block, block_at, split};
use crate::layout::Layout;
use crate::mesh::{AxisSet, Mesh};
use crate::placement::Placement::{self, PendingMax, PendingSum};
use crate::reshard::Reshard;
use crate::transition::{Transition, TransitionKind};

/// A part of a rank's block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Region {
    /// A box, in global indices.
    Box(Block),
    /// A run of the block's row-major elements.
    Flat(Range<usize>),
}

impl Region {
    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Region::Box(block) => block.len(),
            Region::Flat(range) => range.len(),
        }
    }

    /// Whether there is no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a receiver does with elements that arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Combine {
    /// Store them.
    Copy,
    /// Add them.
    Sum,
    /// Keep the larger.
    Max,
}

/// Which of the two buffers a rank sends from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Buffer {
    /// The operand's block.
    Source,
    /// The result's block, as far as it is complete.
    Result,
}

/// Elements to send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Send {
    /// Global rank of the receiver.
    pub to: usize,
    /// Where they are.
    pub buffer: Buffer,
    /// Which they are.
    pub region: Region,
}

/// Elements to receive into the result's block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receive {
    /// Global rank of the sender.
    pub from: usize,
    /// Which they are.
    pub region: Region,
    /// What to do with them.
    pub combine: Combine,
}

/// One round of one rank; the send and the receive are concurrent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// Number of the round, the same on all ranks, which may have nothing to do in some. In rounds of one number,
    /// collectives of one kind and group have the same peers ([`crate::launch`]).
    pub number: usize,
    /// What the rank sends, if anything.
    pub send: Option<Send>,
    /// What it receives, if anything.
    pub receive: Option<Receive>,
}

/// How a rank's result block starts, before the first round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Start {
    /// The identity of the reduction everywhere (0, or −∞ for a maximum), then the elements of this box from the source.
    CopyInto {
        /// What the source gives.
        own: Block,
        /// What the rest holds until it is received: the pending placement whose identity fills it, if any.
        fill: Option<Placement>,
    },
    /// The whole source block, element for element.
    CopyAll,
    /// The identity of the reduction at every element.
    Identity(Placement),
}

/// All that one rank does in a transition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankSchedule {
    /// How its result starts.
    pub start: Start,
    /// Its rounds, in order. Rounds in which it neither sends nor receives are left out.
    pub rounds: Vec<Round>,
}

impl RankSchedule {
    /// Elements sent over all rounds.
    #[must_use]
    pub fn elements_sent(&self) -> usize {
        self.rounds.iter().filter_map(|r| r.send.as_ref()).map(|s| s.region.len()).sum()
    }

    /// Elements of staging: the largest round's message out plus message in.
    #[must_use]
    pub fn staging_elements(&self) -> usize {
        self.rounds
            .iter()
            .map(|r| {
                r.send.as_ref().map_or(0, |s| s.region.len())
                    + r.receive.as_ref().map_or(0, |r| r.region.len())
            })
            .max()
            .unwrap_or(0)
    }
}

/// The axes along which elements may travel from one layout to the other: those where the source is `S` of a dim whose
/// splitting changes, and those whose pending sum is reduced.
#[must_use]
pub fn exchange_axes(mesh: &Mesh, from: &Layout, to: &Layout) -> AxisSet {
    let real = |a: &usize| mesh.axis_size(*a) > 1;
    (0..mesh.rank())
        .filter(real)
        .filter(|&a| match from.on(a) {
            Placement::Shard(dim) => {
                !from.axes_sharding(dim).filter(real).eq(to.axes_sharding(dim).filter(real))
            }
            pending if pending.is_pending() => to.on(a) != pending,
            _ => false,
        })
        .chain(Reshard::new(mesh, &[], from, to).spread().iter())
        .collect()
}

/// What `rank` does in the transition from one layout to another.
///
/// `transition` is [`Transition::between`] these layouts.
#[must_use]
pub fn rank_schedule(
    transition: Transition,
    mesh: &Mesh,
    shape: &[usize],
    from: &Layout,
    to: &Layout,
    rank: usize,
) -> RankSchedule {
    let coords = mesh.coords(rank);
    let source = block_at(shape, from, mesh, &coords);
    let target = block_at(shape, to, mesh, &coords);
    match transition.kind {
        TransitionKind::Relabel => RankSchedule { start: Start::CopyAll, rounds: Vec::new() },
        TransitionKind::Mask => {
            let first = transition.axes.iter().all(|a| coords[a] == 0);
            let pending = transition.axes.iter().next().map_or(PendingSum, |a| to.on(a));
            let start = if first { Start::CopyAll } else { Start::Identity(pending) };
            RankSchedule { start, rounds: Vec::new() }
        }
        TransitionKind::Slice => {
            RankSchedule { start: Start::CopyInto { own: target, fill: None }, rounds: Vec::new() }
        }
        TransitionKind::Pad => {
            let pending = transition.axes.iter().next().map(|a| to.on(a));
            RankSchedule {
                start: Start::CopyInto { own: source, fill: pending },
                rounds: Vec::new(),
            }
        }
        TransitionKind::AllReduce => {
            let combine = reduction(from, transition.axes);
            algorithm::all_reduce(transition, mesh, &source, combine, rank)
        }
        TransitionKind::AllGather if !transition.algorithm.is_direct() => {
            algorithm::all_gather(transition, mesh, shape, from, rank)
        }
        TransitionKind::AllGather | TransitionKind::ReduceScatter | TransitionKind::AllToAll => {
            exchange(mesh, shape, from, to, rank)
        }
        TransitionKind::Reshard => Reshard::new(mesh, shape, from, to).of_rank(rank),
    }
}

/// How the pending placement on these axes combines terms.
pub(crate) fn reduction(from: &Layout, axes: AxisSet) -> Combine {
    if axes.iter().any(|a| from.on(a) == PendingMax) { Combine::Max } else { Combine::Sum }
}

fn exchange(mesh: &Mesh, shape: &[usize], from: &Layout, to: &Layout, rank: usize) -> RankSchedule {
    let axes = exchange_axes(mesh, from, to);
    let group = mesh.group(rank, axes);
    let (p, me) = (group.len(), mesh.index_in_group(rank, axes));
    let reducing = axes.iter().any(|a| from.on(a).is_pending());
    let combine = if reducing { reduction(from, axes) } else { Combine::Copy };
    let source_of = |r: usize| block_at(shape, from, mesh, &mesh.coords(r));
    let target_of = |r: usize| block_at(shape, to, mesh, &mesh.coords(r));
    let (source, target) = (source_of(rank), target_of(rank));
    let rounds = (1..p)
        .map(|k| {
            let (next, previous) = (group[(me + k) % p], group[(me + p - k) % p]);
            let out = source.intersect(&target_of(next));
            let into = source_of(previous).intersect(&target);
            Round {
                number: k - 1,
                send: (!out.is_empty()).then(|| Send {
                    to: next,
                    buffer: Buffer::Source,
                    region: Region::Box(out),
                }),
                receive: (!into.is_empty()).then(|| Receive {
                    from: previous,
                    region: Region::Box(into),
                    combine,
                }),
            }
        })
        .filter(|round| round.send.is_some() || round.receive.is_some())
        .collect();
    RankSchedule { start: Start::CopyInto { own: source.intersect(&target), fill: None }, rounds }
}

/// The direct all_reduce of a block of so many elements, for the `me`-th rank of a group.
pub(crate) fn direct_all_reduce(
    group: &[usize],
    me: usize,
    len: usize,
    combine: Combine,
) -> RankSchedule {
    let p = group.len();
    let chunk = |i: usize| split(len, p, i);
    type Out = (usize, Buffer, Range<usize>);
    let round = |number: usize, out: Out, into: (usize, Range<usize>, Combine)| Round {
        number,
        send: (!out.2.is_empty()).then(|| Send {
            to: group[out.0],
            buffer: out.1,
            region: Region::Flat(out.2),
        }),
        receive: (!into.1.is_empty()).then(|| Receive {
            from: group[into.0],
            region: Region::Flat(into.1),
            combine: into.2,
        }),
    };
    let reduce = (1..p).map(|k| {
        let (next, previous) = ((me + k) % p, (me + p - k) % p);
        round(k - 1, (next, Buffer::Source, chunk(next)), (previous, chunk(me), combine))
    });
    let gather = (1..p).map(|k| {
        let (next, previous) = ((me + k) % p, (me + p - k) % p);
        let (out, into) = ((next, Buffer::Result, chunk(me)), chunk(previous));
        round(p + k - 2, out, (previous, into, Combine::Copy))
    });
    let rounds = reduce.chain(gather).filter(|r| r.send.is_some() || r.receive.is_some()).collect();
    RankSchedule { start: Start::CopyAll, rounds }
}

/// Rounds of a rank that has something to send in each, of a collective between these layouts: what latency counts.
#[must_use]
pub fn rounds(
    transition: Transition,
    mesh: &Mesh,
    shape: &[usize],
    from: &Layout,
    to: &Layout,
) -> usize {
    match transition.kind {
        TransitionKind::Relabel
        | TransitionKind::Slice
        | TransitionKind::Mask
        | TransitionKind::Pad => 0,
        TransitionKind::AllReduce
        | TransitionKind::AllGather
        | TransitionKind::ReduceScatter
        | TransitionKind::AllToAll => {
            let p = mesh.group_size(exchange_axes(mesh, from, to));
            transition.algorithm.rounds(transition.kind, p)
        }
        TransitionKind::Reshard => Reshard::new(mesh, shape, from, to).rounds(),
    }
}

/// Bytes of staging a rank needs at most during the transition: the largest round's message out plus message in.
#[must_use]
pub fn staging_bytes(
    transition: Transition,
    mesh: &Mesh,
    ty: &TensorType,
    from: &Layout,
    to: &Layout,
    rank: usize,
) -> usize {
    rank_schedule(transition, mesh, &ty.shape, from, to, rank).staging_elements() * ty.dtype.size()
}
