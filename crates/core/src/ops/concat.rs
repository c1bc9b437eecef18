//! Concat: operands one behind the other along a dim.

use smallvec::SmallVec;

use super::operand_error;
use super::signature::{Linearity, Signature, plain_labels};
use crate::dtype::TensorType;
use crate::error::Error;

/// All operands agree but for their extent along `dim`.
pub(super) fn infer(dim: usize, operands: &[TensorType]) -> Result<TensorType, Error> {
    let refuse = |problem: String| Err(operand_error("concat", operands, problem));
    let Some(first) = operands.first() else {
        return refuse("it takes at least one operand".to_owned());
    };
    if dim >= first.rank() {
        return refuse(format!("there is no dim {dim} to join along"));
    }
    let mut ty = first.clone();
    for other in &operands[1..] {
        let agrees = other.dtype == ty.dtype
            && other.rank() == ty.rank()
            && (0..ty.rank()).all(|d| d == dim || other.shape[d] == ty.shape[d]);
        if !agrees {
            return refuse(format!("operands must agree in type and in all dims but dim {dim}"));
        }
        ty.shape[dim] = ty.shape[dim].saturating_add(other.shape[dim]);
    }
    Ok(ty)
}

/// Jointly linear. The joined dim cannot be split: a block of the result is no block of each operand.
pub(super) fn signature(dim: usize, operands: usize, rank: usize) -> Signature {
    let labels = plain_labels(rank);
    let joined = labels[dim];
    let mut signature = Signature::new(SmallVec::from_elem(labels.clone(), operands), labels)
        .linear(Linearity::Joint);
    signature.unsplittable.push(joined);
    signature
}
