//! Linear layers. A layer is recorded in the program, and its three contractions (forward, input gradient, weight
//! gradient) carry its index, so that one *split* can be asked for all of them.

use std::panic::Location;

use serde::{Deserialize, Serialize};
use shardgrad_core::ops::Labels;

use crate::builder::Var;
use crate::error::Error;
use crate::program::Layer;

/// What follows the affine map of a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// Nothing.
    #[default]
    None,
    /// max(a, 0).
    Relu,
    /// The tanh form of gelu.
    Gelu,
    /// tanh a.
    Tanh,
    /// 1 / (1 + e⁻ᵃ).
    Sigmoid,
}

impl Activation {
    /// All of them.
    pub const ALL: [Activation; 5] = [
        Activation::None,
        Activation::Relu,
        Activation::Gelu,
        Activation::Tanh,
        Activation::Sigmoid,
    ];

    /// Name, as in model files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Activation::None => "none",
            Activation::Relu => "relu",
            Activation::Gelu => "gelu",
            Activation::Tanh => "tanh",
            Activation::Sigmoid => "sigmoid",
        }
    }

    /// The activation of a value.
    ///
    /// # Errors
    /// The value is not a float.
    #[track_caller]
    pub fn of(self, a: Var<'_>) -> Result<Var<'_>, Error> {
        match self {
            Activation::None => Ok(a),
            Activation::Relu => a.relu(),
            Activation::Gelu => a.gelu(),
            Activation::Tanh => a.tanh(),
            Activation::Sigmoid => a.sigmoid(),
        }
    }
}

impl std::fmt::Display for Activation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl<'g> Var<'g> {
    /// A linear layer: activation(x · w + b) over the last dim of x, `[batch, in]` or `[batch, sequence, in]`.
    /// Weight `[in, out]`, bias `[out]`. The layer is recorded, and its output is named `h0`, `h1` … by its index.
    ///
    /// Labels are `bi,io->bo` (`bsi,io->bso`); gradients keep them: `bo,io->bi` and `bi,bo->io`.
    ///
    /// ```
    /// use shardgrad_core::DType;
    /// use shardgrad_graph::{Activation, Graph};
    /// let g = Graph::new("layer", DType::F32);
    /// let (x, w, b) = (g.input("x", [8, 4])?, g.param("w0", [4, 3])?, g.param("b0", [3])?);
    /// let h = x.linear(w, Some(b), Activation::Relu)?;
    /// assert_eq!(h.ty().to_string(), "f32[8, 3]");
    /// # Ok::<(), shardgrad_graph::Error>(())
    /// ```
    ///
    /// # Errors
    /// Shapes do not fit, or the name of the output is taken.
    #[track_caller]
    pub fn linear(
        self,
        w: Var<'_>,
        b: Option<Var<'_>>,
        activation: Activation,
    ) -> Result<Var<'g>, Error> {
        let graph = self.graph();
        let index = u32::try_from(graph.layer_count()).unwrap_or(u32::MAX);
        let output = self.affine(w, b, activation, index)?;
        let output = output.named(&format!("h{index}"))?;
        let spec = spec_of(self.ty().rank());
        graph.record_layer(Layer {
            input: self.id(),
            weight: w.id(),
            bias: b.map(Var::id),
            output: output.id(),
            batch: spec.chars().take_while(|&l| l != 'i').collect::<Labels>(),
            in_label: 'i',
            out_label: 'o',
        });
        Ok(output)
    }

    /// The ops of [`Var::linear`], the contraction belonging to the layer with this index; nothing is recorded.
    #[track_caller]
    pub(crate) fn affine(
        self,
        w: Var<'_>,
        b: Option<Var<'_>>,
        activation: Activation,
        index: u32,
    ) -> Result<Var<'g>, Error> {
        let graph = self.graph();
        let at = Location::caller();
        let (x_ty, w_ty) = (self.ty(), w.ty());
        let bad = |problem: &str| {
            let bias = b.map(|b| format!(", {}", b.ty())).unwrap_or_default();
            Err(Error::Bad {
                op: "linear",
                found: format!("{x_ty}, {w_ty}{bias}"),
                problem: problem.to_owned(),
                at,
            })
        };
        if !(2..=3).contains(&x_ty.rank()) || w_ty.rank() != 2 {
            return bad(
                "the input has 2 or 3 dims, the last its features; the weight is [in, out]",
            );
        }
        if x_ty.shape.last() != w_ty.shape.first() {
            return bad("the input's last extent must be the weight's first");
        }
        if b.is_some_and(|b| b.ty().shape.as_slice() != &w_ty.shape[1..]) {
            return bad("the bias must be [out], out being the weight's last extent");
        }
        let outside = graph.set_layer(Some(index));
        let product = self.einsum(spec_of(x_ty.rank()), w);
        graph.set_layer(outside);
        let product = product?;
        let sum = match b {
            Some(b) => {
                let shape = product.shape();
                product.add(b.broadcast(&[shape.len() - 1], &shape)?)?
            }
            None => product,
        };
        activation.of(sum)
    }
}

/// The contraction of a layer whose input has this many dims.
fn spec_of(rank: usize) -> &'static str {
    if rank == 3 { "bsi,io->bso" } else { "bi,io->bo" }
}
