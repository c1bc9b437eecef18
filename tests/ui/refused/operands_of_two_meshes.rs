//! Operands that lie on meshes of different numbers of axes.

use shardgrad::typed::{Error, Replicated, Tensor};

pub fn project<'g>(
    x: Tensor<'g, 2, Replicated>,
    w: Tensor<'g, 2, (Replicated, Replicated)>,
) -> Result<(), Error> {
    x.matmul(w)?;
    Ok(())
}

fn main() {}
