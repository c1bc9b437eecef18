//! MPI's own collectives on a sub-communicator per group of ranks.
//!
//! The groups along mesh axes get a communicator when they first need one; its members, and nobody else, make it then.
//! Members are ascending in the group and keep that order.

use std::collections::BTreeMap;

use mpi::collective::{CommunicatorCollectives as _, SystemOperation};
use mpi::datatype::{Partition, PartitionMut};
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator as _, Group as _};
use shardgrad_core::schedule::Combine;

use crate::number::{Number, with_number};
use crate::tensor::Data;

/// A communicator for every group that asked for one.
#[derive(Default)]
pub(crate) struct Groups(BTreeMap<Vec<usize>, Group>);

/// A group's communicator; none if this rank is alone in it or outside.
pub(crate) struct Group(Option<SimpleCommunicator>);

impl Groups {
    /// The group of these ranks, of which this one is a member. All members ask at once.
    pub(crate) fn of(&mut self, world: &SimpleCommunicator, group: &[usize]) -> &Group {
        self.0.entry(group.to_vec()).or_insert_with(|| {
            let ranks: Vec<i32> = group.iter().filter_map(|&r| i32::try_from(r).ok()).collect();
            Group(world.split_by_subgroup(&world.group().include(&ranks)))
        })
    }
}

fn operation(combine: Combine) -> SystemOperation {
    match combine {
        Combine::Max => SystemOperation::max(),
        Combine::Sum | Combine::Copy => SystemOperation::sum(),
    }
}

/// Counts and offsets as MPI wants them; whoever calls keeps them small.
fn counts_and_offsets(counts: &[usize]) -> (Vec<i32>, Vec<i32>) {
    let small = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    let offsets = counts.iter().scan(0, |at, n| {
        let here = small(*at);
        *at += n;
        Some(here)
    });
    (counts.iter().map(|&n| small(n)).collect(), offsets.collect())
}

impl Group {
    pub(crate) fn all_reduce(&self, combine: Combine, send: &Data, receive: &mut Data) {
        with_number!(send.dtype(), T => {
            if let (Some(comm), Some(send), Some(receive)) =
                (&self.0, T::slice(send), T::slice_mut(receive))
            {
                comm.all_reduce_into(send, &mut receive[..], operation(combine));
            }
        });
    }

    /// Equal parts: `send` holds one for every member, `receive` one.
    pub(crate) fn reduce_scatter(&self, combine: Combine, send: &Data, receive: &mut Data) {
        with_number!(send.dtype(), T => {
            if let (Some(comm), Some(send), Some(receive)) =
                (&self.0, T::slice(send), T::slice_mut(receive))
            {
                comm.reduce_scatter_block_into(send, &mut receive[..], operation(combine));
            }
        });
    }

    pub(crate) fn all_gather(&self, send: &Data, counts: &[usize], receive: &mut Data) {
        let (counts, offsets) = counts_and_offsets(counts);
        with_number!(send.dtype(), T => {
            if let (Some(comm), Some(send), Some(receive)) =
                (&self.0, T::slice(send), T::slice_mut(receive))
            {
                let mut parts = PartitionMut::new(&mut receive[..], counts, offsets);
                comm.all_gather_varcount_into(send, &mut parts);
            }
        });
    }

    pub(crate) fn all_to_all(
        &self,
        send: &Data,
        counts: &[usize],
        receive: &mut Data,
        received: &[usize],
    ) {
        let (counts, offsets) = counts_and_offsets(counts);
        let (received, at) = counts_and_offsets(received);
        with_number!(send.dtype(), T => {
            if let (Some(comm), Some(send), Some(receive)) =
                (&self.0, T::slice(send), T::slice_mut(receive))
            {
                let parts = Partition::new(send, counts, offsets);
                let mut into = PartitionMut::new(&mut receive[..], received, at);
                comm.all_to_all_varcount_into(&parts, &mut into);
            }
        });
    }
}
