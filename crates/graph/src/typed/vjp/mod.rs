//! Ops with their pullbacks, for backward passes written by hand.
//!
//! `x.matmul_vjp(w)?` gives the product and a *pullback*, which makes the operands' cotangents from the result's without
//! communication, with what that leaves to be done in their types: where a replicated operand met sharded data, its
//! cotangent is a `PendingSum`. A pullback takes the cotangents of [`CotangentFor`] the result's layout; that of a loss
//! takes none, being pulled back from 1. An explicit transition is the identity, and so is its VJP: hand the cotangent of
//! its result to the pullback before it. The ops of a pullback are those of reverse mode, in the backward phase.
//!
//! ```
//! # use shardgrad_core::DType;
//! # use shardgrad_graph::{Graph, typed::{Mesh, PendingSum, Replicated, Shard, Tensor}};
//! let mesh = Mesh::new([("dp", 2)])?;
//! let dp = mesh.axes();
//! let graph = Graph::new("data parallel", DType::F32);
//! let g = graph.on(&mesh)?;
//! let x: Tensor<2, Shard<0>> = g.input("x", [8, 4])?;
//! let w: Tensor<2, Replicated> = g.param("w", [4, 3])?;
//! let (y, product) = x.matmul_vjp(w)?;
//! let (loss, error) = y.sum_all_vjp()?;
//! let dy: Tensor<2, Shard<0>> = error.pull()?;
//! let (_dx, dw) = product.pull(dy)?;
//! let dw: Tensor<2, PendingSum> = dw; // Each rank has the term of its rows,
//! let dw: Tensor<2, Replicated> = dw.all_reduce(dp)?; // so it is reduced once.
//! g.update(w, w.sub(dw.scale(0.1)?)?)?;
//! g.loss("loss", loss.all_reduce(dp)?)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod arithmetic;
mod elementwise;
mod loss;
mod matmul;
mod matmul_transposed;
mod reduce;

use std::panic::Location;

pub use arithmetic::{AddPullback, DivPullback, MulPullback};
pub use elementwise::{LinearPullback, UnaryPullback};
pub use loss::LossPullback;
pub use matmul::{BiasPullback, MatmulPullback};
pub use matmul_transposed::{MatmulNtPullback, MatmulTnPullback};
pub use reduce::{MeanPullback, SumPullback, TransposePullback};

use crate::builder::Var;
use crate::error::Error;
use crate::node::{NodeId, Phase};
use crate::vjp;

#[cfg(doc)]
use shardgrad_core::types::cotangent::CotangentFor;

/// The cotangent of one operand of a node, from that of its result, in the backward phase.
#[track_caller]
fn pull<'g>(result: Var<'g>, cotangent: Var<'g>, operand: usize) -> Result<Var<'g>, Error> {
    let at = Location::caller();
    let graph = result.graph();
    let phase = graph.set_phase(Phase::Backward);
    let node = graph.node(result.id());
    let contributions = vjp::vjp(graph, &node, result, cotangent, &|i| i == operand);
    graph.set_phase(phase);
    contributions?.get(operand).copied().flatten().ok_or_else(|| Error::Bad {
        op: "pull",
        found: format!("operand {operand} of {}", node.op.name()),
        problem: "no gradient flows to it".to_owned(),
        at,
    })
}

/// A node's operand.
fn operand(result: Var<'_>, position: usize) -> Option<NodeId> {
    result.graph().node(result.id()).operands.get(position).copied()
}

/// The cotangent of the operand of a mean, which is a scaled sum: through both.
#[track_caller]
fn pull_mean<'g>(result: Var<'g>, cotangent: Var<'g>) -> Result<Var<'g>, Error> {
    let scaled = pull(result, cotangent, 0)?;
    match operand(result, 0) {
        Some(sum) => pull(result.graph().var(sum), scaled, 0),
        None => Ok(scaled),
    }
}
