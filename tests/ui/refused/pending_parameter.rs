//! A parameter declared as a pending sum.

use shardgrad::typed::{Error, Graph, PendingSum, Tensor};

pub fn declare<'g>(g: Graph<'g, 1>) -> Result<(), Error> {
    let _: Tensor<2, PendingSum> = g.param("w", [8, 4])?;
    Ok(())
}

fn main() {}
