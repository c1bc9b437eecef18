//! Pullbacks of the transpose and of sums and means over a dim.

use std::marker::PhantomData;

use shardgrad_core::types::cotangent::{CotangentFor, RepeatedCotangent};
use shardgrad_core::types::reduce::{SumRule, TransposeRule};

use super::{pull, pull_mean};
use crate::builder::Var;
use crate::error::Error;
use crate::typed::Tensor;

impl<'g, L> Tensor<'g, 2, L> {
    /// [`Tensor::transpose`] with its pullback.
    ///
    /// # Errors
    /// As [`Tensor::transpose`].
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn transpose_vjp(
        self,
    ) -> Result<
        (
            Tensor<'g, 2, <L as TransposeRule>::Out>,
            TransposePullback<'g, <L as TransposeRule>::Out>,
        ),
        Error,
    >
    where
        L: TransposeRule,
    {
        let y = self.transpose()?;
        Ok((y, TransposePullback { result: y.erase(), layouts: PhantomData }))
    }
}

/// Pullback of [`Tensor::transpose_vjp`].
#[derive(Clone, Copy)]
pub struct TransposePullback<'g, Y> {
    result: Var<'g>,
    layouts: PhantomData<Y>,
}

impl<'g, Y> TransposePullback<'g, Y> {
    /// The cotangent of the operand: the transpose of dY.
    ///
    /// # Errors
    /// The cotangent is not of the result's shape.
    #[track_caller]
    pub fn pull<D>(
        self,
        cotangent: Tensor<'g, 2, D>,
    ) -> Result<Tensor<'g, 2, <D as TransposeRule>::Out>, Error>
    where
        D: CotangentFor<Y> + TransposeRule,
    {
        Ok(Tensor::of(pull(self.result, cotangent.erase(), 0)?))
    }
}

/// Pullback of [`sum_vjp`](Tensor::sum_vjp): from `SUM` dims back to `RANK`.
#[derive(Clone, Copy)]
pub struct SumPullback<'g, const RANK: usize, const SUM: usize, L, Y> {
    result: Var<'g>,
    layouts: PhantomData<(L, Y)>,
}

/// Pullback of [`mean_vjp`](Tensor::mean_vjp): from `SUM` dims back to `RANK`.
#[derive(Clone, Copy)]
pub struct MeanPullback<'g, const RANK: usize, const SUM: usize, L, Y> {
    result: Var<'g>,
    layouts: PhantomData<(L, Y)>,
}

impl<'g, const RANK: usize, const SUM: usize, L, Y> SumPullback<'g, RANK, SUM, L, Y> {
    /// The cotangent of the operand: dY, repeated along the dim.
    ///
    /// # Errors
    /// The cotangent is not of the sum's shape.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn pull<D>(
        self,
        cotangent: Tensor<'g, SUM, D>,
    ) -> Result<Tensor<'g, RANK, <L as RepeatedCotangent<D>>::Out>, Error>
    where
        D: CotangentFor<Y>,
        L: RepeatedCotangent<D>,
    {
        Ok(Tensor::of(pull(self.result, cotangent.erase(), 0)?))
    }
}

impl<'g, const RANK: usize, const SUM: usize, L, Y> MeanPullback<'g, RANK, SUM, L, Y> {
    /// The cotangent of the operand: dY, repeated along the dim and divided by its extent.
    ///
    /// # Errors
    /// The cotangent is not of the mean's shape.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn pull<D>(
        self,
        cotangent: Tensor<'g, SUM, D>,
    ) -> Result<Tensor<'g, RANK, <L as RepeatedCotangent<D>>::Out>, Error>
    where
        D: CotangentFor<Y>,
        L: RepeatedCotangent<D>,
    {
        Ok(Tensor::of(pull_mean(self.result, cotangent.erase())?))
    }
}

impl<'g, L> Tensor<'g, 1, L> {
    /// [`sum`](Tensor::sum) with its pullback.
    ///
    /// # Errors
    /// As `sum`.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn sum_vjp<const DIM: usize>(
        self,
    ) -> Result<
        (
            Tensor<'g, 0, <L as SumRule<1, DIM>>::Out>,
            SumPullback<'g, 1, 0, L, <L as SumRule<1, DIM>>::Out>,
        ),
        Error,
    >
    where
        L: SumRule<1, DIM>,
    {
        let y = self.sum::<DIM>()?;
        Ok((y, SumPullback { result: y.erase(), layouts: PhantomData }))
    }

    /// [`mean`](Tensor::mean) with its pullback.
    ///
    /// # Errors
    /// As `mean`.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn mean_vjp<const DIM: usize>(
        self,
    ) -> Result<
        (
            Tensor<'g, 0, <L as SumRule<1, DIM>>::Out>,
            MeanPullback<'g, 1, 0, L, <L as SumRule<1, DIM>>::Out>,
        ),
        Error,
    >
    where
        L: SumRule<1, DIM>,
    {
        let y = self.mean::<DIM>()?;
        Ok((y, MeanPullback { result: y.erase(), layouts: PhantomData }))
    }
}

impl<'g, L> Tensor<'g, 2, L> {
    /// [`sum`](Tensor::sum) with its pullback.
    ///
    /// # Errors
    /// As `sum`.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn sum_vjp<const DIM: usize>(
        self,
    ) -> Result<
        (
            Tensor<'g, 1, <L as SumRule<2, DIM>>::Out>,
            SumPullback<'g, 2, 1, L, <L as SumRule<2, DIM>>::Out>,
        ),
        Error,
    >
    where
        L: SumRule<2, DIM>,
    {
        let y = self.sum::<DIM>()?;
        Ok((y, SumPullback { result: y.erase(), layouts: PhantomData }))
    }

    /// [`mean`](Tensor::mean) with its pullback.
    ///
    /// # Errors
    /// As `mean`.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn mean_vjp<const DIM: usize>(
        self,
    ) -> Result<
        (
            Tensor<'g, 1, <L as SumRule<2, DIM>>::Out>,
            MeanPullback<'g, 2, 1, L, <L as SumRule<2, DIM>>::Out>,
        ),
        Error,
    >
    where
        L: SumRule<2, DIM>,
    {
        let y = self.mean::<DIM>()?;
        Ok((y, MeanPullback { result: y.erase(), layouts: PhantomData }))
    }
}

impl<'g, L> Tensor<'g, 3, L> {
    /// [`sum`](Tensor::sum) with its pullback.
    ///
    /// # Errors
    /// As `sum`.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn sum_vjp<const DIM: usize>(
        self,
    ) -> Result<
        (
            Tensor<'g, 2, <L as SumRule<3, DIM>>::Out>,
            SumPullback<'g, 3, 2, L, <L as SumRule<3, DIM>>::Out>,
        ),
        Error,
    >
    where
        L: SumRule<3, DIM>,
    {
        let y = self.sum::<DIM>()?;
        Ok((y, SumPullback { result: y.erase(), layouts: PhantomData }))
    }

    /// [`mean`](Tensor::mean) with its pullback.
    ///
    /// # Errors
    /// As `mean`.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn mean_vjp<const DIM: usize>(
        self,
    ) -> Result<
        (
            Tensor<'g, 2, <L as SumRule<3, DIM>>::Out>,
            MeanPullback<'g, 3, 2, L, <L as SumRule<3, DIM>>::Out>,
        ),
        Error,
    >
    where
        L: SumRule<3, DIM>,
    {
        let y = self.mean::<DIM>()?;
        Ok((y, MeanPullback { result: y.erase(), layouts: PhantomData }))
    }
}
