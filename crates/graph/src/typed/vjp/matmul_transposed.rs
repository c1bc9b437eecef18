//! Pullbacks of matrix products with one operand transposed.

use std::marker::PhantomData;

use shardgrad_core::types::cotangent::CotangentFor;
use shardgrad_core::types::matmul::MatmulOut;
use shardgrad_core::types::matmul_nt::{MatmulNtOut, MatmulNtRule};
use shardgrad_core::types::matmul_tn::{MatmulTnOut, MatmulTnRule};

use super::pull;
use crate::builder::Var;
use crate::error::Error;
use crate::typed::Tensor;

/// Pullback of [`Tensor::matmul_tn_vjp`].
#[derive(Clone, Copy)]
pub struct MatmulTnPullback<'g, X, W, Y> {
    result: Var<'g>,
    layouts: PhantomData<(X, W, Y)>,
}

impl<'g, L> Tensor<'g, 2, L> {
    /// [`Tensor::matmul_tn`] with its pullback.
    ///
    /// # Errors
    /// As [`Tensor::matmul_tn`].
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn matmul_tn_vjp<R>(
        self,
        other: Tensor<'g, 2, R>,
    ) -> Result<
        (
            Tensor<'g, 2, <R as MatmulTnRule<L>>::Out>,
            MatmulTnPullback<'g, L, R, <R as MatmulTnRule<L>>::Out>,
        ),
        Error,
    >
    where
        R: MatmulTnRule<L>,
    {
        let y = self.matmul_tn(other)?;
        Ok((y, MatmulTnPullback { result: y.erase(), layouts: PhantomData }))
    }
}

impl<'g, X, W, Y> MatmulTnPullback<'g, X, W, Y> {
    /// Cotangents of both factors: W · dYᵀ and X · dY.
    ///
    /// # Errors
    /// The cotangent is not of the product's shape.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn pull<D>(
        self,
        cotangent: Tensor<'g, 2, D>,
    ) -> Result<
        (Tensor<'g, 2, <D as MatmulNtOut<W>>::Out>, Tensor<'g, 2, <D as MatmulOut<X>>::Out>),
        Error,
    >
    where
        D: CotangentFor<Y> + MatmulNtOut<W> + MatmulOut<X>,
    {
        let dy = cotangent.erase();
        Ok((Tensor::of(pull(self.result, dy, 0)?), Tensor::of(pull(self.result, dy, 1)?)))
    }
}

/// Pullback of [`Tensor::matmul_nt_vjp`].
#[derive(Clone, Copy)]
pub struct MatmulNtPullback<'g, X, W, Y> {
    result: Var<'g>,
    layouts: PhantomData<(X, W, Y)>,
}

impl<'g, L> Tensor<'g, 2, L> {
    /// [`Tensor::matmul_nt`] with its pullback.
    ///
    /// # Errors
    /// As [`Tensor::matmul_nt`].
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn matmul_nt_vjp<R>(
        self,
        other: Tensor<'g, 2, R>,
    ) -> Result<
        (
            Tensor<'g, 2, <R as MatmulNtRule<L>>::Out>,
            MatmulNtPullback<'g, L, R, <R as MatmulNtRule<L>>::Out>,
        ),
        Error,
    >
    where
        R: MatmulNtRule<L>,
    {
        let y = self.matmul_nt(other)?;
        Ok((y, MatmulNtPullback { result: y.erase(), layouts: PhantomData }))
    }
}

impl<'g, X, W, Y> MatmulNtPullback<'g, X, W, Y> {
    /// Cotangents of both factors: dY · W and dYᵀ · X.
    ///
    /// # Errors
    /// The cotangent is not of the product's shape.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn pull<D>(
        self,
        cotangent: Tensor<'g, 2, D>,
    ) -> Result<
        (Tensor<'g, 2, <W as MatmulOut<D>>::Out>, Tensor<'g, 2, <X as MatmulTnOut<D>>::Out>),
        Error,
    >
    where
        D: CotangentFor<Y>,
        W: MatmulOut<D>,
        X: MatmulTnOut<D>,
    {
        let dy = cotangent.erase();
        Ok((Tensor::of(pull(self.result, dy, 0)?), Tensor::of(pull(self.result, dy, 1)?)))
    }
}
