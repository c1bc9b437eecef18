//! Matrix product with the left operand transposed, `km,kn->mn`.
//!
//! Admissible per axis: `R,R→R` · `S(1),R→S(0)` · `R,S(1)→S(1)` · `S(0),S(0)→P` · `P,R→P` · `R,P→P`.
//! The contraction dim is dim 0 of the left operand and dim 0 of the right one.

use super::axes::SameMesh;
use super::elementwise::{NotBothPending, PendingMeetsReplicated};
use super::{MeshAxis, PendingSum, Replicated, Shard};

/// `Self` may be the right operand of a matmul_tn whose left operand is laid out as `L`.
pub trait MatmulTnRule<L> {
    /// Layout of the product.
    type Out;
}

impl<L, R> MatmulTnRule<L> for R
where
    R: SameMesh<L>,
    R::Right: MatmulTnOut<L>
        + NotBothPending<L>
        + PendingMeetsReplicated<L>
        + MatmulTnContraction<L>
        + MatmulTnRowsOrColumns<L>,
{
    type Out = <R::Right as MatmulTnOut<L>>::Out;
}

/// The product's placement, where the guards hold.
#[diagnostic::on_unimplemented(
    message = "`{L}` and `{Self}` are layouts over meshes of different numbers of axes",
    label = "the operands do not lie on the same mesh",
    note = "build both operands with the same `typed::Graph`"
)]
pub trait MatmulTnOut<L> {
    /// The product's placement.
    type Out;
}

impl MatmulTnOut<Replicated> for Replicated {
    type Out = Replicated;
}
impl<const DIM: usize> MatmulTnOut<Replicated> for Shard<DIM> {
    type Out = Shard<DIM>;
}
impl MatmulTnOut<Replicated> for PendingSum {
    type Out = PendingSum;
}
impl MatmulTnOut<Shard<1>> for Replicated {
    type Out = Shard<0>;
}
impl<const DIM: usize> MatmulTnOut<Shard<1>> for Shard<DIM> {
    type Out = Shard<0>;
}
impl MatmulTnOut<Shard<1>> for PendingSum {
    type Out = Shard<0>;
}
impl MatmulTnOut<Shard<0>> for Replicated {
    type Out = PendingSum;
}
impl<const DIM: usize> MatmulTnOut<Shard<0>> for Shard<DIM> {
    type Out = PendingSum;
}
impl MatmulTnOut<Shard<0>> for PendingSum {
    type Out = PendingSum;
}
impl MatmulTnOut<PendingSum> for Replicated {
    type Out = PendingSum;
}
impl<const DIM: usize> MatmulTnOut<PendingSum> for Shard<DIM> {
    type Out = PendingSum;
}
impl MatmulTnOut<PendingSum> for PendingSum {
    type Out = PendingSum;
}
impl<L0, L1, R0, R1> MatmulTnOut<(L0, L1)> for (R0, R1)
where
    R0: MatmulTnOut<L0>,
    R1: MatmulTnOut<L1>,
{
    type Out = (R0::Out, R1::Out);
}
impl<L0, L1, L2, R0, R1, R2> MatmulTnOut<(L0, L1, L2)> for (R0, R1, R2)
where
    R0: MatmulTnOut<L0>,
    R1: MatmulTnOut<L1>,
    R2: MatmulTnOut<L2>,
{
    type Out = (R0::Out, R1::Out, R2::Out);
}

/// Guard: the contraction dim is sharded on both operands or on neither. Says nothing about pending operands.
#[diagnostic::on_unimplemented(
    message = "matmul_tn needs its contraction dim sharded on both operands or on neither, but found `{L}` times `{Self}`",
    label = "`{L}` on the left and `{Self}` on the right, on `{A}`: the contraction dim is dim 0 of the left and dim 0 of the right operand",
    note = "with the contraction sharded, the operands are `Shard<0>` and `Shard<0>`, and the product is a `PendingSum`",
    note = "bring one operand in line: `.over(axis).slice::<DIM>()` on a `Replicated`, `.all_gather(axis)` or `.over(axis).all_to_all::<FROM, TO>()` on a `Shard`"
)]
pub trait MatmulTnContraction<L, A = MeshAxis<0>> {}

impl<A> MatmulTnContraction<Replicated, A> for Replicated {}
impl<A> MatmulTnContraction<Replicated, A> for Shard<1> {}
impl<A> MatmulTnContraction<Replicated, A> for PendingSum {}
impl<A> MatmulTnContraction<Shard<0>, A> for Shard<0> {}
impl<A> MatmulTnContraction<Shard<0>, A> for PendingSum {}
impl<A> MatmulTnContraction<Shard<1>, A> for Replicated {}
impl<A> MatmulTnContraction<Shard<1>, A> for Shard<1> {}
impl<A> MatmulTnContraction<Shard<1>, A> for PendingSum {}
impl<A> MatmulTnContraction<PendingSum, A> for Replicated {}
impl<A> MatmulTnContraction<PendingSum, A> for Shard<0> {}
impl<A> MatmulTnContraction<PendingSum, A> for Shard<1> {}
impl<A> MatmulTnContraction<PendingSum, A> for PendingSum {}
impl<L0, L1, R0, R1> MatmulTnContraction<(L0, L1)> for (R0, R1)
where
    R0: MatmulTnContraction<L0, MeshAxis<0>>,
    R1: MatmulTnContraction<L1, MeshAxis<1>>,
{
}
impl<L0, L1, L2, R0, R1, R2> MatmulTnContraction<(L0, L1, L2)> for (R0, R1, R2)
where
    R0: MatmulTnContraction<L0, MeshAxis<0>>,
    R1: MatmulTnContraction<L1, MeshAxis<1>>,
    R2: MatmulTnContraction<L2, MeshAxis<2>>,
{
}

/// Guard: one mesh axis splits the rows or the columns of the product, not both.
#[diagnostic::on_unimplemented(
    message = "matmul_tn cannot split rows and columns of the product over one mesh axis, but found `Shard<1>` times `Shard<1>`",
    label = "`Shard<1>` on the left and `Shard<1>` on the right, on `{A}`: each rank would make only a diagonal block of the product",
    note = "gather one of the operands: `.all_gather(axis)`"
)]
pub trait MatmulTnRowsOrColumns<L, A = MeshAxis<0>> {}

impl<A> MatmulTnRowsOrColumns<Replicated, A> for Replicated {}
impl<A> MatmulTnRowsOrColumns<Replicated, A> for Shard<0> {}
impl<A> MatmulTnRowsOrColumns<Replicated, A> for Shard<1> {}
impl<A> MatmulTnRowsOrColumns<Replicated, A> for PendingSum {}
impl<A> MatmulTnRowsOrColumns<Shard<0>, A> for Replicated {}
impl<A> MatmulTnRowsOrColumns<Shard<0>, A> for Shard<0> {}
impl<A> MatmulTnRowsOrColumns<Shard<0>, A> for Shard<1> {}
impl<A> MatmulTnRowsOrColumns<Shard<0>, A> for PendingSum {}
impl<A> MatmulTnRowsOrColumns<Shard<1>, A> for Replicated {}
impl<A> MatmulTnRowsOrColumns<Shard<1>, A> for Shard<0> {}
impl<A> MatmulTnRowsOrColumns<Shard<1>, A> for PendingSum {}
impl<A> MatmulTnRowsOrColumns<PendingSum, A> for Replicated {}
impl<A> MatmulTnRowsOrColumns<PendingSum, A> for Shard<0> {}
impl<A> MatmulTnRowsOrColumns<PendingSum, A> for Shard<1> {}
impl<A> MatmulTnRowsOrColumns<PendingSum, A> for PendingSum {}
impl<L0, L1, R0, R1> MatmulTnRowsOrColumns<(L0, L1)> for (R0, R1)
where
    R0: MatmulTnRowsOrColumns<L0, MeshAxis<0>>,
    R1: MatmulTnRowsOrColumns<L1, MeshAxis<1>>,
{
}
impl<L0, L1, L2, R0, R1, R2> MatmulTnRowsOrColumns<(L0, L1, L2)> for (R0, R1, R2)
where
    R0: MatmulTnRowsOrColumns<L0, MeshAxis<0>>,
    R1: MatmulTnRowsOrColumns<L1, MeshAxis<1>>,
    R2: MatmulTnRowsOrColumns<L2, MeshAxis<2>>,
{
}
