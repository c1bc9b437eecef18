//! What `refused/reduce_scatter_of_shard.rs` should have been.

use shardgrad::typed::{Error, MeshAxis, Shard, Tensor};

pub fn scatter<'g>(h: Tensor<'g, 2, Shard<1>>, tp: MeshAxis<0>) -> Result<(), Error> {
    h.over(tp).all_to_all::<1, 0>()?;
    Ok(())
}
