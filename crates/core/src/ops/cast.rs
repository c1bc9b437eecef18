//! Cast: the same numbers in another element type.

use super::expect_operands;
use super::signature::{Linearity, Signature};
use crate::dtype::{DType, TensorType};
use crate::error::Error;

pub(super) fn infer(dtype: DType, operands: &[TensorType]) -> Result<TensorType, Error> {
    let [a] = expect_operands("cast", operands)?;
    Ok(TensorType { shape: a.shape.clone(), dtype })
}

/// Linear between floats. Integers round towards zero, which terms of a sum must not do one by one; and the sum of
/// integers may be one that its terms are not.
pub(super) fn signature(from: DType, to: DType, rank: usize) -> Signature {
    let plain = Signature::elementwise(1, rank);
    if from.is_float() && to.is_float() { plain.linear(Linearity::OneOf(1)) } else { plain }
}
