//! Values without operands: leaves and fills.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::signature::{Signature, plain_labels};
use super::{Const, expect_operands};
use crate::dtype::TensorType;
use crate::error::Error;

/// What a leaf is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Data of one step: inputs, targets.
    Input,
    /// A trained parameter.
    Param,
    /// Optimizer state.
    State,
    /// A scalar that the caller sets each step (learning rate, bias corrections); always replicated.
    Scalar,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Input => "input",
            Role::Param => "param",
            Role::State => "state",
            Role::Scalar => "scalar",
        })
    }
}

/// A named stored value. Any layout without pending terms; which one is decided by pins.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Leaf {
    /// Name, unique in the program.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// Shape and element type.
    pub ty: TensorType,
}

impl Leaf {
    pub(super) fn infer(&self, operands: &[TensorType]) -> Result<TensorType, Error> {
        expect_operands::<0>("leaf", operands)?;
        Ok(self.ty.clone())
    }
}

/// The constant `value` at every element.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fill {
    /// The constant.
    pub value: Const,
    /// Shape and element type.
    pub ty: TensorType,
}

impl Fill {
    pub(super) fn infer(&self, operands: &[TensorType]) -> Result<TensorType, Error> {
        expect_operands::<0>("fill", operands)?;
        Ok(self.ty.clone())
    }
}

/// Every dim is a label of its own: replicated or sharded at will, never pending.
pub(super) fn signature(rank: usize) -> Signature {
    Signature::new(smallvec::SmallVec::new(), plain_labels(rank))
}
