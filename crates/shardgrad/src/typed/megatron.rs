//! The layouts of Megatron layers, on meshes of one axis and of two.
//!
//! The last mesh axis shares out features. On two axes the first one shares out the batch, so parameters are replicated
//! over it and activations are `Shard<0>` there.
//!
//! | | on `tp` | on `dp, tp` |
//! |---|---|---|
//! | [`Whole`](OnMesh::Whole): activations with all features | `Replicated` | `(Shard<0>, Replicated)` |
//! | [`Columns`](OnMesh::Columns): activations with their features shared out | `Shard<1>` | `(Shard<0>, Shard<1>)` |
//! | [`Terms`](OnMesh::Terms): activations still to be summed | `PendingSum` | `(Shard<0>, PendingSum)` |
//! | [`ColumnWeight`](OnMesh::ColumnWeight) | `Shard<1>` | `(Replicated, Shard<1>)` |
//! | [`ColumnBias`](OnMesh::ColumnBias) | `Shard<0>` | `(Replicated, Shard<0>)` |
//! | [`RowWeight`](OnMesh::RowWeight) | `Shard<0>` | `(Replicated, Shard<0>)` |
//! | [`RowBias`](OnMesh::RowBias) | `Replicated` | `(Replicated, Replicated)` |
//! | [`Axis`](OnMesh::Axis): the axis to reduce over | `MeshAxis<0>` | `MeshAxis<1>` |
//!
//! The bounds of [`OnMesh`] are the layers' type check: a column weight that did not lead from `Whole` to `Columns` by the
//! rule of matmul could not be written here.

use shardgrad_core::types::bias::BiasRule;
use shardgrad_core::types::cotangent::LaidOutAs;
use shardgrad_core::types::elementwise::{AddRule, NonlinearRule};
use shardgrad_core::types::matmul::MatmulRule;
use shardgrad_core::types::transition::{AllReduceRule, Becomes};
use shardgrad_graph::typed::{
    FitsRank, LayoutOn, LayoutType, MeshAxis, PendingSum, Replicated, Shard, StoredLayout,
};

/// The layouts of Megatron layers; [`OnMesh`] has them for each number of mesh axes.
#[derive(Clone, Copy, Debug)]
pub struct Megatron;

/// Layouts that a parameter with `RANK` dims can have on `AXES` mesh axes, and be updated in by a gradient of that layout.
pub trait ParameterLayout<const RANK: usize, const AXES: usize>:
    LayoutType
    + LayoutOn<AXES>
    + FitsRank<RANK>
    + StoredLayout
    + LaidOutAs<Self>
    + AddRule<Self, Out = Self>
{
}

impl<L, const RANK: usize, const AXES: usize> ParameterLayout<RANK, AXES> for L where
    L: LayoutType
        + LayoutOn<AXES>
        + FitsRank<RANK>
        + StoredLayout
        + LaidOutAs<L>
        + AddRule<L, Out = L>
{
}

/// Where Megatron layers keep their data on a mesh of `AXES` axes.
#[diagnostic::on_unimplemented(
    message = "there are no Megatron layers for a mesh of {AXES} axis(es)",
    label = "these layers are for one axis, `tp`, or two, `dp, tp`",
    note = "on other meshes call `matmul`, `add_bias` and `all_reduce` on the tensors themselves; the types check them in the same way"
)]
pub trait OnMesh<const AXES: usize> {
    /// The mesh axis that shares out features.
    type Axis: Copy + AllReduceRule<Self::Terms>;
    /// Activations with all features: what goes into a block and comes out of it.
    type Whole: LayoutType + NonlinearRule;
    /// Activations with their features shared out.
    type Columns: LayoutType + NonlinearRule;
    /// Activations still to be summed.
    type Terms: LayoutType + Becomes<Replicated, Self::Axis, Out = Self::Whole>;
    /// Weight `[in, out]` of a column layer.
    type ColumnWeight: ParameterLayout<2, AXES> + MatmulRule<Self::Whole, Out = Self::Columns>;
    /// Bias `[out]` of a column layer.
    type ColumnBias: ParameterLayout<1, AXES> + BiasRule<Self::Columns, Out = Self::Columns>;
    /// Weight `[in, out]` of a row layer.
    type RowWeight: ParameterLayout<2, AXES> + MatmulRule<Self::Columns, Out = Self::Terms>;
    /// Bias `[out]` of a row layer.
    type RowBias: ParameterLayout<1, AXES> + BiasRule<Self::Whole, Out = Self::Whole>;
}

impl OnMesh<1> for Megatron {
    type Axis = MeshAxis<0>;
    type Whole = Replicated;
    type Columns = Shard<1>;
    type Terms = PendingSum;
    type ColumnWeight = Shard<1>;
    type ColumnBias = Shard<0>;
    type RowWeight = Shard<0>;
    type RowBias = Replicated;
}

impl OnMesh<2> for Megatron {
    type Axis = MeshAxis<1>;
    type Whole = (Shard<0>, Replicated);
    type Columns = (Shard<0>, Shard<1>);
    type Terms = (Shard<0>, PendingSum);
    type ColumnWeight = (Replicated, Shard<1>);
    type ColumnBias = (Replicated, Shard<0>);
    type RowWeight = (Replicated, Shard<0>);
    type RowBias = (Replicated, Replicated);
}

/// Activations with all features: `Replicated`, or `(Shard<0>, Replicated)`.
pub type Whole<const AXES: usize> = <Megatron as OnMesh<AXES>>::Whole;
/// Activations with their features shared out: `Shard<1>`, or `(Shard<0>, Shard<1>)`.
pub type Columns<const AXES: usize> = <Megatron as OnMesh<AXES>>::Columns;
/// Weight of a column layer: `Shard<1>`, or `(Replicated, Shard<1>)`.
pub type ColumnWeight<const AXES: usize> = <Megatron as OnMesh<AXES>>::ColumnWeight;
/// Bias of a column layer: `Shard<0>`, or `(Replicated, Shard<0>)`.
pub type ColumnBias<const AXES: usize> = <Megatron as OnMesh<AXES>>::ColumnBias;
/// Weight of a row layer: `Shard<0>`, or `(Replicated, Shard<0>)`.
pub type RowWeight<const AXES: usize> = <Megatron as OnMesh<AXES>>::RowWeight;
/// Bias of a row layer: `Replicated`, or `(Replicated, Replicated)`.
pub type RowBias<const AXES: usize> = <Megatron as OnMesh<AXES>>::RowBias;
/// The mesh axis that shares out features: the last one.
pub type TensorAxis<const AXES: usize> = <Megatron as OnMesh<AXES>>::Axis;
