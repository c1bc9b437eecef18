//! Iota: the global index along a dim, as a value.

use serde::{Deserialize, Serialize};

use super::{expect_operands, operand_error};
use crate::dtype::{DType, TensorType};
use crate::error::Error;

/// Element [.., i, ..] is i, the index along `dim`. Every rank counts from where its block lies, so the dims are split at will.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Iota {
    /// The dim that is counted.
    pub dim: usize,
    /// Shape and element type.
    pub ty: TensorType,
}

impl Iota {
    pub(super) fn infer(&self, operands: &[TensorType]) -> Result<TensorType, Error> {
        expect_operands::<0>("iota", operands)?;
        let refuse =
            |problem: String| Err(operand_error("iota", std::slice::from_ref(&self.ty), problem));
        let Some(&extent) = self.ty.shape.get(self.dim) else {
            return refuse(format!("there is no dim {} to count", self.dim));
        };
        let most: u64 = match self.ty.dtype {
            DType::F32 => 1 << 24,
            DType::F64 => 1 << 53,
            DType::I32 => 1 << 31,
            DType::I64 => 1 << 63,
        };
        if extent as u64 > most {
            return refuse(format!("the type holds whole numbers up to {most} only"));
        }
        Ok(self.ty.clone())
    }
}
