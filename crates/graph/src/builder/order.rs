//! Where the largest elements are: argmax, argmin, top-k.
//!
//! Made of maxima, comparisons and indices, so that a dim may be split: maxima over it, of elements and of indices, are
//! the only things that ranks exchange. Among equals the lowest index wins; NaN counts as larger than every number.

use std::panic::Location;

use shardgrad_core::ops::{Comparison, Const, Fill};
use shardgrad_core::{DType, Op, TensorType};

use super::Var;
use crate::error::Error;

impl<'g> Var<'g> {
    /// The index of the largest element along a dim, which vanishes, as i32; the lowest of equals, the first NaN. No gradient.
    ///
    /// ```
    /// use shardgrad_core::DType;
    /// use shardgrad_graph::Graph;
    /// let g = Graph::new("classes", DType::F32);
    /// let logits = g.input("logits", [8, 10])?;
    /// assert_eq!(logits.argmax(1)?.ty().to_string(), "i32[8]");
    /// # Ok::<(), shardgrad_graph::Error>(())
    /// ```
    ///
    /// # Errors
    /// A dim that is not there.
    #[track_caller]
    pub fn argmax(self, dim: usize) -> Result<Var<'g>, Error> {
        let best = self.max(&[dim])?;
        self.first(self.hits(dim, best)?, dim)
    }

    /// The index of the smallest element along a dim, which vanishes, as i32; the lowest of equals, the first NaN. No gradient.
    ///
    /// # Errors
    /// A dim that is not there.
    #[track_caller]
    pub fn argmin(self, dim: usize) -> Result<Var<'g>, Error> {
        self.neg()?.argmax(dim)
    }

    /// The k largest elements along a dim, largest first, and their indices as i32. Equals come by index. The gradient of a
    /// value goes to the element that was taken.
    ///
    /// ```
    /// use shardgrad_core::DType;
    /// use shardgrad_graph::Graph;
    /// let g = Graph::new("best", DType::F32);
    /// let (values, indices) = g.input("x", [8, 10])?.top_k(3, 1)?;
    /// assert_eq!(values.ty().to_string(), "f32[8, 3]");
    /// assert_eq!(indices.ty().to_string(), "i32[8, 3]");
    /// # Ok::<(), shardgrad_graph::Error>(())
    /// ```
    ///
    /// # Errors
    /// A dim that is not there, or fewer than k elements along it, or k = 0.
    #[track_caller]
    pub fn top_k(self, k: usize, dim: usize) -> Result<(Var<'g>, Var<'g>), Error> {
        let at = Location::caller();
        let ty = self.ty();
        if ty.shape.get(dim).is_none_or(|&n| k == 0 || k > n) {
            return Err(Error::Bad {
                op: "top_k",
                found: ty.to_string(),
                problem: format!(
                    "dim {dim} must have at least k = {k} elements, and k be 1 or more"
                ),
                at,
            });
        }
        let lowest = match ty.dtype {
            DType::F32 | DType::F64 => f64::NEG_INFINITY,
            DType::I32 => f64::from(i32::MIN),
            DType::I64 => -(2_f64.powi(63)),
        };
        let (zeros, lowest) = (self.filled(0.0, ty.dtype)?, self.filled(lowest, ty.dtype)?);
        let places = self.indices(dim)?;
        let (mut values, mut indices) = (Vec::with_capacity(k), Vec::with_capacity(k));
        let mut taken: Option<Var<'g>> = None;
        for rank in 0..k {
            let left = taken.map_or(Ok(self), |taken| taken.choose(lowest, self))?;
            let hits = left.hits(dim, left.max(&[dim])?)?;
            // What is left may be as low as what was taken.
            let hits = taken.map_or(Ok(hits), |taken| taken.choose(zeros, hits))?;
            let index = self.first(hits, dim)?;
            let found =
                places.compare(Comparison::Eq, index.along(dim, &ty.shape)?)?.cast(ty.dtype)?;
            values.push(found.choose(self, zeros)?.sum(&[dim])?);
            indices.push(index);
            if rank + 1 < k {
                taken = Some(taken.map_or(Ok(found), |taken| taken.add(found))?);
            }
        }
        let graph = self.graph;
        Ok((graph.stack(dim, &values)?, graph.stack(dim, &indices)?))
    }

    /// 1 where an element is the largest of its dim or is NaN, else 0.
    fn hits(self, dim: usize, best: Var<'g>) -> Result<Var<'g>, Error> {
        let ty = self.ty();
        let equal = self.compare(Comparison::Eq, best.along(dim, &ty.shape)?)?;
        // NaN equals nothing, itself included: no element has both.
        if ty.dtype.is_float() { equal.add(self.compare(Comparison::Ne, self)?) } else { Ok(equal) }
    }

    /// The lowest index along a dim where `hits` is not 0.
    fn first(self, hits: Var<'g>, dim: usize) -> Result<Var<'g>, Error> {
        let extent = self.shape()[dim];
        #[allow(clippy::cast_precision_loss)]
        let beyond = self.filled(extent as f64, DType::I32)?;
        hits.cast(DType::I32)?.choose(self.indices(dim)?, beyond)?.min(&[dim])
    }

    /// The value repeated along a dim that it lacks, as part of `shape`.
    fn along(self, dim: usize, shape: &[usize]) -> Result<Var<'g>, Error> {
        let kept: Vec<usize> = (0..shape.len()).filter(|&d| d != dim).collect();
        self.broadcast(&kept, shape)
    }

    /// Indices along a dim, in this value's shape.
    fn indices(self, dim: usize) -> Result<Var<'g>, Error> {
        self.graph.iota_of(dim, TensorType { shape: self.shape(), dtype: DType::I32 })
    }

    /// A constant in this value's shape.
    fn filled(self, value: f64, dtype: DType) -> Result<Var<'g>, Error> {
        let ty = TensorType { shape: self.shape(), dtype };
        self.graph.apply(Op::Fill(Fill { value: Const::new(value), ty }), &[])
    }
}
