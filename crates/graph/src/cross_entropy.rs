//! Cross entropy with a mask and label smoothing, normalised over the whole batch.
//!
//! With smoothing ε over C classes the target of a row is q = (1 − ε) · onehot(label) + ε / C, and its loss −Σ q · log p. A
//! mask weighs rows: the loss is Σ mask · row / Σ mask, both sums over *all* rows, so that a row counts the same wherever it
//! lies. Where no row is left, the loss and its gradients are 0.
//!
//! As Σ q = 1, a row's loss is log Σ exp(x − m) − Σ q · (x − m) with m the row's maximum, whatever m is. With classes sharded,
//! the maximum and the sum of exp are all that is reduced before the scalar, both of the size of the rows; the gradient
//! exp(x − m) / Σ − q is local, and logits stay where they are.

use std::panic::Location;

use shardgrad_core::ops::Comparison;

use crate::builder::Var;
use crate::error::Error;

/// What logits are compared with.
///
/// ```
/// use shardgrad_core::DType;
/// use shardgrad_graph::{CrossEntropy, Graph};
/// let g = Graph::new("loss", DType::F32);
/// let (logits, labels) = (g.input("logits", [4, 6, 10])?, g.labels("y", [4, 6])?);
/// let mask = g.input("mask", [4, 6])?;
/// let loss = CrossEntropy { labels, mask: Some(mask), smoothing: 0.1 }.mean(logits)?;
/// assert_eq!(loss.ty().to_string(), "f32[]");
/// # Ok::<(), shardgrad_graph::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropy<'g> {
    /// Integer labels, shaped like the logits without their last dim. A masked row has a label too, any class.
    pub labels: Var<'g>,
    /// Weights of rows, not negative: 1 counts, 0 does not. All count where there is none.
    pub mask: Option<Var<'g>>,
    /// ε: the part of a row's target that is spread over all classes.
    pub smoothing: f64,
}

impl<'g> CrossEntropy<'g> {
    /// The weighted mean over all rows.
    ///
    /// # Errors
    /// Labels or mask do not fit the logits, or ε is not in 0..1.
    #[track_caller]
    pub fn mean(&self, logits: Var<'g>) -> Result<Var<'g>, Error> {
        let total = self.total(logits)?;
        match self.mask {
            Some(mask) => total.div(count_of(&[mask])?),
            #[allow(clippy::cast_precision_loss)]
            None => total.scale(1.0 / self.labels.ty().elements() as f64),
        }
    }

    /// The weighted sum over all rows.
    ///
    /// # Errors
    /// As [`CrossEntropy::mean`].
    #[track_caller]
    pub fn total(&self, logits: Var<'g>) -> Result<Var<'g>, Error> {
        let at = Location::caller();
        let ty = logits.ty();
        let bad = |problem: &str| Error::Bad {
            op: "cross_entropy",
            found: [logits, self.labels]
                .iter()
                .chain(&self.mask)
                .map(|v| v.ty().to_string())
                .collect::<Vec<_>>()
                .join(", "),
            problem: problem.to_owned(),
            at,
        };
        let Some((&classes, rows)) = ty.shape.split_last() else {
            return Err(bad("logits must have a last dim of classes"));
        };
        if self.labels.shape().as_slice() != rows || self.labels.ty().dtype.is_float() {
            return Err(bad(
                "labels must be integers shaped like the logits without their last dim",
            ));
        }
        if self.mask.is_some_and(|m| m.shape().as_slice() != rows || m.ty().dtype != ty.dtype) {
            return Err(bad("a mask has the labels' shape and the logits' element type"));
        }
        if !(0.0..1.0).contains(&self.smoothing) {
            return Err(bad("smoothing must be at least 0 and less than 1"));
        }
        let shifted = logits.shifted(rows.len())?;
        let mut log_sums = shifted.exp()?.sum(&[rows.len()])?.log()?;
        let mut target = self.labels.one_hot(classes)?;
        if self.smoothing > 0.0 {
            #[allow(clippy::cast_precision_loss)]
            let spread = self.smoothing / classes as f64;
            target = target.scale(1.0 - self.smoothing)?.add_const(spread)?;
        }
        if let Some(mask) = self.mask {
            target = target.mul(mask.repeated_along(rows.len(), logits)?)?;
            log_sums = log_sums.mul(mask)?;
        }
        log_sums.sum_all()?.sub(target.mul(shifted)?.sum_all()?)
    }
}

/// What the sum of masked rows is divided by: the sum of all masks, 1 where that is 0.
///
/// # Errors
/// No mask, or masks of different element types.
#[track_caller]
pub fn count_of<'g>(masks: &[Var<'g>]) -> Result<Var<'g>, Error> {
    let at = Location::caller();
    let Some((first, rest)) = masks.split_first() else {
        let (found, problem) = ("no mask".to_owned(), "there is nothing to count".to_owned());
        return Err(Error::Bad { op: "count_of", found, problem, at });
    };
    let count = rest.iter().try_fold(first.sum_all()?, |sum, mask| sum.add(mask.sum_all()?))?;
    count.add(count.compare_const(Comparison::Eq, 0.0)?)
}
