//! Collectives beside computing: they start as early as their operands are there, and are waited for as late as possible.
//!
//! * *Starts*: a gather that stands before the node which reads it moves up, over nodes that do not touch its operands' slots
//!   and over launches on other axes. Reductions stand behind their operands already.
//! * *Waits*: a launch is waited for right before the first node that touches a slot of its operands or results.
//!
//! What is in flight keeps its buffers and its messages. A start moves up, and a wait down, as long as no node in between
//! holds more than it may: the memory limit, or where there is none what the plan's peak is without any overlap. So overlap
//! never raises the peak of its own accord. Loads are the largest over ranks, node by node, and what is added is that of the
//! largest rank, so that the sum is a bound; the peak of the result is counted all the same.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use shardgrad_core::timing::largest_bytes;
use shardgrad_core::{Layout, TransitionKind};
use shardgrad_graph::plan::PlannedTransition;
use shardgrad_graph::{NodeId, Plan, SlotId, memory};

use crate::options::{Objective, Options};
use crate::reorder::permuted;

/// The plan with starts as early and waits as late as memory allows.
#[must_use]
pub fn overlapped(plan: Plan, options: &Options) -> Plan {
    let own = memory::peak(&plan).bytes;
    let most = match (options.memory_limit, options.objective) {
        (Some(limit), Objective::Volume | Objective::Time) => limit.max(own),
        (None, _) | (_, Objective::Memory) => own,
    };
    let fits = |plan: &Plan| memory::peak(plan).bytes <= most;
    let early = Some(started_early(&plan, most)).filter(&fits);
    let plan = early.unwrap_or(plan);
    Some(waited_late(&plan, most)).filter(&fits).unwrap_or(plan)
}

/// A step of the plan.
struct Step<'a> {
    ids: Vec<NodeId>,
    /// The collectives, if it is a launch.
    launch: Vec<PlannedTransition<'a>>,
    /// Slots that it reads or writes.
    slots: BTreeSet<SlotId>,
    /// The most that a rank holds while it runs.
    load: u64,
    /// Whether it takes time: a device computes, or links carry something.
    works: bool,
}

impl Step<'_> {
    fn last(&self) -> NodeId {
        self.ids[self.ids.len() - 1]
    }
}

fn steps<'a>(plan: &'a Plan, loads: &[u64]) -> Vec<Step<'a>> {
    let slot = |id: &NodeId| plan.slots[id.index()];
    let step = |range: Range<usize>| {
        let ids: Vec<NodeId> = range.clone().map(NodeId::from_index).collect();
        let moves = ids.iter().filter_map(|&id| plan.transition(id));
        let launch: Vec<_> = moves.filter(|t| t.transition.kind.is_collective()).collect();
        let read = ids.iter().flat_map(|&id| &plan.node(id).operands);
        let works = |id: &NodeId| {
            let node = plan.node(*id);
            node.leaf_role().is_none() && !memory::is_alias(&node.op)
        };
        Step {
            slots: read.chain(&ids).map(slot).collect(),
            load: loads[range].iter().copied().max().unwrap_or(0),
            works: ids.iter().any(works),
            launch,
            ids,
        }
    };
    plan.steps().map(step).collect()
}

/// Gathers moved up.
fn started_early(plan: &Plan, most: u64) -> Plan {
    let mut steps = steps(plan, &memory::loads(plan));
    let staging = memory::staging(plan);
    // A copy that is made again was given up in between.
    let mut made: BTreeMap<(NodeId, &Layout), usize> = BTreeMap::new();
    let source = |t: &PlannedTransition<'_>| plan.node(t.id).operands[0];
    plan.transitions().for_each(|t| *made.entry((source(&t), t.to)).or_default() += 1);
    for at in 0..steps.len() {
        let step = &steps[at];
        if step.launch.iter().any(|t| made.get(&(source(t), t.to)) != Some(&1)) {
            continue;
        }
        let gathers = |t: &PlannedTransition<'_>| t.transition.kind == TransitionKind::AllGather;
        let Some(first) = step.launch.first().filter(|t| gathers(t)) else { continue };
        let axes = first.transition.axes;
        let read = step.launch.iter().flat_map(|t| &plan.node(t.id).operands);
        let operands: BTreeSet<SlotId> = read.map(|o| plan.slots[o.index()]).collect();
        let made = step.launch.iter().map(|t| largest_bytes(&plan.mesh, t.ty, t.to));
        let extra = made.sum::<u64>() + staging[step.last().index()];
        let passes = |other: &Step<'_>| {
            let carried = other.launch.first().map(|t| t.transition.axes);
            other.slots.is_disjoint(&operands)
                && carried.is_none_or(|theirs| !theirs.iter().any(|axis| axes.contains(axis)))
                && other.load + extra <= most
        };
        let mut place = at;
        while place > 0 && passes(&steps[place - 1]) {
            place -= 1;
        }
        if steps[place..at].iter().any(|step| step.works) {
            steps[place..at].iter_mut().for_each(|step| step.load += extra);
            steps[place..=at].rotate_right(1);
            steps[place].load = steps[place + 1].load;
        }
    }
    let order: Vec<NodeId> = steps.into_iter().flat_map(|step| step.ids).collect();
    permuted(plan, &order)
}

/// Launches waited for late.
fn waited_late(plan: &Plan, most: u64) -> Plan {
    let mut steps = steps(plan, &memory::loads(plan));
    let (staging, frees) = (memory::staging(plan), memory::frees(plan));
    // The next step that touches each slot, seen from the end.
    let mut next: BTreeMap<SlotId, usize> = BTreeMap::new();
    let mut until = vec![0; steps.len()];
    for (at, step) in steps.iter().enumerate().rev() {
        let touched = step.slots.iter().filter_map(|slot| next.get(slot));
        until[at] = touched.min().copied().unwrap_or(steps.len());
        next.extend(step.slots.iter().map(|&slot| (slot, at)));
    }
    let mut waits = BTreeMap::new();
    for at in 0..steps.len() {
        let last = steps[at].last();
        if steps[at].launch.is_empty() {
            continue;
        }
        // What would be gone by then.
        let gone = |id: NodeId| frees[last.index()].contains(&plan.slots[id.index()]);
        let extra = staging[last.index()]
            + steps[at]
                .launch
                .iter()
                .map(|t| {
                    let operand = plan.node(t.id).operands[0];
                    let own = if gone(t.id) { largest_bytes(&plan.mesh, t.ty, t.to) } else { 0 };
                    own + if gone(operand) { largest_bytes(&plan.mesh, t.ty, t.from) } else { 0 }
                })
                .sum::<u64>();
        let beside = steps[at + 1..until[at]].iter();
        let far = at + beside.take_while(|step| step.load + extra <= most).count();
        // Nothing is gained beside what takes no time.
        let Some(end) = (at + 1..=far).rev().find(|&step| steps[step].works) else { continue };
        steps[at + 1..=end].iter_mut().for_each(|step| step.load += extra);
        waits.insert(last.0, steps[end].last());
    }
    Plan { waits, ..plan.clone() }
}
