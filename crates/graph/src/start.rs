//! How a parameter starts, where it should not start as parameters usually do.

use serde::{Deserialize, Serialize};

/// Initial values of a parameter. Whoever trains a program draws them by global element, so that every layout starts equal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// The same value everywhere.
    Constant(f64),
    /// Uniform between −bound and bound.
    Uniform(f64),
    /// Normal with mean 0 and this standard deviation.
    Normal(f64),
}
