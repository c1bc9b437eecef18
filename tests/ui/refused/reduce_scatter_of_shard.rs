//! A reduce_scatter of a value that is complete, and sharded.

use shardgrad::typed::{Error, MeshAxis, Shard, Tensor};

pub fn scatter<'g>(h: Tensor<'g, 2, Shard<1>>, tp: MeshAxis<0>) -> Result<(), Error> {
    h.over(tp).reduce_scatter::<0>()?;
    Ok(())
}

fn main() {}
