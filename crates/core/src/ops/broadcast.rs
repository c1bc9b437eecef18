//! Broadcast: new dims, along which the operand repeats. Explicit, so that its VJP is a sum.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::signature::{Linearity, Signature, plain_labels};
use super::{expect_operands, operand_error};
use crate::dtype::{Shape, TensorType};
use crate::error::Error;

/// Dim i of the operand becomes dim `dims[i]` of the result; the other dims of `shape` are new.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Broadcast {
    /// For each dim of the operand, its place in the result; increasing.
    pub dims: SmallVec<[usize; 4]>,
    /// Shape of the result.
    pub shape: Shape,
}

impl Broadcast {
    /// The dims of the result that the operand does not have.
    pub fn new_dims(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.shape.len()).filter(|d| !self.dims.contains(d))
    }

    pub(super) fn infer(&self, operands: &[TensorType]) -> Result<TensorType, Error> {
        let [a] = expect_operands("broadcast", operands)?;
        let increasing = self.dims.windows(2).all(|w| w[0] < w[1]);
        let fits = self.dims.len() == a.rank()
            && self.dims.iter().zip(&a.shape).all(|(&d, n)| self.shape.get(d) == Some(n));
        if !increasing || !fits {
            return Err(operand_error(
                "broadcast",
                operands,
                format!(
                    "its dims cannot become dims {:?} of {:?}: places must increase and extents be equal; reshape away dims of extent 1 first",
                    self.dims.as_slice(),
                    self.shape.as_slice()
                ),
            ));
        }
        Ok(TensorType { shape: self.shape.clone(), dtype: a.dtype })
    }

    pub(super) fn signature(&self) -> Signature {
        let result = plain_labels(self.shape.len());
        let operand = self.dims.iter().map(|&d| result[d]).collect();
        Signature::new(SmallVec::from_elem(operand, 1), result).linear(Linearity::OneOf(1))
    }
}
