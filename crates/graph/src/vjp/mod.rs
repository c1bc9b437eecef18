//! The rule of every op that makes operands' cotangents from the result's (the *vector-Jacobian product*), written with
//! the same ops.
//!
//! A rule may use the operands and the result. It uses the result where that is cheaper or lets the operand's buffer
//! go: relu, tanh, sigmoid, exp, sqrt, reciprocal. Each rule is linear in the cotangent, and is built so that a
//! *pending* cotangent can pass it unreduced: the cotangent meets only replicated factors, in products and sums.

mod along;
mod constant;
mod einsum;
mod elementwise;
mod lookup;
mod reduce;
mod shape;

use shardgrad_core::Op;
use shardgrad_core::ops::Comparison;
use smallvec::{SmallVec, smallvec};

use crate::builder::{Graph, Var};
use crate::error::Error;
use crate::node::Node;

/// Cotangents by operand; `None` where none flows.
pub(crate) type Contributions<'g> = SmallVec<[Option<Var<'g>>; 2]>;

/// What a rule sees.
pub(crate) struct Site<'a, 'g> {
    /// The graph.
    graph: &'g Graph,
    /// The operands.
    operands: SmallVec<[Var<'g>; 2]>,
    /// The result.
    result: Var<'g>,
    /// The result's cotangent, of the same type.
    cotangent: Var<'g>,
    /// Whether the cotangent of this operand is wanted.
    wanted: &'a dyn Fn(usize) -> bool,
}

impl<'g> Site<'_, 'g> {
    /// The rule's value for an operand if that operand's cotangent is wanted.
    fn wanted(
        &self,
        operand: usize,
        rule: impl FnOnce() -> Result<Var<'g>, Error>,
    ) -> Result<Option<Var<'g>>, Error> {
        if (self.wanted)(operand) { rule().map(Some) } else { Ok(None) }
    }
}

/// Whether gradients flow through the op at all.
pub(crate) fn is_differentiable(op: &Op) -> bool {
    match op {
        Op::Leaf(_)
        | Op::Fill(_)
        | Op::Iota(_)
        | Op::Uniform(_)
        | Op::Compare(_)
        | Op::CompareConst(..)
        | Op::OneHot { .. }
        | Op::StopGradient => false,
        Op::Einsum(_)
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
        | Op::Lookup { .. }
        | Op::ScatterAdd { .. }
        | Op::Constrain
        | Op::Transition(_) => true,
    }
}

/// Cotangents of the operands of `node`, whose result is `result`.
pub(crate) fn vjp<'g>(
    graph: &'g Graph,
    node: &Node,
    result: Var<'g>,
    cotangent: Var<'g>,
    wanted: &dyn Fn(usize) -> bool,
) -> Result<Contributions<'g>, Error> {
    let operands = node.operands.iter().map(|&o| graph.var(o)).collect();
    let site = Site { graph, operands, result, cotangent, wanted };
    // What differentiates a layer's op is of the same layer.
    let outside = graph.set_layer(node.layer);
    let contributions = rule(&site, node);
    graph.set_layer(outside);
    contributions
}

fn rule<'g>(site: &Site<'_, 'g>, node: &Node) -> Result<Contributions<'g>, Error> {
    let cotangent = site.cotangent;
    Ok(match &node.op {
        Op::Leaf(_) | Op::Fill(_) | Op::Iota(_) => smallvec![],
        Op::Uniform(_)
        | Op::Compare(_)
        | Op::CompareConst(..)
        | Op::OneHot { .. }
        | Op::StopGradient => {
            smallvec![None; node.operands.len()]
        }
        Op::Einsum(spec) => einsum::einsum(site, spec)?,
        Op::Add => smallvec![Some(cotangent), Some(cotangent)],
        Op::Sub => elementwise::sub(site)?,
        Op::Mul => elementwise::mul(site)?,
        Op::Div => elementwise::div(site)?,
        Op::Maximum => elementwise::extreme(site, Comparison::Gt)?,
        Op::Minimum => elementwise::extreme(site, Comparison::Lt)?,
        Op::Where => elementwise::choose(site)?,
        Op::Scale(c) => smallvec![Some(constant::scaled(cotangent, c.value())?)],
        Op::AddConst(_) | Op::Constrain | Op::Transition(_) => smallvec![Some(cotangent)],
        Op::Unary(unary) => smallvec![Some(elementwise::unary(site, *unary)?)],
        Op::Cast(_) => smallvec![elementwise::cast(site)?],
        Op::Sum(dims) => smallvec![Some(reduce::sum(site, dims)?)],
        Op::Max(dims) => smallvec![Some(reduce::max(site, dims)?)],
        Op::CumSum(cumsum) => smallvec![Some(along::cumsum(site, cumsum)?)],
        Op::Slice(slice) => smallvec![Some(along::slice(site, slice)?)],
        Op::Pad(pad) => smallvec![Some(along::pad(site, pad)?)],
        Op::Concat(dim) => along::concat(site, *dim)?,
        Op::Lookup { rows } => lookup::lookup(site, *rows)?,
        Op::ScatterAdd { rows } => lookup::scatter_add(site, *rows)?,
        Op::Broadcast(broadcast) => smallvec![Some(shape::broadcast(site, broadcast)?)],
        Op::Transpose(perm) => smallvec![Some(shape::transpose(site, perm)?)],
        Op::Reshape(_) => smallvec![Some(shape::reshape(site)?)],
    })
}
