//! Learning-rate schedules: a factor of the learning rate by step, computed beside the program in f64.

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// How the learning rate goes over the steps, which are counted from 1: a linear warm-up, then a cosine down to a floor if
/// `total` says when it ends, else constant (Loshchilov and Hutter 2017).
///
/// ```
/// use shardgrad_graph::Schedule;
/// let schedule = Schedule { warmup: 4, total: Some(12), floor: 0.1 };
/// assert_eq!(schedule.factor(1), 0.25);
/// assert_eq!(schedule.factor(4), 1.0);
/// assert!((schedule.factor(8) - 0.55).abs() < 1e-15);
/// assert!((schedule.factor(12) - 0.1).abs() < 1e-15);
/// assert_eq!(Schedule::default().factor(7), 1.0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// Steps over which the factor grows from 1/warmup to 1.
    #[serde(default)]
    pub warmup: u64,
    /// The step at which the cosine reaches the floor; without it the factor stays 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// The least factor of the cosine.
    #[serde(default)]
    pub floor: f64,
}

impl Schedule {
    /// The factor of the learning rate in a step.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn factor(self, step: u64) -> f64 {
        if step < self.warmup {
            return step as f64 / self.warmup as f64;
        }
        let Some(total) = self.total.filter(|&t| t > self.warmup) else { return 1.0 };
        let gone = (step - self.warmup) as f64 / (total - self.warmup) as f64;
        let cosine = 0.5 * (1.0 + (std::f64::consts::PI * gone.min(1.0)).cos());
        self.floor + (1.0 - self.floor) * cosine
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// A floor that is no part of 1, or an end before the warm-up is over.
    pub fn validate(self) -> Result<(), Error> {
        let bad = |key: &str, found: String, problem: &str| {
            Err(Error::BadModel { key: key.to_owned(), found, problem: problem.to_owned() })
        };
        if !(0.0..=1.0).contains(&self.floor) {
            return bad("schedule.floor", self.floor.to_string(), "it must lie between 0 and 1");
        }
        match self.total {
            Some(total) if total <= self.warmup => {
                bad("schedule.total", total.to_string(), "it must be more than the warm-up")
            }
            _ => Ok(()),
        }
    }
}
