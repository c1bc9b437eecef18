//! A layout for two mesh axes on a mesh of one.

use shardgrad::typed::{Error, Graph, Replicated, Shard, Tensor};

pub fn declare<'g>(g: Graph<'g, 1>) -> Result<(), Error> {
    let _: Tensor<2, (Shard<0>, Replicated)> = g.input("x", [8, 4])?;
    Ok(())
}

fn main() {}
