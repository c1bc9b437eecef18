//! What `refused/third_dim_of_a_matrix.rs` should have been.

use shardgrad::typed::{Error, Graph, Shard, Tensor};

pub fn declare<'g>(g: Graph<'g, 1>) -> Result<(), Error> {
    let _: Tensor<2, Shard<1>> = g.input("x", [8, 4])?;
    Ok(())
}
