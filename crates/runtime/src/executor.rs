//! One rank's part of a plan: compiled once, run every step.
//!
//! The executor follows the plan's slots and frees exactly: a slot comes to life at its first definition, is overwritten
//! where the plan says so, and dies when [`shardgrad_graph::memory::frees`] says so. A launch that the plan waits for later
//! takes its buffers out of their slots when it starts, and brings them back at its wait. It counts what is alive, what is
//! staged and what is sent; the plan's prediction of these is compared with the counts, never used for them.
//!
//! Invariants: leaves' slots hold their values from step to step; after a step every `Update` output has become the value
//! of its leaf. With [`Buffers::Keep`] no step allocates a tensor: buffers stay, dead slots lend theirs to others, and
//! elementwise ops that follow each other run fused, their intermediate values in no buffer at all. What is counted
//! stays the plan's liveness, which is then an upper bound for what elementwise values need.

use std::collections::BTreeMap;

use shardgrad_core::ops::Role;
use shardgrad_core::{Block, Layout, TensorType};
use shardgrad_graph::{NodeId, Plan, SlotId};
use smallvec::SmallVec;

use crate::collective::{Buffers as InFlight, Collective, Flight, Landed};
use crate::comm::Communicator;
use crate::compile::{Compiled, Life, Moved, Step, Update, Work, compile};
use crate::error::Error;
use crate::kernels::Operands;
use crate::number::{Number, with_number};
use crate::pool::Pool;
use crate::slots::Slots;
use crate::tensor::Data;

/// What happens to buffers of slots that die.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Buffers {
    /// They are kept for later slots and the next step, and elementwise ops are fused: no allocation in a step.
    #[default]
    Keep,
    /// They are freed, and every op runs by itself: memory is what is counted.
    Free,
    /// The same, and a copy of what every node made in the last step is there to be read: [`Executor::recorded`].
    Record,
}

/// A leaf or an output of one rank.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Where it lives.
    pub(crate) slot: SlotId,
    /// Global type.
    pub ty: TensorType,
    /// Its layout.
    pub layout: Layout,
    /// The rank's block.
    pub block: Block,
    /// What it is for, if it is a leaf.
    pub role: Option<Role>,
}

/// Of each collective of a launch, whether its tensor is a scalar, and the payload bytes.
pub type Launched = SmallVec<[(bool, u64); 1]>;

/// What one step cost one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Every launch, in order.
    pub launches: Vec<Launched>,
    /// Most bytes alive at once: slots and staging.
    pub peak_bytes: u64,
    /// Bytes alive after the step.
    pub current_bytes: u64,
}

/// One rank's part of a plan.
#[derive(Debug)]
pub struct Executor {
    plan: Compiled,
    buffers: Buffers,
    live_bytes: u64,
    /// Spare buffers, handed from collective to collective.
    pool: Pool,
    /// Launches that are started and not waited for, by their steps.
    flights: BTreeMap<usize, Flight>,
    /// By node, what it made in the last step, if that is recorded.
    records: Vec<Option<Data>>,
}

impl Executor {
    /// Compiles a plan for one rank. Leaves start at zero.
    ///
    /// # Errors
    /// A plan that is not sound: ids, types, layouts, transitions or slots that do not fit.
    pub fn new(plan: &Plan, rank: usize, buffers: Buffers) -> Result<Self, Error> {
        let mut plan = compile(plan, rank, buffers)?;
        for leaf in plan.leaves.values() {
            plan.slots.fill(leaf.slot);
        }
        let live_bytes = plan.slots.live_bytes();
        let nodes = plan.steps.last().map_or(0, |step| step.nodes.end);
        Ok(Self {
            plan,
            buffers,
            live_bytes,
            pool: Pool::default(),
            flights: BTreeMap::new(),
            records: vec![None; nodes],
        })
    }

    /// The rank's leaves by name.
    #[must_use]
    pub fn leaves(&self) -> &BTreeMap<String, Stored> {
        &self.plan.leaves
    }

    /// The plan's outputs by name.
    #[must_use]
    pub fn outputs(&self) -> &BTreeMap<String, Stored> {
        &self.plan.outputs
    }

    /// The block of a leaf.
    #[must_use]
    pub fn leaf(&self, name: &str) -> Option<&Data> {
        self.plan.leaves.get(name).map(|stored| self.plan.slots.data(stored.slot))
    }

    /// The block of a leaf, to overwrite; its length must stay.
    pub fn leaf_mut(&mut self, name: &str) -> Option<&mut Data> {
        let slots = &mut self.plan.slots;
        self.plan.leaves.get(name).map(|stored| slots.data_mut(stored.slot))
    }

    /// The block of an output, after a step.
    #[must_use]
    pub fn output(&self, name: &str) -> Option<&Data> {
        self.plan.outputs.get(name).map(|stored| self.plan.slots.data(stored.slot))
    }

    /// What a node made in the last step, with [`Buffers::Record`]. What makes nothing, as an alias, has what is in its buffer.
    #[must_use]
    pub fn recorded(&self, node: NodeId) -> Option<&Data> {
        self.records.get(node.index())?.as_ref()
    }

    /// Runs one step.
    ///
    /// # Errors
    /// Integers that overflow, and whatever the communicator reports. The executor is of no use after an error.
    pub fn step<C: Communicator + ?Sized>(&mut self, comm: &mut C) -> Result<Counted, Error> {
        self.release_outputs();
        let mut counted = Counted { peak_bytes: self.live_bytes, ..Counted::default() };
        let Compiled { steps, slots, .. } = &mut self.plan;
        let keep = self.buffers == Buffers::Keep;
        self.flights.clear();
        let mut flying = 0;
        for at in 0..steps.len() {
            let step = &mut steps[at];
            step.fills.iter().for_each(|&slot| slots.fill(slot));
            comm.alive(step.operations);
            let mut own = 0;
            if let (true, Work::Move { launch, members }) = (step.flies, &step.work) {
                let flight = launch.start(comm, take(members, slots), keep)?;
                self.flights.insert(at, flight);
                own = launch.staging();
            } else if let Some((launched, staging)) = run(step, slots, comm, &mut self.pool, keep)?
            {
                counted.launches.push(launched);
                own = staging;
            }
            let staging = flying + own;
            if step.flies {
                flying += own;
            }
            for index in 0..steps[at].lands.len() {
                let started = steps[at].lands[index];
                if let (Work::Move { launch, members }, Some(flight)) =
                    (&steps[started].work, self.flights.remove(&started))
                {
                    let landed = launch.finish(comm, flight, &mut self.pool)?;
                    flying -= launch.staging();
                    counted.launches.extend(put(launch, members, slots, landed).map(|l| l.0));
                }
                if self.buffers == Buffers::Record {
                    record(&mut self.records, &steps[started], slots);
                }
            }
            if self.buffers == Buffers::Record && !steps[at].flies {
                record(&mut self.records, &steps[at], slots);
            }
            if !keep {
                self.pool.clear();
            }
            let step = &steps[at];
            for Life { born, frees } in &step.lives {
                if let Some(slot) = *born {
                    slots.set_live(slot, true);
                    self.live_bytes += slots.slot(slot).bytes();
                }
                counted.peak_bytes = counted.peak_bytes.max(self.live_bytes + staging);
                for &slot in frees {
                    slots.set_live(slot, false);
                    self.live_bytes -= slots.slot(slot).bytes();
                    if !keep {
                        slots.drop_buffer(slot);
                    }
                }
            }
        }
        self.update_leaves();
        counted.current_bytes = self.live_bytes;
        Ok(counted)
    }

    /// Ends the life of the last step's outputs, leaves apart; the next step does so otherwise.
    pub fn release_outputs(&mut self) {
        let Compiled { slots, retired, .. } = &mut self.plan;
        for &slot in retired.iter() {
            if slots.slot(slot).live {
                slots.set_live(slot, false);
                self.live_bytes -= slots.slot(slot).bytes();
                if self.buffers != Buffers::Keep {
                    slots.drop_buffer(slot);
                }
            }
        }
    }

    /// Copies first, each before its source is overwritten; then leaves and updates that nobody else needs change places.
    fn update_leaves(&mut self) {
        let Compiled { slots, updates, .. } = &mut self.plan;
        let mut copies: SmallVec<[Update; 4]> =
            updates.iter().filter(|u| u.copy).copied().collect();
        let free = |copies: &[Update]| {
            copies.iter().position(|update| copies.iter().all(|other| other.value != update.leaf))
        };
        while let Some(at) = free(&copies) {
            let Update { leaf, value, .. } = copies.swap_remove(at);
            slots.copy(value, leaf);
        }
        // What is left are rings of leaves that take each other's values: no order will do.
        let values: SmallVec<[Data; 4]> =
            copies.iter().map(|update| slots.data(update.value).clone()).collect();
        for (update, value) in copies.iter().zip(values) {
            slots.put(update.leaf, value);
        }
        for update in updates.iter().filter(|update| !update.copy) {
            slots.exchange(update.leaf, update.value);
        }
    }
}

/// Copies what the nodes of a step made.
fn record(records: &mut [Option<Data>], step: &Step, slots: &Slots) {
    let results: SmallVec<[SlotId; 1]> = match &step.work {
        Work::Move { members, .. } => members.iter().map(|moved| moved.result).collect(),
        Work::Nothing | Work::Fused(_) | Work::Local { .. } | Work::Descend { .. } => {
            SmallVec::from_elem(step.result, 1)
        }
    };
    for (record, slot) in records[step.nodes.clone()].iter_mut().zip(results) {
        *record = Some(slots.data(slot).clone());
    }
}

/// What a launch sent, and the bytes that it staged; `None` if the step is none.
type Sent = Option<(Launched, u64)>;

fn run<C: Communicator + ?Sized>(
    step: &mut Step,
    slots: &mut Slots,
    comm: &mut C,
    pool: &mut Pool,
    lend: bool,
) -> Result<Sent, Error> {
    match &mut step.work {
        Work::Nothing => Ok(None),
        Work::Fused(fused) => fused.run(slots).map(|()| None),
        Work::Local { name, kernel } => {
            let mut result = slots.take(step.result);
            let run = {
                let apart = |&slot: &SlotId| (slot != step.result).then(|| slots.data(slot));
                let operands: Operands<'_> = step.operands.iter().map(apart).collect();
                kernel.run(name, &operands, &mut result)
            };
            slots.put(step.result, result);
            run.map(|()| None)
        }
        Work::Descend { contraction, scalar } => {
            let mut result = slots.take(step.result);
            with_number!(result.dtype(), T => {
                let factor = T::slice(slots.data(*scalar)).and_then(<[T]>::first).copied();
                let mut operands = step.operands.iter().map(|&slot| T::slice(slots.data(slot)));
                if let (Some(factor), Some(Some(a)), Some(Some(b)), Some(result)) =
                    (factor, operands.next(), operands.next(), T::slice_mut(&mut result))
                {
                    let factor = T::ZERO.sub(factor, &mut false);
                    contraction.add(factor, [a, b], result);
                }
            });
            slots.put(step.result, result);
            Ok(None)
        }
        Work::Move { launch, members } => {
            let flight = launch.start(comm, take(members, slots), lend)?;
            let landed = launch.finish(comm, flight, pool)?;
            Ok(put(launch, members, slots, landed))
        }
    }
}

/// The buffers that a launch works on.
fn take(members: &[Moved], slots: &mut Slots) -> SmallVec<[InFlight; 1]> {
    let take = |m: &Moved| InFlight {
        source: m.source.map(|slot| slots.take(slot)),
        result: slots.take(m.result),
    };
    members.iter().map(take).collect()
}

/// Puts the buffers back where they came from.
fn put(launch: &Collective, members: &[Moved], slots: &mut Slots, landed: Landed) -> Sent {
    for (moved, buffers) in members.iter().zip(landed.buffers) {
        slots.put(moved.result, buffers.result);
        if let (Some(slot), Some(source)) = (moved.source, buffers.source) {
            slots.put(slot, source);
        }
    }
    let counts = launch.transition().kind.is_collective();
    let sent = members.iter().map(|m| m.scalar).zip(landed.bytes).collect();
    counts.then_some((sent, landed.staging))
}
