//! What `refused/loss_over_sharded_classes.rs` should have been.

use shardgrad::typed::{Error, MeshAxis, Replicated, Shard, Tensor};

pub fn loss<'g>(
    logits: Tensor<'g, 2, Shard<1>>,
    labels: Tensor<'g, 1, Replicated>,
    tp: MeshAxis<0>,
) -> Result<(), Error> {
    logits.all_gather(tp)?.cross_entropy(labels)?;
    Ok(())
}
