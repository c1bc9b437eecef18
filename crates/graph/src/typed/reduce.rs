//! Sums, means, the transpose, and losses.

use shardgrad_core::types::loss::{CrossEntropyRule, MseRule};
use shardgrad_core::types::reduce::{SumAllRule, SumRule, TransposeRule};

use super::Tensor;
use crate::error::Error;
use crate::loss::Loss;

impl<'g, const RANK: usize, L> Tensor<'g, RANK, L> {
    /// Sum over all dims: a scalar, pending where this is sharded.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    pub fn sum_all(self) -> Result<Tensor<'g, 0, <L as SumAllRule>::Out>, Error>
    where
        L: SumAllRule,
    {
        Ok(Tensor::of(self.erase().sum_all()?))
    }

    /// Mean over all dims: a scalar, pending where this is sharded. It divides by the global number of elements.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    pub fn mean_all(self) -> Result<Tensor<'g, 0, <L as SumAllRule>::Out>, Error>
    where
        L: SumAllRule,
    {
        Ok(Tensor::of(self.erase().mean_all()?))
    }

    /// Mean over all elements of (a − target)²: pending where the operands are sharded.
    ///
    /// # Errors
    /// Shapes or element types differ.
    #[track_caller]
    pub fn mse<T>(
        self,
        target: Tensor<'g, RANK, T>,
    ) -> Result<Tensor<'g, 0, <T as MseRule<L>>::Out>, Error>
    where
        T: MseRule<L>,
    {
        Ok(Tensor::of(Loss::Mse.of(self.erase(), Some(target.erase()))?))
    }
}

impl<'g, L> Tensor<'g, 2, L> {
    /// The transpose of a matrix.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    pub fn transpose(self) -> Result<Tensor<'g, 2, <L as TransposeRule>::Out>, Error>
    where
        L: TransposeRule,
    {
        Ok(Tensor::of(self.erase().transpose(&[1, 0])?))
    }

    /// Mean over the rows of −log softmax(row)\[label\], with integer labels, one a row.
    ///
    /// # Errors
    /// The labels are not integer, or not one a row.
    #[track_caller]
    pub fn cross_entropy<T>(
        self,
        labels: Tensor<'g, 1, T>,
    ) -> Result<Tensor<'g, 0, <T as CrossEntropyRule<L>>::Out>, Error>
    where
        T: CrossEntropyRule<L>,
    {
        Ok(Tensor::of(Loss::CrossEntropy.of(self.erase(), Some(labels.erase()))?))
    }
}

impl<'g, L> Tensor<'g, 1, L> {
    /// Sum over one dim, which vanishes: pending where that dim is sharded.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn sum<const DIM: usize>(self) -> Result<Tensor<'g, 0, <L as SumRule<1, DIM>>::Out>, Error>
    where
        L: SumRule<1, DIM>,
    {
        Ok(Tensor::of(self.erase().sum(&[DIM])?))
    }

    /// Mean over one dim, which vanishes: pending where that dim is sharded. It divides by the global extent.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn mean<const DIM: usize>(self) -> Result<Tensor<'g, 0, <L as SumRule<1, DIM>>::Out>, Error>
    where
        L: SumRule<1, DIM>,
    {
        Ok(Tensor::of(self.erase().mean(&[DIM])?))
    }
}

impl<'g, L> Tensor<'g, 2, L> {
    /// Sum over one dim, which vanishes: pending where that dim is sharded.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn sum<const DIM: usize>(self) -> Result<Tensor<'g, 1, <L as SumRule<2, DIM>>::Out>, Error>
    where
        L: SumRule<2, DIM>,
    {
        Ok(Tensor::of(self.erase().sum(&[DIM])?))
    }

    /// Mean over one dim, which vanishes: pending where that dim is sharded. It divides by the global extent.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn mean<const DIM: usize>(self) -> Result<Tensor<'g, 1, <L as SumRule<2, DIM>>::Out>, Error>
    where
        L: SumRule<2, DIM>,
    {
        Ok(Tensor::of(self.erase().mean(&[DIM])?))
    }
}

impl<'g, L> Tensor<'g, 3, L> {
    /// Sum over one dim, which vanishes: pending where that dim is sharded.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn sum<const DIM: usize>(self) -> Result<Tensor<'g, 2, <L as SumRule<3, DIM>>::Out>, Error>
    where
        L: SumRule<3, DIM>,
    {
        Ok(Tensor::of(self.erase().sum(&[DIM])?))
    }

    /// Mean over one dim, which vanishes: pending where that dim is sharded. It divides by the global extent.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn mean<const DIM: usize>(self) -> Result<Tensor<'g, 2, <L as SumRule<3, DIM>>::Out>, Error>
    where
        L: SumRule<3, DIM>,
    {
        Ok(Tensor::of(self.erase().mean(&[DIM])?))
    }
}
