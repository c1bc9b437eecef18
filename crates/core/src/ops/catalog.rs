//! One instance of every row of the table, with small uneven shapes: what the docs list and the tests walk.

use super::{
    Broadcast, Comparison, Const, CumSum, Fill, Iota, Op, Pad, ReduceDims, Role, Slice, Unary,
    Uniform,
};
use crate::dtype::{DType, TensorType};
use crate::ops::Leaf;

/// An op with operand types it accepts.
pub struct Row {
    /// The op.
    pub op: Op,
    /// Types of its operands.
    pub operands: Vec<TensorType>,
}

fn f64s<const N: usize>(shape: [usize; N]) -> TensorType {
    TensorType::new(shape, DType::F64)
}

fn i64s<const N: usize>(shape: [usize; N]) -> TensorType {
    TensorType::new(shape, DType::I64)
}

/// An einsum that is known to be well formed.
fn einsum(text: &str) -> Op {
    match text.parse() {
        Ok(einsum) => Op::Einsum(einsum),
        Err(error) => unreachable!("{error}"),
    }
}

/// Every row of the table of ops.
#[must_use]
pub fn rows() -> Vec<Row> {
    let (matrix, vector) = (f64s([5, 3]), f64s([5]));
    let mut rows = Vec::new();
    let mut row = |op: Op, operands: Vec<TensorType>| rows.push(Row { op, operands });
    row(Op::Leaf(Leaf { name: "x".to_owned(), role: Role::Input, ty: matrix.clone() }), vec![]);
    row(Op::Fill(Fill { value: Const::new(2.0), ty: matrix.clone() }), vec![]);
    for dim in [0, 1] {
        row(Op::Iota(Iota { dim, ty: matrix.clone() }), vec![]);
    }
    row(Op::Uniform(Uniform { stream: 1, ty: matrix.clone() }), vec![i64s([])]);
    row(einsum("mk,kn->mn"), vec![f64s([5, 3]), f64s([3, 4])]);
    row(einsum("bmk,bkn->bmn"), vec![f64s([2, 5, 3]), f64s([2, 3, 4])]);
    row(einsum("bi,bo->io"), vec![f64s([5, 3]), f64s([5, 4])]);
    row(einsum("bo,io->bi"), vec![f64s([5, 4]), f64s([3, 4])]);
    row(einsum("a,b->ab"), vec![f64s([5]), f64s([3])]);
    row(einsum("ab->ba"), vec![matrix.clone()]);
    for op in [Op::Add, Op::Sub, Op::Mul, Op::Div, Op::Maximum, Op::Minimum] {
        row(op, vec![matrix.clone(), matrix.clone()]);
    }
    row(Op::Where, vec![matrix.clone(), matrix.clone(), matrix.clone()]);
    row(Op::Scale(Const::new(3.0)), vec![matrix.clone()]);
    row(Op::Scale(Const::new(-3.0)), vec![matrix.clone()]);
    row(Op::AddConst(Const::new(0.5)), vec![matrix.clone()]);
    for unary in Unary::ALL {
        row(Op::Unary(unary), vec![matrix.clone()]);
    }
    for comparison in Comparison::ALL {
        row(Op::Compare(comparison), vec![matrix.clone(), matrix.clone()]);
        row(Op::CompareConst(comparison, Const::new(0.5)), vec![matrix.clone()]);
    }
    for dtype in [DType::I32, DType::F32] {
        row(Op::Cast(dtype), vec![matrix.clone()]);
    }
    row(Op::Cast(DType::F64), vec![i64s([5, 3])]);
    for dims in [vec![0], vec![1], vec![0, 1]] {
        row(Op::Sum(ReduceDims::new(dims.clone())), vec![matrix.clone()]);
        row(Op::Max(ReduceDims::new(dims)), vec![matrix.clone()]);
    }
    for (dim, reverse) in [(0, false), (1, true)] {
        row(Op::CumSum(CumSum { dim, reverse }), vec![matrix.clone()]);
    }
    let broadcast = |dims: &[usize], shape: &[usize]| {
        Op::Broadcast(Broadcast {
            dims: dims.iter().copied().collect(),
            shape: shape.iter().copied().collect(),
        })
    };
    row(broadcast(&[0], &[5, 3]), vec![vector.clone()]);
    row(broadcast(&[1], &[3, 5]), vec![vector.clone()]);
    row(broadcast(&[], &[5, 3]), vec![f64s([])]);
    row(Op::Transpose([1, 0].into_iter().collect()), vec![matrix.clone()]);
    row(Op::Transpose([2, 0, 1].into_iter().collect()), vec![f64s([2, 5, 3])]);
    row(Op::Reshape([8, 3].into_iter().collect()), vec![f64s([4, 6])]);
    row(Op::Reshape([24].into_iter().collect()), vec![f64s([4, 6])]);
    row(Op::Reshape([4, 6].into_iter().collect()), vec![f64s([24])]);
    row(Op::Reshape([5, 3].into_iter().collect()), vec![f64s([5, 1, 3])]);
    let slice = |dim, start, stop, step| Op::Slice(Slice { dim, start, stop, step });
    row(slice(0, 1, 4, 1), vec![matrix.clone()]);
    row(slice(1, 0, 3, 2), vec![matrix.clone()]);
    row(slice(0, 1, 8, 2), vec![f64s([8, 3])]);
    let pad = |dim, before, after, between, value| {
        Op::Pad(Pad { dim, before, after, between, value: Const::new(value) })
    };
    row(pad(0, 1, 2, 0, 0.0), vec![matrix.clone()]);
    row(pad(1, 0, 1, 2, 1.5), vec![matrix.clone()]);
    row(pad(0, 1, 0, 1, 0.0), vec![f64s([4, 3])]);
    row(Op::Concat(0), vec![matrix.clone(), f64s([2, 3])]);
    row(Op::Concat(1), vec![f64s([5, 1]), matrix.clone(), f64s([5, 2])]);
    row(Op::OneHot { classes: 4, dtype: DType::F64 }, vec![TensorType::new([5], DType::I32)]);
    row(Op::Lookup { rows: 5 }, vec![matrix.clone(), i64s([4])]);
    row(Op::Lookup { rows: 5 }, vec![vector, i64s([3, 2])]);
    row(Op::ScatterAdd { rows: 4 }, vec![i64s([5]), matrix.clone()]);
    row(Op::ScatterAdd { rows: 4 }, vec![i64s([3, 2]), f64s([3, 2, 2])]);
    row(Op::StopGradient, vec![matrix.clone()]);
    row(Op::Constrain, vec![matrix]);
    rows
}
