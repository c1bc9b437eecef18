//! Hand-made plans: a program's nodes with layouts that follow from the leaves', and the transitions a test names.
#![allow(dead_code, unreachable_pub)]

pub mod checking;

use std::collections::BTreeMap;

use shardgrad_core::ops::{Comparison, Role};
use shardgrad_core::rules::axis_rules;
use shardgrad_core::{DType, Layout, LayoutSpec, Mesh, Op, TensorType, Transition};
use shardgrad_graph::{Graph, Node, NodeId, Output, OutputRole, Phase, Plan, Program, memory};

/// A plan under construction.
pub struct Draft<'a> {
    pub program: &'a Program,
    pub plan: Plan,
    /// The plan node that consumers of each program node read now.
    pub current: BTreeMap<NodeId, NodeId>,
}

impl<'a> Draft<'a> {
    pub fn new(program: &'a Program, mesh: &str) -> Self {
        let plan = Plan {
            mesh: mesh.parse().unwrap(),
            layout: "by hand".to_owned(),
            nodes: Vec::new(),
            layouts: Vec::new(),
            origins: Vec::new(),
            slots: Vec::new(),
            outputs: Vec::new(),
            pins: BTreeMap::new(),
            reasons: BTreeMap::new(),
            buckets: Vec::new(),
            waits: BTreeMap::new(),
        };
        Self { program, plan, current: BTreeMap::new() }
    }

    pub fn push(&mut self, node: Node, layout: Layout, origin: NodeId) -> NodeId {
        self.plan.nodes.push(node);
        self.plan.layouts.push(layout);
        self.plan.origins.push(origin);
        NodeId::from_index(self.plan.nodes.len() - 1)
    }

    pub fn parse(&self, layout: &str) -> Layout {
        Layout::parse(layout, &self.plan.mesh).unwrap()
    }

    /// The program's node over given plan nodes; the layout follows from theirs by the rules.
    pub fn emit(&mut self, origin: NodeId, operands: &[NodeId]) -> NodeId {
        let mut node = self.program.node(origin).clone();
        node.operands = operands.iter().copied().collect();
        let types: Vec<TensorType> =
            operands.iter().map(|&o| self.plan.node(o).ty.clone()).collect();
        let rules = axis_rules(&node.op.signature(&types, &node.ty));
        let placements = (0..self.plan.mesh.rank()).map(|axis| {
            let rule = rules.iter().find(|rule| {
                rule.operands
                    .iter()
                    .copied()
                    .eq(operands.iter().map(|&o| self.plan.layout(o).on(axis)))
            });
            let layouts: Vec<String> = operands
                .iter()
                .map(|&o| self.plan.layout(o).display(&self.plan.mesh).to_string())
                .collect();
            rule.unwrap_or_else(|| panic!("no rule for {} {origin} of {layouts:?}", node.op)).result
        });
        let layout = Layout(placements.collect());
        self.push(node, layout, origin)
    }

    /// A leaf or fill in a layout.
    pub fn place(&mut self, origin: NodeId, layout: &str) -> NodeId {
        let layout = self.parse(layout);
        self.push(self.program.node(origin).clone(), layout, origin)
    }

    /// A transition of a plan node.
    pub fn transition(&mut self, of: NodeId, to: &str) -> NodeId {
        let to = self.parse(to);
        let transition = Transition::between(&self.plan.mesh, self.plan.layout(of), &to).unwrap();
        let node = Node {
            op: Op::Transition(transition),
            operands: [of].into_iter().collect(),
            layer: None,
            ..self.plan.node(of).clone()
        };
        self.push(node, to, self.plan.origins[of.index()])
    }

    /// Sets outputs, pins of the leaves and slots.
    pub fn finish(mut self) -> Plan {
        let map = |id: NodeId| self.current[&id];
        let leaf = |id: NodeId| {
            let is_it = |n: &NodeId| self.plan.origins[n.index()] == id;
            self.plan.ids().find(is_it).unwrap()
        };
        self.plan.outputs = self
            .program
            .outputs
            .iter()
            .map(|o| Output {
                name: o.name.clone(),
                node: map(o.node),
                role: match o.role {
                    OutputRole::Gradient { of } => OutputRole::Gradient { of: leaf(of) },
                    OutputRole::Update { of } => OutputRole::Update { of: leaf(of) },
                    role => role,
                },
            })
            .collect();
        let mesh = self.plan.mesh.clone();
        for id in self.plan.ids() {
            if let Some(name) = self.plan.node(id).leaf_name() {
                let spec = LayoutSpec::from((self.plan.layout(id), &mesh));
                self.plan.pins.insert(name.to_owned(), spec);
            }
        }
        memory::assign_slots(&mut self.plan);
        self.plan
    }
}

/// Lays a program out: leaves as given (else replicated), and after a named value the transitions given, in order.
/// A move `"h0>w1g"` changes what node `w1g` reads only.
pub fn lay_out(
    program: &Program,
    mesh: &str,
    leaves: &[(&str, &str)],
    moves: &[(&str, &str)],
) -> Plan {
    let mut draft = Draft::new(program, mesh);
    for id in program.ids() {
        let names: Vec<&str> = program
            .names
            .iter()
            .filter(|(_, n)| **n == id)
            .map(|(name, _)| name.as_str())
            .collect();
        let node = program.node(id);
        let made = if node.operands.is_empty() {
            let given = leaves.iter().find(|(name, _)| names.contains(name)).map(|(_, l)| *l);
            draft.place(id, given.unwrap_or(""))
        } else {
            let operands: Vec<NodeId> = node
                .operands
                .iter()
                .map(|operand| {
                    let mut read = draft.current[operand];
                    for (place, to) in moves {
                        if let Some((value, user)) = place.split_once('>')
                            && program.named(value) == Some(*operand)
                            && names.contains(&user)
                        {
                            read = draft.transition(read, to);
                        }
                    }
                    read
                })
                .collect();
            draft.emit(id, &operands)
        };
        draft.current.insert(id, made);
        for (_, to) in moves.iter().filter(|(name, _)| names.contains(name)) {
            let moved = draft.transition(draft.current[&id], to);
            draft.current.insert(id, moved);
        }
    }
    draft.finish()
}

pub fn mesh(text: &str) -> Mesh {
    text.parse().unwrap()
}

/// Two linear layers with relu between, loss sum(y²), gradients by hand, SGD.
///
/// Names: x, w0, w1, lr, h0, a0, y, loss, dy, dw1, da0, mask, dh0, dw0, dx, and the outputs loss, w0, w1 (and `grad(x)`).
pub fn two_layers(batch: usize, sizes: [usize; 3], input_gradient: bool) -> Program {
    let g = Graph::new("two-layers", DType::F32);
    let x = g.input("x", [batch, sizes[0]]).unwrap();
    let w0 = g.param("w0", [sizes[0], sizes[1]]).unwrap();
    let w1 = g.param("w1", [sizes[1], sizes[2]]).unwrap();
    let lr = g.scalar("lr").unwrap();
    let h0 = x.einsum("bi,io->bo", w0).unwrap().named("h0").unwrap();
    let a0 = h0.relu().unwrap().named("a0").unwrap();
    let y = a0.einsum("bi,io->bo", w1).unwrap().named("y").unwrap();
    let loss = y.square().unwrap().sum_all().unwrap().named("loss").unwrap();
    g.set_phase(Phase::Backward);
    let dy = y.scale(2.0).unwrap().named("dy").unwrap();
    let dw1 = a0.einsum("bi,bo->io", dy).unwrap().named("dw1").unwrap();
    let da0 = dy.einsum("bo,io->bi", w1).unwrap().named("da0").unwrap();
    let mask = h0.compare_const(Comparison::Gt, 0.0).unwrap().named("mask").unwrap();
    let dh0 = da0.mul(mask).unwrap().named("dh0").unwrap();
    let dw0 = x.einsum("bi,bo->io", dh0).unwrap().named("dw0").unwrap();
    let dx = dh0.einsum("bo,io->bi", w0).unwrap().named("dx").unwrap();
    g.set_phase(Phase::Update);
    let step = |w: shardgrad_graph::Var<'_>, dw: shardgrad_graph::Var<'_>, name: &str| {
        let rate = lr.broadcast(&[], &w.shape()).unwrap().named(&format!("rate-{name}")).unwrap();
        let scaled = rate.mul(dw).unwrap();
        let new = g.apply(Op::Sub, &[w, scaled]).unwrap().named(&format!("new-{name}")).unwrap();
        g.output(name, new, OutputRole::Update { of: w.id() }).unwrap();
    };
    g.output("loss", loss, OutputRole::Loss).unwrap();
    step(w0, dw0, "w0");
    step(w1, dw1, "w1");
    if input_gradient {
        g.output("grad(x)", dx, OutputRole::Gradient { of: x.id() }).unwrap();
    }
    g.finish()
}

/// Data parallel over `dp`.
pub fn data_parallel(program: &Program, mesh: &str) -> Plan {
    lay_out(
        program,
        mesh,
        &[("x", "dp: S(0)")],
        &[("loss", "dp: R"), ("dw0", "dp: R"), ("dw1", "dp: R")],
    )
}

/// First layer column parallel, second row parallel, over `tp`.
pub fn megatron(program: &Program, mesh: &str) -> Plan {
    lay_out(
        program,
        mesh,
        &[("w0", "tp: S(1)"), ("w1", "tp: S(0)"), ("rate-w0", "tp: S(1)")],
        &[("y", "tp: R"), ("dx", "tp: R"), ("rate-w0", "tp: S(1)"), ("rate-w1", "tp: S(0)")],
    )
}

/// Both layers column parallel, activations gathered.
pub fn column(program: &Program, mesh: &str) -> Plan {
    lay_out(
        program,
        mesh,
        &[("w0", "tp: S(1)"), ("w1", "tp: S(1)")],
        &[
            ("a0", "tp: R"),
            ("loss", "tp: R"),
            ("da0", "tp: S(1)"),
            ("dx", "tp: R"),
            ("rate-w0", "tp: S(1)"),
            ("rate-w1", "tp: S(1)"),
        ],
    )
}

/// A leaf of a type.
pub fn leaf<'g>(g: &'g Graph, name: &str, role: Role, shape: &[usize]) -> shardgrad_graph::Var<'g> {
    g.leaf(name, role, TensorType::new(shape.iter().copied(), DType::F32)).unwrap()
}
