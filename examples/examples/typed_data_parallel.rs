//! Data parallelism with the backward pass by hand: the gradient of a replicated weight over sharded data is a sum of
//! terms, the type says so, and the update is refused until it is reduced.
//!
//! `cargo run -p shardgrad-examples --example typed_data_parallel`

// `Tensor<2, Replicated>` reads better than `Tensor<'_, 2, Replicated>`.
#![allow(elided_lifetimes_in_paths)]

use shardgrad::typed::{DType, Mesh, PendingSum, Replicated, Shard, Tensor, Untyped};
use shardgrad_examples::equals_dense;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mesh = Mesh::new([("dp", 4)])?;
    let dp = mesh.axes();
    let graph = Untyped::new("data parallel", DType::F64);
    let g = graph.on(&mesh)?;

    let x: Tensor<2, Shard<0>> = g.input("x", [8, 6])?; // by rows: each rank has its part of the batch
    let target: Tensor<2, Shard<0>> = g.input("y", [8, 4])?;
    let w: Tensor<2, Replicated> = g.param("w", [6, 4])?;
    let b: Tensor<1, Replicated> = g.param("b", [4])?;

    let (xw, product) = x.matmul_vjp(w)?;
    let (a, bias) = xw.add_bias_vjp(b)?;
    let (y, relu) = a.relu_vjp()?;
    let (loss, error) = y.mse_vjp(target)?;
    let loss: Tensor<0, PendingSum> = loss; // the rows' terms of one global mean, not a mean of means

    let dy: Tensor<2, Shard<0>> = error.pull()?;
    let (da, db) = bias.pull(relu.pull(dy)?)?;
    let (_dx, dw) = product.pull(da)?;
    let dw: Tensor<2, PendingSum> = dw; // `w.sub(dw)` does not compile here

    let dw: Tensor<2, Replicated> = dw.all_reduce(dp)?;
    let db: Tensor<1, Replicated> = db.all_reduce(dp)?;
    g.update(w, w.sub(dw.scale(0.125)?)?)?;
    g.update(b, b.sub(db.scale(0.125)?)?)?;
    g.loss("loss", loss.all_reduce(dp)?)?;

    let planned = equals_dense(&g.finish(), mesh.get())?;
    println!("{}", planned.explain());
    Ok(())
}
