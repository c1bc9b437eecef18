//! Explicit transitions: the same global value in another layout.
//!
//! Each is a `constrain` node with a name and a pin of its own; the planner puts the collective in front of it. Those that
//! need no dim are methods of [`Tensor`] that take the axis; [`Tensor::over`] names the axis first for those that do:
//!
//! ```
//! # use shardgrad_core::DType;
//! # use shardgrad_graph::{Graph, typed::{Mesh, PendingSum, Replicated, Shard, Tensor}};
//! # let mesh = Mesh::new([("dp", 2), ("tp", 2)])?;
//! # let (dp, tp) = mesh.axes();
//! # let graph = Graph::new("demo", DType::F32);
//! # let g = graph.on(&mesh)?;
//! # let x: Tensor<2, (Shard<0>, Replicated)> = g.input("x", [8, 4])?;
//! let terms: Tensor<2, (Shard<0>, PendingSum)> = x.to_pending(tp)?;
//! let whole: Tensor<2, (Shard<0>, Replicated)> = terms.all_reduce(tp)?;
//! let block: Tensor<2, (Shard<0>, Shard<1>)> = terms.over(tp).reduce_scatter::<1>()?;
//! let other: Tensor<2, (Shard<1>, Replicated)> = whole.over(dp).all_to_all::<0, 1>()?;
//! # let _ = (block, other);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use shardgrad_core::Op;
use shardgrad_core::types::transition::{
    AllGatherRule, AllReduceRule, AllToAllRule, Becomes, ReduceScatterRule, SliceRule,
    ToPendingRule,
};
use shardgrad_core::types::{FitsRank, LayoutType, PendingSum, Replicated, Shard};

use super::Tensor;
use crate::error::Error;

/// A tensor and a mesh axis, for the transitions that name dims.
#[derive(Clone, Copy)]
pub struct Over<'g, const RANK: usize, L, X> {
    tensor: Tensor<'g, RANK, L>,
    axis: X,
}

/// The `constrain` node that gives a value the layout `Q`.
#[track_caller]
fn constrain<'g, const RANK: usize, L, Q: LayoutType>(
    tensor: Tensor<'g, RANK, L>,
    stem: &str,
) -> Result<Tensor<'g, RANK, Q>, Error> {
    let var = tensor.erase();
    let graph = var.graph();
    // It belongs to the part of the step that its operand belongs to.
    let phase = graph.set_phase(graph.node(var.id()).phase);
    let node = graph.apply(Op::Constrain, &[var]);
    graph.set_phase(phase);
    let name = graph.free_name(stem);
    Tensor::pinned(node?.named(&name)?, &name)
}

impl<'g, const RANK: usize, L> Tensor<'g, RANK, L> {
    /// Names the mesh axis of a transition: `y.over(tp).reduce_scatter::<0>()`.
    #[must_use]
    pub fn over<X>(self, axis: X) -> Over<'g, RANK, L, X> {
        Over { tensor: self, axis }
    }

    /// `PendingSum` to `Replicated` on this axis: the terms are added up. With two axes, `y.all_reduce((dp, tp))`, they
    /// are added up over both in one collective.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn all_reduce<X>(
        self,
        axis: X,
    ) -> Result<Tensor<'g, RANK, <L as Becomes<Replicated, X>>::Out>, Error>
    where
        X: AllReduceRule<L>,
        L: Becomes<Replicated, X>,
        <L as Becomes<Replicated, X>>::Out: LayoutType,
    {
        let _ = axis;
        constrain(self, "all_reduce")
    }

    /// `Shard` to `Replicated` on this axis: every rank gets the blocks of all.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn all_gather<X>(
        self,
        axis: X,
    ) -> Result<Tensor<'g, RANK, <L as Becomes<Replicated, X>>::Out>, Error>
    where
        X: AllGatherRule<L>,
        L: Becomes<Replicated, X>,
        <L as Becomes<Replicated, X>>::Out: LayoutType,
    {
        let _ = axis;
        constrain(self, "all_gather")
    }

    /// `Replicated` or `Shard` to `PendingSum` on this axis, without communication: one rank keeps each element, the
    /// others hold zeros.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn to_pending<X>(
        self,
        axis: X,
    ) -> Result<Tensor<'g, RANK, <L as Becomes<PendingSum, X>>::Out>, Error>
    where
        X: ToPendingRule<L>,
        L: Becomes<PendingSum, X>,
        <L as Becomes<PendingSum, X>>::Out: LayoutType,
    {
        let _ = axis;
        constrain(self, "to_pending")
    }
}

impl<'g, const RANK: usize, L, X> Over<'g, RANK, L, X> {
    /// The axis.
    #[must_use]
    pub fn axis(self) -> X {
        self.axis
    }

    /// As [`Tensor::all_reduce`].
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn all_reduce(self) -> Result<Tensor<'g, RANK, <L as Becomes<Replicated, X>>::Out>, Error>
    where
        X: AllReduceRule<L>,
        L: Becomes<Replicated, X>,
        <L as Becomes<Replicated, X>>::Out: LayoutType,
    {
        constrain(self.tensor, "all_reduce")
    }

    /// As [`Tensor::all_gather`].
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn all_gather(self) -> Result<Tensor<'g, RANK, <L as Becomes<Replicated, X>>::Out>, Error>
    where
        X: AllGatherRule<L>,
        L: Becomes<Replicated, X>,
        <L as Becomes<Replicated, X>>::Out: LayoutType,
    {
        constrain(self.tensor, "all_gather")
    }

    /// As [`Tensor::to_pending`].
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn to_pending(self) -> Result<Tensor<'g, RANK, <L as Becomes<PendingSum, X>>::Out>, Error>
    where
        X: ToPendingRule<L>,
        L: Becomes<PendingSum, X>,
        <L as Becomes<PendingSum, X>>::Out: LayoutType,
    {
        constrain(self.tensor, "to_pending")
    }

    /// `PendingSum` to `Shard<DIM>`: the terms are added up, every rank gets its block.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn reduce_scatter<const DIM: usize>(
        self,
    ) -> Result<Tensor<'g, RANK, <L as Becomes<Shard<DIM>, X>>::Out>, Error>
    where
        Shard<DIM>: FitsRank<RANK, X>,
        X: ReduceScatterRule<DIM, L>,
        L: Becomes<Shard<DIM>, X>,
        <L as Becomes<Shard<DIM>, X>>::Out: LayoutType,
    {
        constrain(self.tensor, "reduce_scatter")
    }

    /// `Shard<FROM>` to `Shard<TO>`: ranks exchange blocks.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn all_to_all<const FROM: usize, const TO: usize>(
        self,
    ) -> Result<Tensor<'g, RANK, <L as Becomes<Shard<TO>, X>>::Out>, Error>
    where
        Shard<TO>: FitsRank<RANK, X>,
        X: AllToAllRule<FROM, TO, L>,
        L: Becomes<Shard<TO>, X>,
        <L as Becomes<Shard<TO>, X>>::Out: LayoutType,
    {
        constrain(self.tensor, "all_to_all")
    }

    /// `Replicated` to `Shard<DIM>`, without communication: every rank keeps its block.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn slice<const DIM: usize>(
        self,
    ) -> Result<Tensor<'g, RANK, <L as Becomes<Shard<DIM>, X>>::Out>, Error>
    where
        Shard<DIM>: FitsRank<RANK, X>,
        X: SliceRule<DIM, L>,
        L: Becomes<Shard<DIM>, X>,
        <L as Becomes<Shard<DIM>, X>>::Out: LayoutType,
    {
        constrain(self.tensor, "slice")
    }
}
