//! Ops that only move elements: the cotangent moves back.

use shardgrad_core::ops::Broadcast;

use super::Site;
use crate::builder::Var;
use crate::error::Error;

/// What was repeated is summed.
pub(super) fn broadcast<'g>(site: &Site<'_, 'g>, op: &Broadcast) -> Result<Var<'g>, Error> {
    let repeated: Vec<usize> = op.new_dims().collect();
    if repeated.is_empty() { Ok(site.cotangent) } else { site.cotangent.sum(&repeated) }
}

/// The inverse permutation.
pub(super) fn transpose<'g>(site: &Site<'_, 'g>, perm: &[usize]) -> Result<Var<'g>, Error> {
    let mut inverse = vec![0; perm.len()];
    for (i, &d) in perm.iter().enumerate() {
        inverse[d] = i;
    }
    site.cotangent.transpose(&inverse)
}

/// The operand's shape.
pub(super) fn reshape<'g>(site: &Site<'_, 'g>) -> Result<Var<'g>, Error> {
    site.cotangent.reshape(&site.operands[0].shape())
}
