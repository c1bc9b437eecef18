//! The outer of two axes that shard one dim, gathered first.

use shardgrad::typed::{Error, MeshAxis, Shard, Tensor};

pub fn gather<'g>(
    x: Tensor<'g, 2, (Shard<0>, Shard<0>)>,
    dp: MeshAxis<0>,
) -> Result<(), Error> {
    x.all_gather(dp)?;
    Ok(())
}

fn main() {}
