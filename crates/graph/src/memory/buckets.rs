//! Bytes of staging that a bucket needs on each rank.
//!
//! The largest round is one of sums over members, so it is not the sum of their largest rounds. Where all blocks are even,
//! every rank needs the same. Else a rank's sums depend on its coordinates along the axes that exchange or change, and on
//! the lengths of its blocks. Over more than 256 ranks of a group, which are ranks on paper, the sum of the members' own
//! staging is stated as a bound.

use shardgrad_core::geometry::block_at;
use shardgrad_core::launch::{self, Member};
use shardgrad_core::mesh::Coords;
use shardgrad_core::schedule::exchange_axes;
use shardgrad_core::{AxisSet, Mesh, TransitionKind};

use super::sizes::{PerRank, memoized, splits_evenly, staging};

/// Most ranks of a group whose staging is counted one by one.
const MANY: usize = 256;

pub(super) fn of_bucket(mesh: &Mesh, members: &[Member<'_>]) -> PerRank {
    let touched: AxisSet = members
        .iter()
        .flat_map(|m| m.transition.axes.iter().chain(exchange_axes(mesh, m.from, m.to).iter()))
        .collect();
    let p = mesh.group_size(touched);
    let exact = |rank: usize| launch::staging_bytes(mesh, members, rank) as u64;
    let len =
        |m: &Member<'_>, rank: usize| block_at(&m.ty.shape, m.from, mesh, &mesh.coords(rank)).len();
    let even = members.iter().all(|m| {
        let blocks =
            splits_evenly(mesh, &m.ty.shape, m.from) && splits_evenly(mesh, &m.ty.shape, m.to);
        let chunks = m.transition.kind != TransitionKind::AllReduce
            || m.transition.algorithm.is_direct() && len(m, 0) % p == 0;
        blocks && chunks && exchange_axes(mesh, m.from, m.to) == m.transition.axes
    });
    if even {
        return PerRank::Same(exact(0));
    }
    if p > MANY {
        let each: Vec<PerRank> =
            members.iter().map(|m| staging(mesh, m.transition, m.ty, m.from, m.to)).collect();
        let sum = |rank| each.iter().map(|sizes| sizes.on(rank)).sum();
        return PerRank::Each((0..mesh.size()).map(sum).collect());
    }
    memoized(
        mesh,
        |rank| {
            let coords = mesh.coords(rank);
            let at: Coords = touched.iter().map(|axis| coords[axis]).collect();
            let lens: Vec<(usize, usize)> = members
                .iter()
                .map(|m| (len(m, rank), block_at(&m.ty.shape, m.to, mesh, &coords).len()))
                .collect();
            (at, lens)
        },
        exact,
    )
}
