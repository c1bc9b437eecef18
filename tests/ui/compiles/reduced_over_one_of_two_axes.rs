//! What `refused/reduced_over_one_of_two_axes.rs` should have been.

use shardgrad::typed::{Error, MeshAxis, PendingSum, Replicated, Tensor};

pub fn update<'g>(
    w: Tensor<'g, 2, (Replicated, Replicated)>,
    dw: Tensor<'g, 2, (PendingSum, PendingSum)>,
    dp: MeshAxis<0>,
    tp: MeshAxis<1>,
) -> Result<(), Error> {
    w.sub(dw.all_reduce((dp, tp))?.scale(0.1)?)?;
    Ok(())
}
