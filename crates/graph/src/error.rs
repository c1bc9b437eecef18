//! Errors of making and evaluating programs.

use std::panic::Location;

use thiserror::Error;

/// What can be wrong with a program. Codes are stable (`docs/errors.md`).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// An op refused its operands.
    #[error("{source} (at {at})")]
    Op {
        /// What was wrong.
        #[source]
        source: shardgrad_core::Error,
        /// Where the op was built.
        at: &'static Location<'static>,
    },
    /// E101
    #[error("the name `{name}` is taken; names of values are unique (at {at})")]
    RepeatedName {
        /// The name.
        name: String,
        /// Where it was given again.
        at: &'static Location<'static>,
    },
    /// E102
    #[error("operands of {op} come from two graphs; build each program in one graph (at {at})")]
    ForeignVar {
        /// The op.
        op: &'static str,
        /// Where it was built.
        at: &'static Location<'static>,
    },
    /// E103
    #[error("{op} of {found}: {problem} (at {at})")]
    Bad {
        /// What was being built.
        op: &'static str,
        /// What was found.
        found: String,
        /// What is wrong and what is legal.
        problem: String,
        /// Where.
        at: &'static Location<'static>,
    },
    /// E104
    #[error("there is no value named `{name}`; {known}")]
    UnknownName {
        /// The name.
        name: String,
        /// The names there are.
        known: String,
    },
    /// E105
    #[error("`{name}` must be {expected}, but {found} was given")]
    WrongValue {
        /// The leaf.
        name: String,
        /// The type it has.
        expected: String,
        /// What was given.
        found: String,
    },
    /// E106
    #[error(
        "label {label} in row {row} of `{name}` is not one of 0..{classes}, the classes or table rows that there are"
    )]
    LabelOutOfRange {
        /// The leaf that holds the labels.
        name: String,
        /// The row.
        row: usize,
        /// The label.
        label: i64,
        /// Number of classes, or of rows of a table.
        classes: usize,
    },
    /// E110
    #[error(
        "{op} on blocks {operands} cannot make a block {result}; blocks must be those of one layout of each value"
    )]
    Blocks {
        /// The op.
        op: &'static str,
        /// Types of the operands' blocks.
        operands: String,
        /// Type of the result's block.
        result: String,
    },
    /// E111
    #[error("{op}: {problem}")]
    Arithmetic {
        /// The op.
        op: &'static str,
        /// What cannot be computed.
        problem: String,
    },
    /// E112
    #[error(
        "ranks {first} and {second} hold different copies of element {index} of a {ty}; replicas are equal to the last bit"
    )]
    ReplicasDiffer {
        /// A rank that holds the element.
        first: usize,
        /// Another rank that holds it.
        second: usize,
        /// Row-major index of the element.
        index: usize,
        /// Type of the whole value.
        ty: String,
    },
    /// E113
    #[error("`{key}` is {found}, but {problem}")]
    BadModel {
        /// Key of the model's description, as in `layer[1].in`.
        key: String,
        /// What was found.
        found: String,
        /// What is legal.
        problem: String,
    },
    /// E120
    #[error("line {line}: found {found}, expected {expected}")]
    Syntax {
        /// The line of the program's text, from 1.
        line: usize,
        /// What stands there.
        found: String,
        /// What should.
        expected: String,
    },
    /// E121
    #[error("malformed {what}: {problem}")]
    Malformed {
        /// Program or plan.
        what: &'static str,
        /// Where, what was found and what is legal.
        problem: String,
    },
    /// E122
    #[error("not a plan file: {problem}")]
    BadPlanFile {
        /// What was found and what is legal.
        problem: String,
    },
}

impl Error {
    /// The stable code of the error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Error::Op { source, .. } => source.code(),
            Error::RepeatedName { .. } => "E101",
            Error::ForeignVar { .. } => "E102",
            Error::Bad { .. } => "E103",
            Error::UnknownName { .. } => "E104",
            Error::WrongValue { .. } => "E105",
            Error::LabelOutOfRange { .. } => "E106",
            Error::Blocks { .. } => "E110",
            Error::Arithmetic { .. } => "E111",
            Error::ReplicasDiffer { .. } => "E112",
            Error::BadModel { .. } => "E113",
            Error::Syntax { .. } => "E120",
            Error::Malformed { .. } => "E121",
            Error::BadPlanFile { .. } => "E122",
        }
    }
}
