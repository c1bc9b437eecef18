//! Elementwise division. It is linear in the numerator alone.
//!
//! Admissible per axis: `R,R→R` · `S(d),S(d)→S(d)` · `P,R→P`.

use super::axes::SameMesh;
use super::elementwise::{ElementwiseOut, SameShards};
use super::{MeshAxis, PendingSum, Replicated, Shard};

/// `Self` may be the layout of the divisor of a value laid out as `L`.
pub trait DivRule<L> {
    /// Layout of the quotient.
    type Out;
}

impl<L, R> DivRule<L> for R
where
    R: SameMesh<L>,
    R::Right: ElementwiseOut<L> + DivisorComplete<L> + PendingOverReplicated<L> + SameShards<L>,
{
    type Out = <R::Right as ElementwiseOut<L>>::Out;
}

/// Guard: the divisor is not pending.
#[diagnostic::on_unimplemented(
    message = "division by a `PendingSum` is wrong: a / (b + c) is not a / b + a / c",
    label = "the divisor is a `PendingSum` on `{A}`: each rank holds only a term of it",
    note = "complete the divisor first: call `.all_reduce(axis)` on it, or `.over(axis).reduce_scatter::<DIM>()` where the numerator is a `Shard<DIM>`"
)]
pub trait DivisorComplete<L, A = MeshAxis<0>> {}

impl<A> DivisorComplete<Replicated, A> for Replicated {}
impl<A> DivisorComplete<PendingSum, A> for Replicated {}
impl<const LEFT: usize, A> DivisorComplete<Shard<LEFT>, A> for Replicated {}
impl<const DIM: usize, A> DivisorComplete<Replicated, A> for Shard<DIM> {}
impl<const DIM: usize, A> DivisorComplete<PendingSum, A> for Shard<DIM> {}
impl<const LEFT: usize, const DIM: usize, A> DivisorComplete<Shard<LEFT>, A> for Shard<DIM> {}
impl<L0, L1, R0, R1> DivisorComplete<(L0, L1)> for (R0, R1)
where
    R0: DivisorComplete<L0, MeshAxis<0>>,
    R1: DivisorComplete<L1, MeshAxis<1>>,
{
}
impl<L0, L1, L2, R0, R1, R2> DivisorComplete<(L0, L1, L2)> for (R0, R1, R2)
where
    R0: DivisorComplete<L0, MeshAxis<0>>,
    R1: DivisorComplete<L1, MeshAxis<1>>,
    R2: DivisorComplete<L2, MeshAxis<2>>,
{
}

/// Guard: the divisor of a pending sum is replicated, not sharded.
#[diagnostic::on_unimplemented(
    message = "a pending sum can be divided only by a `Replicated` value, but found `{L}` divided by `{Self}`",
    label = "`{L}` on the left and `{Self}` on the right, on `{A}`: a rank would divide its term by its own block only",
    note = "complete the `PendingSum` first: `.over(axis).reduce_scatter::<DIM>()` to be laid out as the divisor; or call `.all_gather(axis)` on the divisor"
)]
pub trait PendingOverReplicated<L, A = MeshAxis<0>> {}

impl<A> PendingOverReplicated<Replicated, A> for Replicated {}
impl<A> PendingOverReplicated<PendingSum, A> for Replicated {}
impl<const LEFT: usize, A> PendingOverReplicated<Shard<LEFT>, A> for Replicated {}
impl<const DIM: usize, A> PendingOverReplicated<Replicated, A> for Shard<DIM> {}
impl<const LEFT: usize, const DIM: usize, A> PendingOverReplicated<Shard<LEFT>, A> for Shard<DIM> {}
impl<A> PendingOverReplicated<Replicated, A> for PendingSum {}
impl<const LEFT: usize, A> PendingOverReplicated<Shard<LEFT>, A> for PendingSum {}
impl<A> PendingOverReplicated<PendingSum, A> for PendingSum {}
impl<L0, L1, R0, R1> PendingOverReplicated<(L0, L1)> for (R0, R1)
where
    R0: PendingOverReplicated<L0, MeshAxis<0>>,
    R1: PendingOverReplicated<L1, MeshAxis<1>>,
{
}
impl<L0, L1, L2, R0, R1, R2> PendingOverReplicated<(L0, L1, L2)> for (R0, R1, R2)
where
    R0: PendingOverReplicated<L0, MeshAxis<0>>,
    R1: PendingOverReplicated<L1, MeshAxis<1>>,
    R2: PendingOverReplicated<L2, MeshAxis<2>>,
{
}
