//! A plan as a graph for Graphviz: values in the order of phases, collectives set off with what they send.

use std::fmt::Write;

use shardgrad_core::Op;

use crate::node::{Node, NodeId, Phase};
use crate::plan::Plan;
use crate::program::Program;

/// The plan in the DOT language. Plan and program must be [valid](Plan::validate) and belong together.
#[must_use]
pub fn dot(plan: &Plan, program: &Program) -> String {
    let totals = plan.totals();
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "digraph {} {{\n  \
           label={};\n  \
           labelloc=t;\n  \
           node [shape=box, fontname=\"Helvetica\", fontsize=10];\n  \
           edge [fontname=\"Helvetica\", fontsize=9];",
        quoted(&program.name),
        quoted(&format!(
            "{} over {}, layout {}: {} collectives, {} bytes per device",
            program.name,
            plan.mesh,
            plan.layout,
            totals.collectives(),
            totals.bytes_per_device + totals.scalar_bytes_per_device
        )),
    );
    for phase in [Phase::Forward, Phase::Backward, Phase::Update] {
        let nodes: Vec<NodeId> = plan.ids().filter(|&id| plan.node(id).phase == phase).collect();
        if nodes.is_empty() {
            continue;
        }
        let _ = writeln!(
            out,
            "  subgraph \"cluster_{phase}\" {{\n    label=\"{phase}\";\n    color=\"gray60\";"
        );
        for id in nodes {
            let _ = writeln!(
                out,
                "    n{} [label={}{}];",
                id.index(),
                quoted(&label(plan, program, id)),
                style(plan.node(id))
            );
        }
        out.push_str("  }\n");
    }
    for id in plan.ids() {
        for operand in &plan.node(id).operands {
            let _ = writeln!(out, "  n{} -> n{};", operand.index(), id.index());
        }
    }
    for (index, output) in plan.outputs.iter().enumerate() {
        let name = quoted(&output.name);
        let _ = writeln!(out, "  out{index} [label={name}, shape=ellipse, style=bold];");
        let _ = writeln!(out, "  n{} -> out{index};", output.node.index());
    }
    out.push_str("}\n");
    out
}

/// A DOT string. Within quotes only the quote and the backslash have a meaning; a line break in a label is `\n`.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn label(plan: &Plan, program: &Program, id: NodeId) -> String {
    let node = plan.node(id);
    let mut lines = vec![match &node.op {
        Op::Transition(t) if !t.axes.is_empty() => {
            format!("{} over {}", t.kind, plan.mesh.axis_names(t.axes))
        }
        op => op.to_string(),
    }];
    let origin = plan.origins[id.index()];
    let leaf = node.leaf_name();
    let mut names = program.names_of(origin);
    names.retain(|name| leaf != Some(*name));
    if !names.is_empty() {
        lines.push(names.join(", "));
    }
    lines.push(format!("{} {}", node.ty, plan.layout(id).display(&plan.mesh)));
    if let (Op::Transition(t), Some(&operand)) = (&node.op, node.operands.first())
        && t.kind.is_collective()
    {
        let sent = t.bytes_sent(&plan.mesh, &node.ty, plan.layout(operand), plan.layout(id));
        lines.push(format!("{sent} bytes per device"));
        if let Some(bucket) = plan.buckets.iter().position(|bucket| bucket.contains(&id)) {
            lines.push(format!("bucket {bucket}"));
        }
        if plan.wait(id) > id {
            lines.push(format!("waited for behind {}", plan.wait(id)));
        }
    }
    lines.join("\n")
}

fn style(node: &Node) -> &'static str {
    match &node.op {
        _ if node.leaf_role().is_some() => ", style=filled, fillcolor=\"lightblue\"",
        Op::Transition(t) if t.kind.is_collective() => {
            ", style=\"filled,bold\", fillcolor=\"orange\", shape=hexagon"
        }
        Op::Transition(_) => ", style=dashed",
        // An op is drawn plain, whatever it is.
        _ => "",
    }
}
