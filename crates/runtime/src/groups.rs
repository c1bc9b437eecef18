//! Collectives as plain functions over the axes of a mesh, for any communicator.
//!
//! Each is a transition between two layouts: `redistribute` runs any of them, the others name the usual ones. Ranks that
//! differ along other axes work in groups of their own and may hold different tensors.

use shardgrad_core::{AxisSet, Layout, Mesh, Placement, TensorType};

use crate::collective::{Collective, Source};
use crate::comm::Communicator;
use crate::error::Error;
use crate::number::Number;

/// How [`all_reduce`] and [`reduce_scatter`] combine the ranks' terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// Added up, in an order fixed by block and group. Integers that overflow are an error.
    Sum,
    /// The largest is kept.
    Max,
}

impl Reduce {
    fn pending(self) -> Placement {
        match self {
            Reduce::Sum => Placement::PendingSum,
            Reduce::Max => Placement::PendingMax,
        }
    }
}

fn layout(mesh: &Mesh, axes: AxisSet, placement: Placement) -> Layout {
    axes.iter().fold(Layout::replicated(mesh.rank()), |layout, axis| layout.with(axis, placement))
}

/// Moves a tensor of global shape `shape` from one layout to another; takes and returns this rank's block.
///
/// # Errors
/// No single transition leads there, the block has the wrong length, or whatever the communicator reports.
pub fn redistribute<T: Number>(
    comm: &mut (impl Communicator + ?Sized),
    mesh: &Mesh,
    shape: &[usize],
    from: &Layout,
    to: &Layout,
    block: &[T],
) -> Result<Vec<T>, Error> {
    check_world(comm, mesh)?;
    let ty = TensorType::new(shape.iter().copied(), T::DTYPE);
    let collective = Collective::new(mesh, &ty, from, to, comm.rank())?;
    let mut result = vec![T::ZERO; collective.result_len()];
    collective.run(comm, Source::Apart(block), &mut result)?;
    Ok(result)
}

fn check_world(comm: &(impl Communicator + ?Sized), mesh: &Mesh) -> Result<(), Error> {
    if comm.size() == mesh.size() {
        return Ok(());
    }
    Err(Error::WrongBuffer {
        what: "the mesh of a collective",
        expected: format!("{} devices, one per rank", comm.size()),
        found: format!("{} ({mesh})", mesh.size()),
    })
}

/// Combines the ranks' buffers over the axes, in place; every rank of a group ends with the same bits.
///
/// # Errors
/// Buffers of different lengths, an overflow, or whatever the communicator reports.
pub fn all_reduce<T: Number>(
    comm: &mut (impl Communicator + ?Sized),
    mesh: &Mesh,
    axes: AxisSet,
    reduce: Reduce,
    buffer: &mut [T],
) -> Result<(), Error> {
    check_world(comm, mesh)?;
    let ty = TensorType::new([buffer.len()], T::DTYPE);
    let from = layout(mesh, axes, reduce.pending());
    let to = Layout::replicated(mesh.rank());
    Collective::new(mesh, &ty, &from, &to, comm.rank())?.run(comm, Source::InPlace, buffer)?;
    Ok(())
}

/// Puts the blocks of dim `dim` of a tensor of global shape `shape` together on every rank.
///
/// # Errors
/// As [`redistribute`].
pub fn all_gather<T: Number>(
    comm: &mut (impl Communicator + ?Sized),
    mesh: &Mesh,
    axes: AxisSet,
    shape: &[usize],
    dim: usize,
    block: &[T],
) -> Result<Vec<T>, Error> {
    let from = layout(mesh, axes, Placement::Shard(dim));
    redistribute(comm, mesh, shape, &from, &Layout::replicated(mesh.rank()), block)
}

/// Combines the ranks' tensors; every rank ends with its block of dim `dim`.
///
/// # Errors
/// As [`redistribute`].
pub fn reduce_scatter<T: Number>(
    comm: &mut (impl Communicator + ?Sized),
    mesh: &Mesh,
    axes: AxisSet,
    reduce: Reduce,
    shape: &[usize],
    dim: usize,
    term: &[T],
) -> Result<Vec<T>, Error> {
    let from = layout(mesh, axes, reduce.pending());
    let to = layout(mesh, axes, Placement::Shard(dim));
    redistribute(comm, mesh, shape, &from, &to, term)
}

/// Turns blocks of dim `from_dim` into blocks of dim `to_dim` over one axis.
///
/// # Errors
/// As [`redistribute`].
pub fn all_to_all<T: Number>(
    comm: &mut (impl Communicator + ?Sized),
    mesh: &Mesh,
    axis: usize,
    shape: &[usize],
    from_dim: usize,
    to_dim: usize,
    block: &[T],
) -> Result<Vec<T>, Error> {
    let axes = AxisSet::single(axis);
    let from = layout(mesh, axes, Placement::Shard(from_dim));
    let to = layout(mesh, axes, Placement::Shard(to_dim));
    redistribute(comm, mesh, shape, &from, &to, block)
}
