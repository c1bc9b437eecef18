//! Multi-head attention over `[batch, sequence, heads, features]`, made of einsums and softmax.
//!
//! Heads are a dim of their own from the projections on, so that they are sharded by blocks and nothing is reshaped across a
//! shard. With fewer heads of keys and values than of queries (Ainslie et al. 2023) queries have a dim more: `[batch,
//! sequence, groups, heads of a group, features]`; every group shares one head of keys and values.
//!
//! Source: Vaswani et al. 2017.

use std::panic::Location;

use shardgrad_core::ops::Comparison;

use crate::builder::{Graph, Var};
use crate::error::Error;

/// What is added to a score that is masked: exp of it, minus any maximum, is 0 in f32 and f64, and it is finite, so that a
/// row without any place to look at stays free of NaN.
const MASKED: f64 = -1e30;

impl<'g> Var<'g> {
    /// softmax(q · kᵀ / √features + mask) · v over heads: `[b, s, h, f]`, with keys and values `[b, t, h, f]`; or
    /// `[b, s, g, r, f]` with keys and values `[b, t, g, f]`. `keep` is `[s, t]`, 1 where a query may look at a key, else 0.
    ///
    /// ```
    /// use shardgrad_core::DType;
    /// use shardgrad_graph::Graph;
    /// let g = Graph::new("attention", DType::F32);
    /// let (q, k, v) = (g.input("q", [2, 5, 4, 3])?, g.input("k", [2, 7, 4, 3])?, g.input("v", [2, 7, 4, 3])?);
    /// assert_eq!(q.attention(k, v, None)?.ty(), q.ty());
    /// # Ok::<(), shardgrad_graph::Error>(())
    /// ```
    ///
    /// # Errors
    /// Shapes do not fit.
    #[track_caller]
    pub fn attention(
        self,
        keys: Var<'_>,
        values: Var<'_>,
        keep: Option<Var<'_>>,
    ) -> Result<Var<'g>, Error> {
        let at = Location::caller();
        let q = self.shape();
        let bad = |problem: &str| Error::Bad {
            op: "attention",
            found: [self, self.graph().var(keys.id()), self.graph().var(values.id())]
                .map(|v| v.ty().to_string())
                .join(", "),
            problem: problem.to_owned(),
            at,
        };
        let (scores, mixed) = match q.len() {
            4 => ("bshk,bthk->bhst", "bhst,bthk->bshk"),
            5 => ("bsgrk,btgk->bgrst", "bgrst,btgk->bsgrk"),
            _ => {
                return Err(bad(
                    "queries are [batch, sequence, heads, features] or [batch, sequence, groups, heads of a group, features]",
                ));
            }
        };
        #[allow(clippy::cast_precision_loss)]
        let scale = 1.0 / (q[q.len() - 1] as f64).sqrt();
        let mut weights = self.scale(scale)?.einsum(scores, keys)?;
        let shape = weights.shape();
        let last = shape.len() - 1;
        if let Some(keep) = keep {
            if keep.shape().as_slice() != &shape[last - 1..] {
                return Err(bad("a mask is [queries, keys]"));
            }
            let hidden = keep.add_const(-1.0)?.scale(-MASKED)?;
            weights = weights.add(hidden.broadcast(&[last - 1, last], &shape)?)?;
        }
        weights.softmax(last)?.einsum(mixed, values)
    }
}

impl Graph {
    /// The mask of a sequence that looks back: `[n, n]`, 1 where the column is not after the row, else 0.
    ///
    /// # Errors
    /// No place at all.
    #[track_caller]
    pub fn causal(&self, n: usize) -> Result<Var<'_>, Error> {
        self.iota(0, [n, n])?.compare(Comparison::Ge, self.iota(1, [n, n])?)
    }
}
