//! Ranks as processes: the backend for many machines, over MPI (feature `mpi`).
//!
//! One process is one rank, and one thread of it owns MPI: nothing here can be sent to another thread. The program is the
//! same on all ranks, and all of them make the same calls in the same order.
//!
//! | module | owns |
//! |---|---|
//! | [`universe`](Universe) | start, end, and the end after a failure |
//! | [`comm`](MpiComm) | the communicator: the plan's schedules over point-to-point messages |
//! | `message` | what stands before the elements of a message |
//! | `agree` | whether all ranks run the same program, plan and build |
//! | `native` | MPI's own collectives, by choice |
//! | `process` | one rank of a trainer |
//!
//! **Failures.** A rank that fails cannot be waited for, nor can the others be asked: whoever notices a failure says its
//! cause on standard error and ends all processes (`MPI_Abort`). [`run`] does so for any error of a program's work; a
//! [`Universe`] does so when it goes away after a failure or in a panic.
//!
//! **Same bits.** With [`Collectives::Own`] (the default) every sum is added in the order that the plan's schedule says, as
//! on threads: training is the same to the last bit. [`Collectives::Native`] leaves the order to MPI.

mod agree;
mod comm;
mod message;
mod native;
mod process;
mod universe;

pub use comm::{Collectives, MpiComm, MpiOptions};
pub(crate) use process::Process;
pub use universe::{Universe, run};
