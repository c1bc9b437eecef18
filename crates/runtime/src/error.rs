//! Errors of running: one line each, naming ranks, collectives and values.

use thiserror::Error;

/// What can go wrong while ranks run. Codes are stable (`docs/errors.md`).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// The code is that of the source.
    #[error(transparent)]
    Core(#[from] shardgrad_core::Error),
    /// The code is that of the source.
    #[error(transparent)]
    Graph(#[from] shardgrad_graph::Error),
    /// E301
    #[error("rank {rank} failed: {cause}; all ranks stopped")]
    PeerFailed {
        /// The rank that failed.
        rank: usize,
        /// What happened there.
        cause: String,
    },
    /// E302
    #[error(
        "rank {rank} runs {mine}, but rank {peer} runs {theirs}; all ranks must run the same collectives in the same order"
    )]
    Mismatch {
        /// The rank that noticed.
        rank: usize,
        /// Its collective: sequence number, kind, axes, element type, length.
        mine: String,
        /// The other rank.
        peer: usize,
        /// The other rank's collective.
        theirs: String,
    },
    /// E303
    #[error("rank {rank} waited {millis} ms for rank {peer}; last seen: {last_seen}")]
    TimedOut {
        /// The rank that waited.
        rank: usize,
        /// The rank it waited for.
        peer: usize,
        /// How long it waited.
        millis: u64,
        /// What every rank did last.
        last_seen: String,
    },
    /// E317
    #[error("rank {rank} did not answer within {millis} ms after the failure; {last_seen}")]
    NoAnswer {
        /// The rank.
        rank: usize,
        /// How long it was waited for.
        millis: u64,
        /// What every rank did last.
        last_seen: String,
    },
    /// E318
    #[error(
        "{ranks} ranks are too many for one process, which runs up to {most} on threads; use a smaller mesh"
    )]
    TooManyRanks {
        /// How many were asked for.
        ranks: usize,
        /// How many there can be.
        most: usize,
    },
    /// E319
    #[error(
        "rank {rank} has another {what} than rank 0: `{theirs}` and `{first}`; start all ranks with the same program, arguments and files"
    )]
    RanksDiffer {
        /// The first rank that differs.
        rank: usize,
        /// In what.
        what: &'static str,
        /// What that rank has.
        theirs: String,
        /// What rank 0 has.
        first: String,
    },
    /// E320
    #[error(
        "{started} processes were started, but the mesh {mesh} has {devices} devices; start as many: `mpirun -n {devices} …`"
    )]
    WrongWorld {
        /// The processes.
        started: usize,
        /// The mesh.
        mesh: String,
        /// Its devices.
        devices: usize,
    },
    /// E321
    #[error("MPI: {problem}")]
    Mpi {
        /// What is wrong, and what to do.
        problem: String,
    },
    /// E304
    #[error("rank {rank} panicked: {message}")]
    Panicked {
        /// The rank.
        rank: usize,
        /// The panic's message.
        message: String,
    },
    /// E305
    #[error(
        "there is no rank {rank} to exchange with: rank {me} of {size} has peers 0..{size} without itself"
    )]
    NoSuchRank {
        /// The rank asked for.
        rank: usize,
        /// The rank that asked.
        me: usize,
        /// Number of ranks.
        size: usize,
    },
    /// E306
    #[error("{what} must have {expected}, but {found} was given")]
    WrongBuffer {
        /// The buffer.
        what: &'static str,
        /// What is legal.
        expected: String,
        /// What was found.
        found: String,
    },
    /// E307
    #[error("{op} overflows {dtype}; use a wider integer type")]
    Overflow {
        /// The op or collective.
        op: &'static str,
        /// The element type.
        dtype: shardgrad_core::DType,
    },
    /// E308
    #[error("the step needs a value for `{name}`, and there is none; its inputs are {known}")]
    MissingInput {
        /// The input.
        name: String,
        /// All inputs.
        known: String,
    },
    /// E309
    #[error("`{name}` is no {wanted} of the plan; there are {known}")]
    UnknownName {
        /// The name.
        name: String,
        /// What kind of value was looked for.
        wanted: &'static str,
        /// The names there are.
        known: String,
    },
    /// E310
    #[error("`{name}` must be {expected}, but {found} was given")]
    WrongValue {
        /// The value.
        name: String,
        /// Its type.
        expected: String,
        /// The type that was given.
        found: String,
    },
    /// E311
    #[error("the plan cannot run: node {node} ({op}): {problem}")]
    BadPlan {
        /// The node.
        node: u32,
        /// Its op.
        op: String,
        /// What is wrong and what is legal.
        problem: String,
    },
    /// E312
    #[error(
        "the trainer stopped after an earlier failure ({cause}); make a new one from a checkpoint"
    )]
    Stopped {
        /// The earlier failure.
        cause: String,
    },
    /// E313
    #[error("matrices {a} and {b} cannot be multiplied: {problem}")]
    Matrices {
        /// Shape of the left one.
        a: String,
        /// Shape of the right one.
        b: String,
        /// What is wrong.
        problem: String,
    },
    /// E314
    #[error("{path}: {problem}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        problem: String,
    },
    /// E315
    #[error("{path} is no checkpoint that can be read: {problem}")]
    NotACheckpoint {
        /// The file.
        path: String,
        /// What is wrong with it.
        problem: String,
    },
    /// E316
    #[error("`{name}` of the checkpoint does not fit: {problem}; nothing was changed")]
    CheckpointMismatch {
        /// The tensor.
        name: String,
        /// What was found and what is needed.
        problem: String,
    },
}

impl Error {
    /// The stable code of the error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Error::Core(source) => source.code(),
            Error::Graph(source) => source.code(),
            Error::PeerFailed { .. } => "E301",
            Error::Mismatch { .. } => "E302",
            Error::TimedOut { .. } => "E303",
            Error::NoAnswer { .. } => "E317",
            Error::TooManyRanks { .. } => "E318",
            Error::RanksDiffer { .. } => "E319",
            Error::WrongWorld { .. } => "E320",
            Error::Mpi { .. } => "E321",
            Error::Panicked { .. } => "E304",
            Error::NoSuchRank { .. } => "E305",
            Error::WrongBuffer { .. } => "E306",
            Error::Overflow { .. } => "E307",
            Error::MissingInput { .. } => "E308",
            Error::UnknownName { .. } => "E309",
            Error::WrongValue { .. } => "E310",
            Error::BadPlan { .. } => "E311",
            Error::Stopped { .. } => "E312",
            Error::Matrices { .. } => "E313",
            Error::Io { .. } => "E314",
            Error::NotACheckpoint { .. } => "E315",
            Error::CheckpointMismatch { .. } => "E316",
        }
    }
}
