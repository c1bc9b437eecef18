//! A transformer block: attention, then a feed-forward, each on the normalised value and added to it (pre-norm).

use super::attention::{AttentionSpec, MultiHeadAttention};
use super::feed_forward::FeedForward;
use super::norm::{Norm, NormKind};
use crate::builder::{Graph, Var};
use crate::error::Error;
use crate::layer::Activation;

/// Sizes and kinds of a [`TransformerBlock`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockSpec {
    /// The attention.
    pub attention: AttentionSpec,
    /// Features between the two layers of the feed-forward.
    pub hidden: usize,
    /// What stands between them.
    pub activation: Activation,
    /// The norm before each half.
    pub norm: NormKind,
    /// The share of each half's output that is dropped in training.
    pub dropout: f64,
}

impl BlockSpec {
    /// A causal block as in GPT-2: layer norm, biases, as many heads of keys as of queries, a feed-forward four times as
    /// wide, gelu.
    #[must_use]
    pub fn new(width: usize, heads: usize) -> Self {
        let attention = AttentionSpec { width, heads, kv_heads: heads, bias: true, causal: true };
        let (activation, norm) = (Activation::Gelu, NormKind::Layer);
        Self { attention, hidden: width.saturating_mul(4), activation, norm, dropout: 0.0 }
    }
}

/// x + attention(norm(x)), then the same with the feed-forward.
#[derive(Clone, Debug)]
pub struct TransformerBlock<'g> {
    before_attention: Norm<'g>,
    attention: MultiHeadAttention<'g>,
    before_feed_forward: Norm<'g>,
    feed_forward: FeedForward<'g>,
    dropout: f64,
}

impl<'g> TransformerBlock<'g> {
    /// Parameters under `{name}.norm1`, `{name}.attention`, `{name}.norm2` and `{name}.mlp`.
    ///
    /// ```
    /// use shardgrad_core::DType;
    /// use shardgrad_graph::{Graph, nn::{BlockSpec, TransformerBlock}};
    /// let g = Graph::new("block", DType::F32);
    /// let block = TransformerBlock::new(&g, "b", BlockSpec::new(8, 2))?;
    /// let x = g.input("x", [3, 5, 8])?;
    /// assert_eq!(block.of(x, None)?.ty(), x.ty());
    /// assert_eq!(g.finish().layers.len(), 0, "nothing is an output yet");
    /// # Ok::<(), shardgrad_graph::Error>(())
    /// ```
    ///
    /// # Errors
    /// Sizes that do not fit, a name that is taken.
    #[track_caller]
    pub fn new(g: &'g Graph, name: &str, spec: BlockSpec) -> Result<Self, Error> {
        let AttentionSpec { width, bias, .. } = spec.attention;
        let norm = |part| Norm::new(g, &format!("{name}.{part}"), spec.norm, width);
        Ok(Self {
            before_attention: norm("norm1")?,
            attention: MultiHeadAttention::new(g, &format!("{name}.attention"), spec.attention)?,
            before_feed_forward: norm("norm2")?,
            feed_forward: FeedForward::new(
                g,
                &format!("{name}.mlp"),
                [width, spec.hidden],
                spec.activation,
                bias,
            )?,
            dropout: spec.dropout,
        })
    }

    /// The output, of the input's shape `[batch, sequence, width]`. With a key ([`Graph::key`]) elements are dropped.
    ///
    /// # Errors
    /// Shapes do not fit, or a dropout that is not at least 0 and below 1.
    #[track_caller]
    pub fn of(&self, x: Var<'g>, key: Option<Var<'g>>) -> Result<Var<'g>, Error> {
        let dropped = |h: Var<'g>| match key.filter(|_| self.dropout > 0.0) {
            Some(key) => h.dropout(self.dropout, key),
            None => Ok(h),
        };
        let h = x.add(dropped(self.attention.of(self.before_attention.of(x)?)?)?)?;
        h.add(dropped(self.feed_forward.of(self.before_feed_forward.of(h)?)?)?)
    }
}
