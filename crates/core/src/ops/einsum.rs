//! Einsum: a sum of products over the labels that the result lacks.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::operand_error;
use super::signature::{Label, Labels, Linearity, Reduction, Signature};
use crate::dtype::{Shape, TensorType};
use crate::error::Error;

/// Labels of an einsum, as in `mk,kn->mn`. One or two operands; no label twice in one operand.
///
/// ```
/// use shardgrad_core::ops::Einsum;
/// let matmul: Einsum = "mk,kn->mn".parse()?;
/// assert_eq!(matmul.to_string(), "mk,kn->mn");
/// assert!("ii->i".parse::<Einsum>().is_err());
/// # Ok::<(), shardgrad_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Einsum {
    operands: SmallVec<[Labels; 2]>,
    result: Labels,
}

impl Einsum {
    /// An einsum from labels.
    ///
    /// # Errors
    /// More than two operands, a label that is no ASCII letter or stands twice in one tensor, a label of the result
    /// that no operand has.
    pub fn new(operands: SmallVec<[Labels; 2]>, result: Labels) -> Result<Self, Error> {
        let einsum = Self { operands, result };
        let bad = |problem: &str| {
            Err(Error::BadEinsum { spec: einsum.to_string(), problem: problem.to_owned() })
        };
        if einsum.operands.is_empty() || einsum.operands.len() > 2 {
            return bad("one or two operands are possible; contract more of them step by step");
        }
        for labels in einsum.operands.iter().chain([&einsum.result]) {
            if !labels.iter().all(char::is_ascii_alphabetic) {
                return bad("labels are ASCII letters");
            }
            if labels.iter().enumerate().any(|(i, l)| labels[..i].contains(l)) {
                return bad("a label may stand only once in each tensor");
            }
        }
        if !einsum.result.iter().all(|l| einsum.operands.iter().any(|o| o.contains(l))) {
            return bad("every label of the result must stand in an operand; broadcast adds dims");
        }
        Ok(einsum)
    }

    /// Labels of the operands.
    #[must_use]
    pub fn operands(&self) -> &[Labels] {
        &self.operands
    }

    /// Labels of the result.
    #[must_use]
    pub fn result(&self) -> &Labels {
        &self.result
    }

    /// Extents of labels for operands that [`super::Op::infer`] accepted.
    #[must_use]
    pub fn extent(&self, label: Label, operands: &[TensorType]) -> Option<usize> {
        self.operands.iter().zip(operands).find_map(|(labels, ty)| {
            labels.iter().position(|&l| l == label).map(|dim| ty.shape[dim])
        })
    }

    pub(super) fn infer(&self, operands: &[TensorType]) -> Result<TensorType, Error> {
        let error = |problem: String| Err(operand_error("einsum", operands, problem));
        if operands.len() != self.operands.len() {
            return error(format!("`{self}` takes {} operand(s)", self.operands.len()));
        }
        let mut extents: SmallVec<[(Label, usize); 6]> = SmallVec::new();
        for (labels, ty) in self.operands.iter().zip(operands) {
            if labels.len() != ty.rank() {
                return error(format!(
                    "`{self}` wants a tensor with {} dims where {ty} stands",
                    labels.len()
                ));
            }
            if ty.dtype != operands[0].dtype {
                return error("all operands must have the same element type".to_owned());
            }
            for (&label, &extent) in labels.iter().zip(&ty.shape) {
                match extents.iter().find(|(l, _)| *l == label) {
                    Some(&(_, other)) if other != extent => {
                        return error(format!(
                            "label `{label}` of `{self}` is {other} in one operand and {extent} in another; they must be equal"
                        ));
                    }
                    Some(_) => {}
                    None => extents.push((label, extent)),
                }
            }
        }
        let shape: Shape =
            self.result.iter().filter_map(|label| self.extent(*label, operands)).collect();
        Ok(TensorType { shape, dtype: operands[0].dtype })
    }

    /// Multilinear: one pending operand makes a pending result.
    pub(super) fn signature(&self) -> Signature {
        let all = (1 << self.operands.len()) - 1;
        let signature = Signature::new(self.operands.clone(), self.result.clone())
            .linear(Linearity::OneOf(all));
        if signature.reduced().is_empty() { signature } else { signature.reducing(Reduction::Sum) }
    }
}

impl FromStr for Einsum {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (operands, result) = text.split_once("->").ok_or_else(|| Error::BadEinsum {
            spec: text.to_owned(),
            problem: "write operands, an arrow and the result, as in `mk,kn->mn`".to_owned(),
        })?;
        let labels = |t: &str| t.trim().chars().collect::<Labels>();
        Self::new(operands.split(',').map(labels).collect(), labels(result))
    }
}

impl fmt::Display for Einsum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, labels) in self.operands.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{}", labels.iter().collect::<String>())?;
        }
        write!(f, "->{}", self.result.iter().collect::<String>())
    }
}

impl Serialize for Einsum {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Einsum {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}
