//! Launches. Collectives of a bucket are of one kind over one group, none needs another's result, and no two of them use one
//! slot. Waits are for launches, and stand behind them, where a step ends. The order of starts and waits is that of the
//! nodes, the same on all ranks; what happens in between is for `schedule`.

use std::collections::{BTreeMap, BTreeSet};

use shardgrad_core::launch::{can_be_shared, difference};

use super::Subject;
use crate::node::NodeId;

pub(super) fn check(subject: &mut Subject<'_>) {
    let plan = subject.plan;
    let mut named: BTreeMap<NodeId, usize> = BTreeMap::new();
    for (index, bucket) in plan.buckets.iter().enumerate() {
        if bucket.len() < 2 {
            let message = format!(
                "bucket {index} has {} members; a launch that nothing shares needs no bucket",
                bucket.len()
            );
            subject.violation("C070", bucket.first().copied(), message);
        }
        for &id in bucket {
            if let Some(other) = named.insert(id, index) {
                let message = format!(
                    "{} is in bucket {other} and again in bucket {index}; it runs once",
                    subject.show(id)
                );
                subject.violation("C070", Some(id), message);
            }
        }
        if let Some(w) = bucket.windows(2).find(|w| w[0].index() + 1 != w[1].index()) {
            let message = format!(
                "in bucket {index} {} is followed by {}; members follow each other in the plan",
                subject.show(w[0]),
                subject.show(w[1])
            );
            subject.violation("C070", Some(w[1]), message);
        }
        members(subject, index, bucket);
        slots(subject, index, bucket);
    }
    waits(subject);
}

/// Each wait is for a launch that was started, at a place where ranks can wait.
fn waits(subject: &mut Subject<'_>) {
    let plan = subject.plan;
    let ends: BTreeSet<usize> = plan.steps().map(|step| step.end - 1).collect();
    for (&start, &wait) in &plan.waits {
        let start = NodeId(start);
        let launch = plan.transition(start).is_some_and(|t| t.transition.kind.is_collective());
        let problem = if !launch || !ends.contains(&start.index()) {
            "which ends no launch; only collectives are waited for"
        } else if wait <= start {
            "which does not stand behind its start"
        } else if !ends.contains(&wait.index()) {
            "inside of a bucket, which runs as one"
        } else {
            continue;
        };
        let message = format!(
            "the wait for {} is behind {}, {problem}",
            subject.show(start),
            subject.show(wait)
        );
        subject.violation("C074", Some(start), message);
    }
}

/// All can share a launch, and they share it with each other.
fn members(subject: &mut Subject<'_>, index: usize, bucket: &[NodeId]) {
    let plan = subject.plan;
    let mut first = None;
    for &id in bucket {
        let shared = plan.transition(id).filter(|t| can_be_shared(t.transition.kind));
        let Some(transition) = shared else {
            let message = format!(
                "{} is in bucket {index}; all_gather, reduce_scatter, all_reduce and all_to_all can share a launch",
                subject.show(id)
            );
            subject.violation("C071", Some(id), message);
            continue;
        };
        let (head, member) = *first.get_or_insert((id, transition.member()));
        if let Some(what) = difference(&plan.mesh, member, transition.member()) {
            let message = format!(
                "{} and {} are in bucket {index}, but differ in {what}; launch them apart",
                subject.show(head),
                subject.show(id)
            );
            subject.violation("C072", Some(id), message);
        }
    }
}

/// All read before anybody writes: no member's operand is another's result, and each has slots of its own.
fn slots(subject: &mut Subject<'_>, index: usize, bucket: &[NodeId]) {
    let plan = subject.plan;
    let mut used: BTreeMap<u32, NodeId> = BTreeMap::new();
    let once: BTreeSet<NodeId> = bucket.iter().copied().collect();
    for &id in &once {
        let operands = &plan.node(id).operands;
        if let Some(operand) = operands.iter().find(|o| once.contains(o)) {
            let message = format!(
                "{} is in bucket {index} with {}, whose result it reads; launch it later",
                subject.show(id),
                subject.show(*operand)
            );
            subject.violation("C073", Some(id), message);
        }
        let own: BTreeSet<u32> =
            operands.iter().chain([&id]).map(|o| plan.slots[o.index()]).collect();
        for slot in own {
            if let Some(other) = used.insert(slot, id) {
                let message = format!(
                    "{} and {} are in bucket {index} and both use slot {slot}; members use slots of their own",
                    subject.show(other),
                    subject.show(id)
                );
                subject.violation("C073", Some(id), message);
            }
        }
    }
}
