//! Mesh axes as types: which axis of a layout is meant, and which layouts fit a mesh and a tensor.

use super::{PendingSum, Replicated, Shard};

/// The mesh axis with index `I`, as a value: `let (dp, tp) = mesh.axes();` gives `MeshAxis<0>` and `MeshAxis<1>`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeshAxis<const I: usize>;

/// What a layout says on one mesh axis, and the layout with another placement there.
#[diagnostic::on_unimplemented(
    message = "the layout `{Self}` has no mesh axis `{X}`",
    label = "`{X}` is not an axis of this tensor's mesh",
    note = "axes are numbered from 0 in mesh order; take them from the mesh: `let (dp, tp) = mesh.axes();`"
)]
pub trait At<X> {
    /// The placement on the axis.
    type Here;
    /// The placements on the later axes, as a list `(P, (Q, ()))`: they split a dim inside this axis.
    type Inner;
    /// The layout with `Q` on the axis.
    type With<Q>;
}

impl At<MeshAxis<0>> for Replicated {
    type Here = Self;
    type Inner = ();
    type With<Q> = Q;
}
impl<const DIM: usize> At<MeshAxis<0>> for Shard<DIM> {
    type Here = Self;
    type Inner = ();
    type With<Q> = Q;
}
impl At<MeshAxis<0>> for PendingSum {
    type Here = Self;
    type Inner = ();
    type With<Q> = Q;
}
impl<A, B> At<MeshAxis<0>> for (A, B) {
    type Here = A;
    type Inner = (B, ());
    type With<Q> = (Q, B);
}
impl<A, B> At<MeshAxis<1>> for (A, B) {
    type Here = B;
    type Inner = ();
    type With<Q> = (A, Q);
}
impl<A, B, C> At<MeshAxis<0>> for (A, B, C) {
    type Here = A;
    type Inner = (B, (C, ()));
    type With<Q> = (Q, B, C);
}
impl<A, B, C> At<MeshAxis<1>> for (A, B, C) {
    type Here = B;
    type Inner = (C, ());
    type With<Q> = (A, Q, C);
}
impl<A, B, C> At<MeshAxis<2>> for (A, B, C) {
    type Here = C;
    type Inner = ();
    type With<Q> = (A, B, Q);
}

/// Layouts of tensors on a mesh of `AXES` axes.
#[diagnostic::on_unimplemented(
    message = "the layout `{Self}` does not fit a mesh of {AXES} axis(es)",
    label = "a layout has one placement per mesh axis, and this mesh has {AXES}",
    note = "write a bare placement on a mesh of one axis, `(A, B)` on two axes and `(A, B, C)` on three, in mesh order"
)]
pub trait LayoutOn<const AXES: usize> {}

impl LayoutOn<1> for Replicated {}
impl<const DIM: usize> LayoutOn<1> for Shard<DIM> {}
impl LayoutOn<1> for PendingSum {}
impl<A, B> LayoutOn<2> for (A, B) {}
impl<A, B, C> LayoutOn<3> for (A, B, C) {}

/// Layouts that a tensor with `RANK` dims can have: each sharded dim is one of its dims.
#[diagnostic::on_unimplemented(
    message = "a typed tensor with {RANK} dim(s) cannot be `{Self}`",
    label = "`{Self}` of a tensor with {RANK} dim(s), on `{A}`: the dim is not there, or the tensor has more than three",
    note = "dims count from 0: a matrix can be `Shard<0>` (its rows) or `Shard<1>` (its columns), a vector `Shard<0>`",
    note = "shards of a tensor with more than three dims have no type: use the untyped graph, and pin the value there"
)]
pub trait FitsRank<const RANK: usize, A = MeshAxis<0>> {}

impl<const RANK: usize, A> FitsRank<RANK, A> for Replicated {}
impl<const RANK: usize, A> FitsRank<RANK, A> for PendingSum {}
impl<A> FitsRank<1, A> for Shard<0> {}
impl<A> FitsRank<2, A> for Shard<0> {}
impl<A> FitsRank<2, A> for Shard<1> {}
impl<A> FitsRank<3, A> for Shard<0> {}
impl<A> FitsRank<3, A> for Shard<1> {}
impl<A> FitsRank<3, A> for Shard<2> {}
impl<const RANK: usize, A, B> FitsRank<RANK> for (A, B)
where
    A: FitsRank<RANK, MeshAxis<0>>,
    B: FitsRank<RANK, MeshAxis<1>>,
{
}
impl<const RANK: usize, A, B, C> FitsRank<RANK> for (A, B, C)
where
    A: FitsRank<RANK, MeshAxis<0>>,
    B: FitsRank<RANK, MeshAxis<1>>,
    C: FitsRank<RANK, MeshAxis<2>>,
{
}

/// Guard of ops on two operands: both lie on a mesh of the same number of axes. `Self` is the right operand's layout.
///
/// The other guards are asked of [`Right`](SameMesh::Right), which is `Self` again: where the meshes differ there is no
/// such type, so that rustc reports this guard alone.
#[diagnostic::on_unimplemented(
    message = "`{L}` and `{Self}` are layouts over meshes of different numbers of axes",
    label = "the operands do not lie on the same mesh",
    note = "build both operands with the same `typed::Graph`"
)]
pub trait SameMesh<L> {
    /// The right operand's layout.
    type Right;
}

impl SameMesh<Replicated> for Replicated {
    type Right = Self;
}
impl<const LEFT: usize> SameMesh<Shard<LEFT>> for Replicated {
    type Right = Self;
}
impl SameMesh<PendingSum> for Replicated {
    type Right = Self;
}
impl<const DIM: usize> SameMesh<Replicated> for Shard<DIM> {
    type Right = Self;
}
impl<const DIM: usize, const LEFT: usize> SameMesh<Shard<LEFT>> for Shard<DIM> {
    type Right = Self;
}
impl<const DIM: usize> SameMesh<PendingSum> for Shard<DIM> {
    type Right = Self;
}
impl SameMesh<Replicated> for PendingSum {
    type Right = Self;
}
impl<const LEFT: usize> SameMesh<Shard<LEFT>> for PendingSum {
    type Right = Self;
}
impl SameMesh<PendingSum> for PendingSum {
    type Right = Self;
}
impl<L0, L1, R0, R1> SameMesh<(L0, L1)> for (R0, R1) {
    type Right = Self;
}
impl<L0, L1, L2, R0, R1, R2> SameMesh<(L0, L1, L2)> for (R0, R1, R2) {
    type Right = Self;
}
