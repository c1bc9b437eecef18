//! Tensors with their layout in their type: the compiler reviews the sharding.
//!
//! A [`Tensor`] is a handle on a node of an ordinary [`crate::Graph`], like [`Var`], with the number of its dims and its
//! layout as type parameters. Its methods exist where the rules of [`shardgrad_core::types`] admit the operands, so a
//! missing or repeated reduction, shards that do not line up, or an update with an unreduced gradient are errors of
//! compilation.
//!
//! *What becomes of the types.* They become **pins** of the program: those of leaves, of explicit transitions, of
//! gradients, of values that enter from [`Var`] and of values that are [`named`](Tensor::named). Other values have no
//! name, so no pin; the planner makes them by the rules, of which the types are the special case that sends nothing.
//! The typed layer is no second framework: a typed program is a [`crate::Program`] like any other, planned, checked and
//! run by the same code.
//!
//! *Explicit transitions* ([`Tensor::all_reduce`], [`Tensor::over`] …) are `constrain` nodes: identities with a name and
//! a pin of their own (`all_reduce0`, `all_reduce1`, …), whose gradient is the identity.
//!
//! | module | owns |
//! |---|---|
//! | [`mesh`] | [`Mesh`] with its axes as values |
//! | [`graph`] | [`Graph`]: typed leaves and outputs |
//! | [`tensor`] | [`Tensor`]; entering from [`Var`] and leaving to it |
//! | [`elementwise`], [`matmul`], [`reduce`] | ops |
//! | [`transition`] | explicit transitions |
//! | [`vjp`] | ops with their pullbacks |
//! | [`grad`](mod@grad) | typed gradients by reverse mode |

pub mod elementwise;
pub mod grad;
pub mod graph;
pub mod matmul;
pub mod mesh;
pub mod reduce;
pub mod tensor;
pub mod transition;
pub mod vjp;

pub use grad::{Parameters, grad};
pub use graph::Graph;
pub use mesh::Mesh;
pub use shardgrad_core::types::{
    FitsRank, LayoutOn, LayoutType, MeshAxis, PendingSum, Replicated, Shard, StoredLayout,
};
pub use tensor::Tensor;
pub use transition::Over;

#[cfg(doc)]
use crate::Var;
