//! # shardgrad-graph
//!
//! Programs over global tensors, their gradients, their dense meaning, and plans: the same programs with a layout on
//! every node.
//!
//! | module | owns |
//! |---|---|
//! | [`node`], [`program`], [`plan`] | the one IR |
//! | [`builder`] | [`Graph`] and [`Var`]: making programs |
//! | [`mod@check`] | the proof that a plan computes its program |
//! | [`certificate`] | what a plan says of its own cost |
//! | [`memory`] | slots, their lives, the peak |
//! | [`naming`] | what values are called where people read of them |
//! | [`text`] | programs and plans as text, and programs back from it |
//! | [`plan_file`], [`validate`] | plans as JSON, and what makes them safe to index |
//! | [`value`] | dense arrays |
//! | [`eval`] | the meaning of a program: naive loops, the oracle |
//! | [`blocks`] | cutting a value into the blocks of a layout, and back |
//! | [`grad`] | reverse mode, graph to graph; the rule of each op is in `vjp` |
//! | [`layer`], [`loss`], [`optim`], [`mlp`], [`stack`], [`model`] | linear layers, losses, optimizers, and training programs made of them |
//! | [`nn`], [`cross_entropy`], [`start`] | parts of transformers, their loss, how parameters start |
//! | [`export`] | plans as NumPy scripts and Graphviz graphs |
//! | [`typed`] | tensors with their layout in their type |

mod attention;
pub mod blocks;
pub mod builder;
pub mod certificate;
pub mod check;
mod clip;
pub mod cross_entropy;
pub mod error;
pub mod eval;
pub mod export;
pub mod grad;
pub mod layer;
pub mod loss;
pub mod memory;
pub mod mlp;
pub mod model;
pub mod naming;
pub mod nn;
pub mod node;
mod norm;
pub mod optim;
pub mod plan;
pub mod plan_file;
pub mod program;
mod softmax;
pub mod stack;
pub mod start;
mod step;
pub mod text;
pub mod typed;
pub mod validate;
pub mod value;
mod vjp;

pub use builder::{Graph, Var};
pub use certificate::Certificate;
pub use check::{Report, Violation, check};
pub use cross_entropy::CrossEntropy;
pub use error::Error;
pub use layer::Activation;
pub use loss::Loss;
pub use mlp::{LayerSpec, MlpSpec};
pub use model::Model;
pub use naming::Names;
pub use node::{Node, NodeId, Output, OutputRole, Phase};
pub use optim::{Optimizer, Schedule};
pub use plan::{Plan, Reason, SlotId, Totals};
pub use plan_file::PlanFile;
pub use program::{Half, Layer, Program};
pub use stack::{StackLayer, StackSpec};
pub use start::Start;
pub use value::{Element, Value};
