//! Right plans to damage, ways to damage them, and what the checker must say.

use shardgrad_core::{LayoutSpec, TransitionKind};
use shardgrad_graph::{NodeId, OutputRole, Plan, Program, Report, check, check::CODES, memory};

use super::{column, data_parallel, lay_out, megatron, two_layers};

/// Hand-made plans of the two-layer program, on even and uneven meshes, with the program of each.
pub fn right_plans() -> Vec<(Program, Plan)> {
    let (with, without) = (two_layers(7, [5, 9, 3], true), two_layers(7, [5, 9, 3], false));
    let mut plans = Vec::new();
    for mesh in ["tp=1", "tp=2", "tp=3", "tp=5", "dp=2, tp=2", "tp=2, dp=3", "a=2, tp=2, b=2"] {
        plans.push((with.clone(), megatron(&with, mesh)));
        plans.push((with.clone(), column(&with, mesh)));
    }
    for mesh in ["dp=1", "dp=2", "dp=4", "dp=3, tp=2", "tp=2, dp=2"] {
        plans.push((without.clone(), data_parallel(&without, mesh)));
    }
    // Data and tensor parallel together, and gradients scattered to sharded state and gathered again (ZeRO).
    plans.push((
        without.clone(),
        lay_out(
            &without,
            "dp=2, tp=2",
            &[("x", "dp: S(0)"), ("w0", "tp: S(1)"), ("w1", "tp: S(0)")],
            &[
                ("y", "dp: S(0)"),
                ("loss", ""),
                ("dw0", "tp: S(1)"),
                ("dw1", "tp: S(0)"),
                ("rate-w0", "tp: S(1)"),
                ("rate-w1", "tp: S(0)"),
            ],
        ),
    ));
    plans
}

pub fn assert_right(plan: &Plan, program: &Program) {
    let report = check(plan, program);
    assert!(report.is_right(), "{report}\n{plan}");
}

/// The report of a plan that must be wrong in this way.
#[track_caller]
pub fn refused(plan: &Plan, program: &Program, code: &str) -> Report {
    let report = check(plan, program);
    assert!(report.codes().contains(&code), "expected {code}, found {report}\n{plan}");
    assert_sound(&report);
    report
}

pub fn assert_sound(report: &Report) {
    for found in report.violations.iter().chain(&report.lints) {
        assert!(CODES.iter().any(|(code, _)| *code == found.code), "{found}");
        assert!(!found.message.contains('\n'), "{found}");
    }
}

pub fn node_named(plan: &Plan, program: &Program, name: &str) -> NodeId {
    let origin = program.named(name).unwrap();
    plan.ids().find(|id| plan.origins[id.index()] == origin).unwrap()
}

/// Takes a node out; its readers read its operand.
pub fn without_node(plan: &Plan, gone: NodeId) -> Plan {
    let heir = plan.node(gone).operands[0];
    let map = |id: NodeId| match id {
        id if id == gone => heir,
        id if id > gone => NodeId(id.0 - 1),
        id => id,
    };
    let mut plan = plan.clone();
    plan.nodes.remove(gone.index());
    plan.layouts.remove(gone.index());
    plan.origins.remove(gone.index());
    for node in &mut plan.nodes {
        node.operands = node.operands.iter().map(|&o| map(o)).collect();
    }
    remap_outputs(&mut plan, map);
    memory::assign_slots(&mut plan);
    plan
}

/// Puts a copy of a node after it, reading it; the node's readers read the copy.
pub fn with_repeated_node(plan: &Plan, node: NodeId) -> Plan {
    let map = |id: NodeId| if id >= node { NodeId(id.0 + 1) } else { id };
    let at = node.index();
    let mut plan = plan.clone();
    let mut copy = plan.nodes[at].clone();
    copy.operands = [node].into_iter().collect();
    for later in &mut plan.nodes[at + 1..] {
        later.operands = later.operands.iter().map(|&o| map(o)).collect();
    }
    plan.nodes.insert(at + 1, copy);
    plan.layouts.insert(at + 1, plan.layouts[at].clone());
    plan.origins.insert(at + 1, plan.origins[at]);
    remap_outputs(&mut plan, map);
    memory::assign_slots(&mut plan);
    plan
}

pub fn remap_outputs(plan: &mut Plan, map: impl Fn(NodeId) -> NodeId) {
    for output in &mut plan.outputs {
        output.node = map(output.node);
        output.role = match output.role {
            OutputRole::Gradient { of } => OutputRole::Gradient { of: map(of) },
            OutputRole::Update { of } => OutputRole::Update { of: map(of) },
            role => role,
        };
    }
}

/// Whether the axes of a plan's transitions all have more than one device, so that dropping one changes a value.
pub fn moves(plan: &Plan) -> Vec<NodeId> {
    plan.transitions()
        .filter(|t| t.transition.kind != TransitionKind::Relabel)
        .map(|t| t.id)
        .collect()
}

pub fn pinned(plan: &Plan, name: &str, spec: &str) -> Plan {
    let mut plan = plan.clone();
    plan.pins.insert(name.to_owned(), spec.parse::<LayoutSpec>().unwrap());
    plan
}
