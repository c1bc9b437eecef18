//! The peak: the largest sum of live bytes over nodes and ranks.
//!
//! While node i runs, its operands' slots, its own slot and all slots still to be read are live, and the staging of its
//! collective with them.

use serde::{Deserialize, Serialize};
use shardgrad_core::Op;
use shardgrad_core::ops::Role;

use super::sizes::Sizes;
use crate::node::{NodeId, Phase};
use crate::plan::{Plan, SlotId};

/// Bytes of a rank by what they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Categories {
    /// Data of the step and scalars.
    pub inputs: u64,
    /// Parameters, or the new values that overwrote them.
    pub parameters: u64,
    /// Optimizer state, or the new values that overwrote it.
    pub state: u64,
    /// Results of the forward phase.
    pub activations: u64,
    /// Results of the backward and update phases in slots of their own.
    pub gradients: u64,
    /// Messages of a collective that is under way.
    pub staging: u64,
}

impl Categories {
    /// All of them together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.inputs
            + self.parameters
            + self.state
            + self.activations
            + self.gradients
            + self.staging
    }
}

/// Bytes of what a rank stores from step to step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// Data of the step and scalars.
    pub inputs: u64,
    /// Parameters.
    pub parameters: u64,
    /// Optimizer state.
    pub state: u64,
}

/// The most memory that a step needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peak {
    /// Bytes on the rank that needs most.
    pub bytes: u64,
    /// The first rank that needs so many.
    pub rank: usize,
    /// The first node at which it does.
    pub at: NodeId,
    /// The peak of every rank.
    pub per_rank: Vec<u64>,
    /// What the bytes hold, on that rank at that node.
    pub by_category: Categories,
    /// What every rank stores from step to step.
    pub stored: Vec<Stored>,
}

/// A slot as the peak sees it.
#[derive(Clone, Copy)]
struct Slot {
    /// Column of its size.
    size: usize,
    /// The leaf that lives in it from the start.
    role: Option<Role>,
}

/// The peak of a plan whose slots are assigned.
#[must_use]
pub fn peak(plan: &Plan) -> Peak {
    let mut sizes = Sizes::new(&plan.mesh);
    let count = plan.slots.iter().max().map_or(0, |&slot| slot as usize + 1);
    let mut slots: Vec<Option<Slot>> = vec![None; count];
    // The slot that each node brings to life, and the staging of each node.
    let mut born: Vec<Option<SlotId>> = vec![None; plan.nodes.len()];
    let mut staging: Vec<Option<usize>> = vec![None; plan.nodes.len()];
    for id in plan.ids() {
        let (node, slot) = (plan.node(id), plan.slots[id.index()]);
        if slots[slot as usize].is_none() {
            let size = sizes.block(&node.ty, plan.layout(id));
            slots[slot as usize] = Some(Slot { size, role: node.leaf_role() });
            born[id.index()] = Some(slot).filter(|_| node.leaf_role().is_none());
        }
        if let (Op::Transition(transition), Some(&operand)) = (&node.op, node.operands.first()) {
            let column =
                sizes.staging(*transition, &node.ty, plan.layout(operand), plan.layout(id));
            staging[id.index()] = Some(column);
        }
    }
    let frees = super::frees(plan);
    let bytes =
        |slot: SlotId, rank: usize| slots[slot as usize].map_or(0, |s| sizes.on(s.size, rank));

    // The peak and its place on one rank.
    let run = |rank: usize| {
        let mut live = Stored::of(&slots, &sizes, rank).total();
        let mut most = (live, NodeId(0));
        for id in plan.ids() {
            live += born[id.index()].map_or(0, |slot| bytes(slot, rank));
            let now = live + staging[id.index()].map_or(0, |column| sizes.on(column, rank));
            if now > most.0 {
                most = (now, id);
            }
            live -= frees[id.index()].iter().map(|&slot| bytes(slot, rank)).sum::<u64>();
        }
        most
    };
    let (first, class_of) = sizes.classes();
    let peaks: Vec<(u64, NodeId)> = first.iter().map(|&rank| run(rank)).collect();
    let stored: Vec<Stored> = first.iter().map(|&rank| Stored::of(&slots, &sizes, rank)).collect();

    let (mut largest, mut rank) = (0, 0);
    for (class, &member) in first.iter().enumerate() {
        if peaks[class].0 > peaks[largest].0 {
            (largest, rank) = (class, member);
        }
    }
    let (bytes_at_peak, at) = peaks[largest];
    Peak {
        bytes: bytes_at_peak,
        rank,
        at,
        per_rank: class_of.iter().map(|&class| peaks[class].0).collect(),
        by_category: categories(plan, &slots, &sizes, &born, &frees, &staging, rank, at),
        stored: class_of.iter().map(|&class| stored[class]).collect(),
    }
}

/// What is live at a node on a rank.
#[allow(clippy::too_many_arguments)]
fn categories(
    plan: &Plan,
    slots: &[Option<Slot>],
    sizes: &Sizes<'_>,
    born: &[Option<SlotId>],
    frees: &[Vec<SlotId>],
    staging: &[Option<usize>],
    rank: usize,
    at: NodeId,
) -> Categories {
    let Stored { inputs, parameters, state } = Stored::of(slots, sizes, rank);
    let mut found = Categories { inputs, parameters, state, ..Categories::default() };
    let mut live: Vec<bool> = vec![false; slots.len()];
    let mut phase: Vec<Phase> = vec![Phase::Forward; slots.len()];
    for id in plan.ids().take_while(|&id| id <= at) {
        if let Some(slot) = born[id.index()] {
            live[slot as usize] = true;
        }
        phase[plan.slots[id.index()] as usize] = plan.node(id).phase;
        if id < at {
            for &slot in &frees[id.index()] {
                live[slot as usize] = false;
            }
        }
    }
    for (index, slot) in slots.iter().enumerate().filter(|(index, _)| live[*index]) {
        let bytes = slot.map_or(0, |s| sizes.on(s.size, rank));
        match phase[index] {
            Phase::Forward => found.activations += bytes,
            Phase::Backward | Phase::Update => found.gradients += bytes,
        }
    }
    found.staging =
        staging.get(at.index()).copied().flatten().map_or(0, |column| sizes.on(column, rank));
    found
}

impl Stored {
    fn of(slots: &[Option<Slot>], sizes: &Sizes<'_>, rank: usize) -> Self {
        let mut stored = Self::default();
        for slot in slots.iter().flatten() {
            let bytes = sizes.on(slot.size, rank);
            match slot.role {
                Some(Role::Input | Role::Scalar) => stored.inputs += bytes,
                Some(Role::Param) => stored.parameters += bytes,
                Some(Role::State) => stored.state += bytes,
                None => {}
            }
        }
        stored
    }

    /// All of them together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.inputs + self.parameters + self.state
    }
}
