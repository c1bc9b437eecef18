//! Elementwise ops.

use shardgrad_core::types::division::DivRule;
use shardgrad_core::types::elementwise::{AddRule, ConstantRule, MulRule, NonlinearRule};

use super::Tensor;
use crate::error::Error;

impl<'g, const RANK: usize, L> Tensor<'g, RANK, L> {
    /// a + b, elementwise.
    ///
    /// # Errors
    /// Shapes or element types differ.
    #[track_caller]
    #[allow(clippy::should_implement_trait, clippy::type_complexity)]
    pub fn add<R>(
        self,
        other: Tensor<'g, RANK, R>,
    ) -> Result<Tensor<'g, RANK, <R as AddRule<L>>::Out>, Error>
    where
        R: AddRule<L>,
    {
        Ok(Tensor::of(self.erase().add(other.erase())?))
    }

    /// a − b, elementwise.
    ///
    /// # Errors
    /// Shapes or element types differ.
    #[track_caller]
    #[allow(clippy::should_implement_trait, clippy::type_complexity)]
    pub fn sub<R>(
        self,
        other: Tensor<'g, RANK, R>,
    ) -> Result<Tensor<'g, RANK, <R as AddRule<L>>::Out>, Error>
    where
        R: AddRule<L>,
    {
        Ok(Tensor::of(self.erase().sub(other.erase())?))
    }

    /// a · b, elementwise.
    ///
    /// # Errors
    /// Shapes or element types differ.
    #[track_caller]
    #[allow(clippy::should_implement_trait, clippy::type_complexity)]
    pub fn mul<R>(
        self,
        other: Tensor<'g, RANK, R>,
    ) -> Result<Tensor<'g, RANK, <R as MulRule<L>>::Out>, Error>
    where
        R: MulRule<L>,
    {
        Ok(Tensor::of(self.erase().mul(other.erase())?))
    }

    /// a / b, elementwise.
    ///
    /// # Errors
    /// Shapes or element types differ.
    #[track_caller]
    #[allow(clippy::should_implement_trait, clippy::type_complexity)]
    pub fn div<R>(
        self,
        other: Tensor<'g, RANK, R>,
    ) -> Result<Tensor<'g, RANK, <R as DivRule<L>>::Out>, Error>
    where
        R: DivRule<L>,
    {
        Ok(Tensor::of(self.erase().div(other.erase())?))
    }

    /// −a. Linear: every layout passes.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    #[allow(clippy::should_implement_trait)]
    pub fn neg(self) -> Result<Self, Error> {
        Ok(Self::of(self.erase().neg()?))
    }

    /// c · a. Linear: every layout passes.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    pub fn scale(self, c: f64) -> Result<Self, Error> {
        Ok(Self::of(self.erase().scale(c)?))
    }

    /// a + c.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    pub fn add_const(self, c: f64) -> Result<Self, Error>
    where
        L: ConstantRule,
    {
        Ok(Self::of(self.erase().add_const(c)?))
    }

    /// max(a, 0).
    ///
    /// # Errors
    /// The value is not a float.
    #[track_caller]
    pub fn relu(self) -> Result<Self, Error>
    where
        L: NonlinearRule,
    {
        Ok(Self::of(self.erase().relu()?))
    }

    /// The tanh form of gelu.
    ///
    /// # Errors
    /// The value is not a float.
    #[track_caller]
    pub fn gelu(self) -> Result<Self, Error>
    where
        L: NonlinearRule,
    {
        Ok(Self::of(self.erase().gelu()?))
    }

    /// tanh a.
    ///
    /// # Errors
    /// The value is not a float.
    #[track_caller]
    pub fn tanh(self) -> Result<Self, Error>
    where
        L: NonlinearRule,
    {
        Ok(Self::of(self.erase().tanh()?))
    }

    /// 1 / (1 + e⁻ᵃ).
    ///
    /// # Errors
    /// The value is not a float.
    #[track_caller]
    pub fn sigmoid(self) -> Result<Self, Error>
    where
        L: NonlinearRule,
    {
        Ok(Self::of(self.erase().sigmoid()?))
    }

    /// eᵃ.
    ///
    /// # Errors
    /// The value is not a float.
    #[track_caller]
    pub fn exp(self) -> Result<Self, Error>
    where
        L: NonlinearRule,
    {
        Ok(Self::of(self.erase().exp()?))
    }

    /// ln a.
    ///
    /// # Errors
    /// The value is not a float.
    #[track_caller]
    pub fn log(self) -> Result<Self, Error>
    where
        L: NonlinearRule,
    {
        Ok(Self::of(self.erase().log()?))
    }

    /// √a.
    ///
    /// # Errors
    /// The value is not a float.
    #[track_caller]
    pub fn sqrt(self) -> Result<Self, Error>
    where
        L: NonlinearRule,
    {
        Ok(Self::of(self.erase().sqrt()?))
    }

    /// a².
    ///
    /// # Errors
    /// The value is not a float.
    #[track_caller]
    pub fn square(self) -> Result<Self, Error>
    where
        L: NonlinearRule,
    {
        Ok(Self::of(self.erase().square()?))
    }

    /// |a|.
    ///
    /// # Errors
    /// The value is not a float.
    #[track_caller]
    pub fn abs(self) -> Result<Self, Error>
    where
        L: NonlinearRule,
    {
        Ok(Self::of(self.erase().abs()?))
    }

    /// 1/a.
    ///
    /// # Errors
    /// The value is not a float.
    #[track_caller]
    pub fn reciprocal(self) -> Result<Self, Error>
    where
        L: NonlinearRule,
    {
        Ok(Self::of(self.erase().reciprocal()?))
    }
}
