//! What `refused/matmul_one_sided.rs` should have been.

use shardgrad::typed::{Error, MeshAxis, Replicated, Shard, Tensor};

pub fn product<'g>(
    h: Tensor<'g, 2, Shard<1>>,
    w: Tensor<'g, 2, Replicated>,
    tp: MeshAxis<0>,
) -> Result<(), Error> {
    h.matmul(w.over(tp).slice::<0>()?)?;
    Ok(())
}
