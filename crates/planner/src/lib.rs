//! # shardgrad-planner
//!
//! The exact collective planner: from a program, a mesh and a layout request to the plan of least communication.
//!
//! | module | owns |
//! |---|---|
//! | [`request`], [`presets`] | what users ask for |
//! | [`demands`] | what that means for each value and layer |
//! | [`layouts`] | the numbered layouts of a tensor |
//! | [`space`] | the ways to compute one op |
//! | [`steiner`] | the ways to carry one value to all its readers |
//! | [`values`], [`problem`] | the program as a network of cost functions |
//! | [`search`] | exact minimisation |
//! | [`certify`] | what proves it |
//! | [`memory`] | plans under a memory limit |
//! | [`redistribution`] | the cheapest conversion between any two layouts |
//! | [`build`], [`explain`] | from the minimum to a plan with reasons |
//! | [`remedy`] | what would spare a collective, proved |
//! | [`combine`] | small collectives as one launch |
//! | [`overlap`] | starts early, waits late |
//! | [`planner`] | the entry, [`plan`] |
//!
//! The search minimises, over one choice of rule per op and axis, the sum of what ops cost and what carrying each value
//! to its readers costs; both are exact, so the plan is optimal in the plan space. Optimality is that of the plan before
//! its collectives are combined, which changes neither bytes nor values.

pub mod build;
pub mod certify;
pub mod combine;
pub mod cost;
pub mod demands;
pub mod error;
pub mod explain;
pub mod layouts;
pub mod memory;
pub mod options;
pub mod overlap;
pub mod planner;
pub mod presets;
pub mod problem;
pub mod redistribution;
pub mod remedy;
mod reorder;
pub mod request;
pub mod search;
pub mod space;
pub mod steiner;
pub mod values;

pub use cost::Cost;
pub use error::Error;
pub use memory::{Front, Point};
pub use options::{Combine, Objective, Options, Redundant};
pub use planner::{Planned, cost_of, pareto, plan};
pub use presets::{Preset, Split};
pub use remedy::{Change, Remedies, Remedy, remedies};
pub use request::{Free, LayoutRequest, Presets};
