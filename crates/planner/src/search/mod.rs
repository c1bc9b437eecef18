//! Exact minimisation over networks of cost functions.
//!
//! | module | owns |
//! |---|---|
//! | [`mod@marginals`] | what each value costs more |
//! | [`network`] | variables, factors, interned tables |
//! | [`order`] | the order of elimination |
//! | [`mod@eliminate`] | bucket elimination |
//! | [`mod@bound`] | mini-bucket bounds |
//! | [`mod@solve`] | the whole search |
//! | [`walk`] | all assignments, cheapest first |

pub mod bound;
pub mod eliminate;
pub mod marginals;
pub mod network;
pub mod order;
pub mod solve;
pub mod walk;

pub use eliminate::{BUCKET_LIMIT, Eliminated, Failure, Solution, Trace, eliminate, eliminated};
pub use marginals::marginals;
pub use network::{Factor, Network, TableId, Tables, VarId};
pub(crate) use solve::restrict;
pub use solve::{Known, Outcome, Proof, ROUNDS, solve, strike};
pub use walk::Walk;
