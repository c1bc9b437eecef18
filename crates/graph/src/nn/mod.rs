//! Parts of networks that keep their parameters: made once in a graph, applied to any number of values.
//!
//! A part makes its parameters under its name (`block.attention.q.w`), and records each of its linear layers at its first
//! use, with the place that it has in a pair ([`crate::Half`]): queries, keys and values and the first half of a feed-forward
//! open a pair, the output projection and the second half close it, a table of embeddings closes one over the vocabulary, and
//! the head opens one. So the presets mean for transformers what Megatron-LM means. Another use, for another part of a
//! batch, belongs to the same layers.
//!
//! A parameter that two parts share is one leaf that both read: its gradient is the sum of both, reduced once, and it has
//! one optimizer state.

mod attention;
mod block;
mod embedding;
mod feed_forward;
mod norm;
mod projection;

pub use attention::{AttentionSpec, MultiHeadAttention};
pub use block::{BlockSpec, TransformerBlock};
pub use embedding::{Embedding, Head};
pub use feed_forward::FeedForward;
pub use norm::{Norm, NormKind};
pub use projection::Projection;
