//! shardgrad
pub mod dataset;
pub mod error;
mod formula;
pub mod predict;
pub mod report;
mod symbols;
mod toml_file;

pub use dataset::Dataset;
pub use error::Error;
