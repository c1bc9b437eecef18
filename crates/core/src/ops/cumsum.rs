//! Cumulative sum along a dim, from either end.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::signature::{Linearity, Signature};
use super::{expect_operands, operand_error};
use crate::dtype::TensorType;
use crate::error::Error;

/// Element i is the sum of elements 0..=i, or of i and all behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CumSum {
    /// The dim.
    pub dim: usize,
    /// From the end.
    pub reverse: bool,
}

impl CumSum {
    pub(super) fn infer(&self, operands: &[TensorType]) -> Result<TensorType, Error> {
        let [a] = expect_operands("cumsum", operands)?;
        if self.dim >= a.rank() {
            let problem = format!("there is no dim {} to sum along", self.dim);
            return Err(operand_error("cumsum", operands, problem));
        }
        Ok(a.clone())
    }

    /// Linear. A block lacks what the blocks before it sum to, so its dim cannot be split.
    pub(super) fn signature(&self, rank: usize) -> Signature {
        let mut signature = Signature::elementwise(1, rank).linear(Linearity::OneOf(1));
        let label = signature.result[self.dim];
        signature.unsplittable.push(label);
        signature
    }
}

impl fmt::Display for CumSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dim={}, reverse={}", self.dim, self.reverse)
    }
}
