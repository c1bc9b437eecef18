//! Pins, the plan's and the program's own: a pinned leaf or output lies as it is pinned, and whoever reads a pinned value
//! reads it through a node of that value that does.
//!
//! A pin names a value, or an output that has no name as a value. Axes that it does not name are free.

use std::collections::{BTreeMap, BTreeSet};

use shardgrad_core::{LayoutSpec, Op, Placement};

use super::Subject;
use crate::node::NodeId;

/// Pins by the value that they name, and by the output where no value has the name.
pub(super) struct Pinned<'a> {
    values: BTreeMap<NodeId, Vec<&'a LayoutSpec>>,
    outputs: BTreeMap<&'a str, Vec<&'a LayoutSpec>>,
}

impl<'a> Pinned<'a> {
    pub(super) fn of(subject: &Subject<'a>) -> Self {
        let mut pinned = Self { values: BTreeMap::new(), outputs: BTreeMap::new() };
        for (name, spec) in subject.plan.pins.iter().chain(&subject.program.pins) {
            match subject.program.named(name) {
                Some(value) => pinned.values.entry(value).or_default().push(spec),
                None => pinned.outputs.entry(name).or_default().push(spec),
            }
        }
        pinned
    }

    /// Whether a pin demands a placement on an axis of an output.
    pub(super) fn on(&self, value: NodeId, output: &str, axis: &str) -> bool {
        let specs = self.values.get(&value).into_iter().chain(self.outputs.get(output)).flatten();
        specs.flat_map(|spec| &spec.0).any(|(named, _)| named == axis)
    }
}

pub(super) fn check(subject: &mut Subject<'_>) {
    let (plan, program) = (subject.plan, subject.program);
    for (name, spec) in &plan.pins {
        let own = program.pins.get(name);
        let contradicts = |(axis, p): &&(String, Placement)| {
            own.is_some_and(|own| own.0.iter().any(|(a, q)| a == axis && q != p))
        };
        if let (Some(own), Some((axis, _))) = (own, spec.0.iter().find(contradicts)) {
            let message = format!(
                "`{name}` is pinned to {spec}, but the program pins it to {own}; they differ on axis `{axis}`"
            );
            subject.violation("C040", None, message);
        }
        check_pin(subject, name, spec);
    }
    for (name, spec) in
        program.pins.iter().filter(|(name, spec)| plan.pins.get(*name) != Some(spec))
    {
        // A pin of a value that the finished program dropped demands nothing.
        if program.named(name).is_some() {
            check_pin(subject, name, spec);
        }
    }
}

fn check_pin(subject: &mut Subject<'_>, name: &str, spec: &LayoutSpec) {
    let (plan, program) = (subject.plan, subject.program);
    for (axis, _) in &spec.0 {
        if let Err(error) = plan.mesh.axis(axis) {
            subject.violation("C040", None, format!("the pin of `{name}` to {spec}: {error}"));
            return;
        }
    }
    let Some(value) = program.named(name) else {
        match plan.outputs.iter().find(|o| o.name == name) {
            Some(output) => check_layout(subject, name, spec, output.node),
            None if program.pins.contains_key(name) => {}
            None => {
                let message =
                    format!("there is no value `{name}` to pin to {spec}; pin a named value");
                subject.violation("C040", None, message);
            }
        }
        return;
    };
    // Those of the value's copies that came through the pinned layout.
    let mut passed: BTreeSet<NodeId> = BTreeSet::new();
    let copies = &subject.copies[value.index()];
    let read_by = copies.iter().flat_map(|copy| &subject.readers[copy.index()]);
    let concerned: BTreeSet<NodeId> = read_by.chain(copies).copied().collect();
    for id in concerned {
        let node = plan.node(id);
        for &operand in &node.operands {
            let reads = subject.origin(operand) == value && !matches!(node.op, Op::Transition(_));
            if reads && !passed.contains(&operand) {
                let message = format!(
                    "{} reads {} as {}, but `{name}` is pinned to {spec}; lead it through that layout",
                    subject.show(id),
                    subject.show(operand),
                    subject.layout(operand)
                );
                subject.violation("C042", Some(id), message);
            }
        }
        if subject.origin(id) == value {
            let is_transition = matches!(node.op, Op::Transition(_));
            let before = is_transition && passed.contains(&node.operands[0]);
            if before || spec.matches(plan.layout(id), &plan.mesh) {
                passed.insert(id);
            }
            if node.leaf_role().is_some() {
                check_layout(subject, name, spec, id);
            }
        }
    }
    for output in &plan.outputs {
        // A leaf that is handed out unchanged has been judged above.
        let is_leaf = plan.node(output.node).leaf_role().is_some();
        if subject.origin(output.node) == value && !is_leaf {
            check_layout(subject, name, spec, output.node);
        }
    }
}

fn check_layout(subject: &mut Subject<'_>, name: &str, spec: &LayoutSpec, id: NodeId) {
    if !spec.matches(subject.plan.layout(id), &subject.plan.mesh) {
        let message = format!(
            "{} is {}, but `{name}` is pinned to {spec}; move it there",
            subject.show(id),
            subject.layout(id)
        );
        subject.violation("C041", Some(id), message);
    }
}
