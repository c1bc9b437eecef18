//! A nonlinear function of a pending sum.

use shardgrad::typed::{Error, PendingSum, Tensor};

pub fn activate<'g>(y: Tensor<'g, 2, PendingSum>) -> Result<(), Error> {
    y.relu()?;
    Ok(())
}

fn main() {}
