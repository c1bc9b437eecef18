//! Erasure: forgetting layouts and transitions gives the program back, ops repeated at will.

use std::collections::BTreeMap;

use shardgrad_core::Op;

use super::Subject;
use crate::node::NodeId;

pub(super) fn check(subject: &mut Subject<'_>) {
    let mut leaves: BTreeMap<NodeId, NodeId> = BTreeMap::new();
    for id in subject.plan.ids() {
        let (plan, program) = (subject.plan, subject.program);
        let (node, origin) = (plan.node(id), subject.origin(id));
        if let Op::Transition(_) = node.op {
            let operand = node.operands[0];
            if subject.origin(operand) != origin {
                let message = format!(
                    "{} has origin {}, but its operand {operand} is {}; a transition keeps the value",
                    subject.show(id),
                    subject.show_origin(origin),
                    subject.show_origin(subject.origin(operand))
                );
                subject.violation("C022", Some(id), message);
            }
            continue;
        }
        let original = program.node(origin);
        if node.op != original.op || node.ty != original.ty {
            let message = format!(
                "{} is {}: {}, but its origin {} is {}: {}",
                subject.show(id),
                node.op,
                node.ty,
                subject.show_origin(origin),
                original.op,
                original.ty
            );
            subject.violation("C020", Some(id), message);
        }
        let operands: Vec<NodeId> = node.operands.iter().map(|&o| subject.origin(o)).collect();
        if operands.as_slice() != original.operands.as_slice() {
            let list = |ids: &[NodeId]| {
                ids.iter().map(|&o| subject.show_origin(o)).collect::<Vec<_>>().join(", ")
            };
            let message = format!(
                "{} reads {}, but its origin {} reads {}",
                subject.show(id),
                list(&operands),
                subject.show_origin(origin),
                list(&original.operands)
            );
            subject.violation("C021", Some(id), message);
        }
        if node.leaf_role().is_some()
            && let Some(first) = leaves.insert(origin, id)
        {
            let message = format!(
                "{} is stored by {first} already; a leaf has one layout, transitions give the others",
                subject.show(id)
            );
            subject.violation("C023", Some(id), message);
        }
    }
}
