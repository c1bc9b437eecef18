//! Sum and max over dims.

use shardgrad_core::Op;
use shardgrad_core::ops::{Comparison, ReduceDims};

use super::Site;
use super::constant::{repeated, times};
use crate::builder::Var;
use crate::error::Error;

/// The dims of an operand of this rank that are not reduced.
fn kept(rank: usize, dims: &ReduceDims) -> Vec<usize> {
    (0..rank).filter(|d| !dims.dims().contains(d)).collect()
}

/// Every summand has the cotangent of the sum.
pub(super) fn sum<'g>(site: &Site<'_, 'g>, dims: &ReduceDims) -> Result<Var<'g>, Error> {
    let shape = site.operands[0].shape();
    repeated(site.cotangent, &kept(shape.len(), dims), &shape)
}

/// The elements that equal the maximum share its cotangent equally: mask · dY / (number of ties).
pub(super) fn max<'g>(site: &Site<'_, 'g>, dims: &ReduceDims) -> Result<Var<'g>, Error> {
    let x = site.operands[0];
    let shape = x.shape();
    let kept = kept(shape.len(), dims);
    let spread = |v: Var<'g>| repeated(v, &kept, &shape);
    let ties = x.compare(Comparison::Eq, spread(site.result)?)?;
    let count = site.graph.apply(Op::Sum(dims.clone()), &[ties])?;
    times(spread(site.cotangent.div(count)?)?, ties)
}
