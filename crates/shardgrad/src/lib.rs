//! # shardgrad
//!
//! An autograd framework with a sharding type system. A model is written once, as if on one device; a layout says how its
//! tensors lie over a mesh of devices; shardgrad differentiates the model, finds the least communication that the layout
//! needs, proves the plan right, explains it, runs it, and shows that every gradient equals the dense one.
//!
//! ```
//! use shardgrad::prelude::*;
//!
//! let model = Mlp::new(&[64, 128, 10]).activation(Activation::Relu);
//! let mesh = Mesh::new([("dp", 2), ("tp", 2)])?;
//! let plan = Training::new(model, Loss::CrossEntropy, AdamW::new(1e-3), Batch(128))
//!     .layout("dp=data, tp=megatron")?
//!     .plan(&mesh, &Machine::default())?;
//! println!("{}", plan.explain());
//!
//! let digits = Dataset::digits();
//! let mut trainer = Trainer::threads(&plan)?;
//! let rows = &digits.epoch(0, 0, 128)[0];
//! let report = trainer.step(&digits.batch(rows, DType::F32))?;
//! assert_eq!(report.counted.bytes_per_device, plan.report().totals.bytes_per_device);
//! # Ok::<(), shardgrad::Error>(())
//! ```
//!
//! | module | owns |
//! |---|---|
//! | [`nn`], [`optimizers`], [`training`] | a model, how it is trained, its layout, up to the plan |
//! | [`planned`] | a program with its plan: checked, explained, reported |
//! | [`trainer`] | training: devices on threads, or on processes of many machines (feature `mpi`) |
//! | [`dataset`], [`text`] | the digits, CSV files, texts as characters |
//! | [`model_file`] | models, layouts and machines in TOML |
//! | [`report`], [`predict`] | plans in numbers: the JSON of `shardgrad compare` |
//! | [`measure`] | rates of the machine that this runs on |
//! | [`simulate`] | a step on paper: overlap, exposed communication, memory |
//! | [`why_not`] | what tells two plans apart |
//! | [`core`], [`graph`], [`planner`], [`runtime`] | the crates below |

pub mod dataset;
pub mod error;
mod explain;
mod formula;
pub mod measure;
pub mod model_file;
pub mod nn;
pub mod optimizers;
mod pareto;
pub mod planned;
pub mod predict;
pub mod prelude;
pub mod report;
pub mod simulate;
mod symbols;
pub mod text;
mod toml_file;
pub mod trainer;
pub mod training;
pub mod typed;
pub mod why_not;

pub use dataset::Dataset;
pub use error::Error;
pub use model_file::{LayoutFile, ModelFile, parse_machine, read_machine};
pub use nn::Mlp;
pub use planned::Planned;
pub use text::Text;
pub use trainer::Trainer;
pub use training::{Batch, Training};
#[doc(no_inline)]
pub use typed::{PendingSum, Replicated, Shard};
pub use why_not::WhyNot;

pub use shardgrad_core as core;
pub use shardgrad_graph as graph;
pub use shardgrad_planner as planner;
pub use shardgrad_runtime as runtime;
#[cfg(feature = "mpi")]
pub use shardgrad_runtime::mpi;
