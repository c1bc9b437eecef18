//! What most programs import.

pub use crate::dataset::{Dataset, Inputs};
pub use crate::nn::Mlp;
pub use crate::optimizers::{Adam, AdamW, Momentum, Sgd};
pub use crate::planned::Planned;
pub use crate::trainer::Trainer;
pub use crate::training::{Batch, Training};
pub use shardgrad_core::{DType, Layout, Machine, Mesh, Placement, TensorType};
pub use shardgrad_graph::{
    Activation, Graph, Loss, OutputRole, Program, Schedule, StackSpec, Value, Var,
};
pub use shardgrad_planner::{LayoutRequest, Options};
