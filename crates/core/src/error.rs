//! Errors of this crate: one line each, naming what was found, what is legal and what to do.

use thiserror::Error;

/// What can be wrong with a mesh, a layout, an op or a transition. Codes are stable (`docs/errors.md`).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// E001
    #[error("placement `{found}` is not one of R, S(dim), P, Pmax")]
    BadPlacement {
        /// The text that was found.
        found: String,
    },
    /// E002
    #[error(
        "layout `{found}` is not of the form `[axis: placement, …]`, for example `[dp: S(0), tp: R]`"
    )]
    BadLayout {
        /// The text that was found.
        found: String,
    },
    /// E003
    #[error("mesh axis `{found}` is not of the form `name=size`, for example `dp=2`")]
    BadMesh {
        /// The text that was found.
        found: String,
    },
    /// E004
    #[error("a mesh has 1 to 8 axes, but {found} were given")]
    MeshRank {
        /// Number of axes given.
        found: usize,
    },
    /// E005
    #[error(
        "mesh axis name `{found}` must start with a letter and go on with letters, digits, `_` or `-`"
    )]
    BadAxisName {
        /// The name that was found.
        found: String,
    },
    /// E006
    #[error("mesh axis `{axis}` is named twice; every axis is named once")]
    RepeatedAxis {
        /// The repeated name.
        axis: String,
    },
    /// E007
    #[error("mesh axis `{axis}` has size 0; an axis has at least one device")]
    EmptyAxis {
        /// The empty axis.
        axis: String,
    },
    /// E008
    #[error("the mesh has more than {limit} devices")]
    MeshTooLarge {
        /// The most devices a mesh can have.
        limit: usize,
    },
    /// E009
    #[error("the mesh has no axis `{found}`; its axes are {known}")]
    UnknownAxis {
        /// The name that was asked for.
        found: String,
        /// The names there are.
        known: String,
    },
    /// E010
    #[error("the layout has {found} placements, but the mesh `{mesh}` wants one per axis")]
    LayoutRank {
        /// Number of placements found.
        found: usize,
        /// The mesh.
        mesh: String,
    },
    /// E011
    #[error("S({dim}) on axis `{axis}` names a dim that a tensor with {rank} dims does not have")]
    NoSuchDim {
        /// The dim named.
        dim: usize,
        /// The axis that shards it.
        axis: String,
        /// Number of dims of the tensor.
        rank: usize,
    },
    /// E012
    #[error("layout {layout} mixes P and Pmax; reduce one of them first")]
    MixedPending {
        /// The layout.
        layout: String,
    },
    /// E013
    #[error("{op} of {operands}: {problem}")]
    Operands {
        /// Name of the op.
        op: &'static str,
        /// Types of the operands.
        operands: String,
        /// What is wrong and what is legal.
        problem: String,
    },
    /// E014
    #[error("einsum `{spec}`: {problem}")]
    BadEinsum {
        /// The text of the einsum.
        spec: String,
        /// What is wrong and what is legal.
        problem: String,
    },
    /// E015
    #[error(
        "{op}: no rule admits operands {operands} with result {result} on axis `{axis}`; {hint}"
    )]
    NoRule {
        /// Name of the op.
        op: &'static str,
        /// Placements of the operands on the axis.
        operands: String,
        /// Placement of the result on the axis.
        result: Placement,
        /// The axis.
        axis: String,
        /// What is legal there.
        hint: String,
    },
    /// E016
    #[error(
        "{op}: label `{label}` cannot be split over {axes}: its blocks would not line up between dims of extents {extents}"
    )]
    BlocksDiffer {
        /// Name of the op.
        op: &'static str,
        /// The label.
        label: char,
        /// Axes that split it.
        axes: String,
        /// Extents of the dims that carry the label.
        extents: String,
    },
    /// E017
    #[error("no single transition leads from {from} to {to}; {hint}")]
    NoTransition {
        /// Layout before.
        from: String,
        /// Layout after.
        to: String,
        /// Why, and what to do instead.
        hint: &'static str,
    },
    /// E019
    #[error("no {kind} over {devices} device(s) is carried out by {algorithm}; use direct")]
    NoAlgorithm {
        /// The algorithm.
        algorithm: crate::algorithm::Algorithm,
        /// The kind of transition.
        kind: crate::transition::TransitionKind,
        /// Size of the group.
        devices: usize,
    },
    /// E018
    #[error("machine model: {problem}")]
    BadMachine {
        /// What is wrong and what is legal.
        problem: String,
    },
}

use crate::placement::Placement;

impl Error {
    /// The stable code of the error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Error::BadPlacement { .. } => "E001",
            Error::BadLayout { .. } => "E002",
            Error::BadMesh { .. } => "E003",
            Error::MeshRank { .. } => "E004",
            Error::BadAxisName { .. } => "E005",
            Error::RepeatedAxis { .. } => "E006",
            Error::EmptyAxis { .. } => "E007",
            Error::MeshTooLarge { .. } => "E008",
            Error::UnknownAxis { .. } => "E009",
            Error::LayoutRank { .. } => "E010",
            Error::NoSuchDim { .. } => "E011",
            Error::MixedPending { .. } => "E012",
            Error::Operands { .. } => "E013",
            Error::BadEinsum { .. } => "E014",
            Error::NoRule { .. } => "E015",
            Error::BlocksDiffer { .. } => "E016",
            Error::NoTransition { .. } => "E017",
            Error::BadMachine { .. } => "E018",
            Error::NoAlgorithm { .. } => "E019",
        }
    }
}
