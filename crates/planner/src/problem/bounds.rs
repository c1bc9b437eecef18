//! Bounds on the cost of any plan of a program, so that costs can be packed without overflow.

use shardgrad_core::price::most_sent;
use shardgrad_core::{Layout, Mesh, Objective, Prices};
use shardgrad_graph::Program;

use crate::values::Values;

/// Bounds on what a best plan of the program sums up to, field by field.
///
/// A best plan carries a value over a tree, or over two where it passes a pin, that makes each layout at most once.
pub(super) fn bounds(
    program: &Program,
    mesh: &Mesh,
    objective: Objective,
    values: &Values,
) -> [u128; 4] {
    let mut sums = [1_u128; 4];
    let replicated = Layout::replicated(mesh.rank());
    for id in program.ids() {
        let node = program.node(id);
        let placements = node.ty.rank() as u128 + 2 + u128::from(values.with_max[id.index()]);
        let steps = 2 * placements.pow(u32::try_from(mesh.rank()).unwrap_or(8));
        // The plan that sends least takes no value farther than to every rank, padded and added up in one all_reduce, and
        // again past a pin: from there it is in any layout for nothing. (Maxima that are sharded on another axis may need
        // twice that; nothing lies above this field, and there is room.) One that takes least time may send more.
        let carried = if objective == Objective::Time { steps } else { 2 };
        sums[0] += carried * most_sent(mesh, &node.ty);
        // No transition counts more than three.
        sums[1] += 3 * steps;
        let types = program.operand_types(id);
        let whole: Vec<&Layout> = types.iter().map(|_| &replicated).collect();
        sums[2] += u128::from(shardgrad_core::cost::flops(
            &node.op,
            mesh,
            &types,
            &node.ty,
            &whole,
            &replicated,
        ));
        sums[3] += node.ty.bytes() as u128 * (steps + 1);
    }
    sums
}

/// Bounds on the fields of an objective, given bounds on those of volume.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(super) fn of_objective(prices: &Prices<'_>, volume: [u128; 4]) -> [u128; 4] {
    match prices.objective {
        Objective::Volume | Objective::Memory => volume,
        Objective::Time => {
            let machine = prices.machine;
            let links: Vec<_> = prices.mesh.axes().iter().map(|a| machine.link(&a.name)).collect();
            let latency = links.iter().map(|l| l.latency).fold(0.0, f64::max);
            let bandwidth = links.iter().map(|l| l.bandwidth).fold(f64::INFINITY, f64::min);
            let [sent, collectives, flops, copies] = volume.map(|n| n as f64);
            let seconds = sent / bandwidth
                + collectives * 2.0 * prices.mesh.size() as f64 * latency
                + flops / machine.flops
                + 4.0 * copies / machine.memory_bandwidth;
            [(seconds * 1e15) as u128 + volume[1], volume[0], volume[1], volume[3]]
        }
    }
}
