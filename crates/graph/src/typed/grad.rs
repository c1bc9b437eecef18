//! Typed gradients by reverse mode: the user writes the forward pass, the planner finds the backward's collectives.

use std::panic::Location;

use shardgrad_core::Op;
use shardgrad_core::types::{LayoutType, StoredLayout};

use super::Tensor;
use crate::builder::Var;
use crate::error::Error;
use crate::node::Phase;

/// Tensors to take gradients in: one, a tuple of up to eight, a vector; they nest, and so do layers and models made of
/// them. The gradients come in the same form.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not something to take gradients in",
    label = "expected a tensor, a tuple of two to eight, or a vector of them",
    note = "tensors with a gradient are complete (`Replicated` or `Shard<DIM>` on every axis); tuples nest for more than eight: `((w0, b0), (w1, b1))`"
)]
pub trait Parameters<'g>: Sized {
    /// Appends the values.
    fn collect(&self, vars: &mut Vec<Var<'g>>);

    /// The tensors' gradients, in their layouts, taken from the front of `gradients`.
    ///
    /// # Errors
    /// A name is taken.
    #[track_caller]
    fn wrap(&self, gradients: &mut std::vec::IntoIter<Var<'g>>) -> Result<Self, Error>;
}

/// Gradients of a loss in some tensors, each with its tensor's layout: the planner reduces where it must.
///
/// Each gradient is a `constrain` node, pinned and named for its tensor: `grad(w0)`. Gradients of a loss that is still a
/// `PendingSum` are the same: gradients are those of the global value.
///
/// ```
/// use shardgrad_core::DType;
/// use shardgrad_graph::Graph;
/// use shardgrad_graph::typed::{self, Mesh, Replicated, Shard, Tensor};
/// let graph = Graph::new("layer", DType::F32);
/// let g = graph.on(&Mesh::new([("dp", 2)])?)?;
/// let x: Tensor<2, Shard<0>> = g.input("x", [8, 4])?;
/// let w: Tensor<2, Replicated> = g.param("w", [4, 3])?;
/// let b: Tensor<1, Replicated> = g.param("b", [3])?;
/// let loss = x.matmul(w)?.add_bias(b)?.square()?.mean_all()?;
/// let (dw, db) = typed::grad(loss, (w, b))?; // Tensor<2, Replicated>, Tensor<1, Replicated>
/// g.update(w, w.sub(dw.scale(0.1)?)?)?;
/// g.update(b, b.sub(db.scale(0.1)?)?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`crate::Graph::grad`]; a gradient of the same tensor was taken before, so that its name is taken.
#[track_caller]
pub fn grad<'g, L, P: Parameters<'g>>(loss: Tensor<'g, 0, L>, parameters: P) -> Result<P, Error> {
    let mut vars = Vec::new();
    parameters.collect(&mut vars);
    let gradients = loss.erase().graph().grad(loss.erase(), &vars)?;
    parameters.wrap(&mut gradients.into_iter())
}

impl<'g, const RANK: usize, L: LayoutType + StoredLayout> Parameters<'g> for Tensor<'g, RANK, L> {
    fn collect(&self, vars: &mut Vec<Var<'g>>) {
        vars.push(self.erase());
    }

    #[track_caller]
    fn wrap(&self, gradients: &mut std::vec::IntoIter<Var<'g>>) -> Result<Self, Error> {
        let at = Location::caller();
        let Some(gradient) = gradients.next() else {
            return Err(Error::Bad {
                op: "grad",
                found: self.erase().ty().to_string(),
                problem: "reverse mode made fewer gradients than there are tensors".to_owned(),
                at,
            });
        };
        let graph = self.erase().graph();
        let phase = graph.set_phase(Phase::Backward);
        let node = graph.apply(Op::Constrain, &[gradient]);
        graph.set_phase(phase);
        let name = match graph.names_of(self.erase().id()).into_iter().next() {
            Some(name) => format!("grad({name})"),
            None => graph.free_name("grad"),
        };
        Tensor::pinned(node?.named(&name)?, &name)
    }
}

impl<'g, P: Parameters<'g>> Parameters<'g> for Vec<P> {
    fn collect(&self, vars: &mut Vec<Var<'g>>) {
        for parameters in self {
            parameters.collect(vars);
        }
    }

    #[track_caller]
    fn wrap(&self, gradients: &mut std::vec::IntoIter<Var<'g>>) -> Result<Self, Error> {
        let mut wrapped = Vec::with_capacity(self.len());
        for parameters in self {
            wrapped.push(parameters.wrap(gradients)?);
        }
        Ok(wrapped)
    }
}

impl<'g, A, B> Parameters<'g> for (A, B)
where
    A: Parameters<'g>,
    B: Parameters<'g>,
{
    fn collect(&self, vars: &mut Vec<Var<'g>>) {
        let (a, b) = self;
        a.collect(vars);
        b.collect(vars);
    }

    #[track_caller]
    fn wrap(&self, gradients: &mut std::vec::IntoIter<Var<'g>>) -> Result<Self, Error> {
        let (a, b) = self;
        Ok((a.wrap(gradients)?, b.wrap(gradients)?))
    }
}

impl<'g, A, B, C> Parameters<'g> for (A, B, C)
where
    A: Parameters<'g>,
    B: Parameters<'g>,
    C: Parameters<'g>,
{
    fn collect(&self, vars: &mut Vec<Var<'g>>) {
        let (a, b, c) = self;
        a.collect(vars);
        b.collect(vars);
        c.collect(vars);
    }

    #[track_caller]
    fn wrap(&self, gradients: &mut std::vec::IntoIter<Var<'g>>) -> Result<Self, Error> {
        let (a, b, c) = self;
        Ok((a.wrap(gradients)?, b.wrap(gradients)?, c.wrap(gradients)?))
    }
}

impl<'g, A, B, C, D> Parameters<'g> for (A, B, C, D)
where
    A: Parameters<'g>,
    B: Parameters<'g>,
    C: Parameters<'g>,
    D: Parameters<'g>,
{
    fn collect(&self, vars: &mut Vec<Var<'g>>) {
        let (a, b, c, d) = self;
        a.collect(vars);
        b.collect(vars);
        c.collect(vars);
        d.collect(vars);
    }

    #[track_caller]
    fn wrap(&self, gradients: &mut std::vec::IntoIter<Var<'g>>) -> Result<Self, Error> {
        let (a, b, c, d) = self;
        Ok((a.wrap(gradients)?, b.wrap(gradients)?, c.wrap(gradients)?, d.wrap(gradients)?))
    }
}

impl<'g, A, B, C, D, E> Parameters<'g> for (A, B, C, D, E)
where
    A: Parameters<'g>,
    B: Parameters<'g>,
    C: Parameters<'g>,
    D: Parameters<'g>,
    E: Parameters<'g>,
{
    fn collect(&self, vars: &mut Vec<Var<'g>>) {
        let (a, b, c, d, e) = self;
        a.collect(vars);
        b.collect(vars);
        c.collect(vars);
        d.collect(vars);
        e.collect(vars);
    }

    #[track_caller]
    fn wrap(&self, gradients: &mut std::vec::IntoIter<Var<'g>>) -> Result<Self, Error> {
        let (a, b, c, d, e) = self;
        Ok((
            a.wrap(gradients)?,
            b.wrap(gradients)?,
            c.wrap(gradients)?,
            d.wrap(gradients)?,
            e.wrap(gradients)?,
        ))
    }
}

impl<'g, A, B, C, D, E, F> Parameters<'g> for (A, B, C, D, E, F)
where
    A: Parameters<'g>,
    B: Parameters<'g>,
    C: Parameters<'g>,
    D: Parameters<'g>,
    E: Parameters<'g>,
    F: Parameters<'g>,
{
    fn collect(&self, vars: &mut Vec<Var<'g>>) {
        let (a, b, c, d, e, f) = self;
        a.collect(vars);
        b.collect(vars);
        c.collect(vars);
        d.collect(vars);
        e.collect(vars);
        f.collect(vars);
    }

    #[track_caller]
    fn wrap(&self, gradients: &mut std::vec::IntoIter<Var<'g>>) -> Result<Self, Error> {
        let (a, b, c, d, e, f) = self;
        Ok((
            a.wrap(gradients)?,
            b.wrap(gradients)?,
            c.wrap(gradients)?,
            d.wrap(gradients)?,
            e.wrap(gradients)?,
            f.wrap(gradients)?,
        ))
    }
}

impl<'g, A, B, C, D, E, F, G> Parameters<'g> for (A, B, C, D, E, F, G)
where
    A: Parameters<'g>,
    B: Parameters<'g>,
    C: Parameters<'g>,
    D: Parameters<'g>,
    E: Parameters<'g>,
    F: Parameters<'g>,
    G: Parameters<'g>,
{
    fn collect(&self, vars: &mut Vec<Var<'g>>) {
        let (a, b, c, d, e, f, g) = self;
        a.collect(vars);
        b.collect(vars);
        c.collect(vars);
        d.collect(vars);
        e.collect(vars);
        f.collect(vars);
        g.collect(vars);
    }

    #[track_caller]
    fn wrap(&self, gradients: &mut std::vec::IntoIter<Var<'g>>) -> Result<Self, Error> {
        let (a, b, c, d, e, f, g) = self;
        Ok((
            a.wrap(gradients)?,
            b.wrap(gradients)?,
            c.wrap(gradients)?,
            d.wrap(gradients)?,
            e.wrap(gradients)?,
            f.wrap(gradients)?,
            g.wrap(gradients)?,
        ))
    }
}

impl<'g, A, B, C, D, E, F, G, H> Parameters<'g> for (A, B, C, D, E, F, G, H)
where
    A: Parameters<'g>,
    B: Parameters<'g>,
    C: Parameters<'g>,
    D: Parameters<'g>,
    E: Parameters<'g>,
    F: Parameters<'g>,
    G: Parameters<'g>,
    H: Parameters<'g>,
{
    fn collect(&self, vars: &mut Vec<Var<'g>>) {
        let (a, b, c, d, e, f, g, h) = self;
        a.collect(vars);
        b.collect(vars);
        c.collect(vars);
        d.collect(vars);
        e.collect(vars);
        f.collect(vars);
        g.collect(vars);
        h.collect(vars);
    }

    #[track_caller]
    fn wrap(&self, gradients: &mut std::vec::IntoIter<Var<'g>>) -> Result<Self, Error> {
        let (a, b, c, d, e, f, g, h) = self;
        Ok((
            a.wrap(gradients)?,
            b.wrap(gradients)?,
            c.wrap(gradients)?,
            d.wrap(gradients)?,
            e.wrap(gradients)?,
            f.wrap(gradients)?,
            g.wrap(gradients)?,
            h.wrap(gradients)?,
        ))
    }
}
