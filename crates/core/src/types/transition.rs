//! Explicit transitions, each where it is legal, addressed by a mesh axis.
//!
//! | transition | on the axis | guard on the other axes |
//! |---|---|---|
//! | `all_reduce` | `P→R` | |
//! | `all_gather` | `S(d)→R` | the axis is the innermost one of dim d |
//! | `reduce_scatter::<D>` | `P→S(D)` | the axis becomes the innermost one of dim D |
//! | `all_to_all::<D, E>` | `S(D)→S(E)` | innermost of both |
//! | `slice::<D>` | `R→S(D)` | the axis becomes the innermost one of dim D |
//! | `to_pending` | `R→P` (mask), `S(d)→P` (pad) | innermost of dim d |
//!
//! A dim that several axes shard is split by the earlier axis first. Only the innermost one can leave or enter it by a
//! named transition: the blocks of an outer one interleave.

use super::sealed::Sealed;
use super::{At, MeshAxis, PendingSum, Replicated, Shard};

/// The layout with the placement `P` on the axis `X`, or on both axes of a pair. Says nothing about whether one transition
/// leads there; it is apart from the rules so that rustc finds the method first and reports the guard that fails.
pub trait Becomes<P, X> {
    /// The layout afterwards.
    type Out;
}

impl<L, P, const I: usize> Becomes<P, MeshAxis<I>> for L
where
    L: At<MeshAxis<I>>,
{
    type Out = <L as At<MeshAxis<I>>>::With<P>;
}

impl<L, P, const I: usize, const J: usize> Becomes<P, (MeshAxis<I>, MeshAxis<J>)> for L
where
    L: At<MeshAxis<I>>,
    <L as At<MeshAxis<I>>>::With<P>: At<MeshAxis<J>>,
{
    type Out = <<L as At<MeshAxis<I>>>::With<P> as At<MeshAxis<J>>>::With<P>;
}

/// `Self` is an axis, or a pair of axes, on which a value laid out as `L` has a pending sum to reduce. The rules of
/// transitions are traits of the axis: rustc then reports the guard on the layout, and not the rule. They are sealed, so that
/// no other type can pose as an axis.
pub trait AllReduceRule<L>: Sealed {}

impl<L, const I: usize> AllReduceRule<L> for MeshAxis<I>
where
    L: At<MeshAxis<I>>,
    <L as At<MeshAxis<I>>>::Here: HasTermsToReduce<MeshAxis<I>>,
{
}

impl<L, const I: usize, const J: usize> AllReduceRule<L> for (MeshAxis<I>, MeshAxis<J>)
where
    L: At<MeshAxis<I>>,
    MeshAxis<I>: AllReduceRule<L>,
    MeshAxis<J>: AllReduceRule<<L as At<MeshAxis<I>>>::With<Replicated>>,
{
}

/// `Self` is an axis over which a value laid out as `L` can be gathered.
pub trait AllGatherRule<L>: Sealed {}

impl<L, const I: usize> AllGatherRule<L> for MeshAxis<I>
where
    L: At<MeshAxis<I>>,
    <L as At<MeshAxis<I>>>::Here:
        HasShardsToGather<MeshAxis<I>> + InnermostOf<<L as At<MeshAxis<I>>>::Inner, MeshAxis<I>>,
{
}

/// `Self` is an axis over which a pending value laid out as `L` can be reduced to blocks of dim `DIM`.
pub trait ReduceScatterRule<const DIM: usize, L>: Sealed {}

impl<L, const DIM: usize, const I: usize> ReduceScatterRule<DIM, L> for MeshAxis<I>
where
    L: At<MeshAxis<I>>,
    <L as At<MeshAxis<I>>>::Here: HasTermsToScatter<MeshAxis<I>>,
    Shard<DIM>: InnermostOf<<L as At<MeshAxis<I>>>::Inner, MeshAxis<I>>,
{
}

/// `Self` is an axis over which a value laid out as `L` shards dim `FROM` and can shard dim `TO` instead.
pub trait AllToAllRule<const FROM: usize, const TO: usize, L>: Sealed {}

impl<L, const FROM: usize, const TO: usize, const I: usize> AllToAllRule<FROM, TO, L>
    for MeshAxis<I>
where
    L: At<MeshAxis<I>>,
    <L as At<MeshAxis<I>>>::Here:
        IsShardOf<FROM, MeshAxis<I>> + InnermostOf<<L as At<MeshAxis<I>>>::Inner, MeshAxis<I>>,
    Shard<TO>: AnotherDimThan<FROM> + InnermostOf<<L as At<MeshAxis<I>>>::Inner, MeshAxis<I>>,
{
}

/// `Self` is an axis over which a value laid out as `L` is replicated and can be cut into blocks of dim `DIM`.
pub trait SliceRule<const DIM: usize, L>: Sealed {}

impl<L, const DIM: usize, const I: usize> SliceRule<DIM, L> for MeshAxis<I>
where
    L: At<MeshAxis<I>>,
    <L as At<MeshAxis<I>>>::Here: CanBeSliced<MeshAxis<I>>,
    Shard<DIM>: InnermostOf<<L as At<MeshAxis<I>>>::Inner, MeshAxis<I>>,
{
}

/// `Self` is an axis on which a value laid out as `L` is complete and can become terms of a sum.
pub trait ToPendingRule<L>: Sealed {}

impl<L, const I: usize> ToPendingRule<L> for MeshAxis<I>
where
    L: At<MeshAxis<I>>,
    <L as At<MeshAxis<I>>>::Here:
        NotYetPending<MeshAxis<I>> + InnermostOf<<L as At<MeshAxis<I>>>::Inner, MeshAxis<I>>,
{
}

/// Guard of `all_reduce`: there is a pending sum.
#[diagnostic::on_unimplemented(
    message = "`all_reduce` of a `{Self}`: there is no pending sum on `{X}`",
    label = "this value is `{Self}` on `{X}`: reducing it would add up what is already complete",
    note = "a sum is reduced once: drop this call, or call it with the axis that is pending; a `Shard` becomes `Replicated` by `.all_gather(axis)`"
)]
pub trait HasTermsToReduce<X> {}

impl<X> HasTermsToReduce<X> for PendingSum {}

/// Guard of `reduce_scatter`: there is a pending sum.
#[diagnostic::on_unimplemented(
    message = "`reduce_scatter` of a `{Self}`: there is no pending sum on `{X}`",
    label = "this value is `{Self}` on `{X}`: scattering a sum of it would add up what is already complete",
    note = "a complete value is not reduced again: `.over(axis).slice::<DIM>()` cuts a `Replicated` into blocks, `.over(axis).all_to_all::<FROM, TO>()` moves a `Shard` to another dim"
)]
pub trait HasTermsToScatter<X> {}

impl<X> HasTermsToScatter<X> for PendingSum {}

/// Guard of `all_gather`: there are blocks.
#[diagnostic::on_unimplemented(
    message = "`all_gather` of a `{Self}`: it is not sharded over `{X}`",
    label = "this value is `{Self}` on `{X}`: there are no blocks to gather",
    note = "a `Replicated` is whole already; a `PendingSum` becomes `Replicated` by `.all_reduce(axis)`"
)]
pub trait HasShardsToGather<X> {}

impl<const DIM: usize, X> HasShardsToGather<X> for Shard<DIM> {}

/// Guard of `all_to_all`: dim `FROM` is sharded.
#[diagnostic::on_unimplemented(
    message = "`all_to_all::<{FROM}, _>` of a `{Self}`: it is not sharded on dim {FROM} over `{X}`",
    label = "this value is `{Self}` on `{X}`",
    note = "write the dim that is sharded first; `.over(axis).slice::<DIM>()` shards a `Replicated`, `.over(axis).reduce_scatter::<DIM>()` a `PendingSum`"
)]
pub trait IsShardOf<const FROM: usize, X> {}

impl<const FROM: usize, X> IsShardOf<FROM, X> for Shard<FROM> {}

/// Guard of `all_to_all`: the dims differ.
#[diagnostic::on_unimplemented(
    message = "`all_to_all` needs two different dims below 3, but found {FROM} and that of `{Self}`",
    label = "from dim {FROM} to `{Self}`",
    note = "to the same dim nothing changes: drop this call; to shard another dim, write it as the second one: `all_to_all::<FROM, TO>`"
)]
pub trait AnotherDimThan<const FROM: usize> {}

impl AnotherDimThan<0> for Shard<1> {}
impl AnotherDimThan<0> for Shard<2> {}
impl AnotherDimThan<1> for Shard<0> {}
impl AnotherDimThan<1> for Shard<2> {}
impl AnotherDimThan<2> for Shard<0> {}
impl AnotherDimThan<2> for Shard<1> {}

/// Guard of `slice`: the value is whole.
#[diagnostic::on_unimplemented(
    message = "`slice` of a `{Self}`: it is not replicated over `{X}`",
    label = "this value is `{Self}` on `{X}`: a rank does not hold the whole of it to keep a block",
    note = "`.over(axis).reduce_scatter::<DIM>()` makes blocks of a `PendingSum`, `.over(axis).all_to_all::<FROM, TO>()` other blocks of a `Shard`"
)]
pub trait CanBeSliced<X> {}

impl<X> CanBeSliced<X> for Replicated {}

/// Guard of `to_pending`: the value is complete.
#[diagnostic::on_unimplemented(
    message = "`to_pending` of a `PendingSum`: it is pending on `{X}` already",
    label = "this value is a `PendingSum` on `{X}` already",
    note = "drop this call"
)]
pub trait NotYetPending<X> {}

impl<X> NotYetPending<X> for Replicated {}
impl<const DIM: usize, X> NotYetPending<X> for Shard<DIM> {}

/// Guard: `X` is the innermost axis of the dim that `Self` shards; `I` lists the placements on the later axes.
pub trait InnermostOf<I, X> {}

impl<I, X> InnermostOf<I, X> for Replicated {}
impl<I, X> InnermostOf<I, X> for PendingSum {}
impl<const DIM: usize, X> InnermostOf<(), X> for Shard<DIM> {}
impl<const DIM: usize, P, I, X> InnermostOf<(P, I), X> for Shard<DIM>
where
    P: DoesNotSplit<DIM, X>,
    Shard<DIM>: InnermostOf<I, X>,
{
}

/// Guard: this placement of an inner axis leaves dim `DIM` alone.
#[diagnostic::on_unimplemented(
    message = "dim {DIM} can be cut or joined over `{X}` only where no inner mesh axis shards it, but an inner axis is `{Self}`",
    label = "an inner axis is `{Self}`: blocks of `{X}` alone would interleave with its blocks",
    note = "start with the innermost axis: call `.all_gather(axis)` on it first; the dim can be sharded over it again afterwards"
)]
pub trait DoesNotSplit<const DIM: usize, X> {}

impl<const DIM: usize, X> DoesNotSplit<DIM, X> for Replicated {}
impl<const DIM: usize, X> DoesNotSplit<DIM, X> for PendingSum {}
impl<X> DoesNotSplit<0, X> for Shard<1> {}
impl<X> DoesNotSplit<0, X> for Shard<2> {}
impl<X> DoesNotSplit<1, X> for Shard<0> {}
impl<X> DoesNotSplit<1, X> for Shard<2> {}
impl<X> DoesNotSplit<2, X> for Shard<0> {}
impl<X> DoesNotSplit<2, X> for Shard<1> {}
