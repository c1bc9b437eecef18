//! Transpose: a permutation of dims.

use smallvec::SmallVec;

use super::signature::{Linearity, Signature, plain_labels};
use super::{expect_operands, operand_error};
use crate::dtype::TensorType;
use crate::error::Error;

pub(super) fn infer(perm: &[usize], operands: &[TensorType]) -> Result<TensorType, Error> {
    let [a] = expect_operands("transpose", operands)?;
    let mut sorted: SmallVec<[usize; 4]> = perm.iter().copied().collect();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..a.rank()) {
        return Err(operand_error(
            "transpose",
            operands,
            format!("{perm:?} is not a permutation of its {} dims", a.rank()),
        ));
    }
    Ok(TensorType::new(perm.iter().map(|&d| a.shape[d]), a.dtype))
}

pub(super) fn signature(perm: &[usize]) -> Signature {
    let operand = plain_labels(perm.len());
    let result = perm.iter().map(|&d| operand[d]).collect();
    Signature::new(SmallVec::from_elem(operand, 1), result).linear(Linearity::OneOf(1))
}
