//! Adding a bias `[out]` to every row of a matrix `[batch, out]`: a broadcast, then a sum.
//!
//! Admissible per axis: `R,R→R` · `S(0),R→S(0)` · `S(1),S(0)→S(1)` · `P,P→P`.

use super::axes::SameMesh;
use super::{MeshAxis, PendingSum, Replicated, Shard};

/// `Self` may be the layout of a bias added to a matrix laid out as `L`.
pub trait BiasRule<L> {
    /// Layout of the sum: the matrix's.
    type Out;
}

impl<L, B> BiasRule<L> for B
where
    B: SameMesh<L>,
    B::Right: BiasAfterReduction<L> + BiasComplete<L> + BiasAlongFeatures<L>,
{
    type Out = L;
}

/// Guard: a complete bias is not added to a pending sum.
#[diagnostic::on_unimplemented(
    message = "a bias added to a `PendingSum` before its reduction would count once per rank",
    label = "the product is still a `PendingSum` and the bias is `{Self}`, on `{A}`",
    note = "reduce first, then add the bias: `x.matmul(w)?.all_reduce(axis)?.add_bias(b)?` with a `Replicated` bias, `.over(axis).reduce_scatter::<1>()` with a `Shard<0>` one"
)]
pub trait BiasAfterReduction<L, A = MeshAxis<0>> {}

impl<A> BiasAfterReduction<Replicated, A> for Replicated {}
impl<A> BiasAfterReduction<Replicated, A> for Shard<0> {}
impl<A> BiasAfterReduction<Replicated, A> for PendingSum {}
impl<A> BiasAfterReduction<Shard<0>, A> for Replicated {}
impl<A> BiasAfterReduction<Shard<0>, A> for Shard<0> {}
impl<A> BiasAfterReduction<Shard<0>, A> for PendingSum {}
impl<A> BiasAfterReduction<Shard<1>, A> for Replicated {}
impl<A> BiasAfterReduction<Shard<1>, A> for Shard<0> {}
impl<A> BiasAfterReduction<Shard<1>, A> for PendingSum {}
impl<A> BiasAfterReduction<PendingSum, A> for PendingSum {}
impl<L0, L1, R0, R1> BiasAfterReduction<(L0, L1)> for (R0, R1)
where
    R0: BiasAfterReduction<L0, MeshAxis<0>>,
    R1: BiasAfterReduction<L1, MeshAxis<1>>,
{
}
impl<L0, L1, L2, R0, R1, R2> BiasAfterReduction<(L0, L1, L2)> for (R0, R1, R2)
where
    R0: BiasAfterReduction<L0, MeshAxis<0>>,
    R1: BiasAfterReduction<L1, MeshAxis<1>>,
    R2: BiasAfterReduction<L2, MeshAxis<2>>,
{
}

/// Guard: a pending bias is not added to a complete matrix.
#[diagnostic::on_unimplemented(
    message = "a bias that is a `PendingSum` cannot be added to a complete value",
    label = "the bias is a `PendingSum` and the matrix is `{L}`, on `{A}`",
    note = "complete the bias first: call `.all_reduce(axis)` on it, or `.over(axis).reduce_scatter::<0>()` where the matrix is `Shard<1>`"
)]
pub trait BiasComplete<L, A = MeshAxis<0>> {}

impl<A> BiasComplete<Replicated, A> for Replicated {}
impl<A> BiasComplete<Replicated, A> for Shard<0> {}
impl<A> BiasComplete<Shard<0>, A> for Replicated {}
impl<A> BiasComplete<Shard<0>, A> for Shard<0> {}
impl<A> BiasComplete<Shard<1>, A> for Replicated {}
impl<A> BiasComplete<Shard<1>, A> for Shard<0> {}
impl<A> BiasComplete<PendingSum, A> for Replicated {}
impl<A> BiasComplete<PendingSum, A> for Shard<0> {}
impl<A> BiasComplete<PendingSum, A> for PendingSum {}
impl<L0, L1, R0, R1> BiasComplete<(L0, L1)> for (R0, R1)
where
    R0: BiasComplete<L0, MeshAxis<0>>,
    R1: BiasComplete<L1, MeshAxis<1>>,
{
}
impl<L0, L1, L2, R0, R1, R2> BiasComplete<(L0, L1, L2)> for (R0, R1, R2)
where
    R0: BiasComplete<L0, MeshAxis<0>>,
    R1: BiasComplete<L1, MeshAxis<1>>,
    R2: BiasComplete<L2, MeshAxis<2>>,
{
}

/// Guard: a complete bias is sharded exactly where the features of the matrix are.
#[diagnostic::on_unimplemented(
    message = "a bias must be sharded where the features of the matrix are, but found a `{Self}` bias on a `{L}` matrix",
    label = "matrix `{L}`, bias `{Self}`, on `{A}`: the features are dim 1 of the matrix and dim 0 of the bias",
    note = "a `Shard<1>` matrix takes a `Shard<0>` bias: `.over(axis).slice::<0>()` on a `Replicated` one; any other complete matrix takes a `Replicated` bias: `.all_gather(axis)` on a `Shard<0>` one"
)]
pub trait BiasAlongFeatures<L, A = MeshAxis<0>> {}

impl<A> BiasAlongFeatures<Replicated, A> for Replicated {}
impl<A> BiasAlongFeatures<Replicated, A> for PendingSum {}
impl<A> BiasAlongFeatures<Shard<0>, A> for Replicated {}
impl<A> BiasAlongFeatures<Shard<0>, A> for PendingSum {}
impl<A> BiasAlongFeatures<Shard<1>, A> for Shard<0> {}
impl<A> BiasAlongFeatures<Shard<1>, A> for PendingSum {}
impl<A> BiasAlongFeatures<PendingSum, A> for Replicated {}
impl<A> BiasAlongFeatures<PendingSum, A> for Shard<0> {}
impl<A> BiasAlongFeatures<PendingSum, A> for PendingSum {}
impl<L0, L1, R0, R1> BiasAlongFeatures<(L0, L1)> for (R0, R1)
where
    R0: BiasAlongFeatures<L0, MeshAxis<0>>,
    R1: BiasAlongFeatures<L1, MeshAxis<1>>,
{
}
impl<L0, L1, L2, R0, R1, R2> BiasAlongFeatures<(L0, L1, L2)> for (R0, R1, R2)
where
    R0: BiasAlongFeatures<L0, MeshAxis<0>>,
    R1: BiasAlongFeatures<L1, MeshAxis<1>>,
    R2: BiasAlongFeatures<L2, MeshAxis<2>>,
{
}
