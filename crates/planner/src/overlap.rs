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

use std::collections::BTreeMap;
use std::ops::Range;

use shardgrad_core::timing::largest_bytes;
use shardgrad_core::{AxisSet, Layout, TransitionKind};
use shardgrad_graph::memory::{self, Loads};
use shardgrad_graph::plan::PlannedTransition;
use shardgrad_graph::{NodeId, Plan, SlotId};
use smallvec::SmallVec;

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
    nodes: Range<usize>,
    /// The collectives, if it is a launch, and the axes that it uses.
    launch: SmallVec<[PlannedTransition<'a>; 1]>,
    axes: AxisSet,
    /// Slots that it reads or writes.
    slots: SmallVec<[SlotId; 4]>,
    /// Whether it takes time: a device computes, or links carry something.
    works: bool,
}

impl Step<'_> {
    fn last(&self) -> NodeId {
        NodeId::from_index(self.nodes.end - 1)
    }
}

fn steps(plan: &Plan) -> Vec<Step<'_>> {
    let step = |nodes: Range<usize>| {
        let ids = nodes.clone().map(NodeId::from_index);
        let moves = ids.clone().filter_map(|id| plan.transition(id));
        let launch: SmallVec<[_; 1]> =
            moves.filter(|t| t.transition.kind.is_collective()).collect();
        let touched = ids.clone().flat_map(|id| plan.node(id).operands.iter().copied().chain([id]));
        let works = |id: NodeId| {
            let node = plan.node(id);
            node.leaf_role().is_none() && !memory::is_alias(&node.op)
        };
        Step {
            slots: touched.map(|id| plan.slots[id.index()]).collect(),
            works: ids.clone().any(works),
            axes: launch.first().map_or(AxisSet::default(), |t| t.transition.axes),
            launch,
            nodes,
        }
    };
    plan.steps().map(step).collect()
}

/// By step, the most that a rank holds while it runs.
fn loads_of(steps: &[Step<'_>], loads: &[u64]) -> Vec<u64> {
    let most = |step: &Step<'_>| loads[step.nodes.clone()].iter().copied().max().unwrap_or(0);
    steps.iter().map(most).collect()
}

/// Gathers moved up.
fn started_early(plan: &Plan, most: u64) -> Plan {
    let steps = steps(plan);
    let Loads { live, staging } = memory::loads(plan);
    // By place: the step that stands there, and what a rank holds meanwhile.
    let mut order: Vec<usize> = (0..steps.len()).collect();
    let mut loads = loads_of(&steps, &live);
    // A copy that is made again was given up in between.
    let mut made: BTreeMap<(NodeId, &Layout), usize> = BTreeMap::new();
    let source = |t: &PlannedTransition<'_>| plan.node(t.id).operands[0];
    plan.transitions().for_each(|t| *made.entry((source(&t), t.to)).or_default() += 1);
    for (at, step) in steps.iter().enumerate() {
        let gathers = |t: &PlannedTransition<'_>| t.transition.kind == TransitionKind::AllGather;
        let again = |t: &PlannedTransition<'_>| made.get(&(source(t), t.to)) != Some(&1);
        if !step.launch.first().is_some_and(gathers) || step.launch.iter().any(again) {
            continue;
        }
        let read = step.launch.iter().flat_map(|t| &plan.node(t.id).operands);
        let operands: SmallVec<[SlotId; 4]> = read.map(|o| plan.slots[o.index()]).collect();
        let made = step.launch.iter().map(|t| largest_bytes(&plan.mesh, t.ty, t.to));
        let extra = made.sum::<u64>() + staging[step.last().index()];
        let passes = |other: &Step<'_>| {
            !other.axes.meets(step.axes) && !other.slots.iter().any(|slot| operands.contains(slot))
        };
        let mut place = at;
        while place > 0 && loads[place - 1] + extra <= most && passes(&steps[order[place - 1]]) {
            place -= 1;
        }
        if order[place..at].iter().any(|&step| steps[step].works) {
            loads[place..at].iter_mut().for_each(|load| *load += extra);
            order[place..=at].rotate_right(1);
            loads[place..=at].rotate_right(1);
            loads[place] = loads[place + 1];
        }
    }
    let order: Vec<NodeId> = order
        .into_iter()
        .flat_map(|step| steps[step].nodes.clone())
        .map(NodeId::from_index)
        .collect();
    permuted(plan, &order)
}

/// Launches waited for late.
fn waited_late(plan: &Plan, most: u64) -> Plan {
    let steps = steps(plan);
    let Loads { live, staging } = memory::loads(plan);
    let mut loads = loads_of(&steps, &live);
    let frees = memory::frees(plan);
    // The next step that touches each slot, seen from the end.
    let mut next: BTreeMap<SlotId, usize> = BTreeMap::new();
    let mut until = vec![0; steps.len()];
    for (at, step) in steps.iter().enumerate().rev() {
        let touched = step.slots.iter().filter_map(|slot| next.get(slot));
        until[at] = touched.min().copied().unwrap_or(steps.len());
        next.extend(step.slots.iter().map(|&slot| (slot, at)));
    }
    let mut waits = BTreeMap::new();
    for (at, step) in steps.iter().enumerate() {
        let last = step.last();
        if step.launch.is_empty() {
            continue;
        }
        // What would be gone by then.
        let gone = |id: NodeId| frees[last.index()].contains(&plan.slots[id.index()]);
        let extra = staging[last.index()]
            + step
                .launch
                .iter()
                .map(|t| {
                    let operand = plan.node(t.id).operands[0];
                    let own = if gone(t.id) { largest_bytes(&plan.mesh, t.ty, t.to) } else { 0 };
                    own + if gone(operand) { largest_bytes(&plan.mesh, t.ty, t.from) } else { 0 }
                })
                .sum::<u64>();
        let beside = loads[at + 1..until[at]].iter();
        let far = at + beside.take_while(|load| **load + extra <= most).count();
        // Nothing is gained beside what takes no time.
        let Some(end) = (at + 1..=far).rev().find(|&step| steps[step].works) else { continue };
        loads[at + 1..=end].iter_mut().for_each(|load| *load += extra);
        waits.insert(last.0, steps[end].last());
    }
    Plan { waits, ..plan.clone() }
}

#[cfg(test)]
mod tests {
    use shardgrad_core::Op;
    use shardgrad_graph::{Activation, LayerSpec, Loss, MlpSpec};

    use super::*;
    use crate::options::Combine;

    /// A weight is gathered beside the product before, behind the gather before, which uses the same links.
    #[test]
    fn gathers_start_as_early_as_links_and_memory_allow() {
        let layer =
            |_| LayerSpec { inputs: 8, outputs: 8, bias: false, activation: Activation::Tanh };
        let spec = MlpSpec {
            layers: (0..3).map(layer).collect(),
            loss: Loss::Mse,
            ..MlpSpec::new("mlp", 32)
        };
        let program = spec.training_program().unwrap();
        let options = Options { blocking: true, combine: Combine::Off, ..Options::default() };
        let request = "fsdp".parse().unwrap();
        let blocking = crate::plan(&program, &"dp=2".parse().unwrap(), &request, &options);
        let blocking = blocking.unwrap().plan;
        let place = |plan: &Plan, of: &dyn Fn(NodeId) -> bool| plan.ids().position(of).unwrap();
        let gather = |plan: &Plan, weight: &str| {
            let of_it =
                |id: NodeId| plan.node(plan.node(id).operands[0]).leaf_name() == Some(weight);
            let gathers = TransitionKind::AllGather;
            place(plan, &|id| {
                plan.transition(id).is_some_and(|t| t.transition.kind == gathers) && of_it(id)
            })
        };
        let product = |plan: &Plan| place(plan, &|id| matches!(plan.node(id).op, Op::Einsum(_)));
        assert!(gather(&blocking, "w0") < product(&blocking));
        assert!(product(&blocking) < gather(&blocking, "w1"));
        let early = overlapped(blocking.clone(), &options);
        assert!(gather(&early, "w0") < gather(&early, "w1"), "{early}");
        assert!(gather(&early, "w1") < product(&early), "{early}");
        // It is waited for where it is read, beside the product.
        let wait = early.wait(NodeId::from_index(gather(&early, "w1")));
        assert!(wait.index() >= product(&early), "{early}");
        assert!(memory::peak(&early).bytes <= memory::peak(&blocking).bytes);
    }
}
