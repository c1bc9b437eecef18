//! Einsum and matrix product.

use std::panic::Location;

use shardgrad_core::Op;
use shardgrad_core::ops::Einsum;
use smallvec::SmallVec;

use super::Var;
use crate::error::Error;

impl<'g> Var<'g> {
    /// Einsum with one other operand: `x.einsum("mk,kn->mn", w)`.
    ///
    /// # Errors
    /// The text is no einsum, or shapes do not fit it.
    #[track_caller]
    pub fn einsum(self, spec: &str, other: Var<'_>) -> Result<Var<'g>, Error> {
        let at = Location::caller();
        let einsum: Einsum = spec.parse().map_err(|source| Error::Op { source, at })?;
        self.graph.apply(Op::Einsum(einsum), &[self, other])
    }

    /// Matrix product over the last two dims; leading dims, if any, are batch dims of both operands.
    ///
    /// # Errors
    /// Either operand has fewer than two dims, their numbers of dims differ, or extents do not fit.
    #[track_caller]
    pub fn matmul(self, other: Var<'_>) -> Result<Var<'g>, Error> {
        let at = Location::caller();
        let (a, b) = (self.ty(), other.ty());
        if a.rank() < 2 || b.rank() != a.rank() {
            return Err(Error::Bad {
                op: "matmul",
                found: format!("{a}, {b}"),
                problem: "both operands need the same number of dims, at least 2; use einsum for other products".to_owned(),
                at,
            });
        }
        let batch: SmallVec<[char; 4]> = ('a'..='h').take(a.rank() - 2).collect();
        let labels = |tail: [char; 2]| batch.iter().copied().chain(tail).collect();
        let einsum = Einsum::new(
            [labels(['m', 'k']), labels(['k', 'n'])].into_iter().collect(),
            labels(['m', 'n']),
        )
        .map_err(|source| Error::Op { source, at })?;
        self.graph.apply(Op::Einsum(einsum), &[self, other])
    }
}
