//! Exact minimisation over networks of cost functions.
//!
//! | module | owns |
//! |---|---|
//! | [`network`] | variables, factors, interned tables |
//! | [`order`] | the order of elimination |
//! | [`mod@eliminate`] | bucket elimination |
//! | [`mod@bound`] | mini-bucket bounds |
//! | [`mod@solve`] | the whole search |
//! | [`walk`] | all assignments, cheapest first |

pub mod bound;
pub mod eliminate;
pub mod network;
pub mod order;
pub mod solve;
pub mod walk;

pub use eliminate::{BUCKET_LIMIT, Eliminated, Failure, Solution, Trace, eliminate, eliminated};
pub use network::{Factor, Network, TableId, Tables, VarId};
pub use solve::{Outcome, solve};
pub use walk::Walk;
