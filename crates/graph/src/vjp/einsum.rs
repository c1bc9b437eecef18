//! Einsum: the cotangent of an operand is an einsum of the result's cotangent, in that operand's position, with the
//! other operand.
//!
//! Label letters stay, so that a layer's contractions `bi,io->bo`, `bo,io->bi` and `bi,bo->io` share theirs. A label that only the operand
//! itself carries was summed over alone: every element along it has the same cotangent, which is broadcast.

use shardgrad_core::Op;
use shardgrad_core::ops::{Einsum, Labels};
use smallvec::SmallVec;

use super::{Contributions, Site, constant};
use crate::builder::Var;
use crate::error::Error;

pub(super) fn einsum<'g>(site: &Site<'_, 'g>, spec: &Einsum) -> Result<Contributions<'g>, Error> {
    (0..spec.operands().len())
        .map(|position| site.wanted(position, || of_operand(site, spec, position)))
        .collect()
}

fn of_operand<'g>(site: &Site<'_, 'g>, spec: &Einsum, position: usize) -> Result<Var<'g>, Error> {
    let mut labels: SmallVec<[Labels; 2]> = spec.operands().iter().cloned().collect();
    let mut operands = site.operands.clone();
    let own = std::mem::replace(&mut labels[position], spec.result().clone());
    operands[position] = site.cotangent;

    let reached: Labels =
        own.iter().copied().filter(|l| labels.iter().any(|o| o.contains(l))).collect();
    let contracted = if labels.len() == 1 && labels[0] == reached {
        site.cotangent
    } else {
        let at = std::panic::Location::caller();
        let spec =
            Einsum::new(labels, reached.clone()).map_err(|source| Error::Op { source, at })?;
        site.graph.apply(Op::Einsum(spec), &operands)?
    };
    let places: SmallVec<[usize; 4]> =
        (0..own.len()).filter(|&dim| reached.contains(&own[dim])).collect();
    constant::repeated(contracted, &places, &site.operands[position].shape())
}
