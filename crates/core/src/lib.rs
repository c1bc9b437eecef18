//! # shardgrad-core
//!
//! The vocabulary and the tables everything else in shardgrad is made of: how tensors lie on a mesh,
//! which placements an op admits, how a value moves from one layout to another and what that costs.
//!
//! | module | owns |
//! |---|---|
//! | [`placement`] | what one mesh axis does to a tensor: `R`, `S(d)`, `P`, `Pmax` |
//! | [`mesh`] | named axes, ranks, groups |
//! | [`layout`] | one placement per axis, and its text form |
//! | [`geometry`] | the split rule and blocks; nobody else computes an offset |
//! | [`ops`] | every op: attributes, shape inference and signature (the one table of rules) |
//! | [`rules`] | the placements that follow from a signature |
//! | [`random`] | random numbers by global element |
//! | [`reference`](mod@reference) | the page that lists them |
//! | [`transition`] | changes of layout that keep the value, and their bytes |
//! | [`types`] | placements and rules as types |
//! | [`schedule`] | collectives as data: rounds of transfers |
//! | [`algorithm`] | ring, halving and tree |
//! | [`schedule_proof`] | their proof by symbolic execution |
//! | [`launch`] | several collectives as one launch |
//! | [`cost`] | flops of an op on its local block |
//! | [`machine`] | the α–β machine model |
//! | [`price`] | what ops and transitions cost under an objective |
//! | [`timing`] | seconds by that model |
//!
//! This crate knows neither graphs nor arrays.
//!
//! ```
//! use shardgrad_core::{Layout, Mesh, Placement, geometry::block};
//!
//! let mesh = Mesh::new([("dp", 2), ("tp", 2)])?;
//! let layout = Layout::parse("[dp: S(0), tp: R]", &mesh)?;
//! // Rank 3 has coordinates (1, 1): it holds the second half of the rows.
//! assert_eq!(block(&[5, 4], &layout, &mesh, 3).ranges[0], 3..5);
//! assert_eq!(layout.display(&mesh).to_string(), "[dp: S(0), tp: R]");
//! # Ok::<(), shardgrad_core::Error>(())
//! ```

pub mod algorithm;
pub mod cost;
pub mod dtype;
pub mod error;
pub mod geometry;
pub mod launch;
pub mod layout;
pub mod machine;
pub mod mesh;
pub mod ops;
pub mod placement;
pub mod price;
pub mod random;
pub mod reference;
mod reshard;
pub mod rules;
pub mod schedule;
pub mod schedule_proof;
pub mod timing;
pub mod transition;
pub mod types;

pub use algorithm::Algorithm;
pub use dtype::{DType, Shape, TensorType};
pub use error::Error;
pub use geometry::Block;
pub use layout::{Layout, LayoutSpec};
pub use machine::Machine;
pub use mesh::{Axis, AxisSet, Mesh};
pub use ops::Op;
pub use placement::Placement;
pub use price::{Objective, Prices};
pub use rules::AxisRule;
pub use transition::{Transition, TransitionKind};
