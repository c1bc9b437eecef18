//! The product of two pending sums.

use shardgrad::typed::{Error, PendingSum, Tensor};

pub fn gate<'g>(
    a: Tensor<'g, 2, PendingSum>,
    b: Tensor<'g, 2, PendingSum>,
) -> Result<(), Error> {
    a.mul(b)?;
    Ok(())
}

fn main() {}
