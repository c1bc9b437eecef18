//! From `Replicated` to a Megatron MLP in ten minutes. All code here compiles and runs with the tests.
//!
//! # 1. A mesh, and a tensor that is everywhere
//!
//! A *mesh* is a named grid of devices. A *placement* says what one mesh axis does to a tensor. The simplest one is
//! [`Replicated`]: every rank holds all of it.
//!
//! ```
//! use shardgrad::typed::{DType, Mesh, Replicated, Tensor, Untyped};
//!
//! let mesh = Mesh::new([("tp", 4)])?; // four devices in a row
//! let graph = Untyped::new("first", DType::F32);
//! let g = graph.on(&mesh)?;
//! let x: Tensor<2, Replicated> = g.input("x", [64, 128])?; // two dims, whole on every rank
//! let h: Tensor<2, Replicated> = x.relu()?;
//! # let _ = h;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Shapes are *global*: `[64, 128]` is the tensor, not one rank's part of it. A program means the same on any mesh.
//!
//! # 2. Columns: `Shard`
//!
//! [`Shard<1>`](Shard) cuts dim 1 into blocks, one a rank. A weight that is cut by columns makes a product that is cut by
//! columns, and every rank can go on alone:
//!
//! ```
//! # use shardgrad::typed::{DType, Mesh, Replicated, Shard, Tensor, Untyped};
//! # let mesh = Mesh::new([("tp", 4)])?;
//! # let graph = Untyped::new("columns", DType::F32);
//! # let g = graph.on(&mesh)?;
//! let x: Tensor<2, Replicated> = g.input("x", [64, 128])?;
//! let w0: Tensor<2, Shard<1>> = g.param("w0", [128, 512])?;
//! let b0: Tensor<1, Shard<0>> = g.param("b0", [512])?; // cut where the features are
//! let h: Tensor<2, Shard<1>> = x.matmul(w0)?.add_bias(b0)?.relu()?;
//! # let _ = h;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The annotations are there for the reader. The compiler finds the layouts by itself, and compares.
//!
//! # 3. Rows: `PendingSum`
//!
//! Now the features of `h` are cut, so the next weight is cut by rows to match. Each rank has some of the products that
//! make an element, not all: a *term*. The result is a [`PendingSum`], and the terms become the value by one
//! `all_reduce` over the axis:
//!
//! ```
//! # use shardgrad::typed::{DType, Mesh, PendingSum, Replicated, Shard, Tensor, Untyped};
//! # let mesh = Mesh::new([("tp", 4)])?;
//! # let tp = mesh.axes();
//! # let graph = Untyped::new("rows", DType::F32);
//! # let g = graph.on(&mesh)?;
//! # let h: Tensor<2, Shard<1>> = g.input("h", [64, 512])?;
//! let w1: Tensor<2, Shard<0>> = g.param("w1", [512, 10])?;
//! let b1: Tensor<1, Replicated> = g.param("b1", [10])?;
//! let terms: Tensor<2, PendingSum> = h.matmul(w1)?;
//! let y: Tensor<2, Replicated> = terms.all_reduce(tp)?.add_bias(b1)?;
//! # let _ = y;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The bias comes after the reduction: before it, it would be added once on every rank. Try it, and the compiler says
//!
//! ```text
//! error: a bias added to a `PendingSum` before its reduction would count once per rank
//!    = note: reduce first, then add the bias: `x.matmul(w)?.all_reduce(axis)?.add_bias(b)?` with …
//! ```
//!
//! Likewise a `relu` of terms (f(a + b) is not f(a) + f(b)), a product of two pending sums, a sum of a whole value and
//! terms, and a second `all_reduce` do not compile. Linear ops do: terms can be scaled, summed over a dim, added to terms.
//!
//! # 4. Changing a layout
//!
//! | from | to | call | sent |
//! |---|---|---|---|
//! | `PendingSum` | `Replicated` | `y.all_reduce(tp)` | 2(p−1)/p · n |
//! | `PendingSum` | `Shard<D>` | `y.over(tp).reduce_scatter::<D>()` | (p−1)/p · n |
//! | `Shard<D>` | `Replicated` | `y.all_gather(tp)` | (p−1)/p · n |
//! | `Shard<D>` | `Shard<E>` | `y.over(tp).all_to_all::<D, E>()` | (p−1)/p² · n |
//! | `Replicated` | `Shard<D>` | `y.over(tp).slice::<D>()` | nothing |
//! | complete | `PendingSum` | `y.to_pending(tp)` | nothing |
//!
//! # 5. Gradients
//!
//! [`grad()`] goes backward through what you wrote and returns gradients in their parameters' types. The types are *pins*
//! for the planner, which finds the collectives that are needed and no others:
//!
//! ```
//! use shardgrad::typed::{DType, Mesh, Replicated, Shard, Tensor, Untyped, grad};
//! use shardgrad::{Planned, core::Machine, planner::{LayoutRequest, Options}};
//!
//! let mesh = Mesh::new([("tp", 4)])?;
//! let tp = mesh.axes();
//! let graph = Untyped::new("two layers", DType::F32);
//! let g = graph.on(&mesh)?;
//! let x: Tensor<2, Replicated> = g.input("x", [64, 128])?;
//! let target: Tensor<2, Replicated> = g.input("y", [64, 10])?;
//! let w0: Tensor<2, Shard<1>> = g.param("w0", [128, 512])?;
//! let w1: Tensor<2, Shard<0>> = g.param("w1", [512, 10])?;
//! let y = x.matmul(w0)?.relu()?.matmul(w1)?.all_reduce(tp)?;
//! let loss = y.mse(target)?;
//! let (dw0, dw1) = grad(loss, (w0, w1))?;
//! g.update(w0, w0.sub(dw0.scale(0.1)?)?)?;
//! g.update(w1, w1.sub(dw1.scale(0.1)?)?)?;
//! g.loss("loss", loss)?;
//!
//! let planned = Planned::new(
//!     g.finish(),
//!     mesh.get(),
//!     &LayoutRequest::auto(),
//!     &Machine::default(),
//!     &Options::default(),
//! )?;
//! assert!(planned.check().violations.is_empty());
//! assert_eq!(planned.plan().totals().by_kind["all_reduce"], 1); // y, forward; nothing backward
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # 6. Two axes
//!
//! On a mesh of two axes a layout is a pair, in mesh order, and a transition names its axis. The axes are values:
//!
//! ```
//! # use shardgrad::typed::{DType, Mesh, PendingSum, Replicated, Shard, Tensor, Untyped};
//! let mesh = Mesh::new([("dp", 2), ("tp", 4)])?;
//! let (dp, tp) = mesh.axes();
//! let graph = Untyped::new("two axes", DType::F32);
//! let g = graph.on(&mesh)?;
//! let x: Tensor<2, (Shard<0>, Replicated)> = g.input("x", [64, 128])?;
//! let w: Tensor<2, (Replicated, Shard<1>)> = g.param("w", [128, 512])?;
//! let (y, product) = x.matmul_vjp(w)?; // an op with its pullback
//! let dy: Tensor<2, (Shard<0>, Shard<1>)> = y.sum_all_vjp()?.1.pull()?;
//! let (dx, dw) = product.pull(dy)?;
//! let dx: Tensor<2, (Shard<0>, PendingSum)> = dx; // to be reduced over tp
//! let dw: Tensor<2, (PendingSum, Shard<1>)> = dw; // to be reduced over dp
//! g.gradient(x, dx.all_reduce(tp)?)?;
//! g.gradient(w, dw.all_reduce(dp)?)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Here the backward pass is by hand, with *pullbacks*: what a pullback returns sends nothing, and what remains to be
//! reduced stands in its type. Reduce `dw` over the wrong axis, over one of two, or twice, and it does not compile.
//!
//! # 7. Layers
//!
//! [`ColumnLinear`], [`RowLinear`] and [`MegatronMlp`] are steps 2 and 3 as layers. Their signatures say where data lies:
//!
//! ```
//! use shardgrad::typed::{ColumnLinear, DType, Mesh, Replicated, RowLinear, Shard, Tensor, Untyped};
//!
//! let mesh = Mesh::new([("tp", 4)])?;
//! let tp = mesh.axes();
//! let graph = Untyped::new("layers", DType::F32);
//! let g = graph.on(&mesh)?;
//! let mut x: Tensor<2, Replicated> = g.input("x", [64, 128])?;
//! for block in 0..3 {
//!     let column = ColumnLinear::new(g, 2 * block, 128, 512)?;
//!     let row = RowLinear::new(g, 2 * block + 1, 512, 128)?;
//!     let h: Tensor<2, Shard<1>> = column.forward(x)?.gelu()?;
//!     x = row.forward(h, tp)?; // the type is that of x again, so deep models are loops
//! }
//! g.output("out", x)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! On a mesh `dp, tp` the same layers cut the batch over the first axis. The graph's mesh says which of the two is meant:
//!
//! ```
//! # use shardgrad::typed::{DType, MegatronMlp, Mesh, Replicated, Shard, Tensor, Untyped};
//! # use shardgrad::graph::Activation;
//! let mesh = Mesh::new([("dp", 2), ("tp", 4)])?;
//! let (_, tp) = mesh.axes();
//! let graph = Untyped::new("layers on two axes", DType::F32);
//! let g = graph.on(&mesh)?;
//! let x: Tensor<2, (Shard<0>, Replicated)> = g.input("x", [64, 128])?;
//! let model = MegatronMlp::new(g, &[128, 512, 128], Activation::Gelu)?;
//! let out: Tensor<2, (Shard<0>, Replicated)> = model.forward(x, tp)?;
//! g.output("out", out)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # 8. In and out
//!
//! A typed tensor is a handle on a node of an ordinary graph. [`Tensor::erase`] gives the untyped handle, always;
//! `Var::typed::<RANK, L>()` enters, checked: the layout becomes a pin, or must agree with the pin that is there.
//!
//! ```
//! # use shardgrad::typed::{DType, Mesh, Shard, Untyped};
//! # let graph = Untyped::new("in and out", DType::F32);
//! # graph.on(&Mesh::new([("tp", 4)])?)?;
//! let v = graph.input("v", [64, 8, 16])?.sum(&[1])?;
//! let t = v.typed::<2, Shard<0>>()?.relu()?;
//! let out = t.erase().broadcast(&[0, 2], &[64, 8, 16])?;
//! # let _ = out;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What types do not say: cost. A program that compiles may gather what need not be gathered; [`excess()`] compares its plan
//! with the plan without its explicit transitions and names the ones that cost more than they must.
//!
//! Nor do they say sizes. Extents are checked when the op is built, with an error that names them; whether p
//! divides an extent does not matter, blocks may be uneven.

#[cfg(doc)]
use super::{
    ColumnLinear, MegatronMlp, PendingSum, Replicated, RowLinear, Shard, Tensor, excess, grad,
};
