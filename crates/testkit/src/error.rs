//! What can go wrong in a check that could not be made. A check that was made and failed is a report, not an error.

use thiserror::Error;

/// Errors of the kit. Codes are stable (`docs/errors.md`).
#[derive(Debug, Error)]
pub enum Error {
    /// The program or its inputs.
    #[error(transparent)]
    Graph(#[from] shardgrad_graph::Error),
    /// Meshes, layouts, shapes.
    #[error(transparent)]
    Core(#[from] shardgrad_core::Error),
    /// E501
    #[error("there is no value named `{name}`; the program has {known}")]
    UnknownName {
        /// The name.
        name: String,
        /// Names there are.
        known: String,
    },
    /// E502
    #[error(
        "`{name}` must be {expected}, but {found} was given; every leaf of the program needs a value of its type"
    )]
    WrongInput {
        /// The leaf.
        name: String,
        /// Its type.
        expected: String,
        /// What was given: a type, or `nothing`.
        found: String,
    },
    /// E503
    #[error("the plan cannot run at {node}: {problem}")]
    CannotRun {
        /// The node.
        node: String,
        /// What does not fit.
        problem: String,
    },
    /// E504
    #[error("{path}: {problem}")]
    TensorFile {
        /// The file.
        path: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The run.
    #[error(transparent)]
    Runtime(#[from] shardgrad_runtime::Error),
    /// The planner refused the request.
    #[error(transparent)]
    Planner(#[from] shardgrad_planner::Error),
}

impl Error {
    /// The stable code of the error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Error::Graph(source) => source.code(),
            Error::Core(source) => source.code(),
            Error::UnknownName { .. } => "E501",
            Error::WrongInput { .. } => "E502",
            Error::CannotRun { .. } => "E503",
            Error::TensorFile { .. } => "E504",
            Error::Runtime(source) => source.code(),
            Error::Planner(source) => source.code(),
        }
    }
}
