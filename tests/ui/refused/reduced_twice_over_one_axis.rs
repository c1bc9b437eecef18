//! On a mesh of two axes, a gradient that is reduced twice over the same axis.

use shardgrad::typed::{Error, MeshAxis, PendingSum, Replicated, Shard, Tensor};

pub fn update<'g>(
    w: Tensor<'g, 2, (Replicated, Shard<1>)>,
    dw: Tensor<'g, 2, (PendingSum, Shard<1>)>,
    dp: MeshAxis<0>,
) -> Result<(), Error> {
    w.sub(dw.all_reduce(dp)?.all_reduce(dp)?)?;
    Ok(())
}

fn main() {}
