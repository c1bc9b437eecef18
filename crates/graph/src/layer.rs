//! Linear layers. A layer is recorded in the program, and its three contractions (forward, input gradient, weight
//! gradient) carry its index, so that one *split* can be asked for all of them.

use std::panic::Location;

use serde::{Deserialize, Serialize};
use shardgrad_core::Op;
use shardgrad_core::ops::{Einsum, Labels};

use crate::builder::{Graph, Var};
use crate::error::Error;
use crate::program::{Half, Layer};

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

/// How a layer contracts its input with its weight: an einsum of two operands, and which of its labels are the input and
/// the output features that presets split.
///
/// Labels of the input that the result keeps are the batch's. A weight of more dims than two, as in attention
/// (`bsd,dhk->bshk`), names the one dim on either side that is worth splitting: the heads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    einsum: Einsum,
    in_label: char,
    out_label: char,
    half: Option<Half>,
}

impl Form {
    /// A form from its einsum, its two labels, and its place in a pair.
    ///
    /// ```
    /// use shardgrad_graph::{Half, layer::Form};
    /// let queries = Form::new("bsd,dhk->bshk", 'd', 'h', Some(Half::Opens))?;
    /// assert!(Form::new("bsd,dhk->bshk", 'x', 'h', None).is_err());
    /// # Ok::<(), shardgrad_graph::Error>(())
    /// ```
    ///
    /// # Errors
    /// The text is no einsum of two operands, or its weight lacks one of the labels.
    #[track_caller]
    pub fn new(
        spec: &str,
        in_label: char,
        out_label: char,
        half: Option<Half>,
    ) -> Result<Self, Error> {
        let at = Location::caller();
        let einsum: Einsum = spec.parse().map_err(|source| Error::Op { source, at })?;
        let weight = einsum.operands().get(1);
        if !weight.is_some_and(|w| [in_label, out_label].iter().all(|l| w.contains(l))) {
            return Err(Error::Bad {
                op: "layer",
                found: spec.to_owned(),
                problem: format!(
                    "its second operand, the weight, must have labels `{in_label}` and `{out_label}`"
                ),
                at,
            });
        }
        Ok(Self { einsum, in_label, out_label, half })
    }

    /// The linear layer over the last dim of an input with this many dims: `bi,io->bo`, `bsi,io->bso`.
    fn linear(rank: usize, half: Option<Half>) -> Result<Self, Error> {
        Self::new(if rank == 3 { "bsi,io->bso" } else { "bi,io->bo" }, 'i', 'o', half)
    }

    /// Labels of the weight, if they are not the input's and the output's.
    fn weight_labels(&self) -> Labels {
        let weight = &self.einsum.operands()[1];
        if weight.as_slice() == [self.in_label, self.out_label] {
            Labels::new()
        } else {
            weight.clone()
        }
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
        let index = next_layer(self.graph());
        let output = self.affine(w, b, activation, index)?.named(&format!("h{index}"))?;
        self.record(w, b, output, &Form::linear(self.ty().rank(), None)?);
        Ok(output)
    }

    /// A layer of any form: activation(x · w + b), the bias over the last dims of the product. It is recorded and its output
    /// named, unless `again` is the index of the layer, recorded before, of which this is another use.
    ///
    /// Returns the output and the index of the layer.
    ///
    /// # Errors
    /// Shapes do not fit, or the name of the output is taken.
    #[track_caller]
    pub fn layer(
        self,
        (w, b): (Var<'_>, Option<Var<'_>>),
        activation: Activation,
        form: &Form,
        name: &str,
        again: Option<u32>,
    ) -> Result<(Var<'g>, u32), Error> {
        let index = again.unwrap_or_else(|| next_layer(self.graph()));
        let output = self.contracted(w, b, activation, form, index)?;
        if again.is_none() {
            self.record(w, b, output.named(name)?, form);
        }
        Ok((output, index))
    }

    fn record(self, w: Var<'_>, b: Option<Var<'_>>, output: Var<'_>, form: &Form) {
        let einsum = &form.einsum;
        let batch = einsum.operands()[0].iter().filter(|l| einsum.result().contains(l));
        self.graph().record_layer(Layer {
            input: self.id(),
            weight: w.id(),
            bias: b.map(Var::id),
            output: output.id(),
            batch: batch.copied().collect(),
            in_label: form.in_label,
            out_label: form.out_label,
            weight_labels: form.weight_labels(),
            half: form.half,
        });
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
        self.contracted(w, b, activation, &Form::linear(x_ty.rank(), None)?, index)
    }

    /// The ops of [`Var::layer`].
    #[track_caller]
    fn contracted(
        self,
        w: Var<'_>,
        b: Option<Var<'_>>,
        activation: Activation,
        form: &Form,
        index: u32,
    ) -> Result<Var<'g>, Error> {
        let graph = self.graph();
        let outside = graph.set_layer(Some(index));
        let product = graph.apply(Op::Einsum(form.einsum.clone()), &[self, w]);
        graph.set_layer(outside);
        let product = product?;
        let sum = match b {
            Some(b) => {
                let shape = product.shape();
                let dims: Vec<usize> =
                    (shape.len().saturating_sub(b.ty().rank())..shape.len()).collect();
                product.add(b.broadcast(&dims, &shape)?)?
            }
            None => product,
        };
        activation.of(sum)
    }
}

/// The index of the layer that is recorded next.
pub(crate) fn next_layer(graph: &Graph) -> u32 {
    u32::try_from(graph.layer_count()).unwrap_or(u32::MAX)
}
