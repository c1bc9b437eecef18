//! The peak: the largest sum of live bytes over nodes and ranks.
//!
//! While node i runs, its operands' slots, its own slot and all slots still to be read are live, and the staging of its
//! collective with them. At the last node of a bucket the operands and results of all its members are.
//! A launch that is in flight keeps them and its staging until it is waited for.

use serde::{Deserialize, Serialize};
use shardgrad_core::launch::Member;
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
    /// The category of results of a phase.
    fn results_of(&mut self, phase: Phase) -> &mut u64 {
        match phase {
            Phase::Forward => &mut self.activations,
            Phase::Backward | Phase::Update => &mut self.gradients,
        }
    }

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
    /// The role of the leaf that lives in it from the start.
    role: Option<Role>,
}

/// What happens to memory at each node.
struct Timeline<'a> {
    plan: &'a Plan,
    sizes: Sizes<'a>,
    /// By number; `None` if no node lives there.
    slots: Vec<Option<Slot>>,
    /// The slot that each node brings to life.
    born: Vec<Option<SlotId>>,
    /// Column of each node's staging.
    staging: Vec<Option<usize>>,
    /// The slots that die after each node.
    frees: Vec<Vec<SlotId>>,
    /// Launches that are waited for behind each node, other than at once.
    lands: Vec<Vec<NodeId>>,
}

impl<'a> Timeline<'a> {
    fn of(plan: &'a Plan) -> Self {
        let mut sizes = Sizes::new(&plan.mesh);
        let count = plan.slots.iter().max().map_or(0, |&slot| slot as usize + 1);
        let mut slots: Vec<Option<Slot>> = vec![None; count];
        let mut born: Vec<Option<SlotId>> = vec![None; plan.nodes.len()];
        let mut staging: Vec<Option<usize>> = vec![None; plan.nodes.len()];
        for id in plan.ids() {
            let (node, slot) = (plan.node(id), plan.slots[id.index()]);
            if slots[slot as usize].is_none() {
                let size = sizes.block(&node.ty, plan.layout(id));
                slots[slot as usize] = Some(Slot { size, role: node.leaf_role() });
                born[id.index()] = Some(slot).filter(|_| node.leaf_role().is_none());
            }
        }
        // A bucket's messages are there when the last of its results is.
        for step in plan.steps() {
            let end = step.end - 1;
            let moves: Vec<Member<'_>> = step
                .map(NodeId::from_index)
                .filter_map(|id| plan.transition(id))
                .map(|moved| moved.member())
                .collect();
            staging[end] = match moves.as_slice() {
                [] => None,
                [only] => Some(sizes.staging(only.transition, only.ty, only.from, only.to)),
                members => Some(sizes.bucket(members)),
            };
        }
        let mut lands: Vec<Vec<NodeId>> = vec![Vec::new(); plan.nodes.len()];
        for last in plan.waits.keys().copied().map(NodeId) {
            if plan.wait(last) > last {
                lands[plan.wait(last).index()].push(last);
            }
        }
        Self { plan, sizes, slots, born, staging, frees: super::frees(plan), lands }
    }

    fn bytes(&self, slot: SlotId, rank: usize) -> u64 {
        self.slots[slot as usize].map_or(0, |s| self.sizes.on(s.size, rank))
    }

    fn staging(&self, id: NodeId, rank: usize) -> u64 {
        let column = self.staging.get(id.index()).copied().flatten();
        column.map_or(0, |column| self.sizes.on(column, rank))
    }

    /// Bytes of messages of launches that are in flight behind a node.
    fn flying(&self, id: NodeId, rank: usize, before: u64) -> u64 {
        let landed: u64 = self.lands[id.index()].iter().map(|&l| self.staging(l, rank)).sum();
        let starts = self.plan.wait(id) > id;
        before + if starts { self.staging(id, rank) } else { 0 } - landed
    }

    fn stored(&self, rank: usize) -> Stored {
        let mut stored = Stored::default();
        for slot in self.slots.iter().flatten() {
            let bytes = self.sizes.on(slot.size, rank);
            match slot.role {
                Some(Role::Input | Role::Scalar) => stored.inputs += bytes,
                Some(Role::Param) => stored.parameters += bytes,
                Some(Role::State) => stored.state += bytes,
                None => {}
            }
        }
        stored
    }

    /// What is live on a rank while each node runs, in bytes.
    fn walk(&self, rank: usize, mut each: impl FnMut(NodeId, u64)) {
        let mut live = self.stored(rank).total();
        let mut flying = 0;
        for id in self.plan.ids() {
            live += self.born[id.index()].map_or(0, |slot| self.bytes(slot, rank));
            each(id, live + flying + self.staging(id, rank));
            flying = self.flying(id, rank, flying);
            live -= self.frees[id.index()].iter().map(|&slot| self.bytes(slot, rank)).sum::<u64>();
        }
    }

    /// The peak of one rank, and the first node at which it is reached.
    fn run(&self, rank: usize) -> (u64, NodeId) {
        let mut most = (self.stored(rank).total(), NodeId(0));
        self.walk(rank, |id, now| {
            if now > most.0 {
                most = (now, id);
            }
        });
        most
    }

    /// What is live on a rank while each node runs.
    fn profile(&self, rank: usize) -> Vec<Categories> {
        let Stored { inputs, parameters, state } = self.stored(rank);
        let mut held = Categories { inputs, parameters, state, ..Categories::default() };
        // The phase of the value in each live slot that is no leaf's.
        let mut phases: Vec<Option<Phase>> = vec![None; self.slots.len()];
        let mut flying = 0;
        let nodes = self.plan.ids().map(|id| {
            let slot = self.plan.slots[id.index()];
            if self.slots[slot as usize].is_some_and(|s| s.role.is_none()) {
                let (bytes, phase) = (self.bytes(slot, rank), self.plan.node(id).phase);
                if let Some(old) = phases[slot as usize].replace(phase) {
                    *held.results_of(old) -= bytes;
                }
                *held.results_of(phase) += bytes;
            }
            let staging = flying + self.staging(id, rank);
            flying = self.flying(id, rank, flying);
            let now = Categories { staging, ..held };
            for &slot in &self.frees[id.index()] {
                if let Some(old) = phases[slot as usize].take() {
                    *held.results_of(old) -= self.bytes(slot, rank);
                }
            }
            now
        });
        nodes.collect()
    }
}

/// What a rank of a plan whose slots are assigned holds while each node runs. Its largest total is the rank's peak.
///
/// # Panics
/// The rank is not on the mesh.
#[must_use]
pub fn profile(plan: &Plan, rank: usize) -> Vec<Categories> {
    Timeline::of(plan).profile(rank)
}

/// What ranks hold node by node, the most of any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loads {
    /// Bytes that are live while each node runs.
    pub live: Vec<u64>,
    /// Bytes of messages of each launch, at its last node; 0 elsewhere.
    pub staging: Vec<u64>,
}

/// The most that any rank of a plan whose slots are assigned holds while each node runs.
#[must_use]
pub fn loads(plan: &Plan) -> Loads {
    let timeline = Timeline::of(plan);
    let (mut live, mut staging) = (vec![0; plan.nodes.len()], vec![0; plan.nodes.len()]);
    for rank in timeline.sizes.classes().0 {
        timeline.walk(rank, |id, now| {
            let at = id.index();
            live[at] = now.max(live[at]);
            staging[at] = timeline.staging(id, rank).max(staging[at]);
        });
    }
    Loads { live, staging }
}

/// The peak of a plan whose slots are assigned.
#[must_use]
pub fn peak(plan: &Plan) -> Peak {
    let timeline = Timeline::of(plan);
    let (first, class_of) = timeline.sizes.classes();
    let peaks: Vec<(u64, NodeId)> = first.iter().map(|&rank| timeline.run(rank)).collect();
    let stored: Vec<Stored> = first.iter().map(|&rank| timeline.stored(rank)).collect();
    let largest = (0..peaks.len())
        .fold(0, |best, class| if peaks[class].0 > peaks[best].0 { class } else { best });
    let ((bytes, at), rank) = (peaks[largest], first[largest]);
    Peak {
        bytes,
        rank,
        at,
        per_rank: class_of.iter().map(|&class| peaks[class].0).collect(),
        by_category: timeline.profile(rank).get(at.index()).copied().unwrap_or_default(),
        stored: class_of.iter().map(|&class| stored[class]).collect(),
    }
}

impl Stored {
    /// All of them together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.inputs + self.parameters + self.state
    }
}
