//! Gradient clipping by the norm of all gradients together.
//!
//! The norm is that of global values, so every element counts once, whether its gradient is sharded or held by every rank;
//! sums of squares of sharded gradients are added as pending terms and meet in one reduction of a scalar.
//! Gradients are reduced before they are squared: a clipped step never squares a term of a sum.

use std::panic::Location;

use crate::builder::{Graph, Var};
use crate::error::Error;
use crate::grad::constant;
use crate::node::Phase;

impl Graph {
    /// Gradients times min(1, limit / norm), and the norm: the root of the sum of the squares of all their elements.
    ///
    /// ```
    /// use shardgrad_core::DType;
    /// use shardgrad_graph::Graph;
    /// let g = Graph::new("clip", DType::F64);
    /// let (a, b) = (g.input("a", [2])?, g.input("b", [1])?);
    /// let (clipped, norm) = g.clip_by_global_norm(&[a, b], 6.5)?;
    /// assert_eq!((clipped[0].ty(), norm.ty().rank()), (a.ty(), 0));
    /// # Ok::<(), shardgrad_graph::Error>(())
    /// ```
    ///
    /// # Errors
    /// No gradient at all, gradients of different element types, or a limit that is not positive.
    #[track_caller]
    pub fn clip_by_global_norm<'g>(
        &'g self,
        gradients: &[Var<'g>],
        limit: f64,
    ) -> Result<(Vec<Var<'g>>, Var<'g>), Error> {
        let at = Location::caller();
        let bad = |found: String, problem: &str| Error::Bad {
            op: "clip_by_global_norm",
            found,
            problem: problem.to_owned(),
            at,
        };
        let Some((&first, rest)) = gradients.split_first() else {
            return Err(bad("no gradient".to_owned(), "there is nothing to clip"));
        };
        let dtype = first.ty().dtype;
        if !dtype.is_positive(limit) {
            let problem = format!("in {dtype} it must be positive and finite");
            return Err(bad(format!("the limit {limit:e}"), &problem));
        }
        let phase = self.set_phase(Phase::Update);
        let clipped = clip(first, rest, limit);
        self.set_phase(phase);
        clipped
    }
}

#[track_caller]
fn clip<'g>(
    first: Var<'g>,
    rest: &[Var<'g>],
    limit: f64,
) -> Result<(Vec<Var<'g>>, Var<'g>), Error> {
    let squares = |v: Var<'g>| v.square()?.sum_all();
    let total = rest.iter().try_fold(squares(first)?, |sum, &v| sum.add(squares(v)?))?;
    let norm = total.sqrt()?;
    let limit = constant(norm.graph(), limit, norm.ty())?;
    let factor = limit.div(norm.maximum(limit)?)?;
    let clipped = std::iter::once(&first)
        .chain(rest)
        .map(|&v| v.mul(factor.broadcast(&[], &v.shape())?))
        .collect::<Result<_, Error>>()?;
    Ok((clipped, norm))
}
