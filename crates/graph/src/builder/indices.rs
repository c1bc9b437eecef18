//! Indices, rows by index, and random numbers by index.

use std::panic::Location;

use shardgrad_core::ops::{Comparison, Iota, Role, Uniform};
use shardgrad_core::{DType, Op, TensorType};

use super::{Graph, Var};
use crate::error::Error;

impl<'g> Var<'g> {
    /// A new last dim of classes, 1 at each integer label's class, in the program's float type.
    ///
    /// # Errors
    /// The operand is not integer.
    #[track_caller]
    pub fn one_hot(self, classes: usize) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::OneHot { classes, dtype: self.graph.dtype }, &[self])
    }
}

impl<'g> Var<'g> {
    /// Rows of this table `[v, d..]` by integer ids `[i..]`: `[i.., d..]`. A table that is split by rows makes a pending
    /// result of the ids' size; nothing of the table moves. Ids that are no rows are refused before the step if they are
    /// inputs, else when they are met. The gradient of the table is [`Var::scatter_add`].
    ///
    /// ```
    /// use shardgrad_core::DType;
    /// use shardgrad_graph::Graph;
    /// let g = Graph::new("embedding", DType::F32);
    /// let (table, ids) = (g.param("table", [100, 16])?, g.labels("ids", [4, 7])?);
    /// assert_eq!(table.lookup(ids)?.ty().to_string(), "f32[4, 7, 16]");
    /// # Ok::<(), shardgrad_graph::Error>(())
    /// ```
    ///
    /// # Errors
    /// The table is a scalar, or the ids are floats.
    #[track_caller]
    pub fn lookup(self, ids: Var<'_>) -> Result<Var<'g>, Error> {
        let rows = self.shape().first().copied().unwrap_or(0);
        self.graph.apply(Op::Lookup { rows }, &[self, ids])
    }

    /// These terms `[i.., d..]` added up by integer ids `[i..]`: `[rows, d..]`, row v being the sum of the terms whose id is v.
    ///
    /// # Errors
    /// The ids are floats, or their dims are not the first of the terms.
    #[track_caller]
    pub fn scatter_add(self, ids: Var<'_>, rows: usize) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::ScatterAdd { rows }, &[ids, self])
    }

    /// Zeros a share `rate` of the elements at random and scales the others by 1/(1 − rate). Which ones depends on the key, the
    /// place of this call among the program's draws, and the global element: every layout drops the same, and gradients
    /// drop what the value dropped. Give the key ([`Graph::key`]) another value each step. The rate is rounded to a multiple of 2⁻²⁴.
    ///
    /// # Errors
    /// The rate is not in [0, 1), the value no float, or the key no integer scalar.
    #[track_caller]
    pub fn dropout(self, rate: f64, key: Var<'_>) -> Result<Var<'g>, Error> {
        let ty = self.ty();
        // Draws are multiples of 2⁻²⁴, so that a rate that is one too compares alike in f32 and f64.
        let rounded = (rate * f64::from(1 << 24)).round() / f64::from(1 << 24);
        if !(0.0..1.0).contains(&rounded) {
            return Err(Error::Bad {
                op: "dropout",
                found: format!("{ty} and rate {rate}"),
                problem: "the rate must be at least 0 and below 1".to_owned(),
                at: Location::caller(),
            });
        }
        let draws = self.graph.uniform(key, ty)?;
        let kept = draws.compare_const(Comparison::Ge, rounded)?;
        self.mul(kept)?.scale(1.0 / (1.0 - rounded))
    }
}

impl Graph {
    /// The index along a dim, in the program's float type.
    ///
    /// # Errors
    /// There is no such dim, an extent is 0, or its indices are not exact in the type.
    #[track_caller]
    pub fn iota(
        &self,
        dim: usize,
        shape: impl IntoIterator<Item = usize>,
    ) -> Result<Var<'_>, Error> {
        self.iota_of(dim, TensorType::new(shape, self.dtype))
    }

    /// The index along a dim, in any type.
    ///
    /// # Errors
    /// As [`Graph::iota`].
    #[track_caller]
    pub fn iota_of(&self, dim: usize, ty: TensorType) -> Result<Var<'_>, Error> {
        self.apply(Op::Iota(Iota { dim, ty }), &[])
    }

    /// A key for random numbers: an integer scalar that the caller sets each step, as by
    /// [`step_key`](shardgrad_core::random::step_key).
    ///
    /// # Errors
    /// As [`Graph::leaf`].
    #[track_caller]
    pub fn key(&self, name: &str) -> Result<Var<'_>, Error> {
        self.leaf(name, Role::Scalar, TensorType::new([], DType::I64))
    }

    /// Random numbers uniform in [0, 1), of a float type: functions of the key, of the place of this call among the program's
    /// draws, and of the global element ([`shardgrad_core::random`]). No gradient.
    ///
    /// # Errors
    /// The key is no integer scalar, or the type no float.
    #[track_caller]
    pub fn uniform(&self, key: Var<'_>, ty: TensorType) -> Result<Var<'_>, Error> {
        let stream = self.streams.get();
        let draws = self.apply(Op::Uniform(Uniform { stream, ty }), &[key])?;
        self.streams.set(stream.saturating_add(1));
        Ok(draws)
    }
}
