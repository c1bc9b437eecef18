//! Small collectives of one kind over one group as one launch.
//!
//! Two passes over the plan, each linear in its nodes:
//!
//! * *Forward*, collectives wait for others: one whose result nobody has read yet may stand where the next of its kind does.
//!   Gradients gather so, the first ready waiting for the last, until one is read or the bucket is full.
//! * *Backward*, what is left of gathers goes ahead: one whose operand is there may stand where the gather before it does.
//!
//! A launch costs the latency of its rounds and the time of its bytes. A bucket is full when latency is a hundredth of
//! what it takes ([`Combine::Auto`]): a larger one could gain no more than that, and would keep its first member waiting.
//!
//! Delayed reductions and early gathers hold memory for longer, a bucket's messages are staged together. Where memory has a
//! limit, or is what counts, buckets get smaller by halves until the plan fits.
//!
//! No member reads another's result, since the reader of a result closes its bucket, and no two members have one operand.

use std::collections::BTreeMap;

use shardgrad_core::launch::{can_be_shared, difference, latency};
use shardgrad_core::{Layout, Machine, Mesh, TransitionKind};
use shardgrad_graph::plan::PlannedTransition;
use shardgrad_graph::{NodeId, Plan, memory};

use crate::options::{Combine, Objective, Options};
use crate::reorder::permuted;

/// Latency is at least this part of the time of a launch that may still grow.
const PART: f64 = 0.01;

/// The plan with its collectives combined as the options say.
#[must_use]
pub fn combined(plan: Plan, options: &Options) -> Plan {
    let most = match options.combine {
        Combine::Off => return plan,
        Combine::Auto => None,
        Combine::UpTo(bytes) => Some(bytes),
    };
    let budget = match (options.memory_limit, options.objective) {
        (_, Objective::Memory) => Some(memory::peak(&plan).bytes),
        (limit, Objective::Volume | Objective::Time) => limit,
    };
    for halvings in 0..u64::BITS {
        let full = |member: &PlannedTransition<'_>| {
            let bytes = most.unwrap_or_else(|| bytes_of_full(&options.machine, &plan.mesh, member));
            bytes >> halvings
        };
        let order = Passes::of(&plan, &full).order;
        if order.iter().all(|step| step.len() == 1) {
            return plan;
        }
        let found = reordered(&plan, &order);
        if budget.is_none_or(|budget| memory::peak(&found).bytes <= budget) {
            return found;
        }
    }
    plan
}

/// Bytes that a launch of this member's kind sends when latency is a small part of it.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn bytes_of_full(machine: &Machine, mesh: &Mesh, member: &PlannedTransition<'_>) -> u64 {
    let links = member.transition.axes.iter().map(|a| machine.link(&mesh.axes()[a].name));
    let bandwidth = links.map(|l| l.bandwidth).fold(f64::INFINITY, f64::min);
    (latency(machine, mesh, &[member.member()]) * bandwidth * (1.0 - PART) / PART) as u64
}

/// The plan in this order, with the buckets in it.
fn reordered(plan: &Plan, order: &[Vec<NodeId>]) -> Plan {
    let mut unbound = plan.clone();
    unbound.buckets.clear();
    let flat: Vec<NodeId> = order.iter().flatten().copied().collect();
    let mut moved = permuted(&unbound, &flat);
    let mut at = 0;
    for step in order {
        if step.len() > 1 {
            moved.buckets.push((at..at + step.len()).map(NodeId::from_index).collect());
        }
        at += step.len();
    }
    moved
}

/// A bucket.
struct Bucket {
    members: Vec<NodeId>,
    bytes: u64,
    /// Where it stands: its last member's place.
    place: usize,
}

struct Passes<'a> {
    plan: &'a Plan,
    /// Bytes of a full bucket.
    full: &'a dyn Fn(&PlannedTransition<'_>) -> u64,
    /// What runs after what; buckets have several nodes.
    order: Vec<Vec<NodeId>>,
    buckets: Vec<Bucket>,
    /// Those that may grow.
    open: Vec<usize>,
    /// By node: the buckets that nothing may join any more once the pass has come to it.
    closes: Vec<Vec<usize>>,
    /// Names of one buffer stand for its first.
    root: Vec<NodeId>,
}

impl<'a> Passes<'a> {
    fn of(plan: &'a Plan, full: &'a dyn Fn(&PlannedTransition<'_>) -> u64) -> Self {
        let mut root: Vec<NodeId> = Vec::with_capacity(plan.nodes.len());
        for id in plan.ids() {
            let node = plan.node(id);
            let source = node.operands.first().filter(|_| memory::is_alias(&node.op));
            root.push(source.map_or(id, |o| root[o.index()]));
        }
        let mut passes = Self {
            plan,
            full,
            order: plan.ids().map(|id| vec![id]).collect(),
            buckets: Vec::new(),
            open: Vec::new(),
            closes: vec![Vec::new(); plan.nodes.len()],
            root,
        };
        passes.wait_for_others();
        passes.forget();
        passes.go_ahead();
        passes.order.retain(|step| !step.is_empty());
        passes
    }

    fn forget(&mut self) {
        self.buckets.clear();
        self.open.clear();
        self.closes.iter_mut().for_each(Vec::clear);
    }

    fn close(&mut self, at: NodeId) {
        let closed = &self.closes[at.index()];
        self.open.retain(|bucket| !closed.contains(bucket));
    }

    /// The collective that a step of one node is, if it can share its launch.
    fn shared(&self, step: &[NodeId]) -> Option<PlannedTransition<'a>> {
        let [only] = step else { return None };
        self.plan.transition(*only).filter(|t| can_be_shared(t.transition.kind))
    }

    fn wait_for_others(&mut self) {
        let plan = self.plan;
        for at in 0..self.order.len() {
            let step = self.order[at].clone();
            let read = step.iter().flat_map(|id| &plan.node(*id).operands);
            read.for_each(|&operand| self.close(operand));
            if let Some(found) = self.shared(&step)
                && let Some(bucket) = self.add(&found, at, false)
            {
                self.closes[found.id.index()].push(bucket);
            }
        }
    }

    fn go_ahead(&mut self) {
        // A copy that is made again was given up in between.
        let mut made: BTreeMap<(NodeId, &Layout), usize> = BTreeMap::new();
        let source = |t: &PlannedTransition<'_>| self.plan.node(t.id).operands[0];
        for t in self.plan.transitions() {
            *made.entry((source(&t), t.to)).or_default() += 1;
        }
        for at in (0..self.order.len()).rev() {
            let step = self.order[at].clone();
            step.iter().for_each(|&id| self.close(id));
            if let Some(found) = self.shared(&step)
                && found.transition.kind == TransitionKind::AllGather
            {
                let operand = self.plan.node(found.id).operands[0];
                if made.get(&(operand, found.to)) == Some(&1)
                    && let Some(bucket) = self.add(&found, at, true)
                {
                    self.closes[operand.index()].push(bucket);
                }
            }
        }
    }

    /// Puts a collective into the bucket of its kind, or into a new one; which.
    fn add(&mut self, found: &PlannedTransition<'_>, at: usize, ahead: bool) -> Option<usize> {
        let (plan, member) = (self.plan, found.member());
        let (sent, full) = (found.bytes_sent(&plan.mesh), (self.full)(found));
        if sent > full {
            return None;
        }
        let operand = |id: NodeId| plan.node(id).operands.first().map(|o| self.root[o.index()]);
        let same = self.open.iter().copied().find(|&index| {
            let first = self.buckets[index].members.first().and_then(|&id| plan.transition(id));
            first.is_some_and(|first| difference(&plan.mesh, first.member(), member).is_none())
        });
        let fits = same.filter(|&index| {
            let bucket = &self.buckets[index];
            bucket.bytes + sent <= full
                && bucket.members.iter().all(|&m| operand(m) != operand(found.id))
        });
        let Some(index) = fits else {
            self.open.retain(|bucket| Some(*bucket) != same);
            self.open.push(self.buckets.len());
            self.buckets.push(Bucket { members: vec![found.id], bytes: sent, place: at });
            return Some(self.buckets.len() - 1);
        };
        let bucket = &mut self.buckets[index];
        bucket.bytes += sent;
        bucket.members.push(found.id);
        let mut step = std::mem::take(&mut self.order[bucket.place]);
        bucket.place = at;
        step.insert(if ahead { 0 } else { step.len() }, found.id);
        self.order[at] = step;
        Some(index)
    }
}
