//! Plans under a memory limit, and plans of least memory.
//!
//! The peak of a plan is a maximum over its nodes, which no sum over ops and values expresses; but what a device stores
//! is a sum, and no plan's peak is below it. So the search minimises sums, `a · objective + b · stored + c · made`, where
//! *stored* is the bytes of leaves and *made* those of all other values, and the peak of each plan that comes out is
//! counted exactly ([`shardgrad_graph::memory::peak`]), updates moved up ([`order`]) and copies made again where that is
//! what lets it fit ([`regather`]).
//!
//! * *Prices of memory*: with b and c rising, plans trade the objective for memory. Since peak ≥ stored, the least
//!   `a · objective + b · stored`, less `b · limit`, is `a` times a bound on the objective of every plan that fits
//!   (the Lagrangian bound of Everett 1963).
//! * *The walk*: all plans in order of the objective ([`crate::search::Walk`]), those that store too much left out. When
//!   what is to come costs no less than the best plan that fits, that one is optimal. Where the walk has to stop earlier,
//!   what it has come to is a bound.

mod limit;
pub mod order;
pub mod regather;

pub use limit::{Front, Point, front, plan};
