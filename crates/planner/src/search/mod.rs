//! Exact minimisation over networks of cost functions.
//!
//! | module | owns |
//! |---|---|
//! | [`network`] | variables, factors, interned tables |
//! | [`order`] | the order of elimination |
//! | [`mod@eliminate`] | bucket elimination |
//! | [`mod@marginals`] | what each value costs more |
//! | [`mod@bound`] | mini-bucket bounds |
//! | [`mod@refine`] | the search where buckets are too large |
//! | [`walk`] | all assignments, cheapest first |

pub mod bound;
pub mod eliminate;
pub mod marginals;
pub mod network;
pub mod order;
pub mod refine;
pub mod walk;

pub use eliminate::{BUCKET_LIMIT, Eliminated, Failure, Solution, Trace, eliminate, eliminated};
pub use marginals::marginals;
pub use network::{Factor, Network, TableId, Tables, VarId};
pub(crate) use refine::restrict;
pub use refine::{Known, Outcome, Proof, ROUNDS, refine};
pub use walk::Walk;
