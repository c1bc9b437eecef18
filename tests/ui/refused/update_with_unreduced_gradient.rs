//! The classic silent bug: a data-parallel update with an unreduced gradient.

use shardgrad::typed::{Error, Replicated, Shard, Tensor};

pub fn update<'g>(
    x: Tensor<'g, 2, Shard<0>>,
    w: Tensor<'g, 2, Replicated>,
    dy: Tensor<'g, 2, Shard<0>>,
) -> Result<(), Error> {
    let (_y, product) = x.matmul_vjp(w)?;
    let (_dx, dw) = product.pull(dy)?;
    w.sub(dw.scale(0.1)?)?;
    Ok(())
}

fn main() {}
