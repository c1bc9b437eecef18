//! Softmax and its logarithm over one dim, made of sums, maxima and elementwise ops.
//!
//! Neither depends on the shift m that keeps exp in range, so no gradient flows through m, at any order. Where the dim is
//! sharded, what crosses devices is one maximum and one sum over it (and their like in the backward pass): values without
//! that dim. The whole tensor never moves.

use crate::builder::Var;
use crate::error::Error;

impl<'g> Var<'g> {
    /// softmax over one dim: exp(x − m) / Σ exp(x − m), m the maximum over the dim.
    ///
    /// ```
    /// use shardgrad_core::DType;
    /// use shardgrad_graph::Graph;
    /// let g = Graph::new("weights", DType::F32);
    /// let x = g.input("x", [4, 6])?;
    /// assert_eq!(x.softmax(1)?.ty(), x.ty());
    /// assert!(x.softmax(2).is_err());
    /// # Ok::<(), shardgrad_graph::Error>(())
    /// ```
    ///
    /// # Errors
    /// The dim is not there, or the value is not a float.
    #[track_caller]
    pub fn softmax(self, dim: usize) -> Result<Var<'g>, Error> {
        let parts = self.shifted(dim)?.exp()?;
        parts.div(parts.sum(&[dim])?.repeated_along(dim, parts)?)
    }

    /// log softmax over one dim: x − m − log Σ exp(x − m), m the maximum over the dim.
    ///
    /// # Errors
    /// The dim is not there, or the value is not a float.
    #[track_caller]
    pub fn log_softmax(self, dim: usize) -> Result<Var<'g>, Error> {
        let shifted = self.shifted(dim)?;
        let log_sum = shifted.exp()?.sum(&[dim])?.log()?;
        shifted.sub(log_sum.repeated_along(dim, shifted)?)
    }

    /// x − m.
    #[track_caller]
    pub(crate) fn shifted(self, dim: usize) -> Result<Var<'g>, Error> {
        self.sub(self.max(&[dim])?.stop_gradient()?.repeated_along(dim, self)?)
    }

    /// A value that lacks one dim of another, repeated along it.
    #[track_caller]
    pub(crate) fn repeated_along(self, dim: usize, like: Var<'_>) -> Result<Var<'g>, Error> {
        let shape = like.shape();
        let kept: Vec<usize> = (0..shape.len()).filter(|&d| d != dim).collect();
        self.broadcast(&kept, &shape)
    }
}
