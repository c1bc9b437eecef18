//! Elementwise arithmetic: add, sub, mul, div, scale, and functions of one operand.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::signature::{Linearity, Signature};
use super::{expect_operands, operand_error};
use crate::dtype::TensorType;
use crate::error::Error;

/// A constant attribute. Compared by its bits, so that ops are comparable and hashable.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Const(#[serde(with = "const_text")] f64);

impl Const {
    /// Wraps a value.
    #[must_use]
    pub fn new(value: f64) -> Self {
        Self(value)
    }

    /// The value.
    #[must_use]
    pub fn value(self) -> f64 {
        self.0
    }
}

impl PartialEq for Const {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Const {}

impl std::hash::Hash for Const {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

impl fmt::Display for Const {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// JSON has no NaN or infinity; Rust's text form of an f64 has both and round-trips exactly.
mod const_text {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &f64, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&format_args!("{value:?}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A function of one operand, elementwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unary {
    /// −a.
    Neg,
    /// max(a, 0), with slope 0 at 0.
    Relu,
    /// a/2 · (1 + tanh(√(2/π)(a + 0.044715 a³))), the tanh form (Hendrycks and Gimpel, 2016).
    Gelu,
    /// tanh a.
    Tanh,
    /// 1 / (1 + e⁻ᵃ).
    Sigmoid,
    /// eᵃ.
    Exp,
    /// ln a.
    Log,
    /// √a.
    Sqrt,
    /// a².
    Square,
    /// |a|, with slope 0 at 0.
    Abs,
    /// 1/a.
    Reciprocal,
}

impl Unary {
    /// All of them.
    pub const ALL: [Unary; 11] = [
        Unary::Neg,
        Unary::Relu,
        Unary::Gelu,
        Unary::Tanh,
        Unary::Sigmoid,
        Unary::Exp,
        Unary::Log,
        Unary::Sqrt,
        Unary::Square,
        Unary::Abs,
        Unary::Reciprocal,
    ];

    /// Name as printed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Unary::Neg => "neg",
            Unary::Relu => "relu",
            Unary::Gelu => "gelu",
            Unary::Tanh => "tanh",
            Unary::Sigmoid => "sigmoid",
            Unary::Exp => "exp",
            Unary::Log => "log",
            Unary::Sqrt => "sqrt",
            Unary::Square => "square",
            Unary::Abs => "abs",
            Unary::Reciprocal => "reciprocal",
        }
    }

    /// Neg is linear. `Pmax` passes the monotone ones that are finite or −∞ at −∞, the value empty terms hold;
    /// log and sqrt are NaN there.
    pub(super) fn signature(self, rank: usize) -> Signature {
        let plain = Signature::elementwise(1, rank);
        match self {
            Unary::Neg => plain.linear(Linearity::OneOf(1)),
            Unary::Relu | Unary::Tanh | Unary::Sigmoid | Unary::Exp => plain.monotone(true),
            Unary::Gelu
            | Unary::Log
            | Unary::Sqrt
            | Unary::Square
            | Unary::Abs
            | Unary::Reciprocal => plain,
        }
    }
}

pub(super) fn infer_unary(op: &'static str, operands: &[TensorType]) -> Result<TensorType, Error> {
    let [a] = expect_operands(op, operands)?;
    Ok(a.clone())
}

pub(super) fn infer_float_unary(
    op: &'static str,
    operands: &[TensorType],
) -> Result<TensorType, Error> {
    let [a] = expect_operands(op, operands)?;
    if !a.dtype.is_float() {
        return Err(operand_error(op, operands, "the operand must be f32 or f64"));
    }
    Ok(a.clone())
}

/// N operands of one type.
pub(super) fn infer_same<const N: usize>(
    op: &'static str,
    operands: &[TensorType],
) -> Result<TensorType, Error> {
    let all = expect_operands::<N>(op, operands)?;
    if all.iter().any(|other| *other != operands[0]) {
        let both = if N == 2 { "both" } else { "all" };
        return Err(operand_error(
            op,
            operands,
            format!(
                "{both} operands must have the same shape and element type; broadcast or reshape first"
            ),
        ));
    }
    Ok(operands[0].clone())
}
