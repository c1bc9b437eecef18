//! One-hot: integer labels become rows with a single 1.

use smallvec::SmallVec;

use super::signature::{Signature, plain_labels};
use super::{expect_operands, operand_error};
use crate::dtype::{DType, TensorType};
use crate::error::Error;

pub(super) fn infer(
    classes: usize,
    dtype: DType,
    operands: &[TensorType],
) -> Result<TensorType, Error> {
    let [a] = expect_operands("one_hot", operands)?;
    if a.dtype.is_float() {
        return Err(operand_error("one_hot", operands, "labels must be i32 or i64"));
    }
    Ok(TensorType::new(a.shape.iter().copied().chain([classes]), dtype))
}

/// The class dim is new and splittable: a rank marks the labels that fall into its range of global classes.
pub(super) fn signature(rank: usize) -> Signature {
    Signature::new(SmallVec::from_elem(plain_labels(rank), 1), plain_labels(rank + 1))
}
