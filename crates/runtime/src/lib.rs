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
//! | [`kernels`] | one op on local blocks |
//! | [`executor`] | one rank's part of a plan |
//! | [`trainer`] | all ranks of a plan, step by step |
//! | [`checkpoint`] | global tensors in a file, and back on any layout |
//! | [`init`] | initial values by global element |
//! | [`matmul`] | the two textbook distributed products |

mod board;
pub mod checkpoint;
pub mod collective;
pub mod comm;
mod compile;
pub mod counters;
pub mod error;
pub mod executor;
mod fused;
pub mod groups;
mod handoff;
pub mod init;
mod inputs;
pub mod kernels;
mod mailbox;
pub mod matmul;
pub mod number;
mod ranks;
mod region;
mod slots;
pub mod tensor;
pub mod threads;
pub mod trainer;

pub use checkpoint::Checkpoint;
pub use collective::{Collective, Source};
pub use comm::{CollectiveId, Communicator, Incoming, Outgoing, Tag, Traffic};
pub use counters::Counters;
pub use error::Error;
pub use executor::{Buffers, Executor};
pub use groups::Reduce;
pub use init::Init;
pub use number::Number;
pub use tensor::Data;
pub use threads::{ThreadComm, World, WorldOptions};
pub use trainer::{StepReport, Trainer, TrainerOptions};
