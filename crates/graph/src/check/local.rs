//! Every node satisfies a rule of its op, or is the transition that its layouts call for.
//!
//! Leaves have no rule to satisfy here: what layouts they may have is for the boundary to say.

use shardgrad_core::{Algorithm, Error, Op, Transition, rules};

use super::Subject;
use crate::node::NodeId;

pub(super) fn check(subject: &mut Subject<'_>) {
    for id in subject.plan.ids() {
        match &subject.plan.node(id).op {
            Op::Leaf(_) => {}
            Op::Transition(transition) => check_transition(subject, id, *transition),
            Op::Fill(_)
            | Op::Iota(_)
            | Op::Uniform(_)
            | Op::Einsum(_)
            | Op::Add
            | Op::Sub
            | Op::Mul
            | Op::Div
            | Op::Maximum
            | Op::Minimum
            | Op::Where
            | Op::Scale(_)
            | Op::AddConst(_)
            | Op::Unary(_)
            | Op::Compare(_)
            | Op::CompareConst(..)
            | Op::Sum(_)
            | Op::Cast(_)
            | Op::Max(_)
            | Op::CumSum(_)
            | Op::Broadcast(_)
            | Op::Transpose(_)
            | Op::Reshape(_)
            | Op::Slice(_)
            | Op::Pad(_)
            | Op::Concat(_)
            | Op::OneHot { .. }
            | Op::Lookup { .. }
            | Op::ScatterAdd { .. }
            | Op::StopGradient
            | Op::Constrain => check_rule(subject, id),
        }
    }
}

fn check_rule(subject: &mut Subject<'_>, id: NodeId) {
    let plan = subject.plan;
    let node = plan.node(id);
    let layouts: Vec<_> = node.operands.iter().map(|&o| plan.layout(o)).collect();
    let types = plan.operand_types(id);
    let found = rules::check(&node.op, &plan.mesh, &types, &node.ty, &layouts, plan.layout(id));
    let Err(error) = found else { return };
    let code = if matches!(error, Error::BlocksDiffer { .. }) { "C011" } else { "C010" };
    let operands: Vec<String> = node
        .operands
        .iter()
        .map(|&o| format!("{} {}", subject.show(o), subject.layout(o)))
        .collect();
    let message = format!(
        "{} from [{}] to {}: {error}",
        subject.show(id),
        operands.join("; "),
        subject.layout(id)
    );
    subject.violation(code, Some(id), message);
}

fn check_transition(subject: &mut Subject<'_>, id: NodeId, transition: Transition) {
    let plan = subject.plan;
    let operand = plan.node(id).operands[0];
    let shown = subject.show(id);
    match Transition::between(&plan.mesh, plan.layout(operand), plan.layout(id)) {
        Err(error) => subject.violation("C012", Some(id), format!("{shown}: {error}")),
        Ok(expected) if expected != transition.by(Algorithm::Direct) => {
            let over = |t: Transition| {
                if t.axes.is_empty() {
                    format!("{} over no axis", t.kind)
                } else {
                    format!("{} over {}", t.kind, plan.mesh.axis_names(t.axes))
                }
            };
            let message = format!(
                "{shown} is {}, but from {} to {} leads {}; drop the transition or correct its kind, axes or layout",
                over(transition),
                subject.layout(operand),
                subject.layout(id),
                over(expected)
            );
            subject.violation("C013", Some(id), message);
        }
        Ok(_) => {
            if let Err(error) = transition.algorithm.check(transition, &plan.mesh) {
                subject.violation("C014", Some(id), format!("{shown}: {error}"));
            }
        }
    }
}
