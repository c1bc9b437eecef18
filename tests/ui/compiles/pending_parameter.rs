//! What `refused/pending_parameter.rs` should have been.

use shardgrad::typed::{Error, Graph, Replicated, Tensor};

pub fn declare<'g>(g: Graph<'g, 1>) -> Result<(), Error> {
    let _: Tensor<2, Replicated> = g.param("w", [8, 4])?;
    Ok(())
}
