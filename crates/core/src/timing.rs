//! Seconds that ops and transitions take, by the α–β machine model.
//!
//! A collective runs the rounds of its schedule, each with the latency α of the slowest axis it runs over, and sends its
//! bytes at the bandwidth of the slowest (Hockney 1994). Everything else takes the longer of computing its flops and
//! touching its bytes (the roofline of Williams, Waterman and Patterson 2009). Counts are those of the largest rank.

use crate::algorithm::Algorithm;
use crate::cost;
use crate::dtype::TensorType;
use crate::geometry::largest_block;
use crate::layout::Layout;
use crate::machine::Machine;
use crate::mesh::Mesh;
use crate::ops::Op;
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

/// Seconds that an op takes: it computes its flops, reads its operands and writes its result.
#[must_use]
pub fn op_seconds(
    machine: &Machine,
    mesh: &Mesh,
    op: &Op,
    operands: &[TensorType],
    result: &TensorType,
    operand_layouts: &[&Layout],
    layout: &Layout,
) -> f64 {
    let flops = cost::flops(op, mesh, operands, result, operand_layouts, layout);
    let written = largest_bytes(mesh, result, layout);
    let read = operands.iter().zip(operand_layouts).enumerate().map(|(i, (ty, layout))| {
        let all = largest_bytes(mesh, ty, layout);
        // Of an operand of which only some elements are taken, no more than the result holds are read.
        if op.takes_some_of(i) { all.min(written) } else { all }
    });
    compute_seconds(machine, flops, read.sum::<u64>() + written)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    /// A lookup takes as long as its rows, whatever the table's size; a scatter_add writes the table.
    #[test]
    fn of_a_table_the_rows_that_are_taken_are_read() {
        let machine = Machine { flops: 1e12, memory_bandwidth: 1.0, ..Machine::default() };
        let mesh: Mesh = "tp=2".parse().unwrap();
        let whole = Layout::replicated(1);
        let (ids, rows) = (TensorType::new([4], DType::I32), TensorType::new([4, 8], DType::F32));
        for v in [100, 1000] {
            let table = TensorType::new([v, 8], DType::F32);
            let seconds = |op: Op, operands: [&TensorType; 2], result: &TensorType| {
                let operands = operands.map(Clone::clone);
                op_seconds(&machine, &mesh, &op, &operands, result, &[&whole, &whole], &whole)
            };
            let lookup = seconds(Op::Lookup { rows: v }, [&table, &ids], &rows);
            assert_eq!(lookup, (4 * 4 + 2 * 4 * 8 * 4) as f64);
            let back = seconds(Op::ScatterAdd { rows: v }, [&ids, &rows], &table);
            assert_eq!(back, (4 * 4 + 4 * 8 * 4 + v * 8 * 4) as f64);
        }
    }
}
