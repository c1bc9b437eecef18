//! Ops along one dim: all but padding with a value are linear, and their transposes are of the same kinds.

use shardgrad_core::Op;
use shardgrad_core::ops::{Const, CumSum, Pad, Slice};

use super::{Contributions, Site, constant};
use crate::builder::Var;
use crate::error::Error;

/// Zeros where nothing was taken.
pub(super) fn slice<'g>(site: &Site<'_, 'g>, op: &Slice) -> Result<Var<'g>, Error> {
    let (from, to) = (site.operands[0].shape()[op.dim], site.cotangent.shape()[op.dim]);
    let pad = Pad {
        dim: op.dim,
        before: op.start,
        after: from - 1 - op.start - (to - 1) * op.step,
        between: op.step - 1,
        value: Const::new(0.0),
    };
    site.graph.apply(Op::Pad(pad), &[site.cotangent])
}

/// What the operand's elements became.
pub(super) fn pad<'g>(site: &Site<'_, 'g>, op: &Pad) -> Result<Var<'g>, Error> {
    let stop = site.cotangent.shape()[op.dim] - op.after;
    let slice = Slice { dim: op.dim, start: op.before, stop, step: op.between + 1 };
    part(site.cotangent, slice)
}

/// A slice; of a constant, the constant.
fn part(a: Var<'_>, slice: Slice) -> Result<Var<'_>, Error> {
    let mut ty = a.ty();
    match constant::of(a) {
        Some(value) => {
            ty.shape[slice.dim] = (slice.stop - slice.start).div_ceil(slice.step);
            crate::grad::constant(a.graph(), value, ty)
        }
        None => a.graph().apply(Op::Slice(slice), &[a]),
    }
}

/// Each operand's part.
pub(super) fn concat<'g>(site: &Site<'_, 'g>, dim: usize) -> Result<Contributions<'g>, Error> {
    let mut start = 0;
    let mut parts = Contributions::new();
    for (position, operand) in site.operands.iter().enumerate() {
        let stop = start + operand.shape()[dim];
        let slice = Slice { dim, start, stop, step: 1 };
        parts.push(site.wanted(position, || part(site.cotangent, slice))?);
        start = stop;
    }
    Ok(parts)
}

/// The sum from the other end.
pub(super) fn cumsum<'g>(site: &Site<'_, 'g>, op: &CumSum) -> Result<Var<'g>, Error> {
    let back = CumSum { dim: op.dim, reverse: !op.reverse };
    site.graph.apply(Op::CumSum(back), &[site.cotangent])
}
