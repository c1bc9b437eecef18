//! # shardgrad-runtime
//!
//! Runs plans: communicators, collectives on local buffers, kernels, and the executor that follows a plan's slots.
//!
//! | module | owns |
//! |---|---|
//! | [`comm`] | the [`Communicator`] trait: what ranks say to each other |
//! | [`threads`], [`world`] | the in-process backend: ranks on threads |
//! | `mpi` | the backend for many machines: ranks as processes (feature `mpi`) |
//! | [`collective`] | one rank's part of a transition on local buffers |
//! | [`groups`] | collectives as plain functions over mesh axes |
//! | [`number`], [`tensor`], [`pool`] | element types, local buffers, and spare ones |
//! | [`kernels`] | one op on local blocks |
//! | [`executor`] | one rank's part of a plan |
//! | [`trainer`] | all ranks of a plan, step by step |
//! | [`checkpoint`] | global tensors in a file, and back on any layout |
//! | [`init`] | initial values by global element |
//! | [`matmul`] | the two textbook distributed products |

mod announce;
mod backend;
mod block_file;
mod board;
pub mod checkpoint;
pub mod collective;
pub mod comm;
mod compile;
pub mod counters;
mod descent;
mod direct;
pub mod error;
pub mod executor;
mod fused;
pub mod groups;
mod handoff;
pub mod init;
mod inputs;
mod joint;
pub mod kernels;
mod mailbox;
pub mod matmul;
#[cfg(feature = "mpi")]
pub mod mpi;
mod native;
pub mod number;
mod partial;
pub mod pool;
mod ranks;
mod region;
mod saving;
mod shared;
mod slots;
mod sync;
pub mod tensor;
pub mod threads;
pub mod trainer;
pub mod world;

pub use checkpoint::Checkpoint;
pub use collective::{Collective, Source};
pub use comm::{
    Call, CollectiveId, Communicator, Incoming, Loan, NativeCollectives, Outgoing, SharedMemory,
    Tag, Traffic,
};
pub use counters::Counters;
pub use error::Error;
pub use executor::{Buffers, Executor};
pub use groups::Reduce;
pub use init::Init;
pub use number::Number;
pub use pool::Pool;
pub use shared::MAX_RANKS;
pub use tensor::Data;
pub use threads::{ThreadComm, WorldOptions};
pub use trainer::{StepReport, Trainer, TrainerOptions};
pub use world::World;
