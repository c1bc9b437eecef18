//! A matrix product of two operands that are both sharded by columns.

use shardgrad::typed::{Error, Shard, Tensor};

pub fn product<'g>(
    h: Tensor<'g, 2, Shard<1>>,
    w: Tensor<'g, 2, Shard<1>>,
) -> Result<(), Error> {
    h.matmul(w)?;
    Ok(())
}

fn main() {}
