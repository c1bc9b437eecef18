//! # shardgrad-testkit
//!
//! Prove your own sharded code: generators of programs, meshes, layouts and data that reveal faults, comparisons of
//! sharded with dense gradients whose tolerance is derived, and a doctor for gradients that are wrong.
//!
//! | module | owns |
//! |---|---|
//! | [`data`] | data that shows faults |
//! | [`strategies`], [`recipe`], [`case`] | random meshes, layouts, programs and whole cases that shrink |
//! | [`random_plan`] | random plans that are right, with every rule and transition |
//! | [`tolerance`] | how far two runs may differ by rounding: a bound for each element |
//! | [`op_by_op`] | every op of a run by itself, on the operands that the ranks had |
//! | [`equivalence`] | sharded against dense: values, gradients, predictions |
//! | [`collectives`] | assertions on what a plan communicates |
//! | [`simulate`] | a mesh on paper, which follows a plan to the letter |
//! | [`mutate`] | systematic faults in plans, and whether the checker sees them |
//! | [`diagnose`] | what kind of fault turns one gradient into another |
//! | [`tensor_file`] | tensors from `.npy` and `.safetensors` files |

pub mod case;
pub mod collectives;
mod contraction;
pub mod data;
pub mod diagnose;
pub mod equivalence;
pub mod error;
pub mod mutate;
pub mod op_by_op;
pub mod random_plan;
pub mod recipe;
mod rounding;
pub mod simulate;
mod slopes;
pub mod strategies;
pub mod tensor_file;
pub mod tolerance;

pub use equivalence::{
    Backend, Equivalence, Layouts, Options, Reference, assert_gradients_equivalent, equivalences,
};
pub use error::Error;
pub use tolerance::{Bounds, Deviation};
