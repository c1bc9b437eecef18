//! Losses of an output and its target: mean squared error, and cross-entropy with integer labels.
//!
//! Admissible per axis: mse `R,R→R` · `S(d),S(d)→P`; cross-entropy of logits `[batch, classes]` and labels `[batch]`
//! `R,R→R` · `S(0),S(0)→P`. A loss that is a `PendingSum` is complete after one `all_reduce` of a scalar. Cross-entropy
//! over sharded classes is no single rule: it needs communication inside the log-softmax, so it is refused here.

use super::axes::SameMesh;
use super::elementwise::SameShards;
use super::{MeshAxis, PendingSum, Replicated, Shard};

/// `Self` may be the layout of a target of the same shape as an output laid out as `L`.
pub trait MseRule<L> {
    /// Layout of the loss.
    type Out;
}

impl<L, T> MseRule<L> for T
where
    L: LossOut,
    T: SameMesh<L>,
    T::Right: CompleteForLoss<L> + SameShards<L>,
{
    type Out = <L as LossOut>::Out;
}

/// `Self` may be the layout of labels `[batch]` for logits `[batch, classes]` laid out as `L`.
pub trait CrossEntropyRule<L> {
    /// Layout of the loss.
    type Out;
}

impl<L, T> CrossEntropyRule<L> for T
where
    L: LossOut,
    T: SameMesh<L>,
    T::Right: CompleteForLoss<L> + ClassesWhole<L> + LabelsAlongRows<L>,
{
    type Out = <L as LossOut>::Out;
}

/// The loss's placement, where the guards hold.
pub trait LossOut {
    /// The loss's placement.
    type Out;
}

impl LossOut for Replicated {
    type Out = Replicated;
}
impl<const DIM: usize> LossOut for Shard<DIM> {
    type Out = PendingSum;
}
impl LossOut for PendingSum {
    type Out = PendingSum;
}
impl<A: LossOut, B: LossOut> LossOut for (A, B) {
    type Out = (A::Out, B::Out);
}
impl<A: LossOut, B: LossOut, C: LossOut> LossOut for (A, B, C) {
    type Out = (A::Out, B::Out, C::Out);
}

/// Guard: neither the output nor the target is pending.
#[diagnostic::on_unimplemented(
    message = "a loss needs complete operands, but found an output `{L}` and a target `{Self}`",
    label = "output `{L}`, target `{Self}`, on `{A}`: the loss of a sum is not the sum of the terms' losses",
    note = "complete the `PendingSum` first: call `.all_reduce(axis)`, or `.over(axis).reduce_scatter::<DIM>()` where the other operand is a `Shard<DIM>`"
)]
pub trait CompleteForLoss<L, A = MeshAxis<0>> {}

impl<A> CompleteForLoss<Replicated, A> for Replicated {}
impl<const LEFT: usize, A> CompleteForLoss<Shard<LEFT>, A> for Replicated {}
impl<const DIM: usize, A> CompleteForLoss<Replicated, A> for Shard<DIM> {}
impl<const DIM: usize, const LEFT: usize, A> CompleteForLoss<Shard<LEFT>, A> for Shard<DIM> {}
impl<L0, L1, R0, R1> CompleteForLoss<(L0, L1)> for (R0, R1)
where
    R0: CompleteForLoss<L0, MeshAxis<0>>,
    R1: CompleteForLoss<L1, MeshAxis<1>>,
{
}
impl<L0, L1, L2, R0, R1, R2> CompleteForLoss<(L0, L1, L2)> for (R0, R1, R2)
where
    R0: CompleteForLoss<L0, MeshAxis<0>>,
    R1: CompleteForLoss<L1, MeshAxis<1>>,
    R2: CompleteForLoss<L2, MeshAxis<2>>,
{
}

/// Guard of cross-entropy: each row's classes are on one rank.
#[diagnostic::on_unimplemented(
    message = "cross-entropy needs all classes of a row on one rank, but the logits are `Shard<1>`",
    label = "the classes are dim 1 of the logits, and `Shard<1>` splits them over `{A}`",
    note = "bring the rows together: `.all_gather(axis)`, or `.over(axis).all_to_all::<1, 0>()` with labels that are `Shard<0>`"
)]
pub trait ClassesWhole<L, A = MeshAxis<0>> {}

impl<A> ClassesWhole<Replicated, A> for Replicated {}
impl<A> ClassesWhole<Replicated, A> for Shard<0> {}
impl<A> ClassesWhole<Replicated, A> for PendingSum {}
impl<A> ClassesWhole<Shard<0>, A> for Replicated {}
impl<A> ClassesWhole<Shard<0>, A> for Shard<0> {}
impl<A> ClassesWhole<Shard<0>, A> for PendingSum {}
impl<A> ClassesWhole<Shard<1>, A> for PendingSum {}
impl<A> ClassesWhole<PendingSum, A> for Replicated {}
impl<A> ClassesWhole<PendingSum, A> for Shard<0> {}
impl<A> ClassesWhole<PendingSum, A> for PendingSum {}
impl<L0, L1, R0, R1> ClassesWhole<(L0, L1)> for (R0, R1)
where
    R0: ClassesWhole<L0, MeshAxis<0>>,
    R1: ClassesWhole<L1, MeshAxis<1>>,
{
}
impl<L0, L1, L2, R0, R1, R2> ClassesWhole<(L0, L1, L2)> for (R0, R1, R2)
where
    R0: ClassesWhole<L0, MeshAxis<0>>,
    R1: ClassesWhole<L1, MeshAxis<1>>,
    R2: ClassesWhole<L2, MeshAxis<2>>,
{
}

/// Guard of cross-entropy: complete labels are split where the rows of the logits are.
#[diagnostic::on_unimplemented(
    message = "labels must be sharded where the rows of the logits are, but found `{Self}` labels for `{L}` logits",
    label = "logits `{L}`, labels `{Self}`, on `{A}`: the rows are dim 0 of both",
    note = "`Shard<0>` logits take `Shard<0>` labels: `.over(axis).slice::<0>()` on `Replicated` ones; `Replicated` logits take `Replicated` labels: `.all_gather(axis)` on `Shard<0>` ones"
)]
pub trait LabelsAlongRows<L, A = MeshAxis<0>> {}

impl<A> LabelsAlongRows<Replicated, A> for Replicated {}
impl<A> LabelsAlongRows<Replicated, A> for PendingSum {}
impl<A> LabelsAlongRows<Shard<0>, A> for Shard<0> {}
impl<A> LabelsAlongRows<Shard<0>, A> for PendingSum {}
impl<A> LabelsAlongRows<Shard<1>, A> for Replicated {}
impl<A> LabelsAlongRows<Shard<1>, A> for Shard<0> {}
impl<A> LabelsAlongRows<Shard<1>, A> for PendingSum {}
impl<A> LabelsAlongRows<PendingSum, A> for Replicated {}
impl<A> LabelsAlongRows<PendingSum, A> for Shard<0> {}
impl<A> LabelsAlongRows<PendingSum, A> for PendingSum {}
impl<L0, L1, R0, R1> LabelsAlongRows<(L0, L1)> for (R0, R1)
where
    R0: LabelsAlongRows<L0, MeshAxis<0>>,
    R1: LabelsAlongRows<L1, MeshAxis<1>>,
{
}
impl<L0, L1, L2, R0, R1, R2> LabelsAlongRows<(L0, L1, L2)> for (R0, R1, R2)
where
    R0: LabelsAlongRows<L0, MeshAxis<0>>,
    R1: LabelsAlongRows<L1, MeshAxis<1>>,
    R2: LabelsAlongRows<L2, MeshAxis<2>>,
{
}
