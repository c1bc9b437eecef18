//! A matrix sharded on a dim that it does not have.

use shardgrad::typed::{Error, Graph, Shard, Tensor};

pub fn declare<'g>(g: Graph<'g, 1>) -> Result<(), Error> {
    let _: Tensor<2, Shard<2>> = g.input("x", [8, 4])?;
    Ok(())
}

fn main() {}
