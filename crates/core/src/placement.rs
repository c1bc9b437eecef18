//! What one mesh axis does to a tensor.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// What one mesh axis does to a tensor. Printed as `R`, `S(1)`, `P`, `Pmax`.
///
/// DTensor calls these Replicate, Shard and Partial; JAX replicated, sharded and unreduced; OneFlow B, S(i) and P.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Placement {
    /// Every rank of the axis holds the whole tensor.
    Replicated,
    /// Every rank holds its block of this dim (the split rule is in [`crate::geometry`]).
    Shard(usize),
    /// Every rank holds a term; the terms over the axis sum to the tensor.
    PendingSum,
    /// Every rank holds a term; the elementwise maximum over the axis is the tensor.
    PendingMax,
}

impl Placement {
    /// Whether a reduction over the axis is still outstanding.
    #[must_use]
    pub fn is_pending(self) -> bool {
        matches!(self, Placement::PendingSum | Placement::PendingMax)
    }

    /// The sharded dim, if the placement shards one.
    #[must_use]
    pub fn sharded_dim(self) -> Option<usize> {
        match self {
            Placement::Shard(d) => Some(d),
            _ => None,
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Placement::Replicated => f.write_str("R"),
            Placement::Shard(d) => write!(f, "S({d})"),
            Placement::PendingSum => f.write_str("P"),
            Placement::PendingMax => f.write_str("Pmax"),
        }
    }
}

impl FromStr for Placement {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || Error::BadPlacement { found: text.to_owned() };
        match text.trim() {
            "R" => Ok(Placement::Replicated),
            "P" => Ok(Placement::PendingSum),
            "Pmax" => Ok(Placement::PendingMax),
            other => {
                let digits =
                    other.strip_prefix("S(").and_then(|t| t.strip_suffix(')')).ok_or_else(bad)?;
                digits.trim().parse().map(Placement::Shard).map_err(|_| bad())
            }
        }
    }
}

impl Serialize for Placement {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Placement {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips() {
        for p in [
            Placement::Replicated,
            Placement::Shard(0),
            Placement::Shard(12),
            Placement::PendingSum,
            Placement::PendingMax,
        ] {
            assert_eq!(p.to_string().parse::<Placement>().unwrap(), p);
        }
    }

    #[test]
    fn bad_text_is_refused() {
        for text in ["", "S", "S()", "S(-1)", "S(1", "r", "PP", "S(99999999999999999999999)"] {
            assert!(text.parse::<Placement>().is_err(), "{text}");
        }
    }
}
