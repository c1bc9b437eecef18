//! Uniform: random numbers that depend on a key, a stream and the global element only ([`crate::random`]).

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::signature::{Labels, Signature, plain_labels};
use super::{expect_operands, operand_error};
use crate::dtype::TensorType;
use crate::error::Error;

/// Numbers in [0, 1), drawn by global element under the key that is the operand, an integer scalar.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Uniform {
    /// Tells the draws of a program apart.
    pub stream: u32,
    /// Shape and float type.
    pub ty: TensorType,
}

impl Uniform {
    pub(super) fn infer(&self, operands: &[TensorType]) -> Result<TensorType, Error> {
        let [key] = expect_operands("uniform", operands)?;
        if key.rank() != 0 || key.dtype.is_float() {
            return Err(operand_error("uniform", operands, "the key must be an i32 or i64 scalar"));
        }
        if !self.ty.dtype.is_float() {
            return Err(operand_error("uniform", operands, "it makes f32 or f64 numbers"));
        }
        Ok(self.ty.clone())
    }

    /// All dims of the result are new: each rank draws its block.
    pub(super) fn signature(&self) -> Signature {
        Signature::new(SmallVec::from_elem(Labels::new(), 1), plain_labels(self.ty.rank()))
    }
}
