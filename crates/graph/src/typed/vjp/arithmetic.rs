//! Pullbacks of sums, products and quotients, elementwise.

use std::marker::PhantomData;

use shardgrad_core::types::cotangent::CotangentFor;
use shardgrad_core::types::division::DivRule;
use shardgrad_core::types::elementwise::{AddRule, ElementwiseOut, MulRule};

use super::pull;
use crate::builder::Var;
use crate::error::Error;
use crate::typed::Tensor;

/// Pullback of [`Tensor::add_vjp`] and [`Tensor::sub_vjp`].
#[derive(Clone, Copy)]
pub struct AddPullback<'g, const RANK: usize, Y> {
    result: Var<'g>,
    layouts: PhantomData<Y>,
}

/// Pullback of [`Tensor::mul_vjp`].
#[derive(Clone, Copy)]
pub struct MulPullback<'g, const RANK: usize, A, B, Y> {
    result: Var<'g>,
    layouts: PhantomData<(A, B, Y)>,
}

/// Pullback of [`Tensor::div_vjp`].
#[derive(Clone, Copy)]
pub struct DivPullback<'g, const RANK: usize, B, Y> {
    result: Var<'g>,
    layouts: PhantomData<(B, Y)>,
}

impl<'g, const RANK: usize, L> Tensor<'g, RANK, L> {
    /// [`Tensor::add`] with its pullback.
    ///
    /// # Errors
    /// As [`Tensor::add`].
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn add_vjp<R>(
        self,
        other: Tensor<'g, RANK, R>,
    ) -> Result<
        (Tensor<'g, RANK, <R as AddRule<L>>::Out>, AddPullback<'g, RANK, <R as AddRule<L>>::Out>),
        Error,
    >
    where
        R: AddRule<L>,
    {
        let y = self.add(other)?;
        Ok((y, AddPullback { result: y.erase(), layouts: PhantomData }))
    }

    /// [`Tensor::sub`] with its pullback.
    ///
    /// # Errors
    /// As [`Tensor::sub`].
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn sub_vjp<R>(
        self,
        other: Tensor<'g, RANK, R>,
    ) -> Result<
        (Tensor<'g, RANK, <R as AddRule<L>>::Out>, AddPullback<'g, RANK, <R as AddRule<L>>::Out>),
        Error,
    >
    where
        R: AddRule<L>,
    {
        let y = self.sub(other)?;
        Ok((y, AddPullback { result: y.erase(), layouts: PhantomData }))
    }

    /// [`Tensor::mul`] with its pullback.
    ///
    /// # Errors
    /// As [`Tensor::mul`].
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn mul_vjp<R>(
        self,
        other: Tensor<'g, RANK, R>,
    ) -> Result<
        (
            Tensor<'g, RANK, <R as MulRule<L>>::Out>,
            MulPullback<'g, RANK, L, R, <R as MulRule<L>>::Out>,
        ),
        Error,
    >
    where
        R: MulRule<L>,
    {
        let y = self.mul(other)?;
        Ok((y, MulPullback { result: y.erase(), layouts: PhantomData }))
    }

    /// [`Tensor::div`] with its pullback.
    ///
    /// # Errors
    /// As [`Tensor::div`].
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn div_vjp<R>(
        self,
        other: Tensor<'g, RANK, R>,
    ) -> Result<
        (
            Tensor<'g, RANK, <R as DivRule<L>>::Out>,
            DivPullback<'g, RANK, R, <R as DivRule<L>>::Out>,
        ),
        Error,
    >
    where
        R: DivRule<L>,
    {
        let y = self.div(other)?;
        Ok((y, DivPullback { result: y.erase(), layouts: PhantomData }))
    }
}

impl<'g, const RANK: usize, Y> AddPullback<'g, RANK, Y> {
    /// Cotangents of both operands.
    ///
    /// # Errors
    /// The cotangent is not of the result's shape.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn pull<D>(
        self,
        cotangent: Tensor<'g, RANK, D>,
    ) -> Result<(Tensor<'g, RANK, D>, Tensor<'g, RANK, D>), Error>
    where
        D: CotangentFor<Y>,
    {
        let dy = cotangent.erase();
        Ok((Tensor::of(pull(self.result, dy, 0)?), Tensor::of(pull(self.result, dy, 1)?)))
    }
}

impl<'g, const RANK: usize, A, B, Y> MulPullback<'g, RANK, A, B, Y> {
    /// Cotangents of both factors: dY · b and dY · a.
    ///
    /// # Errors
    /// The cotangent is not of the product's shape.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn pull<D>(
        self,
        cotangent: Tensor<'g, RANK, D>,
    ) -> Result<
        (
            Tensor<'g, RANK, <B as ElementwiseOut<D>>::Out>,
            Tensor<'g, RANK, <A as ElementwiseOut<D>>::Out>,
        ),
        Error,
    >
    where
        D: CotangentFor<Y>,
        A: ElementwiseOut<D>,
        B: ElementwiseOut<D>,
    {
        let dy = cotangent.erase();
        Ok((Tensor::of(pull(self.result, dy, 0)?), Tensor::of(pull(self.result, dy, 1)?)))
    }
}

impl<'g, const RANK: usize, B, Y> DivPullback<'g, RANK, B, Y> {
    /// Cotangents of numerator and divisor: dY / b and −(dY / b) · y.
    ///
    /// # Errors
    /// The cotangent is not of the quotient's shape.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn pull<D>(
        self,
        cotangent: Tensor<'g, RANK, D>,
    ) -> Result<
        (
            Tensor<'g, RANK, <B as ElementwiseOut<D>>::Out>,
            Tensor<'g, RANK, <Y as ElementwiseOut<<B as ElementwiseOut<D>>::Out>>::Out>,
        ),
        Error,
    >
    where
        D: CotangentFor<Y>,
        B: ElementwiseOut<D>,
        Y: ElementwiseOut<<B as ElementwiseOut<D>>::Out>,
    {
        let dy = cotangent.erase();
        Ok((Tensor::of(pull(self.result, dy, 0)?), Tensor::of(pull(self.result, dy, 1)?)))
    }
}
