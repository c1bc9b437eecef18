//! A tensor-parallel MLP whose types say where every value lies, trained by reverse mode.
//!
//! `cargo run -p shardgrad-examples --example typed_tensor_parallel`

// `Tensor<2, Replicated>` reads better than `Tensor<'_, 2, Replicated>`.
#![allow(elided_lifetimes_in_paths)]

use shardgrad::graph::Activation;
use shardgrad::typed::{
    DType, MegatronMlp, Mesh, PendingSum, Replicated, Shard, Tensor, Untyped, grad,
};
use shardgrad_examples::equals_dense;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mesh = Mesh::new([("tp", 4)])?;
    let tp = mesh.axes();

    // By hand. Leave out the all_reduce, or add the bias before it, and this does not compile.
    let graph = Untyped::new("tensor parallel", DType::F64);
    let g = graph.on(&mesh)?;
    let x: Tensor<2, Replicated> = g.input("x", [8, 6])?;
    let target: Tensor<2, Replicated> = g.input("y", [8, 4])?;
    let w0: Tensor<2, Shard<1>> = g.param("w0", [6, 10])?; // by columns
    let b0: Tensor<1, Shard<0>> = g.param("b0", [10])?;
    let w1: Tensor<2, Shard<0>> = g.param("w1", [10, 4])?; // by rows
    let b1: Tensor<1, Replicated> = g.param("b1", [4])?;

    let h: Tensor<2, Shard<1>> = x.matmul(w0)?.add_bias(b0)?.relu()?; // nothing sent
    let terms: Tensor<2, PendingSum> = h.matmul(w1)?; // nothing sent
    let y: Tensor<2, Replicated> = terms.all_reduce(tp)?.add_bias(b1)?;
    let loss = y.mse(target)?;

    // Gradients come back with the parameters' types; the planner finds that they need no further collective.
    let (dw0, db0, dw1, db1) = grad(loss, (w0, b0, w1, b1))?;
    g.update(w0, w0.sub(dw0.scale(0.125)?)?)?;
    g.update(b0, b0.sub(db0.scale(0.125)?)?)?;
    g.update(w1, w1.sub(dw1.scale(0.125)?)?)?;
    g.update(b1, b1.sub(db1.scale(0.125)?)?)?;
    g.loss("loss", loss)?;
    let planned = equals_dense(&g.finish(), mesh.get())?;
    println!("{}", planned.explain());

    // The same out of layers, two blocks deep: a block's input and output types are equal, so blocks run in a loop.
    let graph = Untyped::new("megatron", DType::F64);
    let g = graph.on(&mesh)?;
    let x: Tensor<2, Replicated> = g.input("x", [8, 6])?;
    let target: Tensor<2, Replicated> = g.input("y", [8, 4])?;
    let model = MegatronMlp::new(g, &[6, 10, 6, 9, 4], Activation::Relu)?;
    let loss = model.forward(x, tp)?.mse(target)?;
    let gradient = grad(loss, model.clone())?;
    model.descend(g, &gradient, 0.125)?;
    g.loss("loss", loss)?;
    let planned = equals_dense(&g.finish(), mesh.get())?;
    println!("{}", planned.explain());
    Ok(())
}
