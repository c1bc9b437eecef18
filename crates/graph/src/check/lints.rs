//! What is right but wasteful.

use std::collections::BTreeMap;

use shardgrad_core::{Layout, Op};

use super::Subject;
use crate::node::NodeId;

pub(super) fn check(subject: &mut Subject<'_>) {
    round_trips(subject);
    unused(subject);
    repeated(subject);
}

/// A chain of transitions that comes back to a layout it started from or passed through, unless a pin on the way led it
/// off.
fn round_trips(subject: &mut Subject<'_>) {
    let plan = subject.plan;
    for transition in plan.transitions() {
        let mut seen = plan.node(transition.id).operands[0];
        loop {
            if plan.layout(seen) == transition.to {
                let value = subject.origin(transition.id);
                if led_off_by_pin(subject, value, plan.node(transition.id).operands[0], seen) {
                    break;
                }
                let message = format!(
                    "{} leads back to {}, which {} has already; read that",
                    subject.show(transition.id),
                    subject.layout(seen),
                    subject.show(seen)
                );
                subject.lint("L001", transition.id, message);
                break;
            }
            match (&plan.node(seen).op, plan.node(seen).operands.first()) {
                (Op::Transition(_), Some(&operand)) => seen = operand,
                _ => break,
            }
        }
    }
}

/// Whether a node between two ends of a chain has a layout that a pin of the value asks for and the chain's start has not.
fn led_off_by_pin(subject: &Subject<'_>, value: NodeId, last: NodeId, start: NodeId) -> bool {
    let plan = subject.plan;
    let mut pins = plan.pins.iter().chain(&subject.program.pins);
    pins.any(|(name, spec)| {
        let pinned = subject
            .program
            .named(name)
            .or_else(|| subject.program.outputs.iter().find(|o| o.name == *name).map(|o| o.node));
        if pinned != Some(value) || spec.matches(plan.layout(start), &plan.mesh) {
            return false;
        }
        let mut at = last;
        while at != start {
            if spec.matches(plan.layout(at), &plan.mesh) {
                return true;
            }
            match plan.node(at).operands.first() {
                Some(&operand) => at = operand,
                None => return false,
            }
        }
        false
    })
}

fn unused(subject: &mut Subject<'_>) {
    let plan = subject.plan;
    let mut needed = vec![false; plan.nodes.len()];
    for output in &plan.outputs {
        needed[output.node.index()] = true;
    }
    for id in plan.ids().rev().filter(|&id| plan.node(id).leaf_role().is_none()) {
        if needed[id.index()] {
            for operand in &plan.node(id).operands {
                needed[operand.index()] = true;
            }
        }
    }
    for id in plan.ids().filter(|id| !needed[id.index()]) {
        let shown = subject.show(id);
        match &plan.node(id).op {
            Op::Leaf(_) => {}
            Op::Transition(t) if t.kind.is_collective() => {
                let message = format!("{shown} communicates, but no output needs it; drop it");
                subject.lint("L003", id, message);
            }
            _ => subject.lint("L002", id, format!("no output needs {shown}; drop it")),
        }
    }
}

fn repeated(subject: &mut Subject<'_>) {
    let plan = subject.plan;
    let mut made: BTreeMap<(NodeId, &Layout), NodeId> = BTreeMap::new();
    let mut last_read: Vec<Option<NodeId>> = vec![None; plan.nodes.len()];
    for id in plan.ids() {
        for operand in &plan.node(id).operands {
            last_read[operand.index()] = Some(id);
        }
    }
    for output in &plan.outputs {
        last_read[output.node.index()] = Some(NodeId(u32::MAX));
    }
    for transition in plan.transitions() {
        let operand = plan.node(transition.id).operands[0];
        // A copy that nobody reads any more was given up to save memory; to make it again is no waste.
        let held =
            |first: NodeId| last_read[first.index()].is_some_and(|last| last > transition.id);
        if let Some(first) = made.get(&(operand, transition.to)).copied().filter(|&f| held(f)) {
            let message = format!(
                "{} makes again what {} made; read that",
                subject.show(transition.id),
                subject.show(first)
            );
            subject.lint("L004", transition.id, message);
        } else {
            made.insert((operand, transition.to), transition.id);
        }
    }
}
