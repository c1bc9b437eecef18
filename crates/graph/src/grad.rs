//! Reverse mode, graph to graph.
//!
//! The cotangent of a node is the gradient of the loss in it. Nodes are visited against execution order; each node
//! whose value lies between the loss and what is asked for hands its cotangent, through the rule of its op
//! (module `vjp`), to its operands. Contributions of several consumers are added as they come, so that a sharded
//! gradient is reduced once. The rules build ordinary ops: gradients have placements like every other value, and can be
//! differentiated again.

use std::panic::Location;

use shardgrad_core::ops::{Const, Fill};
use shardgrad_core::{Op, TensorType};

use crate::builder::{Graph, Var};
use crate::error::Error;
use crate::node::{NodeId, Phase};
use crate::vjp;

impl Graph {
    /// Gradients of a scalar loss in some values; zeros in those it does not depend on.
    ///
    /// ```
    /// use shardgrad_core::DType;
    /// use shardgrad_graph::Graph;
    /// let g = Graph::new("square", DType::F64);
    /// let x = g.input("x", [3])?;
    /// let first = g.grad(x.square()?.sum_all()?, &[x])?[0]; // 2 x
    /// let second = g.grad(first.sum_all()?, &[x])?[0]; // 2
    /// assert_eq!(second.ty(), x.ty());
    /// # Ok::<(), shardgrad_graph::Error>(())
    /// ```
    ///
    /// # Errors
    /// The loss is not a float scalar, a value is not of a float type, or one of them is of another graph.
    #[track_caller]
    pub fn grad(&self, loss: Var<'_>, wrt: &[Var<'_>]) -> Result<Vec<Var<'_>>, Error> {
        let at = Location::caller();
        if wrt.iter().chain([&loss]).any(|v| !std::ptr::eq(v.graph(), self)) {
            return Err(Error::ForeignVar { op: "grad", at });
        }
        let bad = |found: TensorType, problem: &str| Error::Bad {
            op: "grad",
            found: found.to_string(),
            problem: problem.to_owned(),
            at,
        };
        if loss.ty().rank() != 0 || !loss.ty().dtype.is_float() {
            return Err(bad(loss.ty(), "the loss must be a float scalar; sum or average it first"));
        }
        if let Some(v) = wrt.iter().find(|v| !v.ty().dtype.is_float()) {
            return Err(bad(v.ty(), "only float values have gradients"));
        }
        let (phase, layer) = (self.set_phase(Phase::Backward), self.set_layer(None));
        let gradients = constant(self, 1.0, loss.ty()).and_then(|one| self.reverse(loss, one, wrt));
        self.set_phase(phase);
        self.set_layer(layer);
        gradients
    }

    /// Cotangents of `wrt`, given that of `loss`, which need not be a scalar.
    pub(crate) fn reverse<'g>(
        &'g self,
        loss: Var<'_>,
        seed: Var<'g>,
        wrt: &[Var<'_>],
    ) -> Result<Vec<Var<'g>>, Error> {
        let last = loss.id().index();
        let active = self.between(loss.id(), wrt);
        let mut cotangents: Vec<Option<Var<'_>>> = vec![None; last + 1];
        if active[last] {
            cotangents[last] = Some(seed);
        }
        for index in (0..=last).rev().filter(|&i| active[i]) {
            let Some(cotangent) = cotangents[index] else { continue };
            self.name_of_pair(NodeId::from_index(index), cotangent);
            let node = self.node(NodeId::from_index(index));
            let wanted = |position: usize| active[node.operands[position].index()];
            if !(0..node.operands.len()).any(wanted) {
                continue;
            }
            let result = self.var(NodeId::from_index(index));
            let contributions = vjp::vjp(self, &node, result, cotangent, &wanted)?;
            for (operand, contribution) in node.operands.iter().zip(contributions) {
                let Some(contribution) = contribution.filter(|_| active[operand.index()]) else {
                    continue;
                };
                let cotangent = &mut cotangents[operand.index()];
                *cotangent = Some(match *cotangent {
                    Some(sum) => sum.add(contribution)?,
                    None => contribution,
                });
            }
        }
        wrt.iter()
            .map(|v| match cotangents.get(v.id().index()).copied().flatten() {
                Some(gradient) => Ok(gradient),
                None => constant(self, 0.0, v.ty()),
            })
            .collect()
    }

    /// Names the cotangent of what leaves a pair of layers, `grad(…)`, so that it can be pinned as the value is.
    fn name_of_pair(&self, id: NodeId, cotangent: Var<'_>) {
        if self.closes_pair(id)
            && let Some(name) = self.names_of(id).first()
        {
            // The first gradient has the name; those of other losses go without.
            let _ = cotangent.named(&format!("grad({name})"));
        }
    }

    /// Whether each node up to the loss both needs one of `wrt` and is needed by the loss, through ops that have
    /// gradients.
    fn between(&self, loss: NodeId, wrt: &[Var<'_>]) -> Vec<bool> {
        let count = loss.index() + 1;
        let nodes: Vec<_> = (0..count).map(|i| self.node(NodeId::from_index(i))).collect();
        let mut depends = vec![false; count];
        for v in wrt.iter().filter(|v| v.id().index() < count) {
            depends[v.id().index()] = true;
        }
        for (i, node) in nodes.iter().enumerate() {
            depends[i] |= vjp::is_differentiable(&node.op)
                && node.operands.iter().any(|o| depends[o.index()]);
        }
        let mut needed = vec![false; count];
        needed[loss.index()] = true;
        for (i, node) in nodes.iter().enumerate().rev() {
            if needed[i] && vjp::is_differentiable(&node.op) {
                for operand in &node.operands {
                    needed[operand.index()] = true;
                }
            }
        }
        depends.iter().zip(needed).map(|(&d, n)| d && n).collect()
    }
}

/// A constant of this type.
pub(crate) fn constant(graph: &Graph, value: f64, ty: TensorType) -> Result<Var<'_>, Error> {
    graph.apply(Op::Fill(Fill { value: Const::new(value), ty }), &[])
}
