//! On a mesh of two axes, a gradient that is reduced over only one of its pending axes.

use shardgrad::typed::{Error, MeshAxis, PendingSum, Replicated, Tensor};

pub fn update<'g>(
    w: Tensor<'g, 2, (Replicated, Replicated)>,
    dw: Tensor<'g, 2, (PendingSum, PendingSum)>,
    dp: MeshAxis<0>,
) -> Result<(), Error> {
    w.sub(dw.all_reduce(dp)?.scale(0.1)?)?;
    Ok(())
}

fn main() {}
