//! # shardgrad-runtime
//!
//! Runs plans: communicators, collectives on local buffers, kernels, and the executor that follows a plan's slots.
//!
//! | module | owns |
//! |---|---|
//! | [`comm`] | the [`Communicator`] trait: what ranks say to each other |
//! | [`threads`] | the in-process backend and [`World`] |
//! | [`collective`] | one rank's part of a transition on local buffers |
//! | [`groups`] | collectives as plain functions over mesh axes |
//! | [`number`], [`tensor`] | element types and local buffers |

mod board;
pub mod collective;
pub mod comm;
pub mod error;
pub mod groups;
mod mailbox;
pub mod number;
mod region;
pub mod tensor;
pub mod threads;

pub use collective::{Collective, Source};
pub use comm::{CollectiveId, Communicator, Incoming, Outgoing, Tag, Traffic};
pub use error::Error;
pub use groups::Reduce;
pub use number::Number;
pub use tensor::Data;
pub use threads::{ThreadComm, World, WorldOptions};
