//! Random plans that are right: no search, no taste, every rule and transition there is.
//!
//! A planner that is any good never masks a value only to reduce it again, and seldom leaves a maximum pending. The
//! executor and the checker must do right by such plans all the same. Here every node takes a random rule on every mesh
//! axis, and every operand is led from one of the layouts it already has to the one wanted, by a random route.
//!
//! `wildness` is the share of choices, in 256ths, that are not "replicated"; it is what failing cases shrink.

use std::collections::BTreeMap;

use shardgrad_core::ops::Role;
use shardgrad_core::rules::{axis_rules, check};
use shardgrad_core::{Layout, Mesh, Op, Placement, TensorType, Transition};
use shardgrad_graph::{Node, NodeId, Output, OutputRole, Plan, Program, memory};
use shardgrad_planner::combine::combined;
use shardgrad_planner::overlap::overlapped;
use shardgrad_planner::{Combine, Options};
use smallvec::smallvec;

use crate::data::hash;

/// A random plan of a program on a mesh.
#[must_use]
pub fn random_plan(program: &Program, mesh: &Mesh, seed: u64, wildness: u8) -> Plan {
    let mut draft = Draft {
        plan: Plan {
            mesh: mesh.clone(),
            layout: format!("random({seed}, {wildness})"),
            nodes: Vec::new(),
            layouts: Vec::new(),
            origins: Vec::new(),
            slots: Vec::new(),
            outputs: Vec::new(),
            pins: BTreeMap::new(),
            reasons: BTreeMap::new(),
            buckets: Vec::new(),
            waits: BTreeMap::new(),
        },
        copies: vec![Vec::new(); program.nodes.len()],
        dice: Dice { seed, wildness, thrown: 0 },
    };
    for id in program.ids() {
        draft.place(program, id);
    }
    for output in &program.outputs {
        draft.output(program, output);
    }
    let mut plan = draft.plan;
    memory::assign_slots(&mut plan);
    // Every other plan has buckets.
    let combine = if seed % 2 == 1 { Combine::UpTo(1 << 16) } else { Combine::Off };
    let plan = combined(plan, &Options { combine, ..Options::default() });
    // Some of each kind have launches in flight, with all the memory that they want.
    let memory_limit = Some(u64::MAX);
    match seed % 3 {
        0 => plan,
        _ => overlapped(plan, &Options { memory_limit, ..Options::default() }),
    }
}

struct Dice {
    seed: u64,
    wildness: u8,
    thrown: u64,
}

impl Dice {
    /// A number below `sides`.
    fn throw(&mut self, sides: usize) -> usize {
        self.thrown += 1;
        let sides = sides.max(1) as u64;
        usize::try_from((hash(self.seed, self.thrown) >> 8) % sides).unwrap_or(0)
    }

    /// As [`Dice::throw`], but 0 unless the choice is wild.
    fn wild(&mut self, sides: usize) -> usize {
        let wild = self.throw(256) < usize::from(self.wildness);
        let side = self.throw(sides);
        if wild { side } else { 0 }
    }
}

struct Draft {
    plan: Plan,
    /// By program node: the plan nodes that hold it.
    copies: Vec<Vec<NodeId>>,
    dice: Dice,
}

impl Draft {
    fn push(&mut self, node: Node, layout: Layout, origin: NodeId) -> NodeId {
        let id = NodeId::from_index(self.plan.nodes.len());
        self.plan.nodes.push(node);
        self.plan.layouts.push(layout);
        self.plan.origins.push(origin);
        self.copies[origin.index()].push(id);
        id
    }

    fn place(&mut self, program: &Program, id: NodeId) {
        let node = program.node(id);
        let rank = self.plan.mesh.rank();
        let types = program.operand_types(id);
        let signature = node.op.signature(&types, &node.ty);
        let rules = axis_rules(&signature);
        let mut wanted: Vec<Layout> = vec![Layout::replicated(rank); types.len()];
        let mut result = Layout::replicated(rank);
        let is_scalar = node.leaf_role() == Some(Role::Scalar);
        for axis in (0..rank).filter(|_| !is_scalar) {
            // Half of the time a rule that takes the first operands as they lie, so that chains of terms grow long.
            let fitting: Vec<usize> = (0..rules.len())
                .filter(|&r| {
                    node.operands.iter().zip(&rules[r].operands).all(|(o, placement)| {
                        let first = self.copies[o.index()][0];
                        self.plan.layout(first).on(axis) == *placement
                    })
                })
                .collect();
            let follow = self.dice.throw(2) == 0 && !fitting.is_empty();
            let rule = if follow {
                &rules[fitting[self.dice.throw(fitting.len())]]
            } else {
                &rules[self.dice.wild(rules.len())]
            };
            let mut operands = wanted.clone();
            for (layout, placement) in operands.iter_mut().zip(&rule.operands) {
                *layout = layout.with(axis, *placement);
            }
            let with_result = result.with(axis, rule.result);
            let refs: Vec<&Layout> = operands.iter().collect();
            if check(&node.op, &self.plan.mesh, &types, &node.ty, &refs, &with_result).is_ok() {
                (wanted, result) = (operands, with_result);
            }
        }
        let operands: Vec<NodeId> =
            node.operands.iter().zip(&wanted).map(|(&o, layout)| self.lead(o, layout)).collect();
        let mut planned = node.clone();
        planned.operands = operands.into_iter().collect();
        self.push(planned, result, id);
    }

    /// A copy of a value in a layout; made if there is none.
    fn lead(&mut self, origin: NodeId, to: &Layout) -> NodeId {
        let copies = &self.copies[origin.index()];
        if let Some(&there) = copies.iter().find(|&&c| self.plan.layout(c) == to) {
            return there;
        }
        let pick = self.dice.throw(copies.len());
        let mut at = self.copies[origin.index()][pick];
        // A step brings one axis or several to their goals or to R; the bound is never reached.
        for _ in 0..64 {
            let from = self.plan.layout(at).clone();
            if from == *to {
                break;
            }
            let rank = self.plan.node(at).ty.rank();
            let next = self.step(&from, to, rank);
            at = self.transition(at, origin, next);
        }
        at
    }

    /// The next layout on the way.
    fn step(&mut self, from: &Layout, to: &Layout, rank: usize) -> Layout {
        let mesh = &self.plan.mesh;
        let legal = |next: &Layout| {
            next != from
                && next.validate(mesh, rank).is_ok()
                && Transition::between(mesh, from, next).is_ok()
        };
        let differing: Vec<usize> = (0..mesh.rank()).filter(|&a| from.on(a) != to.on(a)).collect();
        // All at once, one axis, one axis by way of R, everything that is not pending by way of the goal's.
        let mut candidates = vec![to.clone()];
        for &axis in &differing {
            candidates.push(from.with(axis, to.on(axis)));
            candidates.push(from.with(axis, Placement::Replicated));
        }
        let settle = |p: Placement, q: Placement| {
            if p.is_pending() {
                p
            } else if q.is_pending() {
                Placement::Replicated
            } else {
                q
            }
        };
        candidates.push(Layout(from.iter().zip(to.iter()).map(|(p, q)| settle(p, q)).collect()));
        let towards: Vec<&Layout> = candidates.iter().filter(|c| legal(c)).collect();
        let pick = self.dice.throw(towards.len());
        match towards.get(pick) {
            Some(next) => (*next).clone(),
            // A pending axis can always be reduced, one at a time, and R leads everywhere.
            None => {
                let pending = (0..mesh.rank()).find(|&a| from.on(a).is_pending());
                from.with(pending.unwrap_or(0), Placement::Replicated)
            }
        }
    }

    fn transition(&mut self, operand: NodeId, origin: NodeId, to: Layout) -> NodeId {
        let from = self.plan.layout(operand);
        if let Some(&there) =
            self.copies[origin.index()].iter().find(|&&c| *self.plan.layout(c) == to)
        {
            return there;
        }
        let Ok(transition) = Transition::between(&self.plan.mesh, from, &to) else {
            return operand;
        };
        let node = self.plan.node(operand);
        let (ty, phase): (TensorType, _) = (node.ty.clone(), node.phase);
        let node = Node {
            op: Op::Transition(transition),
            operands: smallvec![operand],
            ty,
            phase,
            layer: None,
        };
        self.push(node, to, origin)
    }

    fn output(&mut self, program: &Program, output: &Output) {
        let rank = self.plan.mesh.rank();
        let first = |of: NodeId, draft: &Self| draft.copies[of.index()][0];
        let layout = match output.role {
            OutputRole::Gradient { of } | OutputRole::Update { of } => {
                self.plan.layout(first(of, self)).clone()
            }
            OutputRole::Loss => Layout::replicated(rank),
            OutputRole::Value => {
                let held = self.plan.layout(first(output.node, self));
                Layout(
                    held.iter()
                        .map(|p| if p.is_pending() { Placement::Replicated } else { p })
                        .collect(),
                )
            }
        };
        let node = self.lead(output.node, &layout);
        let role = match output.role {
            OutputRole::Gradient { of } => OutputRole::Gradient { of: first(of, self) },
            OutputRole::Update { of } => OutputRole::Update { of: first(of, self) },
            OutputRole::Loss | OutputRole::Value => output.role,
        };
        debug_assert!(program.nodes.len() == self.copies.len());
        self.plan.outputs.push(Output { name: output.name.clone(), node, role });
    }
}
