//! shardgrad
pub mod dataset;
pub mod error;
mod explain;
mod formula;
pub mod model_file;
pub mod nn;
pub mod optimizers;
pub mod planned;
pub mod predict;
pub mod prelude;
pub mod report;
mod symbols;
mod toml_file;
pub mod trainer;
pub mod training;

pub use dataset::Dataset;
pub use error::Error;
pub use model_file::{LayoutFile, ModelFile, read_machine};
pub use nn::Mlp;
pub use planned::Planned;
pub use trainer::Trainer;
pub use training::{Batch, Training};

pub use shardgrad_core as core;
pub use shardgrad_graph as graph;
pub use shardgrad_planner as planner;
pub use shardgrad_runtime as runtime;
