//! Placements as types: tensors that carry their layout in their type, so that the compiler reviews the sharding.
//!
//! Start with the [`tutorial`]; the rules are in `docs/type-system.md`. Names are best imported one by one, as here:
//! rustc then prints them short.
//!
//! ```
//! use shardgrad::typed::{Graph, Mesh, PendingSum, Replicated, Shard, Tensor, Untyped};
//! use shardgrad::typed::DType;
//!
//! let mesh = Mesh::new([("tp", 4)])?;
//! let tp = mesh.axes();
//! let graph = Untyped::new("mlp", DType::F32);
//! let g = graph.on(&mesh)?;
//! let x: Tensor<2, Replicated> = g.input("x", [64, 128])?;
//! let w0: Tensor<2, Shard<1>> = g.param("w0", [128, 512])?;
//! let w1: Tensor<2, Shard<0>> = g.param("w1", [512, 10])?;
//! let h = x.matmul(w0)?.relu()?; // Tensor<2, Shard<1>>: column parallel, nothing sent
//! let y = h.matmul(w1)?; // Tensor<2, PendingSum>: row parallel, terms of a sum
//! let y: Tensor<2, Replicated> = y.all_reduce(tp)?;
//! g.output("out", y)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod excess;
pub mod layers;
pub mod megatron;
pub mod tutorial;

pub use excess::{Excess, ExplicitTransition, excess};
pub use layers::{ColumnLinear, MegatronBlock, MegatronMlp, RowLinear};
pub use shardgrad_core::DType;
pub use shardgrad_core::types as rules;
pub use shardgrad_graph::Error;
pub use shardgrad_graph::Graph as Untyped;
pub use shardgrad_graph::typed::{
    FitsRank, Graph, LayoutOn, LayoutType, Mesh, MeshAxis, Over, Parameters, PendingSum,
    Replicated, Shard, StoredLayout, Tensor, grad, vjp,
};
