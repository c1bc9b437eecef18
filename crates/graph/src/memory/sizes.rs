//! Bytes per rank of blocks and of staging, without looking at every rank where all are alike.
//!
//! * Where every split is even, all blocks of a layout have one size.
//! * An `all_gather`, `reduce_scatter` or `all_to_all` that exchanges over its own axes only, evenly, needs the same
//!   staging on all ranks.
//! * An `all_reduce` cuts a block of n elements into p flat chunks, the first n mod p one longer. Staging is the own
//!   chunk and the largest other: it depends on the rank only by whether its chunk is a longer one and whether it is the
//!   first.
//! * Any other exchange depends on a rank's coordinates along the axes that exchange or change, and on the extents of the
//!   dims whose splitting stays.
//!
//! Ranks that agree in all sizes form a class. Over more than 4,096 ranks an exchange that needs a look at each is bounded
//! instead: staging is at most a message in the source's or the result's block, and one in the result's.

use std::collections::BTreeMap;

use shardgrad_core::geometry::{block_at, largest_block};
use shardgrad_core::launch::Member;
use shardgrad_core::mesh::Coords;
use shardgrad_core::schedule::{exchange_axes, staging_bytes};
use shardgrad_core::{AxisSet, Layout, Mesh, Shape, TensorType, Transition, TransitionKind};

use super::buckets::of_bucket;
use super::real_axes;

/// Most ranks whose staging is counted one by one; for more of them, which are ranks on paper, a bound is stated.
const MANY: usize = 4096;

/// A number per rank.
#[derive(Clone, Debug)]
pub(super) enum PerRank {
    /// The same on all ranks.
    Same(u64),
    /// One per rank.
    Each(Vec<u64>),
}

impl PerRank {
    pub(super) fn on(&self, rank: usize) -> u64 {
        match self {
            PerRank::Same(n) => *n,
            PerRank::Each(n) => n[rank],
        }
    }
}

/// What a collective's staging depends on.
type StagingKey = (Transition, Shape, Layout, Layout);

/// Sizes that were asked for, each distinct one computed once.
pub(super) struct Sizes<'a> {
    mesh: &'a Mesh,
    columns: Vec<PerRank>,
    blocks: BTreeMap<(Shape, Vec<Option<usize>>, usize), usize>,
    staging: BTreeMap<(StagingKey, usize), usize>,
    buckets: BTreeMap<Vec<(StagingKey, usize)>, usize>,
}

impl<'a> Sizes<'a> {
    pub(super) fn new(mesh: &'a Mesh) -> Self {
        let (blocks, staging, buckets) = Default::default();
        Self { mesh, columns: Vec::new(), blocks, staging, buckets }
    }

    /// Column of the bytes of a tensor's blocks.
    pub(super) fn block(&mut self, ty: &TensorType, layout: &Layout) -> usize {
        let dims = real_axes(self.mesh).map(|a| layout.on(a).sharded_dim()).collect();
        let key = (ty.shape.clone(), dims, ty.dtype.size());
        if let Some(&column) = self.blocks.get(&key) {
            return column;
        }
        let at = |rank| {
            let coords = self.mesh.coords(rank);
            (block_at(&ty.shape, layout, self.mesh, &coords).len() * ty.dtype.size()) as u64
        };
        let sizes = if splits_evenly(self.mesh, &ty.shape, layout) {
            PerRank::Same(at(0))
        } else {
            PerRank::Each((0..self.mesh.size()).map(at).collect())
        };
        self.columns.push(sizes);
        self.blocks.insert(key, self.columns.len() - 1);
        self.columns.len() - 1
    }

    /// Column of the bytes of staging that a collective needs.
    pub(super) fn staging(
        &mut self,
        transition: Transition,
        ty: &TensorType,
        from: &Layout,
        to: &Layout,
    ) -> usize {
        let key = ((transition, ty.shape.clone(), from.clone(), to.clone()), ty.dtype.size());
        if let Some(&column) = self.staging.get(&key) {
            return column;
        }
        self.columns.push(staging(self.mesh, transition, ty, from, to));
        self.staging.insert(key, self.columns.len() - 1);
        self.columns.len() - 1
    }

    /// Column of the bytes of staging that a bucket needs.
    pub(super) fn bucket(&mut self, members: &[Member<'_>]) -> usize {
        let key: Vec<(StagingKey, usize)> = members
            .iter()
            .map(|m| {
                let key = (m.transition, m.ty.shape.clone(), m.from.clone(), m.to.clone());
                (key, m.ty.dtype.size())
            })
            .collect();
        if let Some(&column) = self.buckets.get(&key) {
            return column;
        }
        self.columns.push(of_bucket(self.mesh, members));
        self.buckets.insert(key, self.columns.len() - 1);
        self.columns.len() - 1
    }

    pub(super) fn on(&self, column: usize, rank: usize) -> u64 {
        self.columns[column].on(rank)
    }

    /// Ranks that agree in all columns: the first rank of each class, and the class of every rank.
    pub(super) fn classes(&self) -> (Vec<usize>, Vec<usize>) {
        let varying: Vec<&Vec<u64>> = self
            .columns
            .iter()
            .filter_map(|column| match column {
                PerRank::Same(_) => None,
                PerRank::Each(sizes) => Some(sizes),
            })
            .collect();
        if varying.is_empty() {
            return (vec![0], vec![0; self.mesh.size()]);
        }
        let mut known: BTreeMap<Vec<u64>, usize> = BTreeMap::new();
        let mut first = Vec::new();
        let class_of = (0..self.mesh.size())
            .map(|rank| {
                let sizes = varying.iter().map(|column| column[rank]).collect();
                *known.entry(sizes).or_insert_with(|| {
                    first.push(rank);
                    first.len() - 1
                })
            })
            .collect();
        (first, class_of)
    }
}

/// Whether all blocks have one shape.
pub(super) fn splits_evenly(mesh: &Mesh, shape: &[usize], layout: &Layout) -> bool {
    shape.iter().enumerate().all(|(dim, &extent)| {
        let parts: usize = layout.axes_sharding(dim).map(|axis| mesh.axis_size(axis)).product();
        extent % parts == 0
    })
}

pub(super) fn staging(
    mesh: &Mesh,
    transition: Transition,
    ty: &TensorType,
    from: &Layout,
    to: &Layout,
) -> PerRank {
    let exact = |rank: usize| staging_bytes(transition, mesh, ty, from, to, rank) as u64;
    let even = splits_evenly(mesh, &ty.shape, from) && splits_evenly(mesh, &ty.shape, to);
    match transition.kind {
        TransitionKind::Relabel
        | TransitionKind::Slice
        | TransitionKind::Mask
        | TransitionKind::Pad => PerRank::Same(0),
        TransitionKind::AllReduce if !transition.algorithm.is_direct() => memoized(
            mesh,
            |rank| {
                let len = block_at(&ty.shape, from, mesh, &mesh.coords(rank)).len();
                (len, mesh.index_in_group(rank, transition.axes))
            },
            exact,
        ),
        TransitionKind::AllReduce => {
            let p = mesh.group_size(transition.axes);
            memoized(
                mesh,
                |rank| {
                    let len = block_at(&ty.shape, from, mesh, &mesh.coords(rank)).len();
                    let me = mesh.index_in_group(rank, transition.axes);
                    (len, me < len % p, me == 0)
                },
                exact,
            )
        }
        TransitionKind::AllGather | TransitionKind::ReduceScatter | TransitionKind::AllToAll
            if even && exchange_axes(mesh, from, to) == transition.axes =>
        {
            PerRank::Same(exact(0))
        }
        TransitionKind::AllGather
        | TransitionKind::ReduceScatter
        | TransitionKind::AllToAll
        | TransitionKind::Reshard => {
            let exchanging = exchange_axes(mesh, from, to);
            let touched: AxisSet = exchanging.iter().chain(transition.axes.iter()).collect();
            if mesh.group_size(touched) > MANY {
                // A message lies in the source's block or in the result's.
                let [source, result] = [from, to]
                    .map(|l| (largest_block(&ty.shape, l, mesh) * ty.dtype.size()) as u64);
                return PerRank::Same(source.max(result) + result);
            }
            let real = |axis: &usize| mesh.axis_size(*axis) > 1;
            let stays: Vec<bool> = (0..ty.rank())
                .map(|d| from.axes_sharding(d).filter(real).eq(to.axes_sharding(d).filter(real)))
                .collect();
            memoized(
                mesh,
                |rank| {
                    let coords = mesh.coords(rank);
                    let block = block_at(&ty.shape, from, mesh, &coords).shape();
                    let extents: Shape = block
                        .iter()
                        .zip(&stays)
                        .filter(|(_, stays)| **stays)
                        .map(|(n, _)| *n)
                        .collect();
                    (touched.iter().map(|axis| coords[axis]).collect::<Coords>(), extents)
                },
                exact,
            )
        }
    }
}

/// A number per rank that depends on the rank's key only.
pub(super) fn memoized<K: Ord>(
    mesh: &Mesh,
    key: impl Fn(usize) -> K,
    exact: impl Fn(usize) -> u64,
) -> PerRank {
    let mut known: BTreeMap<K, u64> = BTreeMap::new();
    let sizes: Vec<u64> = (0..mesh.size())
        .map(|rank| *known.entry(key(rank)).or_insert_with(|| exact(rank)))
        .collect();
    match known.len() {
        1 => PerRank::Same(sizes[0]),
        _ => PerRank::Each(sizes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardgrad_core::transition::all_layouts;
    use shardgrad_core::{Algorithm, DType};

    /// Every single transition on uneven and even shapes: the shortcut agrees with the schedule on all ranks.
    #[test]
    fn staging_is_that_of_the_schedule() {
        let meshes = ["a=3", "a=4", "a=2, b=3", "a=2, b=2", "a=1, b=4", "a=2, b=2, c=2"];
        for mesh in meshes.map(|m| m.parse::<Mesh>().unwrap()) {
            for shape in [[4, 4], [5, 3], [1, 7], [12, 6]] {
                let ty = TensorType::new(shape, DType::F32);
                let layouts = all_layouts(&mesh, 2, true);
                for from in &layouts {
                    for to in &layouts {
                        let Ok(transition) = Transition::between(&mesh, from, to) else { continue };
                        let fitting =
                            Algorithm::ALL.into_iter().filter(|a| a.fits(transition, &mesh));
                        for transition in fitting.map(|a| transition.by(a)) {
                            let sizes = staging(&mesh, transition, &ty, from, to);
                            for rank in 0..mesh.size() {
                                let exact =
                                    staging_bytes(transition, &mesh, &ty, from, to, rank) as u64;
                                assert_eq!(
                                    sizes.on(rank),
                                    exact,
                                    "{mesh} {ty} {transition:?} {} to {} on rank {rank}",
                                    from.display(&mesh),
                                    to.display(&mesh)
                                );
                            }
                        }
                    }
                }
            }
        }
    }
}
