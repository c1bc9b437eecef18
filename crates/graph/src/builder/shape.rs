//! Ops that move elements.

use std::panic::Location;

use shardgrad_core::Op;
use shardgrad_core::ops::{Broadcast, Const, Pad, Slice};

use super::{Graph, Var};
use crate::error::Error;

impl<'g> Var<'g> {
    /// Dim i becomes dim `dims[i]` of `shape`; the other dims of `shape` are new, and the value repeats along them.
    ///
    /// # Errors
    /// Places do not increase, or extents differ.
    #[track_caller]
    pub fn broadcast(self, dims: &[usize], shape: &[usize]) -> Result<Var<'g>, Error> {
        let broadcast = Broadcast {
            dims: dims.iter().copied().collect(),
            shape: shape.iter().copied().collect(),
        };
        self.graph.apply(Op::Broadcast(broadcast), &[self])
    }

    /// Broadcast to the shape of another value by `NumPy`'s rule: dims line up from the last, and dims of extent 1 repeat.
    ///
    /// # Errors
    /// A dim is neither 1 nor the other's extent.
    #[track_caller]
    pub fn broadcast_like(self, other: Var<'_>) -> Result<Var<'g>, Error> {
        let at = Location::caller();
        let (from, to) = (self.ty(), other.ty());
        let Some(lead) = to.rank().checked_sub(from.rank()) else {
            return Err(Error::Bad {
                op: "broadcast_like",
                found: format!("{from}, {to}"),
                problem: "the first operand has more dims than the second".to_owned(),
                at,
            });
        };
        // A dim of extent 1 that must repeat is reshaped away, so that it comes back as a new dim.
        let kept: Vec<usize> =
            (0..from.rank()).filter(|&d| from.shape[d] == to.shape[d + lead]).collect();
        let dropped = (0..from.rank()).filter(|d| !kept.contains(d));
        if dropped.clone().any(|d| from.shape[d] != 1) {
            return Err(Error::Bad {
                op: "broadcast_like",
                found: format!("{from}, {to}"),
                problem: "every dim must be 1 or the other's extent, counted from the last"
                    .to_owned(),
                at,
            });
        }
        let squeezed = if dropped.count() == 0 {
            self
        } else {
            let shape: Vec<usize> = kept.iter().map(|&d| from.shape[d]).collect();
            self.reshape(&shape)?
        };
        if squeezed.ty() == to {
            return Ok(squeezed);
        }
        let dims: Vec<usize> = kept.iter().map(|d| d + lead).collect();
        squeezed.broadcast(&dims, &to.shape)
    }

    /// Dim i of the result is dim `perm[i]` of the operand.
    ///
    /// # Errors
    /// Not a permutation.
    #[track_caller]
    pub fn transpose(self, perm: &[usize]) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::Transpose(perm.iter().copied().collect()), &[self])
    }

    /// The same elements in row-major order under another shape.
    ///
    /// # Errors
    /// Another number of elements.
    #[track_caller]
    pub fn reshape(self, shape: &[usize]) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::Reshape(shape.iter().copied().collect()), &[self])
    }

    /// Elements `start`, `start + step` … below `stop` along a dim. The dim can be split only where nothing is left out or
    /// every run of `step` elements gives one; `P` passes. The gradient is padded with zeros.
    ///
    /// ```
    /// use shardgrad_core::DType;
    /// use shardgrad_graph::Graph;
    /// let g = Graph::new("slice", DType::F32);
    /// let x = g.input("x", [8, 3])?;
    /// assert_eq!(x.slice(0, 2, 6)?.ty().to_string(), "f32[4, 3]");
    /// assert_eq!(x.slice_by(0, 1, 8, 3)?.ty().to_string(), "f32[3, 3]");
    /// assert!(x.slice(0, 2, 9).is_err());
    /// # Ok::<(), shardgrad_graph::Error>(())
    /// ```
    ///
    /// # Errors
    /// The dim is not there, the range leaves it or has no element, or the step is 0.
    #[track_caller]
    pub fn slice_by(
        self,
        dim: usize,
        start: usize,
        stop: usize,
        step: usize,
    ) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::Slice(Slice { dim, start, stop, step }), &[self])
    }

    /// [`Var::slice_by`] with step 1.
    ///
    /// # Errors
    /// As [`Var::slice_by`].
    #[track_caller]
    pub fn slice(self, dim: usize, start: usize, stop: usize) -> Result<Var<'g>, Error> {
        self.slice_by(dim, start, stop, 1)
    }

    /// One index of a dim, which vanishes.
    ///
    /// # Errors
    /// The dim or the index is not there.
    #[track_caller]
    pub fn select(self, dim: usize, index: usize) -> Result<Var<'g>, Error> {
        let one = self.slice(dim, index, index.saturating_add(1))?;
        let mut shape = self.shape();
        shape.remove(dim);
        one.reshape(&shape)
    }

    /// Elements of one value in front of and behind those of a dim. The dim cannot be split; `P` passes zeros only.
    ///
    /// # Errors
    /// The dim is not there, or becomes too long.
    #[track_caller]
    pub fn pad(
        self,
        dim: usize,
        before: usize,
        after: usize,
        value: f64,
    ) -> Result<Var<'g>, Error> {
        let pad = Pad { dim, before, after, between: 0, value: Const::new(value) };
        self.graph.apply(Op::Pad(pad), &[self])
    }
}

impl Graph {
    /// Values one behind the other along a dim, which cannot be split; `P` passes if all are. Gradients are slices.
    ///
    /// ```
    /// use shardgrad_core::DType;
    /// use shardgrad_graph::Graph;
    /// let g = Graph::new("joined", DType::F32);
    /// let (a, b) = (g.input("a", [2, 3])?, g.input("b", [4, 3])?);
    /// assert_eq!(g.concat(0, &[a, b])?.ty().to_string(), "f32[6, 3]");
    /// assert_eq!(g.stack(1, &[a, a])?.ty().to_string(), "f32[2, 2, 3]");
    /// assert!(g.concat(1, &[a, b]).is_err());
    /// # Ok::<(), shardgrad_graph::Error>(())
    /// ```
    ///
    /// # Errors
    /// No value, a dim that is not there, values that differ in type or in another dim.
    #[track_caller]
    pub fn concat(&self, dim: usize, values: &[Var<'_>]) -> Result<Var<'_>, Error> {
        self.apply(Op::Concat(dim), values)
    }

    /// Values of one type side by side along a new dim.
    ///
    /// # Errors
    /// As [`Graph::concat`].
    #[track_caller]
    pub fn stack(&self, dim: usize, values: &[Var<'_>]) -> Result<Var<'_>, Error> {
        let mut layers = Vec::with_capacity(values.len());
        for value in values {
            let mut shape = value.shape();
            if dim > shape.len() {
                return Err(Error::Bad {
                    op: "stack",
                    found: value.ty().to_string(),
                    problem: format!("the new dim {dim} must be one of 0..={}", shape.len()),
                    at: Location::caller(),
                });
            }
            shape.insert(dim, 1);
            layers.push(value.reshape(&shape)?);
        }
        self.concat(dim, &layers)
    }
}
