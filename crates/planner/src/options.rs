//! What to minimise, and how far the planner may go.

pub use shardgrad_core::Objective;
use shardgrad_core::{Machine, Mesh, Prices};

/// Whether free contractions may be repeated on every rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Redundant {
    /// Where splits are free, every contraction shares its work on every axis.
    #[default]
    Never,
    /// The objective decides.
    Allow,
}

/// How much small collectives of one kind send in one launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Combine {
    /// So much that the machine's latency hardly matters.
    #[default]
    Auto,
    /// At most so many bytes per device.
    UpTo(u64),
    /// Every collective is a launch of its own.
    Off,
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
    /// The most bytes that a device may hold at once.
    pub memory_limit: Option<u64>,
    /// How collectives are combined, once the plan is found.
    pub combine: Combine,
    /// Whether every collective is waited for at once.
    pub blocking: bool,
}

impl Options {
    /// What ops and transitions cost on a mesh.
    #[must_use]
    pub fn prices<'a>(&'a self, mesh: &'a Mesh) -> Prices<'a> {
        Prices { mesh, objective: self.objective, machine: &self.machine }
    }
}
