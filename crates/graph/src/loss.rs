//! Losses: float scalars.
//!
//! | loss | definition |
//! |---|---|
//! | sum | sum of all elements; no target |
//! | mse | mean over all elements of (out − target)² |
//! | cross entropy | mean over the rows of log Σ exp(logits) − the label's logit |

use std::panic::Location;

use serde::{Deserialize, Serialize};

use crate::builder::Var;
use crate::error::Error;

/// What is minimised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// The sum of all elements. It has no target.
    Sum,
    /// The mean over all elements of the squared difference to a target of the same type.
    Mse,
    /// The mean over rows of −log softmax(row)\[label\]; the target is integer labels, one a row.
    CrossEntropy,
}

impl Loss {
    /// All of them.
    pub const ALL: [Loss; 3] = [Loss::Sum, Loss::Mse, Loss::CrossEntropy];

    /// Name, as in model files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Loss::Sum => "sum",
            Loss::Mse => "mse",
            Loss::CrossEntropy => "cross_entropy",
        }
    }

    /// The loss of an output.
    ///
    /// Cross entropy goes through [`Var::log_softmax`], and the label's term is the sum of onehot · logp over all
    /// elements: with classes sharded, it is reduced together with the scalar loss.
    ///
    /// # Errors
    /// A target is missing, not wanted, or of the wrong type.
    #[track_caller]
    pub fn of<'g>(self, out: Var<'g>, target: Option<Var<'g>>) -> Result<Var<'g>, Error> {
        let at = Location::caller();
        let bad = |problem: &str| {
            let target = target.map(|t| format!(", {}", t.ty())).unwrap_or_default();
            Error::Bad {
                op: self.name(),
                found: format!("{}{target}", out.ty()),
                problem: problem.to_owned(),
                at,
            }
        };
        match (self, target) {
            (Loss::Sum, None) => out.sum_all(),
            (Loss::Sum, Some(_)) => Err(bad("it takes no target")),
            (Loss::Mse, Some(target)) if target.ty() == out.ty() => {
                out.sub(target)?.square()?.mean_all()
            }
            (Loss::Mse, _) => Err(bad("it takes a target of the output's type")),
            (Loss::CrossEntropy, Some(target)) => {
                let shape = out.shape();
                let Some((&classes, rows)) = shape.split_last() else {
                    return Err(bad("the output must have a last dim of classes"));
                };
                if target.shape().as_slice() != rows || target.ty().dtype.is_float() {
                    return Err(bad(
                        "it takes integer labels shaped like the output without its last dim",
                    ));
                }
                let logp = out.log_softmax(rows.len())?;
                #[allow(clippy::cast_precision_loss)]
                let count = rows.iter().product::<usize>() as f64;
                target.one_hot(classes)?.mul(logp)?.sum_all()?.scale(-1.0 / count)
            }
            (Loss::CrossEntropy, None) => Err(bad("it takes integer labels as its target")),
        }
    }
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
