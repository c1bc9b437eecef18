//! What `refused/update_with_unreduced_gradient.rs` should have been.

use shardgrad::typed::{Error, MeshAxis, Replicated, Shard, Tensor};

pub fn update<'g>(
    x: Tensor<'g, 2, Shard<0>>,
    w: Tensor<'g, 2, Replicated>,
    dy: Tensor<'g, 2, Shard<0>>,
    dp: MeshAxis<0>,
) -> Result<(), Error> {
    let (_y, product) = x.matmul_vjp(w)?;
    let (_dx, dw) = product.pull(dy)?;
    w.sub(dw.all_reduce(dp)?.scale(0.1)?)?;
    Ok(())
}
