//! Sums over one dim, over all dims, and the transpose of a matrix. Means follow the rules of sums.
//!
//! Admissible per axis, for the sum over dim `D`: `R→R` · `S(D)→P` · `S(d)→S(d)` for d < D · `S(d)→S(d−1)` for d > D ·
//! `P→P`. All are linear, so every placement passes.

use super::{PendingSum, Replicated, Shard};

/// Layouts of a tensor with `RANK` dims that can be summed over dim `DIM`: all of them.
#[diagnostic::on_unimplemented(
    message = "a tensor with {RANK} dim(s) has no dim {DIM} to sum over",
    label = "dims count from 0 to one less than the number of dims",
    note = "sum over an existing dim, or over all with `.sum_all()`"
)]
pub trait SumRule<const RANK: usize, const DIM: usize> {
    /// Layout of the sum.
    type Out;
}

impl SumRule<1, 0> for Replicated {
    type Out = Replicated;
}
impl SumRule<1, 0> for PendingSum {
    type Out = PendingSum;
}
impl SumRule<1, 0> for Shard<0> {
    type Out = PendingSum;
}
impl SumRule<2, 0> for Replicated {
    type Out = Replicated;
}
impl SumRule<2, 0> for PendingSum {
    type Out = PendingSum;
}
impl SumRule<2, 0> for Shard<0> {
    type Out = PendingSum;
}
impl SumRule<2, 0> for Shard<1> {
    type Out = Shard<0>;
}
impl SumRule<2, 1> for Replicated {
    type Out = Replicated;
}
impl SumRule<2, 1> for PendingSum {
    type Out = PendingSum;
}
impl SumRule<2, 1> for Shard<0> {
    type Out = Shard<0>;
}
impl SumRule<2, 1> for Shard<1> {
    type Out = PendingSum;
}
impl SumRule<3, 0> for Replicated {
    type Out = Replicated;
}
impl SumRule<3, 0> for PendingSum {
    type Out = PendingSum;
}
impl SumRule<3, 0> for Shard<0> {
    type Out = PendingSum;
}
impl SumRule<3, 0> for Shard<1> {
    type Out = Shard<0>;
}
impl SumRule<3, 0> for Shard<2> {
    type Out = Shard<1>;
}
impl SumRule<3, 1> for Replicated {
    type Out = Replicated;
}
impl SumRule<3, 1> for PendingSum {
    type Out = PendingSum;
}
impl SumRule<3, 1> for Shard<0> {
    type Out = Shard<0>;
}
impl SumRule<3, 1> for Shard<1> {
    type Out = PendingSum;
}
impl SumRule<3, 1> for Shard<2> {
    type Out = Shard<1>;
}
impl SumRule<3, 2> for Replicated {
    type Out = Replicated;
}
impl SumRule<3, 2> for PendingSum {
    type Out = PendingSum;
}
impl SumRule<3, 2> for Shard<0> {
    type Out = Shard<0>;
}
impl SumRule<3, 2> for Shard<1> {
    type Out = Shard<1>;
}
impl SumRule<3, 2> for Shard<2> {
    type Out = PendingSum;
}
impl<const RANK: usize, const DIM: usize, A, B> SumRule<RANK, DIM> for (A, B)
where
    A: SumRule<RANK, DIM>,
    B: SumRule<RANK, DIM>,
{
    type Out = (A::Out, B::Out);
}
impl<const RANK: usize, const DIM: usize, A, B, C> SumRule<RANK, DIM> for (A, B, C)
where
    A: SumRule<RANK, DIM>,
    B: SumRule<RANK, DIM>,
    C: SumRule<RANK, DIM>,
{
    type Out = (A::Out, B::Out, C::Out);
}

/// Layouts that can be summed over all dims: all of them.
pub trait SumAllRule {
    /// Layout of the scalar.
    type Out;
}

impl SumAllRule for Replicated {
    type Out = Replicated;
}
impl SumAllRule for PendingSum {
    type Out = PendingSum;
}
impl<const DIM: usize> SumAllRule for Shard<DIM> {
    type Out = PendingSum;
}
impl<A: SumAllRule, B: SumAllRule> SumAllRule for (A, B) {
    type Out = (A::Out, B::Out);
}
impl<A: SumAllRule, B: SumAllRule, C: SumAllRule> SumAllRule for (A, B, C) {
    type Out = (A::Out, B::Out, C::Out);
}

/// Layouts of a matrix that can be transposed: all of them.
pub trait TransposeRule {
    /// Layout of the transpose.
    type Out;
}

impl TransposeRule for Replicated {
    type Out = Replicated;
}
impl TransposeRule for PendingSum {
    type Out = PendingSum;
}
impl TransposeRule for Shard<0> {
    type Out = Shard<1>;
}
impl TransposeRule for Shard<1> {
    type Out = Shard<0>;
}
impl<A: TransposeRule, B: TransposeRule> TransposeRule for (A, B) {
    type Out = (A::Out, B::Out);
}
impl<A: TransposeRule, B: TransposeRule, C: TransposeRule> TransposeRule for (A, B, C) {
    type Out = (A::Out, B::Out, C::Out);
}
