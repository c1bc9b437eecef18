//! # shardgrad-testkit
//!
//! Prove your own sharded code: generators of programs, meshes, layouts and data that reveal faults, comparisons of
//! sharded with dense gradients whose tolerance is derived, and a doctor for gradients that are wrong.
//!
//! | module | owns |
//! |---|---|
//! | [`data`] | data that shows faults |
//! | [`strategies`], [`recipe`] | random meshes, layouts and programs that shrink |
//! | [`tolerance`] | how far two runs may differ by rounding: a bound for each element |
//! | [`simulate`] | a mesh on paper, which follows a plan to the letter |
//! | [`diagnose`] | what kind of fault turns one gradient into another |

mod contraction;
pub mod data;
pub mod diagnose;
pub mod error;
mod marks;
pub mod recipe;
mod rounding;
pub mod simulate;
mod slopes;
pub mod strategies;
pub mod tolerance;

pub use error::Error;
pub use tolerance::{Bounds, Deviation};
