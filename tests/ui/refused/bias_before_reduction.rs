//! The bias of a row-parallel layer, added before the reduction.

use shardgrad::typed::{Error, Replicated, Shard, Tensor};

pub fn forward<'g>(
    h: Tensor<'g, 2, Shard<1>>,
    w: Tensor<'g, 2, Shard<0>>,
    b: Tensor<'g, 1, Replicated>,
) -> Result<(), Error> {
    h.matmul(w)?.add_bias(b)?;
    Ok(())
}

fn main() {}
