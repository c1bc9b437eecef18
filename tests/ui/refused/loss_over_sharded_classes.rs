//! Cross-entropy over classes that are sharded.

use shardgrad::typed::{Error, Replicated, Shard, Tensor};

pub fn loss<'g>(
    logits: Tensor<'g, 2, Shard<1>>,
    labels: Tensor<'g, 1, Replicated>,
) -> Result<(), Error> {
    logits.cross_entropy(labels)?;
    Ok(())
}

fn main() {}
