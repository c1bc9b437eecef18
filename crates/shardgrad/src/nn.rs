//! Networks: a multilayer perceptron by its widths, and the parts of transformers.

use shardgrad_graph::{Activation, LayerSpec};

#[doc(inline)]
pub use shardgrad_graph::nn::{
    AttentionSpec, BlockSpec, Embedding, FeedForward, Head, MultiHeadAttention, Norm, NormKind,
    Projection, TransformerBlock,
};

/// Tensor-parallel layers with their layouts in their types.
pub use crate::typed::layers as typed;

/// A multilayer perceptron.
///
/// ```
/// use shardgrad::prelude::*;
/// let model = Mlp::new(&[64, 128, 10]).activation(Activation::Relu);
/// assert_eq!(model.layers().len(), 2);
/// // The activation stands between layers; the last layer is linear.
/// assert_eq!(model.layers()[1].activation, Activation::None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mlp {
    name: String,
    widths: Vec<usize>,
    activation: Activation,
    last: Activation,
    bias: bool,
}

impl Mlp {
    /// A network from its widths, input first: one linear layer between every two of them, with bias, without activation.
    ///
    /// Widths are checked where the network is first used: there must be two or more, each 1 or more.
    #[must_use]
    pub fn new(widths: &[usize]) -> Self {
        Self {
            name: "mlp".to_owned(),
            widths: widths.to_vec(),
            activation: Activation::None,
            last: Activation::None,
            bias: true,
        }
    }

    /// With a name, for reports.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// With this activation after every layer but the last.
    #[must_use]
    pub fn activation(mut self, activation: Activation) -> Self {
        self.activation = activation;
        self
    }

    /// With this activation after the last layer.
    #[must_use]
    pub fn output_activation(mut self, activation: Activation) -> Self {
        self.last = activation;
        self
    }

    /// With or without biases.
    #[must_use]
    pub fn bias(mut self, bias: bool) -> Self {
        self.bias = bias;
        self
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The layers, first to last.
    #[must_use]
    pub fn layers(&self) -> Vec<LayerSpec> {
        let last = self.widths.len().saturating_sub(2);
        self.widths
            .windows(2)
            .enumerate()
            .map(|(index, pair)| LayerSpec {
                inputs: pair[0],
                outputs: pair[1],
                bias: self.bias,
                activation: if index == last { self.last } else { self.activation },
            })
            .collect()
    }
}
