//! Seconds that ops and transitions take, by the α–β machine model.
//!
//! A collective runs the rounds of its schedule, each with the latency α of the slowest axis it runs over, and sends its
//! bytes at the bandwidth of the slowest (Hockney 1994). Everything else takes the longer of computing its flops and
//! touching its bytes (the roofline of Williams, Waterman and Patterson 2009). Counts are those of the largest rank.

use crate::algorithm::Algorithm;
use crate::dtype::TensorType;
use crate::geometry::largest_block;
use crate::layout::Layout;
use crate::machine::Machine;
use crate::mesh::Mesh;
use crate::schedule;
use crate::transition::{Transition, TransitionKind};

/// Bytes of a value on the largest rank.
#[must_use]
pub fn largest_bytes(mesh: &Mesh, ty: &TensorType, layout: &Layout) -> u64 {
    (largest_block(&ty.shape, layout, mesh) * ty.dtype.size()) as u64
}

/// Seconds to compute so many flops while so many bytes of memory are read or written.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn compute_seconds(machine: &Machine, flops: u64, touched: u64) -> f64 {
    (flops as f64 / machine.flops).max(touched as f64 / machine.memory_bandwidth)
}

/// Seconds that a transition of a tensor takes: latency and bytes of a collective, memory traffic of a local one.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn transition_seconds(
    machine: &Machine,
    mesh: &Mesh,
    transition: Transition,
    ty: &TensorType,
    from: &Layout,
    to: &Layout,
) -> f64 {
    if transition.kind == TransitionKind::Relabel {
        return 0.0;
    }
    if !transition.kind.is_collective() {
        let touched = largest_bytes(mesh, ty, from) + largest_bytes(mesh, ty, to);
        return compute_seconds(machine, 0, touched);
    }
    let rounds = schedule::rounds(transition, mesh, &ty.shape, from, to);
    let sent = transition.bytes_sent(mesh, ty, from, to);
    let links = transition.axes.iter().map(|a| machine.link(&mesh.axes()[a].name));
    let latency = links.clone().map(|l| l.latency).fold(0.0, f64::max);
    let bandwidth = links.map(|l| l.bandwidth).fold(f64::INFINITY, f64::min);
    latency * rounds as f64 + sent as f64 / bandwidth
}

/// The transition by the algorithm that takes least time for this tensor, the first of equals, and its seconds. A ring takes
/// what the direct schedule takes in this model.
#[must_use]
pub fn fastest(
    machine: &Machine,
    mesh: &Mesh,
    transition: Transition,
    ty: &TensorType,
    from: &Layout,
    to: &Layout,
) -> (Transition, f64) {
    let mut best = transition.by(Algorithm::Direct);
    let mut least = transition_seconds(machine, mesh, best, ty, from, to);
    for algorithm in [Algorithm::Halving, Algorithm::Tree] {
        if algorithm.fits(transition, mesh) {
            let other = transition.by(algorithm);
            let seconds = transition_seconds(machine, mesh, other, ty, from, to);
            if seconds < least {
                (best, least) = (other, seconds);
            }
        }
    }
    (best, least)
}
