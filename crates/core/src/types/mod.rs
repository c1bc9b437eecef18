//! Placements as types: the wrong program does not compile.
//!
//! [`Replicated`], [`Shard`] and [`PendingSum`] are the static forms of the values of [`crate::Placement`] (`PendingMax`
//! stays dynamic). A layout over one mesh axis is a bare placement, over two or three axes a tuple of them in mesh
//! order: `(Shard<0>, Replicated)`.
//!
//! The rules of each op are traits, one *rule* per op with the result's layout in it:
//!
//! | op | rule, on the last operand | result |
//! |---|---|---|
//! | add, sub | [`AddRule<L>`](elementwise::AddRule) | `Out` |
//! | mul | [`MulRule<L>`](elementwise::MulRule) | `Out` |
//! | div | [`DivRule<L>`](division::DivRule) | `Out` |
//! | nonlinear functions | [`NonlinearRule`](elementwise::NonlinearRule) | the operand's |
//! | adding a constant | [`ConstantRule`](elementwise::ConstantRule) | the operand's |
//! | neg, scale | none: every placement passes | the operand's |
//! | matmul, plain and with one operand transposed | [`MatmulRule<L>`](matmul::MatmulRule), [`MatmulTnRule<L>`](matmul_tn::MatmulTnRule), [`MatmulNtRule<L>`](matmul_nt::MatmulNtRule) | `Out` |
//! | bias add | [`BiasRule<L>`](bias::BiasRule) | `Out` |
//! | transpose of a matrix | [`TransposeRule`](reduce::TransposeRule) | `Out` |
//! | sum and mean over a dim, over all | [`SumRule<RANK, D>`](reduce::SumRule), [`SumAllRule`](reduce::SumAllRule) | `Out` |
//! | losses | [`MseRule<L>`](loss::MseRule), [`CrossEntropyRule<L>`](loss::CrossEntropyRule) | `Out` |
//! | explicit transitions | [`transition`], on the mesh axis | [`Becomes`](transition::Becomes) |
//! | pullbacks | [`CotangentFor<Y>`](cotangent::CotangentFor) on the result's cotangent | the rules of the pullback's ops |
//!
//! *How a rule is made.* A rule holds where all its *guards* hold, one guard per reason to refuse, and takes its result
//! from a table that has an entry for every pair. For every pair of placements that the dynamic table refuses, exactly one
//! guard fails, so a fault has one message and the message is about that fault. A layout of several axes satisfies a guard
//! if each axis does; the guard's last parameter says which axis is meant, and its message names it. All impls are
//! written out, since rustc shows them in its help. That the rules equal [`crate::rules::axis_rules`], both ways, is a
//! test. Guards are asked of [`SameMesh::Right`](axes::SameMesh::Right), so that operands on meshes of different numbers of
//! axes meet one message and not all.

pub mod axes;
pub mod bias;
pub mod cotangent;
pub mod division;
pub mod elementwise;
pub mod loss;
pub mod matmul;
pub mod matmul_nt;
pub mod matmul_tn;
pub mod reduce;
pub mod stored;
pub mod transition;

use crate::layout::Layout;
use crate::placement::Placement;

pub use axes::{At, FitsRank, LayoutOn, MeshAxis};
pub use stored::StoredLayout;

/// Every rank of the mesh axis holds the whole tensor. The static form of `R`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replicated;

/// Every rank of the mesh axis holds its block of dim `DIM`. The static form of `S(DIM)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shard<const DIM: usize>;

/// Every rank of the mesh axis holds a term; the terms sum to the tensor. The static form of `P`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingSum;

mod sealed {
    pub trait Sealed {}
}

/// A placement on one mesh axis, as a type: [`Replicated`], [`Shard`] or [`PendingSum`].
pub trait PlacementType: sealed::Sealed + Copy + 'static {
    /// The placement as a value.
    const PLACEMENT: Placement;
}

impl<const I: usize> sealed::Sealed for MeshAxis<I> {}
impl sealed::Sealed for Replicated {}
impl<const DIM: usize> sealed::Sealed for Shard<DIM> {}
impl sealed::Sealed for PendingSum {}
impl<A, B> sealed::Sealed for (A, B) {}
impl<A, B, C> sealed::Sealed for (A, B, C) {}

impl PlacementType for Replicated {
    const PLACEMENT: Placement = Placement::Replicated;
}
impl<const DIM: usize> PlacementType for Shard<DIM> {
    const PLACEMENT: Placement = Placement::Shard(DIM);
}
impl PlacementType for PendingSum {
    const PLACEMENT: Placement = Placement::PendingSum;
}

/// A layout as a type: a bare placement on a mesh of one axis, a tuple of two or three on a larger one.
///
/// ```
/// use shardgrad_core::types::{LayoutType, PendingSum, Replicated, Shard};
/// assert_eq!(<(Shard<0>, PendingSum)>::layout().0.len(), 2);
/// assert_eq!(Replicated::AXES, 1);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a layout",
    label = "a layout is a placement, or a tuple of two or three, one per mesh axis",
    note = "placements are `Replicated`, `Shard<DIM>` and `PendingSum`; on a mesh of one axis write the bare placement"
)]
pub trait LayoutType: sealed::Sealed + Copy + 'static {
    /// Number of mesh axes.
    const AXES: usize;

    /// The layout as a value.
    fn layout() -> Layout;
}

impl LayoutType for Replicated {
    const AXES: usize = 1;
    fn layout() -> Layout {
        Layout([Self::PLACEMENT].into_iter().collect())
    }
}
impl<const DIM: usize> LayoutType for Shard<DIM> {
    const AXES: usize = 1;
    fn layout() -> Layout {
        Layout([Self::PLACEMENT].into_iter().collect())
    }
}
impl LayoutType for PendingSum {
    const AXES: usize = 1;
    fn layout() -> Layout {
        Layout([Self::PLACEMENT].into_iter().collect())
    }
}
impl<A: PlacementType, B: PlacementType> LayoutType for (A, B) {
    const AXES: usize = 2;
    fn layout() -> Layout {
        Layout([A::PLACEMENT, B::PLACEMENT].into_iter().collect())
    }
}
impl<A: PlacementType, B: PlacementType, C: PlacementType> LayoutType for (A, B, C) {
    const AXES: usize = 3;
    fn layout() -> Layout {
        Layout([A::PLACEMENT, B::PLACEMENT, C::PLACEMENT].into_iter().collect())
    }
}
