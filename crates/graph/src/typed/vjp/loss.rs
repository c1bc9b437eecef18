//! Pullbacks of losses, from 1.

use std::marker::PhantomData;

use shardgrad_core::types::cotangent::Cotangent;
use shardgrad_core::types::loss::{CrossEntropyRule, MseRule};
use shardgrad_core::types::reduce::SumAllRule;

use crate::builder::Var;
use crate::error::Error;
use crate::grad::constant;
use crate::node::Phase;
use crate::typed::Tensor;

/// Pullback of a loss, from 1: [`Tensor::mse_vjp`], [`Tensor::cross_entropy_vjp`], [`Tensor::sum_all_vjp`],
/// [`Tensor::mean_all_vjp`].
#[derive(Clone, Copy)]
pub struct LossPullback<'g, const RANK: usize, L> {
    result: Var<'g>,
    out: Var<'g>,
    layouts: PhantomData<L>,
}

impl<'g, const RANK: usize, L> Tensor<'g, RANK, L> {
    /// The pullback of a loss of this value.
    fn loss_pullback<S>(
        self,
        loss: Tensor<'g, 0, S>,
    ) -> (Tensor<'g, 0, S>, LossPullback<'g, RANK, L>) {
        (loss, LossPullback { result: loss.erase(), out: self.erase(), layouts: PhantomData })
    }

    /// [`Tensor::sum_all`], as a loss, with its pullback from 1.
    ///
    /// # Errors
    /// As [`Tensor::sum_all`].
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn sum_all_vjp(
        self,
    ) -> Result<(Tensor<'g, 0, <L as SumAllRule>::Out>, LossPullback<'g, RANK, L>), Error>
    where
        L: SumAllRule,
    {
        Ok(self.loss_pullback(self.sum_all()?))
    }

    /// [`Tensor::mean_all`], as a loss, with its pullback from 1.
    ///
    /// # Errors
    /// As [`Tensor::mean_all`].
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn mean_all_vjp(
        self,
    ) -> Result<(Tensor<'g, 0, <L as SumAllRule>::Out>, LossPullback<'g, RANK, L>), Error>
    where
        L: SumAllRule,
    {
        Ok(self.loss_pullback(self.mean_all()?))
    }

    /// [`Tensor::mse`] with its pullback from 1, to this value.
    ///
    /// # Errors
    /// As [`Tensor::mse`].
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn mse_vjp<T>(
        self,
        target: Tensor<'g, RANK, T>,
    ) -> Result<(Tensor<'g, 0, <T as MseRule<L>>::Out>, LossPullback<'g, RANK, L>), Error>
    where
        T: MseRule<L>,
    {
        Ok(self.loss_pullback(self.mse(target)?))
    }
}

impl<'g, L> Tensor<'g, 2, L> {
    /// [`Tensor::cross_entropy`] with its pullback from 1, to the logits.
    ///
    /// # Errors
    /// As [`Tensor::cross_entropy`].
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn cross_entropy_vjp<T>(
        self,
        labels: Tensor<'g, 1, T>,
    ) -> Result<(Tensor<'g, 0, <T as CrossEntropyRule<L>>::Out>, LossPullback<'g, 2, L>), Error>
    where
        T: CrossEntropyRule<L>,
    {
        Ok(self.loss_pullback(self.cross_entropy(labels)?))
    }
}

impl<'g, const RANK: usize, L> LossPullback<'g, RANK, L> {
    /// The gradient of the loss in the value it was taken of.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    pub fn pull(self) -> Result<Tensor<'g, RANK, <L as Cotangent>::Out>, Error>
    where
        L: Cotangent,
    {
        let graph = self.result.graph();
        let phase = graph.set_phase(Phase::Backward);
        let gradients = constant(graph, 1.0, self.result.ty())
            .and_then(|one| graph.reverse(self.result, one, &[self.out]));
        graph.set_phase(phase);
        Ok(Tensor::of(gradients?[0]))
    }
}
