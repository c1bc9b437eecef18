//! Structural checks: after them every id is in range, every type is what its op infers, and layouts fit mesh and
//! tensors, so that nobody who indexes by ids or shapes can fail. They say nothing about meaning; that is
//! [`mod@crate::check`]'s part.
//!
//! Nodes are visited in order. A node whose operands are at fault is not judged itself.

use std::collections::BTreeSet;

use shardgrad_core::ops::Role;
use shardgrad_core::{Op, TensorType};

use crate::error::Error;
use crate::node::{Node, NodeId, Output, OutputRole};
use crate::plan::Plan;
use crate::program::Program;

/// One structural fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The node at fault, if it is one node.
    pub node: Option<NodeId>,
    /// What was found and what is legal.
    pub problem: String,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.node {
            Some(node) => write!(f, "node {node}: {}", self.problem),
            None => f.write_str(&self.problem),
        }
    }
}

impl Program {
    /// Everything that is structurally wrong, in order.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        let mut found = Faults::default();
        found.nodes(&self.nodes, false);
        let count = self.nodes.len();
        for (id, node) in self.ids().zip(&self.nodes) {
            if let Some(name) = node.leaf_name().filter(|name| self.named(name) != Some(id)) {
                found.at(id, format!("its name `{name}` must name this leaf and no other value"));
            }
            if let Some(layer) = node.layer.filter(|&l| l as usize >= self.layers.len()) {
                let layers = self.layers.len();
                found.at(id, format!("layer {layer} is not one of the {layers} recorded layers"));
            }
        }
        for (name, id) in &self.names {
            found.in_range(*id, count, || format!("the value named `{name}`"));
        }
        for (index, layer) in self.layers.iter().enumerate() {
            let ids = [layer.input, layer.weight, layer.output];
            for id in ids.into_iter().chain(layer.bias) {
                found.in_range(id, count, || format!("layer {index}"));
            }
            let labels = layer.batch.iter().chain([&layer.in_label, &layer.out_label]);
            let labels = labels.chain(&layer.weight_labels);
            if !labels.clone().all(char::is_ascii_alphabetic) {
                found.add(format!("layer {index}: labels must be letters"));
            }
        }
        for (name, spec) in &self.pins {
            let fits = |axis: &str| {
                axis.starts_with(|c: char| c.is_ascii_alphabetic())
                    && axis.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
            };
            if let Some((axis, _)) = spec.0.iter().find(|(axis, _)| !fits(axis)) {
                found.add(format!(
                    "the pin of `{name}` names `{axis}`, which no axis can be called"
                ));
            }
        }
        found.outputs(&self.nodes, &self.outputs);
        found.list
    }

    /// Checks that ids, types and attributes are sound.
    ///
    /// # Errors
    /// The first fault.
    pub fn validate(&self) -> Result<(), Error> {
        first(self.faults(), "program")
    }
}

impl Plan {
    /// Everything that is structurally wrong, in order.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        let mut found = Faults::default();
        let count = self.nodes.len();
        let lengths = [
            ("layouts", self.layouts.len()),
            ("origins", self.origins.len()),
            ("slots", self.slots.len()),
        ];
        for (what, length) in lengths.into_iter().filter(|(_, length)| *length != count) {
            found.add(format!(
                "there are {length} {what} for {count} nodes; there must be one each"
            ));
        }
        if !found.list.is_empty() {
            return found.list;
        }
        found.nodes(&self.nodes, true);
        for id in self.ids() {
            let node = self.node(id);
            if let Err(error) = self.layout(id).validate(&self.mesh, node.ty.rank()) {
                found.at(id, error.to_string());
            }
            if self.slots[id.index()] as usize >= count {
                let slot = self.slots[id.index()];
                found.at(
                    id,
                    format!("slot {slot} is out of range; {count} nodes have slots 0..{count}"),
                );
            }
            if let Op::Transition(transition) = node.op
                && transition.axes.iter().any(|axis| axis >= self.mesh.rank())
            {
                found.at(id, format!("its axes are not all axes of the mesh `{}`", self.mesh));
            }
        }
        for index in self.reasons.keys().filter(|&&index| index as usize >= count) {
            found.add(format!("there is a reason for node %{index}, but only {count} nodes"));
        }
        for (index, bucket) in self.buckets.iter().enumerate() {
            for id in bucket {
                found.in_range(*id, count, || format!("bucket {index}"));
            }
        }
        for (&start, &wait) in &self.waits {
            found.in_range(NodeId(start), count, || "a launch that is waited for".to_owned());
            found.in_range(wait, count, || format!("the wait for the launch of %{start}"));
        }
        found.outputs(&self.nodes, &self.outputs);
        found.list
    }

    /// Checks that ids, types, layouts and slots are sound.
    ///
    /// # Errors
    /// The first fault.
    pub fn validate(&self) -> Result<(), Error> {
        first(self.faults(), "plan")
    }

    /// Checks that every node's origin is a node of `program`.
    ///
    /// # Errors
    /// The first that is not.
    pub fn validate_origins(&self, program: &Program) -> Result<(), Error> {
        let count = program.nodes.len();
        let mut found = Faults::default();
        for (id, origin) in self.ids().zip(&self.origins) {
            if origin.index() >= count {
                found.at(
                    id,
                    format!("its origin {origin} is out of range: the program has {count} nodes"),
                );
            }
        }
        first(found.list, "plan")
    }
}

fn first(faults: Vec<Fault>, what: &'static str) -> Result<(), Error> {
    match faults.into_iter().next() {
        None => Ok(()),
        Some(fault) => Err(Error::Malformed { what, problem: fault.to_string() }),
    }
}

#[derive(Default)]
struct Faults {
    list: Vec<Fault>,
}

impl Faults {
    fn add(&mut self, problem: String) {
        self.list.push(Fault { node: None, problem });
    }

    fn at(&mut self, node: NodeId, problem: String) {
        self.list.push(Fault { node: Some(node), problem });
    }

    fn in_range(&mut self, id: NodeId, count: usize, what: impl Fn() -> String) {
        if id.index() >= count {
            self.add(format!("{}: {id} is out of range, there are {count} nodes", what()));
        }
    }

    fn nodes(&mut self, nodes: &[Node], in_plan: bool) {
        let mut sound: Vec<bool> = Vec::with_capacity(nodes.len());
        for (index, node) in nodes.iter().enumerate() {
            let id = NodeId::from_index(index);
            let late = node.operands.iter().find(|o| o.index() >= index);
            let problem = if let Some(operand) = late {
                Some(format!("its operand {operand} does not come before it"))
            } else if node.operands.iter().any(|o| !sound[o.index()]) {
                sound.push(false);
                continue;
            } else if matches!(node.op, Op::Transition(_)) && !in_plan {
                Some("a transition stands in a program; only plans have transitions".to_owned())
            } else {
                let types: Vec<TensorType> =
                    node.operands.iter().map(|o| nodes[o.index()].ty.clone()).collect();
                match node.op.infer(&types) {
                    Ok(ty) if ty == node.ty => None,
                    Ok(ty) => Some(format!("its type is {}, but its op makes {ty}", node.ty)),
                    Err(error) => Some(error.to_string()),
                }
            };
            sound.push(problem.is_none());
            if let Some(problem) = problem {
                self.at(id, problem);
            }
        }
    }

    fn outputs(&mut self, nodes: &[Node], outputs: &[Output]) {
        let mut names = BTreeSet::new();
        let mut updated = BTreeSet::new();
        for output in outputs {
            let name = &output.name;
            if !names.insert(name) {
                self.add(format!(
                    "there are two outputs named `{name}`; names of outputs are unique"
                ));
            }
            let Some(node) = nodes.get(output.node.index()) else {
                self.in_range(output.node, nodes.len(), || format!("output `{name}`"));
                continue;
            };
            let (of, wanted, roles): (NodeId, &str, &[Role]) = match output.role {
                OutputRole::Value => continue,
                OutputRole::Loss => {
                    if node.ty.rank() != 0 {
                        self.add(format!("output `{name}`: a loss is a scalar, not {}", node.ty));
                    }
                    continue;
                }
                OutputRole::Gradient { of } => {
                    (of, "a leaf", &[Role::Input, Role::Param, Role::State, Role::Scalar])
                }
                OutputRole::Update { of } => {
                    if !updated.insert(of) {
                        self.add(format!("output `{name}`: {of} has two updates; a leaf has one"));
                    }
                    (of, "a parameter or state", &[Role::Param, Role::State])
                }
            };
            match nodes.get(of.index()) {
                Some(leaf) if leaf.leaf_role().is_some_and(|role| roles.contains(&role)) => {
                    if leaf.ty != node.ty {
                        let (found, wanted) = (&node.ty, &leaf.ty);
                        self.add(format!(
                            "output `{name}`: its type is {found}, its leaf's {wanted}"
                        ));
                    }
                }
                _ => self.add(format!("output `{name}`: {of} is not {wanted}")),
            }
        }
    }
}
