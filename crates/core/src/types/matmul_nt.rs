//! Matrix product with the right operand transposed, `mk,nk->mn`.
//!
//! Admissible per axis: `R,R→R` · `S(0),R→S(0)` · `R,S(0)→S(1)` · `S(1),S(1)→P` · `P,R→P` · `R,P→P`.
//! The contraction dim is dim 1 of the left operand and dim 1 of the right one.

use super::axes::SameMesh;
use super::elementwise::{NotBothPending, PendingMeetsReplicated};
use super::{MeshAxis, PendingSum, Replicated, Shard};

/// `Self` may be the right operand of a matmul_nt whose left operand is laid out as `L`.
pub trait MatmulNtRule<L> {
    /// Layout of the product.
    type Out;
}

impl<L, R> MatmulNtRule<L> for R
where
    R: SameMesh<L>,
    R::Right: MatmulNtOut<L>
        + NotBothPending<L>
        + PendingMeetsReplicated<L>
        + MatmulNtContraction<L>
        + MatmulNtRowsOrColumns<L>,
{
    type Out = <R::Right as MatmulNtOut<L>>::Out;
}

/// The product's placement, where the guards hold.
#[diagnostic::on_unimplemented(
    message = "`{L}` and `{Self}` are layouts over meshes of different numbers of axes",
    label = "the operands do not lie on the same mesh",
    note = "build both operands with the same `typed::Graph`"
)]
pub trait MatmulNtOut<L> {
    /// The product's placement.
    type Out;
}

impl MatmulNtOut<Replicated> for Replicated {
    type Out = Replicated;
}
impl<const DIM: usize> MatmulNtOut<Replicated> for Shard<DIM> {
    type Out = Shard<1>;
}
impl MatmulNtOut<Replicated> for PendingSum {
    type Out = PendingSum;
}
impl MatmulNtOut<Shard<0>> for Replicated {
    type Out = Shard<0>;
}
impl<const DIM: usize> MatmulNtOut<Shard<0>> for Shard<DIM> {
    type Out = Shard<0>;
}
impl MatmulNtOut<Shard<0>> for PendingSum {
    type Out = Shard<0>;
}
impl MatmulNtOut<Shard<1>> for Replicated {
    type Out = PendingSum;
}
impl<const DIM: usize> MatmulNtOut<Shard<1>> for Shard<DIM> {
    type Out = PendingSum;
}
impl MatmulNtOut<Shard<1>> for PendingSum {
    type Out = PendingSum;
}
impl MatmulNtOut<PendingSum> for Replicated {
    type Out = PendingSum;
}
impl<const DIM: usize> MatmulNtOut<PendingSum> for Shard<DIM> {
    type Out = PendingSum;
}
impl MatmulNtOut<PendingSum> for PendingSum {
    type Out = PendingSum;
}
impl<L0, L1, R0, R1> MatmulNtOut<(L0, L1)> for (R0, R1)
where
    R0: MatmulNtOut<L0>,
    R1: MatmulNtOut<L1>,
{
    type Out = (R0::Out, R1::Out);
}
impl<L0, L1, L2, R0, R1, R2> MatmulNtOut<(L0, L1, L2)> for (R0, R1, R2)
where
    R0: MatmulNtOut<L0>,
    R1: MatmulNtOut<L1>,
    R2: MatmulNtOut<L2>,
{
    type Out = (R0::Out, R1::Out, R2::Out);
}

/// Guard: the contraction dim is sharded on both operands or on neither. Says nothing about pending operands.
#[diagnostic::on_unimplemented(
    message = "matmul_nt needs its contraction dim sharded on both operands or on neither, but found `{L}` times `{Self}`",
    label = "`{L}` on the left and `{Self}` on the right, on `{A}`: the contraction dim is dim 1 of the left and dim 1 of the right operand",
    note = "with the contraction sharded, the operands are `Shard<1>` and `Shard<1>`, and the product is a `PendingSum`",
    note = "bring one operand in line: `.over(axis).slice::<DIM>()` on a `Replicated`, `.all_gather(axis)` or `.over(axis).all_to_all::<FROM, TO>()` on a `Shard`"
)]
pub trait MatmulNtContraction<L, A = MeshAxis<0>> {}

impl<A> MatmulNtContraction<Replicated, A> for Replicated {}
impl<A> MatmulNtContraction<Replicated, A> for Shard<0> {}
impl<A> MatmulNtContraction<Replicated, A> for PendingSum {}
impl<A> MatmulNtContraction<Shard<0>, A> for Replicated {}
impl<A> MatmulNtContraction<Shard<0>, A> for Shard<0> {}
impl<A> MatmulNtContraction<Shard<0>, A> for PendingSum {}
impl<A> MatmulNtContraction<Shard<1>, A> for Shard<1> {}
impl<A> MatmulNtContraction<Shard<1>, A> for PendingSum {}
impl<A> MatmulNtContraction<PendingSum, A> for Replicated {}
impl<A> MatmulNtContraction<PendingSum, A> for Shard<0> {}
impl<A> MatmulNtContraction<PendingSum, A> for Shard<1> {}
impl<A> MatmulNtContraction<PendingSum, A> for PendingSum {}
impl<L0, L1, R0, R1> MatmulNtContraction<(L0, L1)> for (R0, R1)
where
    R0: MatmulNtContraction<L0, MeshAxis<0>>,
    R1: MatmulNtContraction<L1, MeshAxis<1>>,
{
}
impl<L0, L1, L2, R0, R1, R2> MatmulNtContraction<(L0, L1, L2)> for (R0, R1, R2)
where
    R0: MatmulNtContraction<L0, MeshAxis<0>>,
    R1: MatmulNtContraction<L1, MeshAxis<1>>,
    R2: MatmulNtContraction<L2, MeshAxis<2>>,
{
}

/// Guard: one mesh axis splits the rows or the columns of the product, not both.
#[diagnostic::on_unimplemented(
    message = "matmul_nt cannot split rows and columns of the product over one mesh axis, but found `Shard<0>` times `Shard<0>`",
    label = "`Shard<0>` on the left and `Shard<0>` on the right, on `{A}`: each rank would make only a diagonal block of the product",
    note = "gather one of the operands: `.all_gather(axis)`"
)]
pub trait MatmulNtRowsOrColumns<L, A = MeshAxis<0>> {}

impl<A> MatmulNtRowsOrColumns<Replicated, A> for Replicated {}
impl<A> MatmulNtRowsOrColumns<Replicated, A> for Shard<0> {}
impl<A> MatmulNtRowsOrColumns<Replicated, A> for Shard<1> {}
impl<A> MatmulNtRowsOrColumns<Replicated, A> for PendingSum {}
impl<A> MatmulNtRowsOrColumns<Shard<0>, A> for Replicated {}
impl<A> MatmulNtRowsOrColumns<Shard<0>, A> for Shard<1> {}
impl<A> MatmulNtRowsOrColumns<Shard<0>, A> for PendingSum {}
impl<A> MatmulNtRowsOrColumns<Shard<1>, A> for Replicated {}
impl<A> MatmulNtRowsOrColumns<Shard<1>, A> for Shard<0> {}
impl<A> MatmulNtRowsOrColumns<Shard<1>, A> for Shard<1> {}
impl<A> MatmulNtRowsOrColumns<Shard<1>, A> for PendingSum {}
impl<A> MatmulNtRowsOrColumns<PendingSum, A> for Replicated {}
impl<A> MatmulNtRowsOrColumns<PendingSum, A> for Shard<0> {}
impl<A> MatmulNtRowsOrColumns<PendingSum, A> for Shard<1> {}
impl<A> MatmulNtRowsOrColumns<PendingSum, A> for PendingSum {}
impl<L0, L1, R0, R1> MatmulNtRowsOrColumns<(L0, L1)> for (R0, R1)
where
    R0: MatmulNtRowsOrColumns<L0, MeshAxis<0>>,
    R1: MatmulNtRowsOrColumns<L1, MeshAxis<1>>,
{
}
impl<L0, L1, L2, R0, R1, R2> MatmulNtRowsOrColumns<(L0, L1, L2)> for (R0, R1, R2)
where
    R0: MatmulNtRowsOrColumns<L0, MeshAxis<0>>,
    R1: MatmulNtRowsOrColumns<L1, MeshAxis<1>>,
    R2: MatmulNtRowsOrColumns<L2, MeshAxis<2>>,
{
}
