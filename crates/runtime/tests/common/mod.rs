//! Plans at random: every node takes any admissible rule on every axis, operands are brought there by whatever transitions
//! lead there. No search and no cost: what runs right here runs right for every planner.

#![allow(dead_code)] // Every test uses its own part.

use std::collections::BTreeMap;

use shardgrad_core::ops::Role;
use shardgrad_core::rules::{AxisRule, axis_rules, check};
use shardgrad_core::transition::all_layouts;
use shardgrad_core::{Layout, Mesh, Op, Placement, TensorType, Transition};
use shardgrad_graph::{Node, NodeId, Output, OutputRole, Plan, Program, Value, memory};

/// A small generator (xorshift64*), for choices only.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize) % n
    }
}

pub(crate) struct Draft<'a> {
    mesh: &'a Mesh,
    plan: Plan,
    /// All layouts of tensors of each rank, pending ones included.
    layouts: Vec<Vec<Layout>>,
}

fn layouts_of(mesh: &Mesh, rank: usize) -> Vec<Layout> {
    let mut layouts = all_layouts(mesh, rank, true);
    let max = |p| if p == Placement::PendingSum { Placement::PendingMax } else { p };
    let maxima: Vec<Layout> = layouts
        .iter()
        .filter(|l| l.is_pending())
        .map(|l| Layout(l.iter().map(max).collect()))
        .collect();
    layouts.extend(maxima);
    layouts
}

impl Draft<'_> {
    fn push(&mut self, node: Node, layout: Layout, origin: NodeId) -> NodeId {
        let id = NodeId::from_index(self.plan.nodes.len());
        self.plan.nodes.push(node);
        self.plan.layouts.push(layout);
        self.plan.origins.push(origin);
        id
    }

    /// Brings a value to a layout by a shortest chain of transitions.
    fn route(&mut self, from: NodeId, to: &Layout) -> NodeId {
        let start = self.plan.layout(from).clone();
        let rank = self.plan.node(from).ty.rank();
        let mut before: BTreeMap<Layout, Layout> = BTreeMap::new();
        let mut queue = vec![start.clone()];
        let mut at = 0;
        while at < queue.len() && !before.contains_key(to) && *to != start {
            let here = queue[at].clone();
            at += 1;
            for next in &self.layouts[rank] {
                if *next != start
                    && !before.contains_key(next)
                    && Transition::between(self.mesh, &here, next).is_ok()
                {
                    before.insert(next.clone(), here.clone());
                    queue.push(next.clone());
                }
            }
        }
        let mut path = Vec::new();
        let mut step = to.clone();
        while step != start {
            path.push(step.clone());
            step = before[&step].clone();
        }
        let mut id = from;
        for layout in path.into_iter().rev() {
            let transition = Transition::between(self.mesh, self.plan.layout(id), &layout).unwrap();
            let node = Node {
                op: Op::Transition(transition),
                operands: [id].into_iter().collect(),
                ..self.plan.node(id).clone()
            };
            let origin = self.plan.origins[id.index()];
            id = self.push(node, layout, origin);
        }
        id
    }
}

fn stored_layout(mesh: &Mesh, ty: &TensorType, role: Role, dice: &mut Dice) -> Layout {
    if role == Role::Scalar {
        return Layout::replicated(mesh.rank());
    }
    let layouts = all_layouts(mesh, ty.rank(), false);
    layouts[dice.roll(layouts.len())].clone()
}

/// A plan at random.
pub(crate) fn random_plan(program: &Program, mesh: &Mesh, dice: &mut Dice) -> Plan {
    let plan = Plan {
        mesh: mesh.clone(),
        layout: "random".to_owned(),
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
    let layouts = (0..=4).map(|rank| layouts_of(mesh, rank)).collect();
    let mut draft = Draft { mesh, plan, layouts };
    let mut made: Vec<NodeId> = Vec::new();
    for id in program.ids() {
        let node = program.node(id);
        if let Some(role) = node.leaf_role() {
            let layout = stored_layout(mesh, &node.ty, role, dice);
            made.push(draft.push(node.clone(), layout, id));
            continue;
        }
        let types = program.operand_types(id);
        let rules = axis_rules(&node.op.signature(&types, &node.ty));
        let (operand_layouts, result) = loop {
            let chosen: Vec<&AxisRule> =
                (0..mesh.rank()).map(|_| &rules[dice.roll(rules.len())]).collect();
            let operands: Vec<Layout> = (0..types.len())
                .map(|i| Layout(chosen.iter().map(|r| r.operands[i]).collect()))
                .collect();
            let result = Layout(chosen.iter().map(|r| r.result).collect());
            let refs: Vec<&Layout> = operands.iter().collect();
            if check(&node.op, mesh, &types, &node.ty, &refs, &result).is_ok() {
                break (operands, result);
            }
        };
        let operands = node
            .operands
            .iter()
            .zip(&operand_layouts)
            .map(|(operand, layout)| draft.route(made[operand.index()], layout))
            .collect();
        made.push(draft.push(Node { operands, ..node.clone() }, result, id));
    }
    for output in &program.outputs {
        let node = made[output.node.index()];
        let ty = program.node(output.node).ty.clone();
        let (layout, role) = match output.role {
            OutputRole::Update { of } => {
                let leaf = made[of.index()];
                (draft.plan.layout(leaf).clone(), OutputRole::Update { of: leaf })
            }
            OutputRole::Gradient { of } => {
                let leaf = made[of.index()];
                (draft.plan.layout(leaf).clone(), OutputRole::Gradient { of: leaf })
            }
            OutputRole::Loss => (Layout::replicated(mesh.rank()), OutputRole::Loss),
            OutputRole::Value => (stored_layout(mesh, &ty, Role::Input, dice), OutputRole::Value),
        };
        let node = draft.route(node, &layout);
        draft.plan.outputs.push(Output { name: output.name.clone(), node, role });
    }
    let mut plan = draft.plan;
    memory::assign_slots(&mut plan);
    plan.validate().unwrap();
    plan
}

/// Small integers of mixed sign but not 0, different for every element and leaf; labels count up.
pub(crate) fn leaf_values(program: &Program) -> BTreeMap<String, Value> {
    program
        .leaves()
        .map(|id| {
            let node = program.node(id);
            let name = node.leaf_name().unwrap().to_owned();
            let salt = id.index();
            let value = if node.ty.dtype.is_float() {
                Value::from_fn(&node.ty, |i| {
                    [-4.0, 3.0, -1.0, 2.0, 5.0, -2.0, 1.0, -3.0, 4.0][(i * 7 + salt * 5) % 9]
                })
            } else {
                Value::from_fn(&node.ty, |i| ((i + salt) % 3) as f64)
            };
            (name, value)
        })
        .collect()
}
