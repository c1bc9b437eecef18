//! Transitions: changes of layout that keep the global value, and the bytes they send.
//!
//! | from → to | kind | sent per rank, n bytes in the group, p ranks |
//! |---|---|---|
//! | R → S(d) | slice | 0 |
//! | R → P, R → Pmax | mask | 0 |
//! | S(d) → P, S(d) → Pmax | pad | 0 |
//! | S(d) → R | all_gather | (p−1)/p · n |
//! | P → S(d), Pmax → S(d) | reduce_scatter | (p−1)/p · n |
//! | P → R, Pmax → R | all_reduce | 2(p−1)/p · n |
//! | S(d) → S(e) | all_to_all | (p−1)/p² · n |
//! | any other change, unless an axis becomes pending | reshard | from the geometry |
//! | a change on axes of size 1 only | relabel | 0 |
//!
//! All counts are exact, per rank, from the geometry; the table gives them for even blocks. Slice, pad, all_gather,
//! reduce_scatter and all_to_all need their axis to be the innermost one of the dim that it leaves or enters: with
//! `[S(0), S(0)]` the outer axis alone cannot be gathered, since blocks would interleave. all_gather, reduce_scatter and
//! all_reduce may run over several axes jointly.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::algorithm::Algorithm;
use crate::dtype::TensorType;
use crate::error::Error;
use crate::geometry::block_at;
use crate::layout::Layout;
use crate::mesh::{AxisSet, Mesh};
use crate::placement::Placement::{self, PendingSum, Replicated, Shard};
use crate::reshard::Reshard;
use crate::schedule::rank_schedule;

/// What a transition does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransitionKind {
    /// Only axes of size 1 change: the same blocks under another name.
    Relabel,
    /// Keep the own block; local.
    Slice,
    /// The axis' rank 0 keeps the value, the others hold the identity of the reduction; local.
    Mask,
    /// The own block, the identity of the reduction elsewhere; local.
    Pad,
    /// Every rank ends with the blocks of all.
    AllGather,
    /// Terms are reduced, every rank ends with its block.
    ReduceScatter,
    /// Terms are reduced, every rank ends with the whole.
    AllReduce,
    /// Blocks of one dim become blocks of another.
    AllToAll,
    /// Any other change, unless an axis becomes pending: ranks exchange block intersections, and reduce terms on the way.
    Reshard,
}

impl TransitionKind {
    /// All of them.
    pub const ALL: [TransitionKind; 9] = [
        TransitionKind::Relabel,
        TransitionKind::Slice,
        TransitionKind::Mask,
        TransitionKind::Pad,
        TransitionKind::AllGather,
        TransitionKind::ReduceScatter,
        TransitionKind::AllReduce,
        TransitionKind::AllToAll,
        TransitionKind::Reshard,
    ];

    /// Name as printed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TransitionKind::Relabel => "relabel",
            TransitionKind::Slice => "slice",
            TransitionKind::Mask => "mask",
            TransitionKind::Pad => "pad",
            TransitionKind::AllGather => "all_gather",
            TransitionKind::ReduceScatter => "reduce_scatter",
            TransitionKind::AllReduce => "all_reduce",
            TransitionKind::AllToAll => "all_to_all",
            TransitionKind::Reshard => "reshard",
        }
    }

    /// Whether ranks communicate: the transition is a collective.
    #[must_use]
    pub fn is_collective(self) -> bool {
        match self {
            TransitionKind::Relabel
            | TransitionKind::Slice
            | TransitionKind::Mask
            | TransitionKind::Pad => false,
            TransitionKind::AllGather
            | TransitionKind::ReduceScatter
            | TransitionKind::AllReduce
            | TransitionKind::AllToAll
            | TransitionKind::Reshard => true,
        }
    }
}

impl std::fmt::Display for TransitionKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A single change of layout. The layouts at both ends stand at the graph nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Transition {
    /// What it does.
    pub kind: TransitionKind,
    /// The axes of size > 1 whose placement changes.
    pub axes: AxisSet,
    /// How it is carried out.
    #[serde(default, skip_serializing_if = "Algorithm::is_direct")]
    pub algorithm: Algorithm,
}

impl Transition {
    /// The same change, carried out otherwise. Callers see to it that the algorithm [fits](Algorithm::fits).
    #[must_use]
    pub fn by(self, algorithm: Algorithm) -> Self {
        Self { algorithm, ..self }
    }

    /// The one transition that leads from a layout to another in a single step, direct.
    ///
    /// ```
    /// use shardgrad_core::{Layout, Mesh, Transition, TransitionKind};
    /// let mesh = Mesh::new([("dp", 2), ("tp", 2)])?;
    /// let from = Layout::parse("dp: S(0), tp: P", &mesh)?;
    /// let to = Layout::parse("dp: S(0)", &mesh)?;
    /// assert_eq!(Transition::between(&mesh, &from, &to)?.kind, TransitionKind::AllReduce);
    /// # Ok::<(), shardgrad_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// No single transition leads there: several steps are needed, or (from `Pmax` to `P`, say) none exists.
    pub fn between(mesh: &Mesh, from: &Layout, to: &Layout) -> Result<Self, Error> {
        for layout in [from, to] {
            if layout.0.len() != mesh.rank() {
                return Err(Error::LayoutRank { found: layout.0.len(), mesh: mesh.to_string() });
            }
        }
        let axes: AxisSet =
            (0..mesh.rank()).filter(|&a| from.on(a) != to.on(a) && mesh.axis_size(a) > 1).collect();
        let refuse = |hint| {
            Err(Error::NoTransition {
                from: from.display(mesh).to_string(),
                to: to.display(mesh).to_string(),
                hint,
            })
        };
        let all = |wanted: fn(Placement, Placement) -> bool| {
            axes.iter().all(|a| wanted(from.on(a), to.on(a)))
        };
        let innermost_before = || axes.iter().all(|a| is_innermost(mesh, from, a, axes));
        let innermost_after = || axes.iter().all(|a| is_innermost(mesh, to, a, axes));
        let alone = axes.len() == 1;

        let sharded = |p: Placement| p.sharded_dim().is_some();
        let reduces =
            |t: fn(Placement) -> bool| axes.iter().all(|a| from.on(a).is_pending() && t(to.on(a)));

        let kind = if axes.is_empty() {
            TransitionKind::Relabel
        } else if axes.iter().any(|a| to.on(a).is_pending()) {
            if all(|f, t| f == Replicated && t.is_pending()) {
                if !alone {
                    return refuse("mask one axis at a time");
                }
                TransitionKind::Mask
            } else if all(|f, t| f.sharded_dim().is_some() && t.is_pending()) {
                if !alone {
                    return refuse("pad one axis at a time");
                }
                if !innermost_before() {
                    return refuse("pad the innermost axis of the dim first");
                }
                TransitionKind::Pad
            } else {
                return refuse("mask or pad in a step of its own");
            }
        } else if reduces(|t| t == Replicated) {
            TransitionKind::AllReduce
        } else if reduces(|t| t.sharded_dim().is_some()) && innermost_after() {
            TransitionKind::ReduceScatter
        } else if all(|f, t| f == Replicated && t.sharded_dim().is_some())
            && alone
            && innermost_after()
        {
            TransitionKind::Slice
        } else if all(|f, t| f.sharded_dim().is_some() && t == Replicated) && innermost_before() {
            TransitionKind::AllGather
        } else if alone
            && axes.iter().all(|a| sharded(from.on(a)) && sharded(to.on(a)))
            && innermost_before()
            && innermost_after()
        {
            TransitionKind::AllToAll
        } else {
            TransitionKind::Reshard
        };
        Ok(Self { kind, axes, algorithm: Algorithm::Direct })
    }

    /// What the transition counts where collectives are to be few: 0 if it is local, 1 for a collective, and more for a
    /// reshard that reduces, which makes up to two exchanges, so that named collectives are preferred at equal bytes.
    #[must_use]
    pub fn weight(self, from: &Layout, to: &Layout) -> u64 {
        let reduces = || self.axes.iter().any(|a| from.on(a).is_pending());
        if self.kind != TransitionKind::Reshard || !reduces() {
            return u64::from(self.kind.is_collective());
        }
        2 + u64::from(self.axes.iter().any(|a| from.on(a) != Replicated && to.on(a) == Replicated))
    }

    /// Elements each rank sends, largest over ranks, for a tensor of this shape. 0 for local transitions.
    #[must_use]
    pub fn elements_sent(self, mesh: &Mesh, shape: &[usize], from: &Layout, to: &Layout) -> u64 {
        // The axes that take no part are at coordinate 0, where blocks are largest; so is every axis where more is sent by
        // the rank that holds more.
        let origin = mesh.coords(0);
        let at =
            |coords: &[usize]| self.elements_sent_by(mesh, shape, from, to, mesh.rank_at(coords));
        match self.kind {
            TransitionKind::Relabel
            | TransitionKind::Slice
            | TransitionKind::Mask
            | TransitionKind::Pad => 0,
            TransitionKind::AllReduce | TransitionKind::AllGather
                if !self.algorithm.is_direct() =>
            {
                // By halving and by tree the first rank sends the most, by ring the one whose next two hold the least.
                let group = mesh.group(0, self.axes);
                let p = group.len();
                let candidates = [0, p.saturating_sub(2), p.saturating_sub(3)];
                candidates.map(|i| at(&mesh.coords(group[i]))).into_iter().max().unwrap_or(0)
            }
            TransitionKind::AllReduce | TransitionKind::AllGather => at(&origin),
            // Who keeps least sends most.
            TransitionKind::ReduceScatter => {
                let mut last = origin;
                for axis in self.axes.iter() {
                    last[axis] = mesh.axis_size(axis) - 1;
                }
                at(&last)
            }
            // Along the axis, what is held and what is kept shrinks by one where the extent's remainder ends.
            TransitionKind::AllToAll => self
                .axes
                .iter()
                .flat_map(|axis| {
                    let extents = |layout: &Layout| {
                        let outer = layout.with(axis, Replicated);
                        let dim = layout.on(axis).sharded_dim().unwrap_or(0);
                        block_at(shape, &outer, mesh, &origin).ranges[dim].len()
                    };
                    let p = mesh.axis_size(axis);
                    [0, extents(from) % p, extents(to) % p].map(|c| (axis, c))
                })
                .map(|(axis, coordinate)| {
                    let mut coords = mesh.coords(0);
                    coords[axis] = coordinate;
                    at(&coords)
                })
                .max()
                .unwrap_or(0),
            TransitionKind::Reshard => Reshard::new(mesh, shape, from, to).elements_sent(),
        }
    }

    /// Elements that one rank sends.
    #[must_use]
    pub fn elements_sent_by(
        self,
        mesh: &Mesh,
        shape: &[usize],
        from: &Layout,
        to: &Layout,
        rank: usize,
    ) -> u64 {
        match self.kind {
            TransitionKind::Relabel
            | TransitionKind::Slice
            | TransitionKind::Mask
            | TransitionKind::Pad => 0,
            TransitionKind::AllReduce | TransitionKind::AllGather
                if !self.algorithm.is_direct() =>
            {
                rank_schedule(self, mesh, shape, from, to, rank).elements_sent() as u64
            }
            TransitionKind::AllReduce => {
                let p = mesh.group_size(self.axes);
                let held = block_at(shape, from, mesh, &mesh.coords(rank)).len();
                let own =
                    crate::geometry::split(held, p, mesh.index_in_group(rank, self.axes)).len();
                (held - own + (p - 1) * own) as u64
            }
            TransitionKind::AllGather => {
                let held = block_at(shape, from, mesh, &mesh.coords(rank)).len();
                (held * (mesh.group_size(self.axes) - 1)) as u64
            }
            // The blocks that the group wants are a partition of what the rank holds.
            TransitionKind::ReduceScatter | TransitionKind::AllToAll => {
                let coords = mesh.coords(rank);
                let source = block_at(shape, from, mesh, &coords);
                let kept = source.intersect(&block_at(shape, to, mesh, &coords));
                (source.len() - kept.len()) as u64
            }
            TransitionKind::Reshard => {
                Reshard::new(mesh, shape, from, to).elements_sent_at(&mesh.coords(rank))
            }
        }
    }

    /// Bytes each rank sends, largest over ranks.
    #[must_use]
    pub fn bytes_sent(self, mesh: &Mesh, ty: &TensorType, from: &Layout, to: &Layout) -> u64 {
        self.elements_sent(mesh, &ty.shape, from, to) * ty.dtype.size() as u64
    }
}

/// Whether no axis outside `moving` splits, inside `axis`, the dim that `axis` shards. Axes of size 1 do not split.
fn is_innermost(mesh: &Mesh, layout: &Layout, axis: usize, moving: AxisSet) -> bool {
    let Shard(dim) = layout.on(axis) else {
        return true;
    };
    layout
        .axes_sharding(dim)
        .filter(|&a| a > axis && mesh.axis_size(a) > 1)
        .all(|a| moving.contains(a))
}

/// All layouts of a tensor of this rank on a mesh, in a fixed order, without `Pmax` (and, if `pending` is false, without
/// `P`).
#[must_use]
pub fn all_layouts(mesh: &Mesh, tensor_rank: usize, pending: bool) -> Vec<Layout> {
    let mut choices: SmallVec<[Placement; 8]> = SmallVec::new();
    choices.push(Replicated);
    choices.extend((0..tensor_rank).map(Shard));
    if pending {
        choices.push(PendingSum);
    }
    let mut layouts = vec![Layout(SmallVec::new())];
    for _ in 0..mesh.rank() {
        layouts = layouts
            .into_iter()
            .flat_map(|layout| {
                choices
                    .iter()
                    .map(move |&p| {
                        let mut longer = layout.clone();
                        longer.0.push(p);
                        longer
                    })
                    .collect::<Vec<_>>()
            })
            .collect();
    }
    layouts
}
