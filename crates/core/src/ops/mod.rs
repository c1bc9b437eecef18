//! Every op: its attributes, shape inference and signature. This is the one table of rules.
//!
//! An op says, through its [`Signature`], which labels its dims carry, which labels it reduces, which cannot be split,
//! and how it is linear. All admissible placements follow from that ([`crate::rules`]); the static types, the planner,
//! the checker and `docs/placement-rules.md` come from here.

mod broadcast;
mod cast;
mod compare;
mod concat;
mod cumsum;
mod einsum;
mod elementwise;
mod iota;
mod leaf;
mod lookup;
mod one_hot;
mod reduce;
mod reshape;
mod signature;
mod slice;
mod transpose;
mod uniform;

pub mod catalog;

use std::fmt;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

pub use broadcast::Broadcast;
pub use compare::Comparison;
pub use cumsum::CumSum;
pub use einsum::Einsum;
pub use elementwise::{Const, Unary};
pub use iota::Iota;
pub use leaf::{Fill, Leaf, Role};
pub use reduce::ReduceDims;
pub use signature::{Label, Labels, Linearity, Reduction, Signature};
pub use slice::{Pad, Slice};
pub use uniform::Uniform;

use crate::dtype::{DType, Shape, TensorType};
use crate::error::Error;
use crate::transition::Transition;

/// Most dims a tensor can have.
pub const MAX_RANK: usize = 8;

/// Most elements a tensor can have: so many that the flops of a product of two such tensors still fit 64 bits.
pub const MAX_ELEMENTS: usize = 1 << 40;

/// An op with its attributes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// A named value that exists before the program runs: input, parameter, state, scalar.
    Leaf(Leaf),
    /// The same constant at every element.
    Fill(Fill),
    /// The global index along a dim.
    Iota(Iota),
    /// Random numbers by global element, under an integer scalar as the key.
    Uniform(Uniform),
    /// Sum of products over labels that the result lacks: `mk,kn->mn`.
    Einsum(Einsum),
    /// a + b, elementwise.
    Add,
    /// a − b, elementwise.
    Sub,
    /// a · b, elementwise.
    Mul,
    /// a / b, elementwise.
    Div,
    /// The larger of a and b, elementwise.
    Maximum,
    /// The smaller of a and b, elementwise.
    Minimum,
    /// b where a is not 0, else c, elementwise.
    Where,
    /// c · a for a constant c.
    Scale(Const),
    /// a + c for a constant c.
    AddConst(Const),
    /// A function of one operand, elementwise.
    Unary(Unary),
    /// 1 where the comparison of two operands holds, else 0, in the operands' type.
    Compare(Comparison),
    /// 1 where the comparison with a constant holds, else 0.
    CompareConst(Comparison, Const),
    /// The same numbers in another element type; integers are made by rounding towards zero.
    Cast(DType),
    /// Sum over dims.
    Sum(ReduceDims),
    /// Maximum over dims.
    Max(ReduceDims),
    /// Sums of all elements up to each along a dim.
    CumSum(CumSum),
    /// New dims, along which the operand repeats.
    Broadcast(Broadcast),
    /// Permutation of dims: dim i of the result is dim `perm[i]` of the operand.
    Transpose(SmallVec<[usize; 4]>),
    /// The same elements in row-major order under another shape.
    Reshape(Shape),
    /// Some elements along a dim, at equal distances.
    Slice(Slice),
    /// Elements of one value around and between those along a dim.
    Pad(Pad),
    /// Operands one behind the other along this dim.
    Concat(usize),
    /// A new last dim of classes, 1 at the label's class, else 0.
    OneHot {
        /// Number of classes.
        classes: usize,
        /// Element type of the result.
        dtype: DType,
    },
    /// Rows of a table, the first operand, by the ids that the second holds.
    Lookup {
        /// Number of rows of the table.
        rows: usize,
    },
    /// Rows in which the terms that the second operand holds are added up by the ids that the first holds: the transpose of
    /// [`Op::Lookup`].
    ScatterAdd {
        /// Number of rows of the result.
        rows: usize,
    },
    /// Identity whose gradient is zero.
    StopGradient,
    /// Identity under a name of its own, so that its layout can be pinned; its gradient is the identity.
    Constrain,
    /// Identity that changes the layout; only plans have it.
    Transition(Transition),
}

impl Op {
    /// Name of the op, as printed in programs and errors.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Op::Leaf(_) => "leaf",
            Op::Fill(_) => "fill",
            Op::Iota(_) => "iota",
            Op::Uniform(_) => "uniform",
            Op::Einsum(_) => "einsum",
            Op::Add => "add",
            Op::Sub => "sub",
            Op::Mul => "mul",
            Op::Div => "div",
            Op::Maximum => "maximum",
            Op::Minimum => "minimum",
            Op::Where => "where",
            Op::Scale(_) => "scale",
            Op::AddConst(_) => "add_const",
            Op::Unary(unary) => unary.name(),
            Op::Compare(c) | Op::CompareConst(c, _) => c.name(),
            Op::Cast(_) => "cast",
            Op::Sum(_) => "sum",
            Op::Max(_) => "max",
            Op::CumSum(_) => "cumsum",
            Op::Broadcast(_) => "broadcast",
            Op::Transpose(_) => "transpose",
            Op::Reshape(_) => "reshape",
            Op::Slice(_) => "slice",
            Op::Pad(_) => "pad",
            Op::Concat(_) => "concat",
            Op::OneHot { .. } => "one_hot",
            Op::Lookup { .. } => "lookup",
            Op::ScatterAdd { .. } => "scatter_add",
            Op::StopGradient => "stop_gradient",
            Op::Constrain => "constrain",
            Op::Transition(t) => t.kind.name(),
        }
    }

    /// Type of the result for operands of these types.
    ///
    /// # Errors
    /// Wrong number of operands, shapes or element types that do not fit, too many dims.
    pub fn infer(&self, operands: &[TensorType]) -> Result<TensorType, Error> {
        let result = match self {
            Op::Leaf(leaf) => leaf.infer(operands),
            Op::Fill(fill) => fill.infer(operands),
            Op::Iota(iota) => iota.infer(operands),
            Op::Uniform(uniform) => uniform.infer(operands),
            Op::Einsum(einsum) => einsum.infer(operands),
            Op::Add | Op::Sub | Op::Mul | Op::Div | Op::Maximum | Op::Minimum | Op::Compare(_) => {
                elementwise::infer_same::<2>(self.name(), operands)
            }
            Op::Where => elementwise::infer_same::<3>("where", operands),
            Op::Unary(Unary::Neg) | Op::Scale(_) | Op::AddConst(_) | Op::CompareConst(..) => {
                elementwise::infer_unary(self.name(), operands)
            }
            Op::Unary(_) => elementwise::infer_float_unary(self.name(), operands),
            Op::StopGradient | Op::Constrain | Op::Transition(_) => {
                elementwise::infer_unary(self.name(), operands)
            }
            Op::Cast(dtype) => cast::infer(*dtype, operands),
            Op::Sum(dims) => reduce::infer("sum", dims, operands),
            Op::Max(dims) => reduce::infer("max", dims, operands),
            Op::CumSum(cumsum) => cumsum.infer(operands),
            Op::Broadcast(broadcast) => broadcast.infer(operands),
            Op::Transpose(perm) => transpose::infer(perm, operands),
            Op::Reshape(shape) => reshape::infer(shape, operands),
            Op::Slice(slice) => slice.infer(operands),
            Op::Pad(pad) => pad.infer(operands),
            Op::Concat(dim) => concat::infer(*dim, operands),
            Op::OneHot { classes, dtype } => one_hot::infer(*classes, *dtype, operands),
            Op::Lookup { rows } => lookup::infer(*rows, operands),
            Op::ScatterAdd { rows } => lookup::infer_scatter_add(*rows, operands),
        }?;
        let shown = if operands.is_empty() { std::slice::from_ref(&result) } else { operands };
        let refuse = |problem: String| Err(operand_error(self.name(), shown, problem));
        if result.rank() > MAX_RANK {
            return refuse(format!("a tensor has at most {MAX_RANK} dims"));
        }
        if result.shape.contains(&0) {
            return refuse("every dim must have extent 1 or more".to_owned());
        }
        let elements = result.shape.iter().try_fold(1_usize, |n, &e| n.checked_mul(e));
        if elements.is_none_or(|n| n > MAX_ELEMENTS) {
            return refuse(format!("a tensor has at most 2^{} elements", MAX_ELEMENTS.ilog2()));
        }
        Ok(result)
    }

    /// Labels, reductions and linearity, for operands that [`Op::infer`] accepted and its result.
    #[must_use]
    pub fn signature(&self, operands: &[TensorType], result: &TensorType) -> Signature {
        match self {
            Op::Leaf(_) | Op::Fill(_) | Op::Iota(_) => leaf::signature(result.rank()),
            Op::Uniform(uniform) => uniform.signature(),
            Op::Einsum(einsum) => einsum.signature(),
            Op::Add | Op::Sub => Signature::elementwise(2, result.rank()).linear(Linearity::Joint),
            Op::Mul => Signature::elementwise(2, result.rank()).linear(Linearity::OneOf(0b11)),
            Op::Div => Signature::elementwise(2, result.rank()).linear(Linearity::OneOf(0b01)),
            // The maximum of maxima is the maximum of all.
            Op::Maximum => Signature::elementwise(2, result.rank()).monotone(true),
            Op::Minimum => Signature::elementwise(2, result.rank()),
            Op::Where => Signature::elementwise(3, result.rank()),
            Op::Scale(c) => Signature::elementwise(1, result.rank())
                .linear(Linearity::OneOf(1))
                .monotone(c.value() > 0.0 && result.dtype.is_float()),
            // The least integer, which terms without elements hold, is no −∞: it overflows.
            Op::AddConst(c) => Signature::elementwise(1, result.rank())
                .monotone(c.value() < f64::INFINITY && result.dtype.is_float()),
            Op::Unary(unary) => unary.signature(result.rank()),
            Op::Compare(_) => Signature::elementwise(2, result.rank()),
            Op::CompareConst(..) => Signature::elementwise(1, result.rank()),
            Op::Cast(dtype) => cast::signature(operands[0].dtype, *dtype, result.rank()),
            Op::Sum(dims) => reduce::signature(dims, operands[0].rank(), Reduction::Sum),
            Op::Max(dims) => reduce::signature(dims, operands[0].rank(), Reduction::Max),
            Op::CumSum(cumsum) => cumsum.signature(result.rank()),
            Op::Broadcast(broadcast) => broadcast.signature(),
            Op::Transpose(perm) => transpose::signature(perm),
            Op::Reshape(shape) => reshape::signature(&operands[0].shape, shape),
            Op::Slice(slice) => slice.signature(&operands[0], result),
            Op::Pad(pad) => pad.signature(&operands[0], result),
            Op::Concat(dim) => concat::signature(*dim, operands.len(), result.rank()),
            Op::OneHot { .. } => one_hot::signature(operands[0].rank()),
            Op::Lookup { .. } => lookup::signature(operands),
            Op::ScatterAdd { .. } => lookup::signature_scatter_add(operands),
            Op::StopGradient | Op::Constrain | Op::Transition(_) => {
                Signature::elementwise(1, result.rank()).linear(Linearity::OneOf(1)).monotone(true)
            }
        }
    }

    /// Whether each result element depends on the operands' elements at the same index only, so that the result may
    /// overwrite an operand of the same type.
    #[must_use]
    pub fn is_elementwise(&self) -> bool {
        match self {
            Op::Add
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
            | Op::CompareConst(..) => true,
            Op::Leaf(_)
            | Op::Fill(_)
            | Op::Iota(_)
            | Op::Uniform(_)
            | Op::Einsum(_)
            | Op::Cast(_)
            | Op::Sum(_)
            | Op::Max(_)
            | Op::CumSum(_)
            | Op::Broadcast(_)
            | Op::Transpose(_)
            | Op::Reshape(_)
            | Op::Slice(_)
            | Op::Pad(_)
            | Op::Concat(_)
            | Op::OneHot { .. }
            | Op::Lookup { .. }
            | Op::ScatterAdd { .. }
            | Op::StopGradient
            | Op::Constrain
            | Op::Transition(_) => false,
        }
    }

    /// Whether the result holds the elements of its operand, all of them and no others.
    #[must_use]
    pub fn moves_all(&self) -> bool {
        match self {
            Op::Transition(_)
            | Op::StopGradient
            | Op::Constrain
            | Op::Reshape(_)
            | Op::Broadcast(_)
            | Op::Transpose(_) => true,
            Op::Leaf(_)
            | Op::Fill(_)
            | Op::Iota(_)
            | Op::Uniform(_)
            | Op::Einsum(_)
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
            | Op::CompareConst(..)
            | Op::Cast(_)
            | Op::Sum(_)
            | Op::Max(_)
            | Op::CumSum(_)
            | Op::Slice(_)
            | Op::Pad(_)
            | Op::Concat(_)
            | Op::OneHot { .. }
            | Op::Lookup { .. }
            | Op::ScatterAdd { .. } => false,
        }
    }

    /// The operand whose integers name one of so many things, if there is one: classes of a one-hot, rows of a table.
    #[must_use]
    pub fn names_one_of(&self) -> Option<(usize, usize)> {
        match self {
            Op::OneHot { classes, .. } => Some((0, *classes)),
            Op::Lookup { rows } => Some((1, *rows)),
            Op::ScatterAdd { rows } => Some((0, *rows)),
            Op::Leaf(_)
            | Op::Fill(_)
            | Op::Iota(_)
            | Op::Uniform(_)
            | Op::Einsum(_)
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
            | Op::CompareConst(..)
            | Op::Cast(_)
            | Op::Sum(_)
            | Op::Max(_)
            | Op::CumSum(_)
            | Op::Broadcast(_)
            | Op::Transpose(_)
            | Op::Reshape(_)
            | Op::Slice(_)
            | Op::Pad(_)
            | Op::Concat(_)
            | Op::StopGradient
            | Op::Constrain
            | Op::Transition(_) => None,
        }
    }

    /// Whether the op takes some elements out of an operand and does not look at the others.
    #[must_use]
    pub fn takes_some_of(&self, operand: usize) -> bool {
        matches!(self, Op::Lookup { .. } | Op::Slice(_)) && operand == 0
    }

    /// Whether the result is the operand's buffer under another name: nothing is computed.
    #[must_use]
    pub fn is_alias(&self) -> bool {
        matches!(self, Op::StopGradient | Op::Constrain | Op::Reshape(_))
    }
}

/// `f32[2, 3], f32[3]`.
pub(crate) fn list_types(operands: &[TensorType]) -> String {
    operands.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

pub(crate) fn operand_error(
    op: &'static str,
    operands: &[TensorType],
    problem: impl Into<String>,
) -> Error {
    Error::Operands { op, operands: list_types(operands), problem: problem.into() }
}

/// The operands as an array, or an error that says how many there must be.
pub(crate) fn expect_operands<'a, const N: usize>(
    op: &'static str,
    operands: &'a [TensorType],
) -> Result<&'a [TensorType; N], Error> {
    operands.try_into().map_err(|_| {
        operand_error(op, operands, format!("takes {N} operand(s), not {}", operands.len()))
    })
}

impl fmt::Display for Op {
    /// The op with its attributes, as in `scale(0.5)` or `einsum(mk,kn->mn)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Leaf(leaf) => write!(f, "{} {}", leaf.role, leaf.name),
            Op::Fill(fill) => write!(f, "fill({})", fill.value),
            Op::Iota(iota) => write!(f, "iota({})", iota.dim),
            Op::Uniform(uniform) => write!(f, "uniform({})", uniform.stream),
            Op::Einsum(einsum) => write!(f, "einsum({einsum})"),
            Op::Scale(c) => write!(f, "scale({c})"),
            Op::AddConst(c) => write!(f, "add_const({c})"),
            Op::CompareConst(_, c) => write!(f, "{}_const({c})", self.name()),
            Op::Cast(dtype) => write!(f, "cast({dtype})"),
            Op::Sum(dims) | Op::Max(dims) => write!(f, "{}({dims})", self.name()),
            Op::CumSum(cumsum) => write!(f, "cumsum({cumsum})"),
            Op::Broadcast(b) => {
                write!(f, "broadcast(dims={:?}, shape={:?})", b.dims.as_slice(), b.shape.as_slice())
            }
            Op::Transpose(perm) => write!(f, "transpose({:?})", perm.as_slice()),
            Op::Reshape(shape) => write!(f, "reshape({:?})", shape.as_slice()),
            Op::Slice(slice) => write!(f, "slice({slice})"),
            Op::Pad(pad) => write!(f, "pad({pad})"),
            Op::Concat(dim) => write!(f, "concat({dim})"),
            Op::OneHot { classes, .. } => write!(f, "one_hot({classes})"),
            Op::Lookup { rows } | Op::ScatterAdd { rows } => write!(f, "{}({rows})", self.name()),
            Op::Add
            | Op::Sub
            | Op::Mul
            | Op::Div
            | Op::Maximum
            | Op::Minimum
            | Op::Where
            | Op::Unary(_)
            | Op::Compare(_)
            | Op::StopGradient
            | Op::Constrain
            | Op::Transition(_) => f.write_str(self.name()),
        }
    }
}
