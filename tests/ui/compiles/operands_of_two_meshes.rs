//! What `refused/operands_of_two_meshes.rs` should have been.

use shardgrad::typed::{Error, Replicated, Tensor};

pub fn project<'g>(
    x: Tensor<'g, 2, (Replicated, Replicated)>,
    w: Tensor<'g, 2, (Replicated, Replicated)>,
) -> Result<(), Error> {
    x.matmul(w)?;
    Ok(())
}
