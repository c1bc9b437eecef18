//! Ops that sum or choose along dims.

use shardgrad_core::Op;
use shardgrad_core::ops::{CumSum, ReduceDims};

use super::Var;
use crate::error::Error;

impl<'g> Var<'g> {
    /// Sum over some dims, which vanish.
    ///
    /// # Errors
    /// A dim that is not there.
    #[track_caller]
    pub fn sum(self, dims: &[usize]) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::Sum(ReduceDims::new(dims.iter().copied())), &[self])
    }

    /// Sum over all dims: a scalar.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    pub fn sum_all(self) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::Sum(ReduceDims::new(0..self.ty().rank())), &[self])
    }

    /// Mean over some dims: their sum, scaled by one over the product of their global extents.
    ///
    /// # Errors
    /// A dim that is not there.
    #[track_caller]
    pub fn mean(self, dims: &[usize]) -> Result<Var<'g>, Error> {
        let sum = self.sum(dims)?;
        #[allow(clippy::cast_precision_loss)]
        let n = (self.ty().elements() / sum.ty().elements()) as f64;
        sum.scale(1.0 / n)
    }

    /// Mean over all dims: a scalar.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    pub fn mean_all(self) -> Result<Var<'g>, Error> {
        let dims: Vec<usize> = (0..self.ty().rank()).collect();
        self.mean(&dims)
    }

    /// Maximum over some dims, which vanish.
    ///
    /// # Errors
    /// A dim that is not there.
    #[track_caller]
    pub fn max(self, dims: &[usize]) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::Max(ReduceDims::new(dims.iter().copied())), &[self])
    }

    /// Minimum over some dims, which vanish: the maximum of the negated value, negated.
    ///
    /// # Errors
    /// A dim that is not there.
    #[track_caller]
    pub fn min(self, dims: &[usize]) -> Result<Var<'g>, Error> {
        self.neg()?.max(dims)?.neg()
    }

    /// Cumulative sum along a dim: element i is the sum of elements 0..=i. The dim cannot be split; `P` passes.
    ///
    /// ```
    /// use shardgrad_core::DType;
    /// use shardgrad_graph::Graph;
    /// let g = Graph::new("running sums", DType::F32);
    /// assert_eq!(g.input("x", [4, 3])?.cumsum(1)?.ty().to_string(), "f32[4, 3]");
    /// # Ok::<(), shardgrad_graph::Error>(())
    /// ```
    ///
    /// # Errors
    /// A dim that is not there.
    #[track_caller]
    pub fn cumsum(self, dim: usize) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::CumSum(CumSum { dim, reverse: false }), &[self])
    }

    /// Cumulative sum from the end: element i is the sum of i and all behind it.
    ///
    /// # Errors
    /// A dim that is not there.
    #[track_caller]
    pub fn reverse_cumsum(self, dim: usize) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::CumSum(CumSum { dim, reverse: true }), &[self])
    }
}
