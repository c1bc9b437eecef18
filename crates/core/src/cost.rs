//! Floating-point operations of an op on one rank's block.

use crate::dtype::TensorType;
use crate::geometry::block_at;
use crate::layout::Layout;
use crate::mesh::Mesh;
use crate::ops::Op;

/// Flops of `op` on the largest rank: 2·Π(local extents of all labels) for a product of two tensors, one per element of the larger
/// side for everything else that computes, 0 for moves, constants and leaves.
#[must_use]
pub fn flops(
    op: &Op,
    mesh: &Mesh,
    operands: &[TensorType],
    result: &TensorType,
    operand_layouts: &[&Layout],
    result_layout: &Layout,
) -> u64 {
    let origin = mesh.coords(0);
    let local =
        |ty: &TensorType, layout: &Layout| block_at(&ty.shape, layout, mesh, &origin).shape();
    match op {
        Op::Leaf(_)
        | Op::Fill(_)
        | Op::Iota(_)
        | Op::Cast(_)
        | Op::Broadcast(_)
        | Op::Transpose(_)
        | Op::Reshape(_)
        | Op::Slice(_)
        | Op::Pad(_)
        | Op::Concat(_)
        | Op::OneHot { .. }
        | Op::Lookup { .. }
        | Op::StopGradient
        | Op::Constrain
        | Op::Transition(_) => 0,
        Op::Einsum(einsum) => {
            let signature = op.signature(operands, result);
            let shapes: Vec<_> =
                operands.iter().zip(operand_layouts).map(|(t, l)| local(t, l)).collect();
            let work = signature
                .labels()
                .iter()
                .map(|label| {
                    let extents =
                        einsum.operands().iter().zip(&shapes).filter_map(|(labels, s)| {
                            labels.iter().position(|l| l == label).map(|d| s[d] as u64)
                        });
                    extents.min().unwrap_or(1)
                })
                .fold(1, u64::saturating_mul);
            work.saturating_mul(if einsum.operands().len() > 1 { 2 } else { 1 })
        }
        Op::Sum(_) | Op::Max(_) => elements(&local(&operands[0], operand_layouts[0])),
        Op::ScatterAdd { .. } => elements(&local(&operands[1], operand_layouts[1])),
        Op::Uniform(_)
        | Op::CumSum(_)
        | Op::Add
        | Op::Sub
        | Op::Mul
        | Op::Div
        | Op::Maximum
        | Op::Minimum
        | Op::Where
        | Op::Scale(_)
        | Op::AddConst(_)
        | Op::Unary(_)
        | Op::Compare(_)
        | Op::CompareConst(..) => elements(&local(result, result_layout)),
    }
}

fn elements(shape: &[usize]) -> u64 {
    shape.iter().map(|&n| n as u64).fold(1, u64::saturating_mul)
}
