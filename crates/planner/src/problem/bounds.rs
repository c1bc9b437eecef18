//! Bounds on the cost of any plan of a program, so that costs can be packed without overflow.

use shardgrad_core::{Layout, Mesh};
use shardgrad_graph::Program;

use crate::values::Values;

/// Bounds on what any plan of the program sums up to, field by field.
pub(super) fn bounds(program: &Program, mesh: &Mesh, values: &Values) -> [u128; 4] {
    let axes = mesh.rank() as u128;
    let mut sums = [1_u128; 4];
    let replicated = Layout::replicated(mesh.rank());
    for id in program.ids() {
        let node = program.node(id);
        let readers =
            (values.users[id.index()].len() + values.outputs[id.index()].len() + 1) as u128;
        let layouts = (node.ty.rank() as u128 + 3).pow(u32::try_from(mesh.rank()).unwrap_or(8));
        // Each reader is at most a reduction and a gather on every axis away.
        let padded = (node.ty.elements() + mesh.size()) as u128 * node.ty.dtype.size() as u128;
        sums[0] += readers * axes * 4 * padded;
        sums[1] += (readers * axes * 4).max(layouts);
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
        sums[3] += node.ty.bytes() as u128 * (readers * axes * 4 + 1);
    }
    sums
}
