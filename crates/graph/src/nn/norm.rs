//! Layer norm or RMS norm with parameters.

use serde::{Deserialize, Serialize};

use crate::builder::{Graph, Var};
use crate::error::Error;
use crate::start::Start;

/// Which norm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormKind {
    /// Layer norm, with scale and shift.
    #[default]
    Layer,
    /// RMS norm, with scale.
    Rms,
}

/// A norm over the last dim.
#[derive(Clone, Copy, Debug)]
pub struct Norm<'g> {
    kind: NormKind,
    scale: Var<'g>,
    shift: Option<Var<'g>>,
}

/// Added under the root.
const EPS: f64 = 1e-5;

impl<'g> Norm<'g> {
    /// Parameters `{name}.scale`, which starts at 1, and for a layer norm `{name}.shift`, which starts at 0.
    ///
    /// # Errors
    /// A name that is taken, or no features.
    #[track_caller]
    pub fn new(g: &'g Graph, name: &str, kind: NormKind, features: usize) -> Result<Self, Error> {
        let scale = g.param_from(&format!("{name}.scale"), [features], Start::Constant(1.0))?;
        let shift = match kind {
            NormKind::Layer => {
                Some(g.param_from(&format!("{name}.shift"), [features], Start::Constant(0.0))?)
            }
            NormKind::Rms => None,
        };
        Ok(Self { kind, scale, shift })
    }

    /// The normalised value, with ε = 10⁻⁵.
    ///
    /// # Errors
    /// The last dim has another extent.
    #[track_caller]
    pub fn of(&self, x: Var<'g>) -> Result<Var<'g>, Error> {
        match self.kind {
            NormKind::Layer => x.layer_norm(Some(self.scale), self.shift, EPS),
            NormKind::Rms => x.rms_norm(Some(self.scale), EPS),
        }
    }
}
