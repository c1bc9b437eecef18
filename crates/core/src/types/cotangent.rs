//! The cotangent map: which layouts a result's cotangent may have so that the pullback of its op sends nothing.
//!
//! | result | its cotangent |
//! |---|---|
//! | `Replicated` | `Replicated`, or `PendingSum`: terms of it, on the way to one reduction |
//! | `Shard<D>` | `Shard<D>` |
//! | `PendingSum` | `Replicated`: every term has the cotangent of the sum |
//!
//! So `Replicated` and `PendingSum` change places, and shards stay: the operand's cotangent, made by the rules of the
//! pullback's ops, is a `PendingSum` where a replicated operand met sharded data, and that is the reduction that a
//! backward pass owes. For every rule of an op with two factors or a nonlinear op, these are exactly the layouts of which
//! the dynamic rules of its VJP make something without a transition (a test).

use super::{MeshAxis, PendingSum, Replicated, Shard};

/// `Self` may be the layout of the cotangent of a result laid out as `Y`.
#[diagnostic::on_unimplemented(
    message = "a result laid out as `{Y}` cannot have a cotangent laid out as `{Self}`",
    label = "the result is `{Y}` and its cotangent `{Self}`, on `{A}`",
    note = "the cotangent of a `PendingSum` is `Replicated`, that of a `Shard<D>` is `Shard<D>`, that of a `Replicated` is `Replicated` or a `PendingSum` still to be reduced",
    note = "an input gradient that is a `PendingSum` (a column-parallel layer makes one) is completed by `.all_reduce(axis)`; `.over(axis).reduce_scatter::<DIM>()` and `.over(axis).slice::<DIM>()` make a `Shard`, `.over(axis).all_to_all::<FROM, TO>()` another one, `.all_gather(axis)` a `Replicated`"
)]
pub trait CotangentFor<Y, A = MeshAxis<0>> {}

impl<A> CotangentFor<Replicated, A> for Replicated {}
impl<A> CotangentFor<PendingSum, A> for Replicated {}
impl<A> CotangentFor<Replicated, A> for PendingSum {}
impl<const DIM: usize, A> CotangentFor<Shard<DIM>, A> for Shard<DIM> {}
impl<Y0, Y1, D0, D1> CotangentFor<(Y0, Y1)> for (D0, D1)
where
    D0: CotangentFor<Y0, MeshAxis<0>>,
    D1: CotangentFor<Y1, MeshAxis<1>>,
{
}
impl<Y0, Y1, Y2, D0, D1, D2> CotangentFor<(Y0, Y1, Y2)> for (D0, D1, D2)
where
    D0: CotangentFor<Y0, MeshAxis<0>>,
    D1: CotangentFor<Y1, MeshAxis<1>>,
    D2: CotangentFor<Y2, MeshAxis<2>>,
{
}

/// The complete cotangent of a value: its own layout, `Replicated` where the value is a pending sum.
pub trait Cotangent {
    /// The cotangent's layout.
    type Out;
}

impl Cotangent for Replicated {
    type Out = Replicated;
}
impl<const DIM: usize> Cotangent for Shard<DIM> {
    type Out = Shard<DIM>;
}
impl Cotangent for PendingSum {
    type Out = Replicated;
}
impl<A: Cotangent, B: Cotangent> Cotangent for (A, B) {
    type Out = (A::Out, B::Out);
}
impl<A: Cotangent, B: Cotangent, C: Cotangent> Cotangent for (A, B, C) {
    type Out = (A::Out, B::Out, C::Out);
}

/// The cotangent of a value that was summed over a dim, made by repeating the sum's cotangent `D` along it: laid out as
/// the value, except that terms of a `Replicated` one stay terms.
pub trait RepeatedCotangent<D> {
    /// The cotangent's layout.
    type Out;
}

impl<D> RepeatedCotangent<D> for Replicated {
    type Out = D;
}
impl<const DIM: usize, D> RepeatedCotangent<D> for Shard<DIM> {
    type Out = Shard<DIM>;
}
impl<D> RepeatedCotangent<D> for PendingSum {
    type Out = D;
}
impl<L0, L1, D0, D1> RepeatedCotangent<(D0, D1)> for (L0, L1)
where
    L0: RepeatedCotangent<D0>,
    L1: RepeatedCotangent<D1>,
{
    type Out = (L0::Out, L1::Out);
}
impl<L0, L1, L2, D0, D1, D2> RepeatedCotangent<(D0, D1, D2)> for (L0, L1, L2)
where
    L0: RepeatedCotangent<D0>,
    L1: RepeatedCotangent<D1>,
    L2: RepeatedCotangent<D2>,
{
    type Out = (L0::Out, L1::Out, L2::Out);
}

/// `Self` is the layout of the gradient, or of the next value, of a stored value laid out as `L`: the same.
#[diagnostic::on_unimplemented(
    message = "the gradient or new value of a `{L}` parameter must be `{L}` too, but found `{Self}`",
    label = "the parameter is `{L}` and this is `{Self}`, on `{A}`",
    note = "a `PendingSum` is completed by `.all_reduce(axis)` to a `Replicated`, by `.over(axis).reduce_scatter::<DIM>()` to a `Shard<DIM>`; complete values change by `.over(axis).slice::<DIM>()`, `.all_gather(axis)` and `.over(axis).all_to_all::<FROM, TO>()`"
)]
pub trait LaidOutAs<L, A = MeshAxis<0>> {}

impl<A> LaidOutAs<Replicated, A> for Replicated {}
impl<const DIM: usize, A> LaidOutAs<Shard<DIM>, A> for Shard<DIM> {}
impl<L0, L1, D0, D1> LaidOutAs<(L0, L1)> for (D0, D1)
where
    D0: LaidOutAs<L0, MeshAxis<0>>,
    D1: LaidOutAs<L1, MeshAxis<1>>,
{
}
impl<L0, L1, L2, D0, D1, D2> LaidOutAs<(L0, L1, L2)> for (D0, D1, D2)
where
    D0: LaidOutAs<L0, MeshAxis<0>>,
    D1: LaidOutAs<L1, MeshAxis<1>>,
    D2: LaidOutAs<L2, MeshAxis<2>>,
{
}
