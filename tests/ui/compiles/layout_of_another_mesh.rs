//! What `refused/layout_of_another_mesh.rs` should have been.

use shardgrad::typed::{Error, Graph, Replicated, Shard, Tensor};

pub fn declare<'g>(g: Graph<'g, 2>) -> Result<(), Error> {
    let _: Tensor<2, (Shard<0>, Replicated)> = g.input("x", [8, 4])?;
    Ok(())
}
