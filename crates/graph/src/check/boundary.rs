//! What comes in and goes out: outputs are the program's, in the layouts that are demanded, and what is carried to the
//! next step comes out as it went in.

use std::collections::BTreeMap;

use shardgrad_core::Placement;
use shardgrad_core::ops::Role;

use super::Subject;
use super::pins::Pinned;
use crate::node::{NodeId, Output, OutputRole};

pub(super) fn check(subject: &mut Subject<'_>) {
    check_stored(subject);
    let (plan, program) = (subject.plan, subject.program);
    let (there, known) = (by_name(&plan.outputs), by_name(&program.outputs));
    for output in plan.outputs.iter().filter(|o| !known.contains_key(o.name.as_str())) {
        let message = format!("the program has no output `{}`; leave it out", output.name);
        subject.violation("C030", Some(output.node), message);
    }
    let pinned = Pinned::of(subject);
    let mut complete = true;
    for wanted in &program.outputs {
        match there.get(wanted.name.as_str()) {
            Some(found) => check_output(subject, &pinned, wanted, found),
            None => {
                complete = false;
                let message = format!(
                    "output `{}` of the program is missing; add the node that holds {}",
                    wanted.name,
                    subject.show_origin(wanted.node)
                );
                subject.violation("C030", None, message);
            }
        }
    }
    let names = |outputs: &[Output]| outputs.iter().map(|o| o.name.clone()).collect::<Vec<_>>();
    let (found, wanted) = (names(&plan.outputs), names(&program.outputs));
    if complete && found.len() == wanted.len() && found != wanted {
        let message = format!(
            "outputs are in the order {}, but the program's is {}",
            found.join(", "),
            wanted.join(", ")
        );
        subject.violation("C030", None, message);
    }
}

fn by_name(outputs: &[Output]) -> BTreeMap<&str, &Output> {
    outputs.iter().map(|output| (output.name.as_str(), output)).collect()
}

fn check_stored(subject: &mut Subject<'_>) {
    for id in subject.plan.ids() {
        let layout = subject.plan.layout(id);
        match subject.plan.node(id).leaf_role() {
            Some(Role::Scalar) if layout.iter().any(|p| p != Placement::Replicated) => {
                let message = format!(
                    "{} is {}, but a scalar that is set each step is replicated on every axis",
                    subject.show(id),
                    subject.layout(id)
                );
                subject.violation("C038", Some(id), message);
            }
            Some(_) if layout.is_pending() => {
                let message = format!(
                    "{} is stored as {}, but a stored value is replicated or sharded on every axis",
                    subject.show(id),
                    subject.layout(id)
                );
                subject.violation("C037", Some(id), message);
            }
            Some(_) | None => {}
        }
    }
}

fn check_output(subject: &mut Subject<'_>, pinned: &Pinned<'_>, wanted: &Output, found: &Output) {
    let (plan, name, node) = (subject.plan, &wanted.name, found.node);
    let origin = subject.origin(node);
    if origin != wanted.node {
        let message = format!(
            "output `{name}` is {}, which holds {}, but it must hold {}",
            subject.show(node),
            subject.show_origin(origin),
            subject.show_origin(wanted.node)
        );
        subject.violation("C032", Some(node), message);
    }
    let role = match found.role {
        OutputRole::Gradient { of } => OutputRole::Gradient { of: subject.origin(of) },
        OutputRole::Update { of } => OutputRole::Update { of: subject.origin(of) },
        role @ (OutputRole::Loss | OutputRole::Value) => role,
    };
    if role != wanted.role {
        let message = format!(
            "output `{name}` is {}, but in the program it is {}",
            show_role(subject, role),
            show_role(subject, wanted.role)
        );
        subject.violation("C031", Some(node), message);
        return;
    }
    for axis in 0..plan.mesh.rank() {
        let placement = plan.layout(node).on(axis);
        let axis_name = subject.axis(axis);
        let is_pinned = pinned.on(wanted.node, name, axis_name);
        let (code, demand) = match found.role {
            OutputRole::Update { of } => {
                let leaf = plan.layout(of).on(axis);
                if placement == leaf {
                    continue;
                }
                ("C036", format!("the leaf that it replaces is {leaf}; move it there"))
            }
            _ if is_pinned => {
                if placement.is_pending() {
                    let message = format!(
                        "output `{name}` is {placement} on axis `{axis_name}`, since it is pinned so; it is no complete value"
                    );
                    subject.lint("L005", node, message);
                }
                continue;
            }
            OutputRole::Loss if placement != Placement::Replicated => {
                ("C034", "a loss is R; reduce it".to_owned())
            }
            OutputRole::Gradient { of } if placement != plan.layout(of).on(axis) => {
                let leaf = plan.layout(of).on(axis);
                let reduce = if placement.is_pending() { "reduce it" } else { "move it there" };
                ("C035", format!("its leaf is {leaf}; {reduce} or pin it"))
            }
            OutputRole::Value if placement.is_pending() => {
                ("C033", "outputs are complete; reduce it or pin it".to_owned())
            }
            OutputRole::Loss | OutputRole::Gradient { .. } | OutputRole::Value => continue,
        };
        let message = format!(
            "output `{name}` ({}) is {placement} on axis `{axis_name}`, but {demand}",
            subject.show(node)
        );
        subject.violation(code, Some(node), message);
    }
}

fn show_role(subject: &Subject<'_>, role: OutputRole) -> String {
    let leaf = |id: NodeId| subject.show_origin(id);
    match role {
        OutputRole::Loss => "the loss".to_owned(),
        OutputRole::Value => "a value".to_owned(),
        OutputRole::Gradient { of } => format!("the gradient of {}", leaf(of)),
        OutputRole::Update { of } => format!("the update of {}", leaf(of)),
    }
}
