//! Matrix products and the bias.

use shardgrad_core::types::bias::BiasRule;
use shardgrad_core::types::matmul::MatmulRule;
use shardgrad_core::types::matmul_nt::MatmulNtRule;
use shardgrad_core::types::matmul_tn::MatmulTnRule;

use super::Tensor;
use crate::error::Error;

impl<'g, L> Tensor<'g, 2, L> {
    /// a · b, as `mk,kn->mn`.
    ///
    /// # Errors
    /// Extents do not fit, or element types differ.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn matmul<R>(
        self,
        other: Tensor<'g, 2, R>,
    ) -> Result<Tensor<'g, 2, <R as MatmulRule<L>>::Out>, Error>
    where
        R: MatmulRule<L>,
    {
        Ok(Tensor::of(self.erase().einsum("mk,kn->mn", other.erase())?))
    }

    /// aᵀ · b, as `km,kn->mn`.
    ///
    /// # Errors
    /// Extents do not fit, or element types differ.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn matmul_tn<R>(
        self,
        other: Tensor<'g, 2, R>,
    ) -> Result<Tensor<'g, 2, <R as MatmulTnRule<L>>::Out>, Error>
    where
        R: MatmulTnRule<L>,
    {
        Ok(Tensor::of(self.erase().einsum("km,kn->mn", other.erase())?))
    }

    /// a · bᵀ, as `mk,nk->mn`.
    ///
    /// # Errors
    /// Extents do not fit, or element types differ.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn matmul_nt<R>(
        self,
        other: Tensor<'g, 2, R>,
    ) -> Result<Tensor<'g, 2, <R as MatmulNtRule<L>>::Out>, Error>
    where
        R: MatmulNtRule<L>,
    {
        Ok(Tensor::of(self.erase().einsum("mk,nk->mn", other.erase())?))
    }

    /// Adds a bias `[out]` to every row of this `[batch, out]`.
    ///
    /// # Errors
    /// The bias does not have the rows' extent, or element types differ.
    #[track_caller]
    pub fn add_bias<B>(
        self,
        bias: Tensor<'g, 1, B>,
    ) -> Result<Tensor<'g, 2, <B as BiasRule<L>>::Out>, Error>
    where
        B: BiasRule<L>,
    {
        let bias = bias.erase().broadcast(&[1], &self.shape())?;
        Ok(Tensor::of(self.erase().add(bias)?))
    }
}
