//! What to minimise, and how far the planner may go.

use shardgrad_core::Machine;

/// What to minimise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Objective {
    /// Bytes sent per device; then collectives; then flops; then bytes of copies.
    #[default]
    Volume,
    /// Seconds of a step by the machine model, nothing overlapping; then as volume.
    Time,
}

impl Objective {
    /// Name as written on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Objective::Volume => "volume",
            Objective::Time => "time",
        }
    }
}

/// Whether free contractions may be repeated on every rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Redundant {
    /// Where splits are free, every contraction shares its work on every axis.
    #[default]
    Never,
    /// The objective decides.
    Allow,
}

/// Options of planning.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// What to minimise.
    pub objective: Objective,
    /// Whether free contractions may be repeated.
    pub redundant: Redundant,
    /// Rates of devices and links.
    pub machine: Machine,
}
