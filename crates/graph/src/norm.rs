//! Layer norm and RMS norm over the last dim, made of means and elementwise ops.
//!
//! Statistics are means over the features, so that with features sharded only values without that dim are reduced: the
//! mean and the variance forward, and two sums of the same size backward.
//!
//! Sources: layer norm, Ba, Kiros and Hinton 2016; RMS norm, Zhang and Sennrich 2019.

use std::panic::Location;

use crate::builder::Var;
use crate::error::Error;

impl<'g> Var<'g> {
    /// (x − mean) / √(variance + ε) over the last dim, times a scale, plus a shift, both `[features]`. The variance is that
    /// of the population: the mean of (x − mean)².
    ///
    /// ```
    /// use shardgrad_core::DType;
    /// use shardgrad_graph::Graph;
    /// let g = Graph::new("norm", DType::F32);
    /// let (x, scale) = (g.input("x", [4, 6])?, g.param("scale", [6])?);
    /// assert_eq!(x.layer_norm(Some(scale), None, 1e-5)?.ty(), x.ty());
    /// # Ok::<(), shardgrad_graph::Error>(())
    /// ```
    ///
    /// # Errors
    /// The value has no dim or is not a float; scale or shift is not `[features]`.
    #[track_caller]
    pub fn layer_norm(
        self,
        scale: Option<Var<'_>>,
        shift: Option<Var<'_>>,
        eps: f64,
    ) -> Result<Var<'g>, Error> {
        let last = self.last_dim("layer_norm", [scale, shift])?;
        let centred = self.sub(self.mean(&[last])?.repeated_along(last, self)?)?;
        centred.over_root_mean_square(last, eps)?.scaled_and_shifted(last, scale, shift)
    }

    /// x / √(mean of x² + ε) over the last dim, times a scale `[features]`.
    ///
    /// # Errors
    /// As [`Var::layer_norm`].
    #[track_caller]
    pub fn rms_norm(self, scale: Option<Var<'_>>, eps: f64) -> Result<Var<'g>, Error> {
        let last = self.last_dim("rms_norm", [scale, None])?;
        self.over_root_mean_square(last, eps)?.scaled_and_shifted(last, scale, None)
    }

    #[track_caller]
    fn over_root_mean_square(self, last: usize, eps: f64) -> Result<Var<'g>, Error> {
        let root = self.square()?.mean(&[last])?.add_const(eps)?.sqrt()?;
        self.div(root.repeated_along(last, self)?)
    }

    #[track_caller]
    fn scaled_and_shifted(
        self,
        last: usize,
        scale: Option<Var<'_>>,
        shift: Option<Var<'_>>,
    ) -> Result<Var<'g>, Error> {
        let shape = self.shape();
        let scaled = match scale {
            Some(scale) => self.mul(scale.broadcast(&[last], &shape)?)?,
            None => self,
        };
        match shift {
            Some(shift) => scaled.add(shift.broadcast(&[last], &shape)?),
            None => Ok(scaled),
        }
    }

    /// The last dim, if these are vectors along it.
    #[track_caller]
    fn last_dim(self, op: &'static str, vectors: [Option<Var<'_>>; 2]) -> Result<usize, Error> {
        let at = Location::caller();
        let ty = self.ty();
        let features = ty.shape.last().copied();
        let along =
            |v: &Var<'_>| v.ty().dtype == ty.dtype && v.shape().as_slice() == features.as_slice();
        match ty.rank().checked_sub(1) {
            Some(last) if vectors.iter().flatten().all(along) => Ok(last),
            _ => Err(Error::Bad {
                op,
                found: [Some(self)]
                    .iter()
                    .chain(&vectors)
                    .flatten()
                    .map(|v| v.ty().to_string())
                    .collect::<Vec<_>>()
                    .join(", "),
                problem: "scale and shift must be as long as the last dim of the value, and of its element type".to_owned(),
                at,
            }),
        }
    }
}
