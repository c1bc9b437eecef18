//! Errors of planning: one line each, naming what was found, what is legal and what to do.

use shardgrad_graph::Program;
use thiserror::Error;

/// What can be wrong with a layout request. Codes are stable (`docs/errors.md`).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// An error of the core: an unknown axis, a layout that does not fit its tensor.
    #[error(transparent)]
    Core(#[from] shardgrad_core::Error),
    /// E201
    #[error("there is no layout preset `{found}`; presets are {known}")]
    UnknownPreset {
        /// The text that was found.
        found: String,
        /// All presets.
        known: String,
    },
    /// E202
    #[error(
        "layout `{found}` is not of the form `axis=preset, …`, for example `dp=data, tp=megatron`"
    )]
    BadRequest {
        /// The text that was found.
        found: String,
    },
    /// E203
    #[error("layout `{preset}` names no axis, but the mesh has {axes}; write `axis={preset}`")]
    AxisMissing {
        /// The preset that stands alone.
        preset: &'static str,
        /// The axes of the mesh.
        axes: String,
    },
    /// E204
    #[error(
        "preset `{preset}` on axis `{axis}` splits linear layers, but the program has none; use `replicated`, `auto` or pins"
    )]
    NoLayers {
        /// The preset.
        preset: &'static str,
        /// The axis it was asked for.
        axis: String,
    },
    /// E205
    #[error("the program has no value `{found}` to pin; its values are {known}")]
    UnknownValue {
        /// The name that was asked for.
        found: String,
        /// The names there are.
        known: String,
    },
    /// E206
    #[error("there is no layer {found} to split; the program has {count} layer(s), counted from 0")]
    UnknownLayer {
        /// The layer that was asked for.
        found: usize,
        /// The number of layers.
        count: usize,
    },
    /// E207
    #[error("split `{found}` is not one of batch, in, out, none")]
    UnknownSplit {
        /// The text that was found.
        found: String,
    },
    /// E208
    #[error("`{name}` cannot be pinned to {spec}: {problem}")]
    BadPin {
        /// The value.
        name: String,
        /// The pin.
        spec: String,
        /// What is wrong and what is legal.
        problem: String,
    },
    /// E209
    #[error("axis `{axis}` is given twice in layout `{found}`")]
    RepeatedAxis {
        /// The axis.
        axis: String,
        /// The text.
        found: String,
    },
    /// E210
    #[error(
        "layer {layer} cannot be split by {split} on axis `{axis}`: its contractions have no such dim"
    )]
    SplitDoesNotFit {
        /// The layer.
        layer: usize,
        /// The split.
        split: &'static str,
        /// The axis.
        axis: String,
    },
    /// E211
    #[error("no plan meets all demands: `{value}` cannot be computed in any layout; {hint}")]
    Infeasible {
        /// The value.
        value: String,
        /// What to change.
        hint: String,
    },
    /// E212
    #[error(
        "`{value}` has {readers} readers that may want too many sets of layouts; fix splits or pin it"
    )]
    TooLarge {
        /// The value.
        value: String,
        /// Number of its readers.
        readers: usize,
    },
    /// E213
    #[error(
        "the search would need tables of {entries} entries; fix more splits or pin more values"
    )]
    TooWide {
        /// Entries of the largest table.
        entries: u64,
    },
    /// E214
    #[error(
        "no plan is known that fits in {limit} bytes per device: the least memory found is {least} (parameters {parameters}, optimizer state {state}, all else {rest}), and no plan needs less than {bound}; raise the limit, add devices, or pin less"
    )]
    OverLimit {
        /// The limit.
        limit: u64,
        /// The least peak that was found.
        least: u64,
        /// No plan's peak is below this.
        bound: u64,
        /// Bytes of parameters at that peak.
        parameters: u64,
        /// Bytes of optimizer state at that peak.
        state: u64,
        /// All other bytes at that peak.
        rest: u64,
    },
}

impl Error {
    /// No plan is possible at all.
    pub(crate) fn contradicting(program: &Program) -> Self {
        let hint = "its pins contradict each other".to_owned();
        Error::Infeasible { value: program.name.clone(), hint }
    }

    /// The stable code of the error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Error::Core(error) => error.code(),
            Error::UnknownPreset { .. } => "E201",
            Error::BadRequest { .. } => "E202",
            Error::AxisMissing { .. } => "E203",
            Error::NoLayers { .. } => "E204",
            Error::UnknownValue { .. } => "E205",
            Error::UnknownLayer { .. } => "E206",
            Error::UnknownSplit { .. } => "E207",
            Error::BadPin { .. } => "E208",
            Error::RepeatedAxis { .. } => "E209",
            Error::SplitDoesNotFit { .. } => "E210",
            Error::Infeasible { .. } => "E211",
            Error::TooLarge { .. } => "E212",
            Error::TooWide { .. } => "E213",
            Error::OverLimit { .. } => "E214",
        }
    }
}
