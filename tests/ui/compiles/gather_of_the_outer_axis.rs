//! What `refused/gather_of_the_outer_axis.rs` should have been.

use shardgrad::typed::{Error, MeshAxis, Shard, Tensor};

pub fn gather<'g>(
    x: Tensor<'g, 2, (Shard<0>, Shard<0>)>,
    dp: MeshAxis<0>,
    tp: MeshAxis<1>,
) -> Result<(), Error> {
    x.all_gather(tp)?.all_gather(dp)?;
    Ok(())
}
