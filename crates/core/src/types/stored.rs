//! Stored values (inputs, parameters, optimizer state) are never pending.

use super::{MeshAxis, Replicated, Shard};

/// Layouts that a stored value can have: nothing is pending.
#[diagnostic::on_unimplemented(
    message = "a stored value cannot be a `PendingSum`",
    label = "inputs and parameters are complete: `Replicated` or `Shard<DIM>`, not `PendingSum`, on `{A}`",
    note = "a pending sum exists only between the op that makes it and its reduction; declare the value `Replicated` or `Shard<DIM>`, and call `.to_pending(axis)` on it if terms are wanted"
)]
pub trait StoredLayout<A = MeshAxis<0>> {}

impl<A> StoredLayout<A> for Replicated {}
impl<const DIM: usize, A> StoredLayout<A> for Shard<DIM> {}
impl<A, B> StoredLayout for (A, B)
where
    A: StoredLayout<MeshAxis<0>>,
    B: StoredLayout<MeshAxis<1>>,
{
}
impl<A, B, C> StoredLayout for (A, B, C)
where
    A: StoredLayout<MeshAxis<0>>,
    B: StoredLayout<MeshAxis<1>>,
    C: StoredLayout<MeshAxis<2>>,
{
}
