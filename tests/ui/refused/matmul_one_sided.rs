//! A matrix product whose contraction is sharded on one side only.

use shardgrad::typed::{Error, Replicated, Shard, Tensor};

pub fn product<'g>(
    h: Tensor<'g, 2, Shard<1>>,
    w: Tensor<'g, 2, Replicated>,
) -> Result<(), Error> {
    h.matmul(w)?;
    Ok(())
}

fn main() {}
