//! Products with a cotangent that may be a constant.
//!
//! Reverse mode starts from the constant 1. Scaling a constant, repeating it and multiplying by it are done while the
//! graph is built, so that the seed leaves no op behind.

use shardgrad_core::Op;

use crate::builder::Var;
use crate::error::Error;
use crate::grad::constant;

/// The constant that a value is at every element, if it is a fill.
pub(super) fn of(v: Var<'_>) -> Option<f64> {
    match v.graph().node(v.id()).op {
        Op::Fill(fill) => Some(fill.value.value()),
        _ => None,
    }
}

/// c · a.
pub(super) fn scaled(a: Var<'_>, c: f64) -> Result<Var<'_>, Error> {
    match of(a) {
        Some(value) => constant(a.graph(), c * value, a.ty()),
        None if c == 1.0 => Ok(a),
        None => a.scale(c),
    }
}

/// cotangent · factor.
pub(super) fn times<'g>(cotangent: Var<'g>, factor: Var<'g>) -> Result<Var<'g>, Error> {
    match of(cotangent) {
        Some(value) => scaled(factor, value),
        None => cotangent.mul(factor),
    }
}

/// Broadcast: dim i of the value becomes dim `dims[i]` of `shape`.
pub(super) fn repeated<'g>(a: Var<'g>, dims: &[usize], shape: &[usize]) -> Result<Var<'g>, Error> {
    let mut ty = a.ty();
    if ty.shape.as_slice() == shape {
        return Ok(a);
    }
    match of(a) {
        Some(value) => {
            ty.shape = shape.iter().copied().collect();
            constant(a.graph(), value, ty)
        }
        None => a.broadcast(dims, shape),
    }
}
