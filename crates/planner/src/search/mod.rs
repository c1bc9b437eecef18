//! Exact minimisation over networks of cost functions.
//!
//! | module | owns |
//! |---|---|
//! | [`network`] | variables, factors, interned tables |
//! | [`order`] | the order of elimination |
//! | [`eliminate`] | bucket elimination |

pub mod eliminate;
pub mod network;
pub mod order;

pub use eliminate::{Failure, Solution, eliminate};
pub use network::{Factor, Network, TableId, Tables, VarId};
