//! # shardgrad-graph
//!
//! Programs over global tensors, their gradients, their dense meaning, and plans: the same programs with a layout on
//! every node.
//!
//! | module | owns |
//! |---|---|
//! | [`node`], [`program`], [`plan`] | the one IR |
//! | [`builder`] | [`Graph`] and [`Var`]: making programs |
//! | [`memory`] | slots, their lives, the peak |
//! | [`value`] | dense arrays |

pub mod builder;
pub mod error;
pub mod memory;
pub mod node;
pub mod plan;
pub mod program;
pub mod value;

pub use builder::{Graph, Var};
pub use error::Error;
pub use node::{Node, NodeId, Output, OutputRole, Phase};
pub use plan::{Plan, Reason, SlotId, Totals};
pub use program::{Layer, Program};
pub use value::{Element, Value};
