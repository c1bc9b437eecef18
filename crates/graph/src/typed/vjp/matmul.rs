//! Pullbacks of matrix products and of the bias.

use std::marker::PhantomData;

use shardgrad_core::types::bias::BiasRule;
use shardgrad_core::types::cotangent::CotangentFor;
use shardgrad_core::types::matmul::MatmulRule;
use shardgrad_core::types::matmul_nt::MatmulNtOut;
use shardgrad_core::types::matmul_tn::MatmulTnOut;
use shardgrad_core::types::reduce::SumRule;

use super::{operand, pull};
use crate::builder::Var;
use crate::error::Error;
use crate::typed::Tensor;

/// Pullback of [`Tensor::matmul_vjp`].
#[derive(Clone, Copy)]
pub struct MatmulPullback<'g, X, W, Y> {
    result: Var<'g>,
    layouts: PhantomData<(X, W, Y)>,
}

impl<'g, L> Tensor<'g, 2, L> {
    /// [`Tensor::matmul`] with its pullback.
    ///
    /// # Errors
    /// As [`Tensor::matmul`].
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn matmul_vjp<R>(
        self,
        other: Tensor<'g, 2, R>,
    ) -> Result<
        (
            Tensor<'g, 2, <R as MatmulRule<L>>::Out>,
            MatmulPullback<'g, L, R, <R as MatmulRule<L>>::Out>,
        ),
        Error,
    >
    where
        R: MatmulRule<L>,
    {
        let y = self.matmul(other)?;
        Ok((y, MatmulPullback { result: y.erase(), layouts: PhantomData }))
    }
}

impl<'g, X, W, Y> MatmulPullback<'g, X, W, Y> {
    /// Cotangents of both factors: dY · Wᵀ and Xᵀ · dY.
    ///
    /// # Errors
    /// The cotangent is not of the product's shape.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn pull<D>(
        self,
        cotangent: Tensor<'g, 2, D>,
    ) -> Result<
        (Tensor<'g, 2, <W as MatmulNtOut<D>>::Out>, Tensor<'g, 2, <D as MatmulTnOut<X>>::Out>),
        Error,
    >
    where
        D: CotangentFor<Y> + MatmulTnOut<X>,
        W: MatmulNtOut<D>,
    {
        let dy = cotangent.erase();
        Ok((Tensor::of(pull(self.result, dy, 0)?), Tensor::of(pull(self.result, dy, 1)?)))
    }
}

/// Pullback of [`Tensor::add_bias_vjp`].
#[derive(Clone, Copy)]
pub struct BiasPullback<'g, Y> {
    result: Var<'g>,
    layouts: PhantomData<Y>,
}

impl<'g, L> Tensor<'g, 2, L> {
    /// [`Tensor::add_bias`] with its pullback.
    ///
    /// # Errors
    /// As [`Tensor::add_bias`].
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn add_bias_vjp<B>(
        self,
        bias: Tensor<'g, 1, B>,
    ) -> Result<
        (Tensor<'g, 2, <B as BiasRule<L>>::Out>, BiasPullback<'g, <B as BiasRule<L>>::Out>),
        Error,
    >
    where
        B: BiasRule<L>,
    {
        let y = self.add_bias(bias)?;
        Ok((y, BiasPullback { result: y.erase(), layouts: PhantomData }))
    }
}

impl<'g, Y> BiasPullback<'g, Y> {
    /// Cotangents of the matrix and of the bias: dY, and its sum over the rows.
    ///
    /// # Errors
    /// The cotangent is not of the sum's shape.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn pull<D>(
        self,
        cotangent: Tensor<'g, 2, D>,
    ) -> Result<(Tensor<'g, 2, D>, Tensor<'g, 1, <D as SumRule<2, 0>>::Out>), Error>
    where
        D: CotangentFor<Y> + SumRule<2, 0>,
    {
        let dx = pull(self.result, cotangent.erase(), 0)?;
        let repeated = pull(self.result, cotangent.erase(), 1)?;
        let db = match operand(self.result, 1) {
            Some(bias) => pull(self.result.graph().var(bias), repeated, 0)?,
            None => repeated,
        };
        Ok((Tensor::of(dx), Tensor::of(db)))
    }
}
