//! Slots, executed symbolically: each holds the value that was last written to it, leaves are there from the start, and
//! freed slots hold nothing.
//!
//! Values are named by the node that computes them; aliases name the same value. The liveness that the executor follows
//! ([`crate::memory::frees`]) is executed along and thereby checked; where results may live is judged by this module's
//! own rules.

use std::ops::Range;

use shardgrad_core::ops::Role;
use shardgrad_core::{Op, TransitionKind};

use super::Subject;
use crate::memory;
use crate::node::{NodeId, OutputRole};
use crate::plan::SlotId;

/// What a slot holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    /// Nothing yet.
    Unused,
    /// The value that this node computed.
    Value(NodeId),
    /// Nothing any more.
    Freed,
}

struct Run<'s, 'a> {
    subject: &'s mut Subject<'a>,
    slots: Vec<Content>,
    /// The leaf that owns each slot.
    leaf_of: Vec<Option<NodeId>>,
    /// The launch in flight that uses each slot.
    in_flight: Vec<Option<NodeId>>,
    /// Steps that are launches in flight.
    flights: Vec<Range<usize>>,
    /// The node that computed the value of each node.
    value: Vec<NodeId>,
}

pub(super) fn check(subject: &mut Subject<'_>) {
    let plan = subject.plan;
    let count = plan.nodes.len();
    let mut run = Run {
        subject,
        slots: vec![Content::Unused; count],
        leaf_of: vec![None; count],
        in_flight: vec![None; count],
        flights: Vec::new(),
        value: Vec::with_capacity(count),
    };
    for id in plan.ids() {
        let node = plan.node(id);
        let value = if is_alias(&node.op) { run.value[node.operands[0].index()] } else { id };
        run.value.push(value);
        if node.leaf_role().is_some() {
            run.store_leaf(id);
        }
    }
    let frees = memory::frees(plan);
    for step in plan.steps() {
        // A bucket reads all its operands before it makes its first result.
        step.clone().map(NodeId::from_index).for_each(|id| run.read(id));
        step.clone().map(NodeId::from_index).for_each(|id| run.define(id));
        run.land(&step);
        run.start(&step);
        for id in step.map(NodeId::from_index) {
            for &slot in &frees[id.index()] {
                run.free(id, slot);
            }
        }
    }
    run.finish();
}

/// Whether the op names its operand's buffer anew.
fn is_alias(op: &Op) -> bool {
    op.is_alias() || matches!(op, Op::Transition(t) if t.kind == TransitionKind::Relabel)
}

/// Whether the op may read an operand and write the result in one buffer: element by element, or chunk by chunk.
fn works_in_place(op: &Op) -> bool {
    let in_place = [TransitionKind::AllReduce, TransitionKind::Mask];
    op.is_elementwise() || matches!(op, Op::Transition(t) if in_place.contains(&t.kind))
}

impl Run<'_, '_> {
    fn slot(&self, id: NodeId) -> usize {
        self.subject.plan.slots[id.index()] as usize
    }

    /// Slots that a node reads or writes.
    fn touched(&self, id: NodeId) -> Vec<usize> {
        let operands = &self.subject.plan.node(id).operands;
        operands.iter().chain([&id]).map(|&o| self.slot(o)).collect()
    }

    /// A launch that is not waited for at once keeps its slots.
    fn start(&mut self, step: &Range<usize>) {
        let last = NodeId::from_index(step.end - 1);
        if self.subject.plan.wait(last) > last {
            self.flights.push(step.clone());
            for id in step.clone().map(NodeId::from_index) {
                for slot in self.touched(id) {
                    self.in_flight[slot] = Some(last);
                }
            }
        }
    }

    /// Launches that are waited for behind a step.
    fn land(&mut self, step: &Range<usize>) {
        let plan = self.subject.plan;
        let lands = |flight: &Range<usize>| {
            step.contains(&plan.wait(NodeId::from_index(flight.end - 1)).index())
        };
        let landed: Vec<Range<usize>> = self.flights.iter().filter(|f| lands(f)).cloned().collect();
        self.flights.retain(|flight| !lands(flight));
        for id in landed.into_iter().flatten().map(NodeId::from_index) {
            for slot in self.touched(id) {
                self.in_flight[slot] = None;
            }
        }
    }

    /// Nobody touches what is in flight. A leaf is there from the start, and does nothing.
    fn keep_off(&mut self, id: NodeId) {
        if self.subject.plan.node(id).leaf_role().is_some() {
            return;
        }
        for slot in self.touched(id) {
            if let Some(last) = self.in_flight[slot] {
                let message = format!(
                    "{} touches slot {slot}, which {} uses until it is waited for behind {}; wait earlier",
                    self.subject.show(id),
                    self.subject.show(last),
                    self.subject.show(self.subject.plan.wait(last))
                );
                self.subject.violation("C075", Some(id), message);
            }
        }
    }

    fn store_leaf(&mut self, id: NodeId) {
        let slot = self.slot(id);
        if let Some(other) = self.leaf_of[slot] {
            let message = format!(
                "{} and {} are stored in slot {slot} both; a leaf has a slot of its own",
                self.subject.show(id),
                self.subject.show(other)
            );
            self.subject.violation("C052", Some(id), message);
        } else {
            self.leaf_of[slot] = Some(id);
            self.slots[slot] = Content::Value(id);
        }
    }

    fn read(&mut self, id: NodeId) {
        self.keep_off(id);
        let plan = self.subject.plan;
        for &operand in &plan.node(id).operands {
            let slot = self.slot(operand);
            if self.slots[slot] != Content::Value(self.value[operand.index()]) {
                let message = format!(
                    "{} reads {} from slot {slot}, which {}; give one of them another slot",
                    self.subject.show(id),
                    self.subject.show(operand),
                    self.describe(slot)
                );
                self.subject.violation("C050", Some(id), message);
            }
        }
    }

    fn define(&mut self, id: NodeId) {
        let plan = self.subject.plan;
        let node = plan.node(id);
        if node.leaf_role().is_some() {
            return;
        }
        let slot = self.slot(id);
        if is_alias(&node.op) {
            let operand = node.operands[0];
            if slot != self.slot(operand) {
                let message = format!(
                    "{} is in slot {slot}, but it is another name of {} in slot {}, and nothing copies it",
                    self.subject.show(id),
                    self.subject.show(operand),
                    self.slot(operand)
                );
                self.subject.violation("C051", Some(id), message);
            }
            return;
        }
        self.write(id, slot);
    }

    fn write(&mut self, id: NodeId, slot: usize) {
        let plan = self.subject.plan;
        let node = plan.node(id);
        if self.slots[slot] != Content::Unused {
            let shown = self.subject.show(id);
            let over = node.operands.iter().copied().find(|&o| self.slot(o) == slot);
            let in_place = over.filter(|_| works_in_place(&node.op));
            if let Some(leaf) = self.leaf_of[slot].filter(|&leaf| !self.updates(id, leaf)) {
                let message = format!(
                    "{shown} overwrites {} in slot {slot}; only its update may, give the result another slot",
                    self.subject.show(leaf)
                );
                self.subject.violation("C054", Some(id), message);
            }
            match in_place {
                None => {
                    let message = format!(
                        "{shown} is made in slot {slot}, which {}; it needs a slot of its own",
                        self.describe(slot)
                    );
                    self.subject.violation("C052", Some(id), message);
                }
                Some(operand) if !self.same_local_type(operand, id) => {
                    let message = format!(
                        "{shown} ({} {}) overwrites {} ({} {}) in slot {slot}, but their blocks differ",
                        node.ty,
                        self.subject.layout(id),
                        self.subject.show(operand),
                        plan.node(operand).ty,
                        self.subject.layout(operand)
                    );
                    self.subject.violation("C053", Some(id), message);
                }
                Some(_) => {}
            }
        }
        self.slots[slot] = Content::Value(id);
    }

    /// Whether a node computes the next value of a leaf.
    fn updates(&self, id: NodeId, leaf: NodeId) -> bool {
        let plan = self.subject.plan;
        matches!(plan.node(leaf).leaf_role(), Some(Role::Param | Role::State))
            && plan.outputs.iter().any(|output| {
                output.role == OutputRole::Update { of: leaf }
                    && self.value[output.node.index()] == id
            })
    }

    /// Whether two nodes have blocks of the same shape and element type on every rank.
    fn same_local_type(&self, a: NodeId, b: NodeId) -> bool {
        let plan = self.subject.plan;
        let real = |axis: &usize| plan.mesh.axis_size(*axis) > 1;
        let (ty, other) = (&plan.node(a).ty, &plan.node(b).ty);
        let (from, to) = (plan.layout(a), plan.layout(b));
        ty.dtype == other.dtype
            && ty.shape == other.shape
            && (0..ty.rank())
                .all(|d| from.axes_sharding(d).filter(real).eq(to.axes_sharding(d).filter(real)))
    }

    fn free(&mut self, id: NodeId, slot: SlotId) {
        let index = slot as usize;
        if matches!(self.slots[index], Content::Value(_)) {
            self.slots[index] = Content::Freed;
        } else {
            let message =
                format!("slot {slot} is freed after {id}, but it {}", self.describe(index));
            self.subject.violation("C056", Some(id), message);
        }
    }

    fn describe(&self, slot: usize) -> String {
        match self.slots[slot] {
            Content::Unused => "holds nothing yet".to_owned(),
            Content::Freed => "was used before and is freed".to_owned(),
            Content::Value(id) => format!("holds {}", self.subject.show(id)),
        }
    }

    fn finish(&mut self) {
        let plan = self.subject.plan;
        let mut kept: Vec<bool> = self.leaf_of.iter().map(Option::is_some).collect();
        for output in &plan.outputs {
            let slot = self.slot(output.node);
            kept[slot] = true;
            if self.slots[slot] != Content::Value(self.value[output.node.index()]) {
                let message = format!(
                    "output `{}` is {} in slot {slot}, but at the end the slot {}",
                    output.name,
                    self.subject.show(output.node),
                    self.describe(slot)
                );
                self.subject.violation("C055", Some(output.node), message);
            }
        }
        for (slot, kept) in kept.iter().enumerate() {
            if let (false, Content::Value(id)) = (kept, self.slots[slot]) {
                let message = format!(
                    "slot {slot} still holds {} at the end; it must be freed after its last use",
                    self.subject.show(id)
                );
                self.subject.violation("C056", Some(id), message);
            }
        }
    }
}
