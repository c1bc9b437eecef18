//! What `refused/bias_before_reduction.rs` should have been.

use shardgrad::typed::{Error, MeshAxis, Replicated, Shard, Tensor};

pub fn forward<'g>(
    h: Tensor<'g, 2, Shard<1>>,
    w: Tensor<'g, 2, Shard<0>>,
    b: Tensor<'g, 1, Replicated>,
    tp: MeshAxis<0>,
) -> Result<(), Error> {
    h.matmul(w)?.all_reduce(tp)?.add_bias(b)?;
    Ok(())
}
