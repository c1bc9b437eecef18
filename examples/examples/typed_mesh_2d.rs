//! Data and tensor parallelism together on a mesh of two axes: layouts are pairs, and each reduction names its axis.
//!
//! `cargo run -p shardgrad-examples --example typed_mesh_2d`

// `Tensor<2, Replicated>` reads better than `Tensor<'_, 2, Replicated>`.
#![allow(elided_lifetimes_in_paths)]

use shardgrad::graph::Activation;
use shardgrad::typed::{
    DType, MegatronMlp, Mesh, PendingSum, Replicated, Shard, Tensor, Untyped, grad,
};
use shardgrad_examples::equals_dense;

/// A batch in parts over `dp`, whole over `tp`.
type Rows<'g> = Tensor<'g, 2, (Shard<0>, Replicated)>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mesh = Mesh::new([("dp", 2), ("tp", 2)])?;
    let (dp, tp) = mesh.axes();
    let graph = Untyped::new("data and tensor parallel", DType::F64);
    let g = graph.on(&mesh)?;

    let x: Rows<'_> = g.input("x", [8, 6])?;
    let target: Rows<'_> = g.input("y", [8, 4])?;
    let w0: Tensor<2, (Replicated, Shard<1>)> = g.param("w0", [6, 10])?;
    let b0: Tensor<1, (Replicated, Shard<0>)> = g.param("b0", [10])?;
    let w1: Tensor<2, (Replicated, Shard<0>)> = g.param("w1", [10, 4])?;
    let b1: Tensor<1, (Replicated, Replicated)> = g.param("b1", [4])?;

    // Forward: one all_reduce over tp.
    let (xw, column) = x.matmul_vjp(w0)?;
    let (a, bias0) = xw.add_bias_vjp(b0)?;
    let (h, relu) = a.relu_vjp()?;
    let h: Tensor<2, (Shard<0>, Shard<1>)> = h;
    let (terms, row) = h.matmul_vjp(w1)?;
    let terms: Tensor<2, (Shard<0>, PendingSum)> = terms;
    let (y, bias1) = terms.all_reduce(tp)?.add_bias_vjp(b1)?;
    let (loss, error) = y.mse_vjp(target)?;
    let loss: Tensor<0, (PendingSum, Replicated)> = loss;

    // Backward: an all_reduce has the identity as its VJP, so its result's cotangent goes on to `row`.
    let dy: Rows<'_> = error.pull()?;
    let (dy, db1) = bias1.pull(dy)?;
    let (dh, dw1) = row.pull(dy)?;
    let (da, db0) = bias0.pull(relu.pull(dh)?)?;
    let (dx, dw0) = column.pull(da)?;
    let dx: Tensor<2, (Shard<0>, PendingSum)> = dx; // pending over tp, as the output was forward
    let dw0: Tensor<2, (PendingSum, Shard<1>)> = dw0; // pending over dp, as all weight gradients are

    g.gradient(x, dx.all_reduce(tp)?)?;
    g.update(w0, w0.sub(dw0.all_reduce(dp)?.scale(0.125)?)?)?;
    g.update(b0, b0.sub(db0.all_reduce(dp)?.scale(0.125)?)?)?;
    g.update(w1, w1.sub(dw1.all_reduce(dp)?.scale(0.125)?)?)?;
    g.update(b1, b1.sub(db1.all_reduce(dp)?.scale(0.125)?)?)?;
    g.loss("loss", loss.all_reduce(dp)?)?;

    let planned = equals_dense(&g.finish(), mesh.get())?;
    println!("{}", planned.explain());

    // The same out of layers, with the backward pass by reverse mode: the layers know both axes by the graph they are on.
    let graph = Untyped::new("megatron", DType::F64);
    let g = graph.on(&mesh)?;
    let x: Rows<'_> = g.input("x", [8, 6])?;
    let target: Rows<'_> = g.input("y", [8, 4])?;
    let model = MegatronMlp::new(g, &[6, 10, 4], Activation::Relu)?;
    let y: Rows<'_> = model.forward(x, tp)?;
    let loss = y.mse(target)?;
    let gradient = grad(loss, model.clone())?;
    let dw0: Tensor<2, (Replicated, Shard<1>)> = gradient.blocks[0].column.weight; // reduced over dp
    let _ = dw0;
    model.descend(g, &gradient, 0.125)?;
    g.loss("loss", loss.all_reduce(dp)?)?;
    let planned = equals_dense(&g.finish(), mesh.get())?;
    println!("{}", planned.explain());
    Ok(())
}
