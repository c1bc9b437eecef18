//! Matrix product, `mk,kn->mn`.
//!
//! Admissible per axis: `R,R→R` · `S(0),R→S(0)` · `R,S(1)→S(1)` · `S(1),S(0)→P` · `P,R→P` · `R,P→P`.
//! The contraction dim is dim 1 of the left operand and dim 0 of the right one.

use super::axes::SameMesh;
use super::elementwise::{NotBothPending, PendingMeetsReplicated};
use super::{MeshAxis, PendingSum, Replicated, Shard};

/// `Self` may be the right operand of a matmul whose left operand is laid out as `L`.
pub trait MatmulRule<L> {
    /// Layout of the product.
    type Out;
}

impl<L, R> MatmulRule<L> for R
where
    R: SameMesh<L>,
    R::Right: MatmulOut<L>
        + NotBothPending<L>
        + PendingMeetsReplicated<L>
        + MatmulContraction<L>
        + MatmulRowsOrColumns<L>,
{
    type Out = <R::Right as MatmulOut<L>>::Out;
}

/// The product's placement, where the guards hold.
#[diagnostic::on_unimplemented(
    message = "`{L}` and `{Self}` are layouts over meshes of different numbers of axes",
    label = "the operands do not lie on the same mesh",
    note = "build both operands with the same `typed::Graph`"
)]
pub trait MatmulOut<L> {
    /// The product's placement.
    type Out;
}

impl MatmulOut<Replicated> for Replicated {
    type Out = Replicated;
}
impl<const DIM: usize> MatmulOut<Replicated> for Shard<DIM> {
    type Out = Shard<DIM>;
}
impl MatmulOut<Replicated> for PendingSum {
    type Out = PendingSum;
}
impl MatmulOut<Shard<0>> for Replicated {
    type Out = Shard<0>;
}
impl<const DIM: usize> MatmulOut<Shard<0>> for Shard<DIM> {
    type Out = Shard<0>;
}
impl MatmulOut<Shard<0>> for PendingSum {
    type Out = Shard<0>;
}
impl MatmulOut<Shard<1>> for Replicated {
    type Out = PendingSum;
}
impl<const DIM: usize> MatmulOut<Shard<1>> for Shard<DIM> {
    type Out = PendingSum;
}
impl MatmulOut<Shard<1>> for PendingSum {
    type Out = PendingSum;
}
impl MatmulOut<PendingSum> for Replicated {
    type Out = PendingSum;
}
impl<const DIM: usize> MatmulOut<PendingSum> for Shard<DIM> {
    type Out = PendingSum;
}
impl MatmulOut<PendingSum> for PendingSum {
    type Out = PendingSum;
}
impl<L0, L1, R0, R1> MatmulOut<(L0, L1)> for (R0, R1)
where
    R0: MatmulOut<L0>,
    R1: MatmulOut<L1>,
{
    type Out = (R0::Out, R1::Out);
}
impl<L0, L1, L2, R0, R1, R2> MatmulOut<(L0, L1, L2)> for (R0, R1, R2)
where
    R0: MatmulOut<L0>,
    R1: MatmulOut<L1>,
    R2: MatmulOut<L2>,
{
    type Out = (R0::Out, R1::Out, R2::Out);
}

/// Guard: the contraction dim is sharded on both operands or on neither. Says nothing about pending operands.
#[diagnostic::on_unimplemented(
    message = "matmul needs its contraction dim sharded on both operands or on neither, but found `{L}` times `{Self}`",
    label = "`{L}` on the left and `{Self}` on the right, on `{A}`: the contraction dim is dim 1 of the left and dim 0 of the right operand",
    note = "with the contraction sharded, the operands are `Shard<1>` and `Shard<0>`, and the product is a `PendingSum`",
    note = "bring one operand in line: `.over(axis).slice::<DIM>()` on a `Replicated`, `.all_gather(axis)` or `.over(axis).all_to_all::<FROM, TO>()` on a `Shard`"
)]
pub trait MatmulContraction<L, A = MeshAxis<0>> {}

impl<A> MatmulContraction<Replicated, A> for Replicated {}
impl<A> MatmulContraction<Replicated, A> for Shard<1> {}
impl<A> MatmulContraction<Replicated, A> for PendingSum {}
impl<A> MatmulContraction<Shard<0>, A> for Replicated {}
impl<A> MatmulContraction<Shard<0>, A> for Shard<1> {}
impl<A> MatmulContraction<Shard<0>, A> for PendingSum {}
impl<A> MatmulContraction<Shard<1>, A> for Shard<0> {}
impl<A> MatmulContraction<Shard<1>, A> for PendingSum {}
impl<A> MatmulContraction<PendingSum, A> for Replicated {}
impl<A> MatmulContraction<PendingSum, A> for Shard<0> {}
impl<A> MatmulContraction<PendingSum, A> for Shard<1> {}
impl<A> MatmulContraction<PendingSum, A> for PendingSum {}
impl<L0, L1, R0, R1> MatmulContraction<(L0, L1)> for (R0, R1)
where
    R0: MatmulContraction<L0, MeshAxis<0>>,
    R1: MatmulContraction<L1, MeshAxis<1>>,
{
}
impl<L0, L1, L2, R0, R1, R2> MatmulContraction<(L0, L1, L2)> for (R0, R1, R2)
where
    R0: MatmulContraction<L0, MeshAxis<0>>,
    R1: MatmulContraction<L1, MeshAxis<1>>,
    R2: MatmulContraction<L2, MeshAxis<2>>,
{
}

/// Guard: one mesh axis splits the rows or the columns of the product, not both.
#[diagnostic::on_unimplemented(
    message = "matmul cannot split rows and columns of the product over one mesh axis, but found `Shard<0>` times `Shard<1>`",
    label = "`Shard<0>` on the left and `Shard<1>` on the right, on `{A}`: each rank would make only a diagonal block of the product",
    note = "gather one of the operands: `.all_gather(axis)`"
)]
pub trait MatmulRowsOrColumns<L, A = MeshAxis<0>> {}

impl<A> MatmulRowsOrColumns<Replicated, A> for Replicated {}
impl<A> MatmulRowsOrColumns<Replicated, A> for Shard<0> {}
impl<A> MatmulRowsOrColumns<Replicated, A> for Shard<1> {}
impl<A> MatmulRowsOrColumns<Replicated, A> for PendingSum {}
impl<A> MatmulRowsOrColumns<Shard<0>, A> for Replicated {}
impl<A> MatmulRowsOrColumns<Shard<0>, A> for Shard<0> {}
impl<A> MatmulRowsOrColumns<Shard<0>, A> for PendingSum {}
impl<A> MatmulRowsOrColumns<Shard<1>, A> for Replicated {}
impl<A> MatmulRowsOrColumns<Shard<1>, A> for Shard<0> {}
impl<A> MatmulRowsOrColumns<Shard<1>, A> for Shard<1> {}
impl<A> MatmulRowsOrColumns<Shard<1>, A> for PendingSum {}
impl<A> MatmulRowsOrColumns<PendingSum, A> for Replicated {}
impl<A> MatmulRowsOrColumns<PendingSum, A> for Shard<0> {}
impl<A> MatmulRowsOrColumns<PendingSum, A> for Shard<1> {}
impl<A> MatmulRowsOrColumns<PendingSum, A> for PendingSum {}
impl<L0, L1, R0, R1> MatmulRowsOrColumns<(L0, L1)> for (R0, R1)
where
    R0: MatmulRowsOrColumns<L0, MeshAxis<0>>,
    R1: MatmulRowsOrColumns<L1, MeshAxis<1>>,
{
}
impl<L0, L1, L2, R0, R1, R2> MatmulRowsOrColumns<(L0, L1, L2)> for (R0, R1, R2)
where
    R0: MatmulRowsOrColumns<L0, MeshAxis<0>>,
    R1: MatmulRowsOrColumns<L1, MeshAxis<1>>,
    R2: MatmulRowsOrColumns<L2, MeshAxis<2>>,
{
}
