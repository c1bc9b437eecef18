//! Pullbacks of elementwise functions of one operand.

use std::marker::PhantomData;

use shardgrad_core::types::cotangent::CotangentFor;
use shardgrad_core::types::elementwise::{ConstantRule, NonlinearRule};

use super::pull;
use crate::builder::Var;
use crate::error::Error;
use crate::typed::Tensor;

/// Pullback of a nonlinear function: `relu_vjp` and so on.
#[derive(Clone, Copy)]
pub struct UnaryPullback<'g, const RANK: usize, Y> {
    result: Var<'g>,
    layouts: PhantomData<Y>,
}

/// Pullback of [`Tensor::scale_vjp`], [`Tensor::neg_vjp`] and [`Tensor::add_const_vjp`].
#[derive(Clone, Copy)]
pub struct LinearPullback<'g, const RANK: usize, Y> {
    result: Var<'g>,
    layouts: PhantomData<Y>,
}

impl<'g, const RANK: usize, L> Tensor<'g, RANK, L> {
    /// [`Tensor::scale`] with its pullback.
    ///
    /// # Errors
    /// As [`Tensor::scale`].
    #[track_caller]
    pub fn scale_vjp(self, c: f64) -> Result<(Self, LinearPullback<'g, RANK, L>), Error> {
        let y = self.scale(c)?;
        Ok((y, LinearPullback { result: y.erase(), layouts: PhantomData }))
    }

    /// [`Tensor::neg`] with its pullback.
    ///
    /// # Errors
    /// As [`Tensor::neg`].
    #[track_caller]
    pub fn neg_vjp(self) -> Result<(Self, LinearPullback<'g, RANK, L>), Error> {
        let y = self.neg()?;
        Ok((y, LinearPullback { result: y.erase(), layouts: PhantomData }))
    }

    /// [`Tensor::add_const`] with its pullback.
    ///
    /// # Errors
    /// As [`Tensor::add_const`].
    #[track_caller]
    pub fn add_const_vjp(self, c: f64) -> Result<(Self, LinearPullback<'g, RANK, L>), Error>
    where
        L: ConstantRule,
    {
        let y = self.add_const(c)?;
        Ok((y, LinearPullback { result: y.erase(), layouts: PhantomData }))
    }

    /// [`Tensor::relu`] with its pullback.
    ///
    /// # Errors
    /// As [`Tensor::relu`].
    #[track_caller]
    pub fn relu_vjp(self) -> Result<(Self, UnaryPullback<'g, RANK, L>), Error>
    where
        L: NonlinearRule,
    {
        let y = self.relu()?;
        Ok((y, UnaryPullback { result: y.erase(), layouts: PhantomData }))
    }

    /// [`Tensor::gelu`] with its pullback.
    ///
    /// # Errors
    /// As [`Tensor::gelu`].
    #[track_caller]
    pub fn gelu_vjp(self) -> Result<(Self, UnaryPullback<'g, RANK, L>), Error>
    where
        L: NonlinearRule,
    {
        let y = self.gelu()?;
        Ok((y, UnaryPullback { result: y.erase(), layouts: PhantomData }))
    }

    /// [`Tensor::tanh`] with its pullback.
    ///
    /// # Errors
    /// As [`Tensor::tanh`].
    #[track_caller]
    pub fn tanh_vjp(self) -> Result<(Self, UnaryPullback<'g, RANK, L>), Error>
    where
        L: NonlinearRule,
    {
        let y = self.tanh()?;
        Ok((y, UnaryPullback { result: y.erase(), layouts: PhantomData }))
    }

    /// [`Tensor::sigmoid`] with its pullback.
    ///
    /// # Errors
    /// As [`Tensor::sigmoid`].
    #[track_caller]
    pub fn sigmoid_vjp(self) -> Result<(Self, UnaryPullback<'g, RANK, L>), Error>
    where
        L: NonlinearRule,
    {
        let y = self.sigmoid()?;
        Ok((y, UnaryPullback { result: y.erase(), layouts: PhantomData }))
    }

    /// [`Tensor::exp`] with its pullback.
    ///
    /// # Errors
    /// As [`Tensor::exp`].
    #[track_caller]
    pub fn exp_vjp(self) -> Result<(Self, UnaryPullback<'g, RANK, L>), Error>
    where
        L: NonlinearRule,
    {
        let y = self.exp()?;
        Ok((y, UnaryPullback { result: y.erase(), layouts: PhantomData }))
    }

    /// [`Tensor::log`] with its pullback.
    ///
    /// # Errors
    /// As [`Tensor::log`].
    #[track_caller]
    pub fn log_vjp(self) -> Result<(Self, UnaryPullback<'g, RANK, L>), Error>
    where
        L: NonlinearRule,
    {
        let y = self.log()?;
        Ok((y, UnaryPullback { result: y.erase(), layouts: PhantomData }))
    }

    /// [`Tensor::sqrt`] with its pullback.
    ///
    /// # Errors
    /// As [`Tensor::sqrt`].
    #[track_caller]
    pub fn sqrt_vjp(self) -> Result<(Self, UnaryPullback<'g, RANK, L>), Error>
    where
        L: NonlinearRule,
    {
        let y = self.sqrt()?;
        Ok((y, UnaryPullback { result: y.erase(), layouts: PhantomData }))
    }

    /// [`Tensor::square`] with its pullback.
    ///
    /// # Errors
    /// As [`Tensor::square`].
    #[track_caller]
    pub fn square_vjp(self) -> Result<(Self, UnaryPullback<'g, RANK, L>), Error>
    where
        L: NonlinearRule,
    {
        let y = self.square()?;
        Ok((y, UnaryPullback { result: y.erase(), layouts: PhantomData }))
    }

    /// [`Tensor::abs`] with its pullback.
    ///
    /// # Errors
    /// As [`Tensor::abs`].
    #[track_caller]
    pub fn abs_vjp(self) -> Result<(Self, UnaryPullback<'g, RANK, L>), Error>
    where
        L: NonlinearRule,
    {
        let y = self.abs()?;
        Ok((y, UnaryPullback { result: y.erase(), layouts: PhantomData }))
    }

    /// [`Tensor::reciprocal`] with its pullback.
    ///
    /// # Errors
    /// As [`Tensor::reciprocal`].
    #[track_caller]
    pub fn reciprocal_vjp(self) -> Result<(Self, UnaryPullback<'g, RANK, L>), Error>
    where
        L: NonlinearRule,
    {
        let y = self.reciprocal()?;
        Ok((y, UnaryPullback { result: y.erase(), layouts: PhantomData }))
    }
}

impl<'g, const RANK: usize, Y> UnaryPullback<'g, RANK, Y> {
    /// The cotangent of the operand: dY times the slope. Terms of a cotangent stay terms.
    ///
    /// # Errors
    /// The cotangent is not of the result's shape.
    #[track_caller]
    pub fn pull<D>(self, cotangent: Tensor<'g, RANK, D>) -> Result<Tensor<'g, RANK, D>, Error>
    where
        D: CotangentFor<Y>,
    {
        Ok(Tensor::of(pull(self.result, cotangent.erase(), 0)?))
    }
}

impl<'g, const RANK: usize, Y> LinearPullback<'g, RANK, Y> {
    /// The cotangent of the operand: dY times the factor.
    ///
    /// # Errors
    /// The cotangent is not of the result's shape.
    #[track_caller]
    pub fn pull<D>(self, cotangent: Tensor<'g, RANK, D>) -> Result<Tensor<'g, RANK, D>, Error>
    where
        D: CotangentFor<Y>,
    {
        Ok(Tensor::of(pull(self.result, cotangent.erase(), 0)?))
    }
}
