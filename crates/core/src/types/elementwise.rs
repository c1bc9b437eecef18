//! Elementwise ops: functions of one operand, sums and products of two.
//!
//! | op | admissible per axis |
//! |---|---|
//! | nonlinear, adding a constant | `R→R` · `S(d)→S(d)` |
//! | neg, scale | `R→R` · `S(d)→S(d)` · `P→P` |
//! | add, sub | `R,R→R` · `S(d),S(d)→S(d)` · `P,P→P` |
//! | mul | `R,R→R` · `S(d),S(d)→S(d)` · `P,R→P` · `R,P→P` |
//! | div ([`super::division`]) | `R,R→R` · `S(d),S(d)→S(d)` · `P,R→P` |

use super::axes::SameMesh;
use super::{MeshAxis, PendingSum, Replicated, Shard};

/// Layouts of which a nonlinear function may be taken.
#[diagnostic::on_unimplemented(
    message = "a nonlinear function of a `PendingSum` is wrong: f(a + b) is not f(a) + f(b)",
    label = "this value is a `PendingSum` on `{A}`: each rank holds only a term of it",
    note = "complete the sum first: call `.all_reduce(axis)`, or `.over(axis).reduce_scatter::<DIM>()` to get a `Shard<DIM>`"
)]
pub trait NonlinearRule<A = MeshAxis<0>> {}

impl<A> NonlinearRule<A> for Replicated {}
impl<const DIM: usize, A> NonlinearRule<A> for Shard<DIM> {}
impl<A, B> NonlinearRule for (A, B)
where
    A: NonlinearRule<MeshAxis<0>>,
    B: NonlinearRule<MeshAxis<1>>,
{
}
impl<A, B, C> NonlinearRule for (A, B, C)
where
    A: NonlinearRule<MeshAxis<0>>,
    B: NonlinearRule<MeshAxis<1>>,
    C: NonlinearRule<MeshAxis<2>>,
{
}

/// Layouts to which a constant may be added.
#[diagnostic::on_unimplemented(
    message = "a constant added to a `PendingSum` would count once per rank",
    label = "this value is a `PendingSum` on `{A}`: each rank holds a term, and the constant would join every term",
    note = "complete the sum first: call `.all_reduce(axis)`, or `.over(axis).reduce_scatter::<DIM>()`"
)]
pub trait ConstantRule<A = MeshAxis<0>> {}

impl<A> ConstantRule<A> for Replicated {}
impl<const DIM: usize, A> ConstantRule<A> for Shard<DIM> {}
impl<A, B> ConstantRule for (A, B)
where
    A: ConstantRule<MeshAxis<0>>,
    B: ConstantRule<MeshAxis<1>>,
{
}
impl<A, B, C> ConstantRule for (A, B, C)
where
    A: ConstantRule<MeshAxis<0>>,
    B: ConstantRule<MeshAxis<1>>,
    C: ConstantRule<MeshAxis<2>>,
{
}

/// `Self` may be added to or subtracted from a value laid out as `L`.
pub trait AddRule<L> {
    /// Layout of the sum.
    type Out;
}

impl<L, R> AddRule<L> for R
where
    R: SameMesh<L>,
    R::Right: ElementwiseOut<L> + BothPendingOrNeither<L> + SameShards<L>,
{
    type Out = <R::Right as ElementwiseOut<L>>::Out;
}

/// `Self` may be multiplied elementwise with a value laid out as `L`.
pub trait MulRule<L> {
    /// Layout of the product.
    type Out;
}

impl<L, R> MulRule<L> for R
where
    R: SameMesh<L>,
    R::Right: ElementwiseOut<L> + NotBothPending<L> + PendingMeetsReplicated<L> + SameShards<L>,
{
    type Out = <R::Right as ElementwiseOut<L>>::Out;
}

/// The result's placement of an elementwise op, where its guards hold.
#[diagnostic::on_unimplemented(
    message = "`{L}` and `{Self}` are layouts over meshes of different numbers of axes",
    label = "the operands do not lie on the same mesh",
    note = "build both operands with the same `typed::Graph`"
)]
pub trait ElementwiseOut<L> {
    /// The result's placement.
    type Out;
}

impl ElementwiseOut<Replicated> for Replicated {
    type Out = Replicated;
}
impl ElementwiseOut<PendingSum> for Replicated {
    type Out = PendingSum;
}
impl<const DIM: usize> ElementwiseOut<Shard<DIM>> for Replicated {
    type Out = Shard<DIM>;
}
impl ElementwiseOut<Replicated> for PendingSum {
    type Out = PendingSum;
}
impl ElementwiseOut<PendingSum> for PendingSum {
    type Out = PendingSum;
}
impl<const DIM: usize> ElementwiseOut<Shard<DIM>> for PendingSum {
    type Out = Shard<DIM>;
}
impl<const DIM: usize> ElementwiseOut<Replicated> for Shard<DIM> {
    type Out = Shard<DIM>;
}
impl<const DIM: usize> ElementwiseOut<PendingSum> for Shard<DIM> {
    type Out = Shard<DIM>;
}
impl<const DIM: usize, const LEFT: usize> ElementwiseOut<Shard<LEFT>> for Shard<DIM> {
    type Out = Shard<LEFT>;
}
impl<L0, L1, R0, R1> ElementwiseOut<(L0, L1)> for (R0, R1)
where
    R0: ElementwiseOut<L0>,
    R1: ElementwiseOut<L1>,
{
    type Out = (R0::Out, R1::Out);
}
impl<L0, L1, L2, R0, R1, R2> ElementwiseOut<(L0, L1, L2)> for (R0, R1, R2)
where
    R0: ElementwiseOut<L0>,
    R1: ElementwiseOut<L1>,
    R2: ElementwiseOut<L2>,
{
    type Out = (R0::Out, R1::Out, R2::Out);
}

/// Guard of sums and differences: a pending sum meets a pending sum, a complete value a complete one.
#[diagnostic::on_unimplemented(
    message = "`{L}` and `{Self}` cannot be added or subtracted: one is a sum still pending, the other is complete",
    label = "`{L}` on the left and `{Self}` on the right, on `{A}`: a term and a complete value do not mix",
    note = "reduce the pending one first: `.all_reduce(axis)` to get a `Replicated`, `.over(axis).reduce_scatter::<DIM>()` to get a `Shard<DIM>`",
    note = "in an update: the gradient of a `Replicated` weight over sharded data is a `PendingSum` until it is reduced",
    note = "to add a complete value as one more term, so that it counts once: `.to_pending(axis)` on it"
)]
pub trait BothPendingOrNeither<L, A = MeshAxis<0>> {}

impl<A> BothPendingOrNeither<Replicated, A> for Replicated {}
impl<const LEFT: usize, A> BothPendingOrNeither<Shard<LEFT>, A> for Replicated {}
impl<const DIM: usize, A> BothPendingOrNeither<Replicated, A> for Shard<DIM> {}
impl<const DIM: usize, const LEFT: usize, A> BothPendingOrNeither<Shard<LEFT>, A> for Shard<DIM> {}
impl<A> BothPendingOrNeither<PendingSum, A> for PendingSum {}
impl<L0, L1, R0, R1> BothPendingOrNeither<(L0, L1)> for (R0, R1)
where
    R0: BothPendingOrNeither<L0, MeshAxis<0>>,
    R1: BothPendingOrNeither<L1, MeshAxis<1>>,
{
}
impl<L0, L1, L2, R0, R1, R2> BothPendingOrNeither<(L0, L1, L2)> for (R0, R1, R2)
where
    R0: BothPendingOrNeither<L0, MeshAxis<0>>,
    R1: BothPendingOrNeither<L1, MeshAxis<1>>,
    R2: BothPendingOrNeither<L2, MeshAxis<2>>,
{
}

/// Guard of elementwise ops: complete operands are sharded alike. Says nothing about pending ones.
#[diagnostic::on_unimplemented(
    message = "an elementwise op needs operands that are sharded alike, but found `{L}` and `{Self}`",
    label = "`{L}` on the left and `{Self}` on the right, on `{A}`: the ranks hold different parts of them",
    note = "bring one to the other's layout: `.over(axis).slice::<DIM>()` on a `Replicated`, `.all_gather(axis)` or `.over(axis).all_to_all::<FROM, TO>()` on a `Shard`"
)]
pub trait SameShards<L, A = MeshAxis<0>> {}

impl<A> SameShards<Replicated, A> for Replicated {}
impl<A> SameShards<PendingSum, A> for Replicated {}
impl<const DIM: usize, A> SameShards<Shard<DIM>, A> for Shard<DIM> {}
impl<const DIM: usize, A> SameShards<PendingSum, A> for Shard<DIM> {}
impl<A> SameShards<Replicated, A> for PendingSum {}
impl<A> SameShards<PendingSum, A> for PendingSum {}
impl<const LEFT: usize, A> SameShards<Shard<LEFT>, A> for PendingSum {}
impl<L0, L1, R0, R1> SameShards<(L0, L1)> for (R0, R1)
where
    R0: SameShards<L0, MeshAxis<0>>,
    R1: SameShards<L1, MeshAxis<1>>,
{
}
impl<L0, L1, L2, R0, R1, R2> SameShards<(L0, L1, L2)> for (R0, R1, R2)
where
    R0: SameShards<L0, MeshAxis<0>>,
    R1: SameShards<L1, MeshAxis<1>>,
    R2: SameShards<L2, MeshAxis<2>>,
{
}

/// Guard of products, elementwise and matrix: at most one factor is pending.
#[diagnostic::on_unimplemented(
    message = "the product of two pending sums is wrong: (a + b) (c + d) is not a c + b d",
    label = "both factors are `PendingSum` on `{A}`",
    note = "complete one of them first: call `.all_reduce(axis)` on it"
)]
pub trait NotBothPending<L, A = MeshAxis<0>> {}

impl<A> NotBothPending<Replicated, A> for Replicated {}
impl<A> NotBothPending<PendingSum, A> for Replicated {}
impl<const LEFT: usize, A> NotBothPending<Shard<LEFT>, A> for Replicated {}
impl<const DIM: usize, A> NotBothPending<Replicated, A> for Shard<DIM> {}
impl<const DIM: usize, A> NotBothPending<PendingSum, A> for Shard<DIM> {}
impl<const DIM: usize, const LEFT: usize, A> NotBothPending<Shard<LEFT>, A> for Shard<DIM> {}
impl<A> NotBothPending<Replicated, A> for PendingSum {}
impl<const LEFT: usize, A> NotBothPending<Shard<LEFT>, A> for PendingSum {}
impl<L0, L1, R0, R1> NotBothPending<(L0, L1)> for (R0, R1)
where
    R0: NotBothPending<L0, MeshAxis<0>>,
    R1: NotBothPending<L1, MeshAxis<1>>,
{
}
impl<L0, L1, L2, R0, R1, R2> NotBothPending<(L0, L1, L2)> for (R0, R1, R2)
where
    R0: NotBothPending<L0, MeshAxis<0>>,
    R1: NotBothPending<L1, MeshAxis<1>>,
    R2: NotBothPending<L2, MeshAxis<2>>,
{
}

/// Guard of products, elementwise and matrix: the other factor of a pending sum is replicated, not sharded.
#[diagnostic::on_unimplemented(
    message = "a pending sum can be multiplied only with a `Replicated` value, but found `{L}` times `{Self}`",
    label = "`{L}` on the left and `{Self}` on the right, on `{A}`: a rank would multiply its term with its own block only",
    note = "complete the `PendingSum` first: `.over(axis).reduce_scatter::<DIM>()` if its shard lines up with the other factor's, else `.all_reduce(axis)`",
    note = "in a backward pass, an input gradient of a column-parallel layer is a `PendingSum` until it is reduced"
)]
pub trait PendingMeetsReplicated<L, A = MeshAxis<0>> {}

impl<A> PendingMeetsReplicated<Replicated, A> for Replicated {}
impl<A> PendingMeetsReplicated<PendingSum, A> for Replicated {}
impl<const LEFT: usize, A> PendingMeetsReplicated<Shard<LEFT>, A> for Replicated {}
impl<const DIM: usize, A> PendingMeetsReplicated<Replicated, A> for Shard<DIM> {}
impl<const DIM: usize, const LEFT: usize, A> PendingMeetsReplicated<Shard<LEFT>, A> for Shard<DIM> {}
impl<A> PendingMeetsReplicated<Replicated, A> for PendingSum {}
impl<A> PendingMeetsReplicated<PendingSum, A> for PendingSum {}
impl<L0, L1, R0, R1> PendingMeetsReplicated<(L0, L1)> for (R0, R1)
where
    R0: PendingMeetsReplicated<L0, MeshAxis<0>>,
    R1: PendingMeetsReplicated<L1, MeshAxis<1>>,
{
}
impl<L0, L1, L2, R0, R1, R2> PendingMeetsReplicated<(L0, L1, L2)> for (R0, R1, R2)
where
    R0: PendingMeetsReplicated<L0, MeshAxis<0>>,
    R1: PendingMeetsReplicated<L1, MeshAxis<1>>,
    R2: PendingMeetsReplicated<L2, MeshAxis<2>>,
{
}
