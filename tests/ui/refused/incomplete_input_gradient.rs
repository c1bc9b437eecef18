//! The input gradient of a column-parallel layer, used as if it were complete.

use shardgrad::typed::{Error, MeshAxis, Shard, Tensor};

pub fn backward<'g>(
    h: Tensor<'g, 2, Shard<1>>,
    w0: Tensor<'g, 2, Shard<0>>,
    w1: Tensor<'g, 2, Shard<1>>,
    dz: Tensor<'g, 2, Shard<1>>,
    tp: MeshAxis<0>,
) -> Result<(), Error> {
    let (y, row) = h.matmul_vjp(w0)?;
    let (_z, column) = y.all_reduce(tp)?.matmul_vjp(w1)?;
    let (dy, _dw1) = column.pull(dz)?;
    row.pull(dy)?;
    Ok(())
}

fn main() {}
