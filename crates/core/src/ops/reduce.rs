//! Sum and max over dims; the dims vanish.

use std::fmt;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::signature::{Linearity, Reduction, Signature, plain_labels};
use super::{expect_operands, operand_error};
use crate::dtype::TensorType;
use crate::error::Error;

/// Dims to reduce: sorted, each once.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<usize>")]
pub struct ReduceDims(SmallVec<[usize; 4]>);

impl ReduceDims {
    /// The dims, sorted, repeats dropped.
    #[must_use]
    pub fn new(dims: impl IntoIterator<Item = usize>) -> Self {
        let mut dims: SmallVec<[usize; 4]> = dims.into_iter().collect();
        dims.sort_unstable();
        dims.dedup();
        Self(dims)
    }

    /// The dims, in order.
    #[must_use]
    pub fn dims(&self) -> &[usize] {
        &self.0
    }
}

impl From<Vec<usize>> for ReduceDims {
    fn from(dims: Vec<usize>) -> Self {
        Self::new(dims)
    }
}

impl fmt::Display for ReduceDims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0.as_slice())
    }
}

pub(super) fn infer(
    op: &'static str,
    dims: &ReduceDims,
    operands: &[TensorType],
) -> Result<TensorType, Error> {
    let [a] = expect_operands(op, operands)?;
    if let Some(dim) = dims.0.iter().find(|&&d| d >= a.rank()) {
        return Err(operand_error(op, operands, format!("there is no dim {dim} to reduce")));
    }
    let kept = a.shape.iter().enumerate().filter(|(d, _)| !dims.0.contains(d)).map(|(_, &n)| n);
    Ok(TensorType::new(kept, a.dtype))
}

/// A sum is linear; a max is monotone.
pub(super) fn signature(dims: &ReduceDims, rank: usize, reduction: Reduction) -> Signature {
    let labels = plain_labels(rank);
    let kept =
        labels.iter().enumerate().filter(|(d, _)| !dims.0.contains(d)).map(|(_, &l)| l).collect();
    let signature = Signature::new(SmallVec::from_elem(labels, 1), kept);
    let signature = if dims.0.is_empty() { signature } else { signature.reducing(reduction) };
    match reduction {
        Reduction::Sum => signature.linear(Linearity::OneOf(1)),
        Reduction::Max => signature.monotone(true),
    }
}
