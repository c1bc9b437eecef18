//! Plans in other languages: a runnable NumPy script, a graph for Graphviz.

mod dot;
mod numpy;
mod prelude;

pub use dot::dot;
pub use numpy::numpy;
