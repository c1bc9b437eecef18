//! Errors of this crate: one line each, naming the file, the place in it and what was expected.

use std::path::{Path, PathBuf};

use thiserror::Error;

/// What can go wrong between a user's files and a running plan. Codes are stable (`docs/errors.md`).
#[derive(Debug, Error)]
pub enum Error {
    /// E401
    #[error("{}: cannot be read: {problem}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        problem: String,
    },
    /// E402
    #[error("{}{}: {problem}", file.display(), line.map_or(String::new(), |l| format!(":{l}")))]
    BadFile {
        /// The model file, layout file or machine file.
        file: PathBuf,
        /// The line, where one is known.
        line: Option<usize>,
        /// The key, what was found and what was expected.
        problem: String,
    },
    /// E403
    #[error("{}{}{}: {problem}", file.display(), row.map_or(String::new(), |r| format!(": row {r}")), column_text(column))]
    BadData {
        /// The data file.
        file: PathBuf,
        /// The row, 1 for the first one after the header; `None` for the file as a whole.
        row: Option<usize>,
        /// The column, by its name in the header.
        column: Option<String>,
        /// What was found and what was expected.
        problem: String,
    },
    /// E404
    #[error("{problem}")]
    Mismatch {
        /// What does not fit what, and what would.
        problem: String,
    },
    /// A mesh, layout or op was refused.
    #[error(transparent)]
    Core(#[from] shardgrad_core::Error),
    /// A program was refused.
    #[error(transparent)]
    Graph(#[from] shardgrad_graph::Error),
    /// A layout was refused.
    #[error(transparent)]
    Planner(#[from] shardgrad_planner::Error),
    /// A run failed.
    #[error(transparent)]
    Runtime(#[from] shardgrad_runtime::Error),
}

fn column_text(column: &Option<String>) -> String {
    column.as_ref().map_or(String::new(), |c| format!(", column `{c}`"))
}

impl Error {
    /// The stable code of the error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Error::Unreadable { .. } => "E401",
            Error::BadFile { .. } => "E402",
            Error::BadData { .. } => "E403",
            Error::Mismatch { .. } => "E404",
            Error::Core(error) => error.code(),
            Error::Graph(error) => error.code(),
            Error::Planner(error) => error.code(),
            Error::Runtime(error) => error.code(),
        }
    }

    pub(crate) fn unreadable(path: &Path, error: &std::io::Error) -> Self {
        Error::Unreadable { path: path.to_owned(), problem: error.to_string() }
    }

    pub(crate) fn bad_file(file: &Path, line: Option<usize>, problem: impl Into<String>) -> Self {
        Error::BadFile { file: file.to_owned(), line, problem: problem.into() }
    }
}
