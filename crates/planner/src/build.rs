//! From a solved problem to a plan.
//!
//! Nodes keep the program's order. The transitions of a value form a tree ([`crate::steiner`]); each is made once and
//! shared. A transition that leaves no more behind than it takes (a reduce_scatter, a slice) of a value that nobody
//! reads otherwise follows its value at once; so do those that lead to a pin or an output. Every other one, a gather
//! say, stands right before the first node that reads it. Early reduction and late gathering keep the peak low.

use std::collections::BTreeMap;

use shardgrad_core::geometry::largest_block;
use shardgrad_core::{Layout, Mesh, Op, Transition};
use shardgrad_graph::{Names, Node, NodeId, Output, OutputRole, Plan, Program, Reason, memory};
use smallvec::SmallVec;

use crate::demands::Demands;
use crate::error::Error;
use crate::explain::{Subject, Wanted};
use crate::layouts::{LayoutId, LayoutTable};
use crate::problem::Problem;
use crate::steiner::layout_set;
use crate::values::OutputDemand;

/// The copies of one value.
struct Copies {
    /// The node in the layout that all others come from.
    root: Option<NodeId>,
    /// Number of the root's layout.
    start: LayoutId,
    /// The layout that each other layout is made from.
    parents: BTreeMap<LayoutId, LayoutId>,
    /// The nodes made so far.
    made: BTreeMap<LayoutId, NodeId>,
    /// Layouts that are read as they are.
    read: Vec<LayoutId>,
    /// Whether the root is the pinned layout of a value that was made elsewhere.
    from_pin: bool,
}

impl Copies {
    fn new(start: LayoutId, edges: Vec<(LayoutId, LayoutId)>, read: Vec<LayoutId>) -> Self {
        let parents = edges.into_iter().map(|(from, to)| (to, from)).collect();
        Self { root: None, start, parents, made: BTreeMap::new(), read, from_pin: false }
    }

    /// The layout made from this one, if it is the only one and nobody reads this one.
    fn only_child(&self, of: LayoutId) -> Option<LayoutId> {
        let mut children = self.parents.iter().filter(|(_, from)| **from == of).map(|(to, _)| *to);
        let child = children.next()?;
        (children.next().is_none() && !self.read.contains(&of)).then_some(child)
    }
}

/// Builds the plan of an assignment.
///
/// # Errors
/// A transition that core refuses; the transition graph has none such.
pub fn build(
    program: &Program,
    mesh: &Mesh,
    demands: &Demands,
    problem: &Problem,
    assignment: &[u32],
) -> Result<Plan, Error> {
    let mut builder = Builder {
        program,
        mesh,
        demands,
        problem,
        names: Names::new(program),
        assignment,
        copies: Vec::with_capacity(program.nodes.len()),
        outputs: vec![None; program.outputs.len()],
        plan: Plan {
            mesh: mesh.clone(),
            layout: demands.description.clone(),
            nodes: Vec::new(),
            layouts: Vec::new(),
            origins: Vec::new(),
            slots: Vec::new(),
            outputs: Vec::new(),
            pins: demands.pins.clone(),
            reasons: BTreeMap::new(),
            buckets: Vec::new(),
            waits: BTreeMap::new(),
        },
        leaves: BTreeMap::new(),
    };
    for id in program.ids() {
        builder.node(id)?;
    }
    builder.finish()
}

struct Builder<'a> {
    program: &'a Program,
    mesh: &'a Mesh,
    demands: &'a Demands,
    problem: &'a Problem,
    names: Names<'a>,
    assignment: &'a [u32],
    copies: Vec<Copies>,
    outputs: Vec<Option<NodeId>>,
    plan: Plan,
    /// Plan nodes of leaves.
    leaves: BTreeMap<NodeId, NodeId>,
}

impl<'a> Builder<'a> {
    fn table(&self, value: NodeId) -> &'a LayoutTable {
        self.problem.graphs[value.index()].layouts()
    }

    fn push(&mut self, node: Node, layout: Layout, origin: NodeId) -> NodeId {
        let id = NodeId::from_index(self.plan.nodes.len());
        self.plan.nodes.push(node);
        self.plan.layouts.push(layout);
        self.plan.origins.push(origin);
        id
    }

    /// Emits a program node, what it reads before it, and what follows it at once.
    fn node(&mut self, id: NodeId) -> Result<(), Error> {
        let program = self.program;
        let node = program.node(id);
        let choice = self.problem.choice(id, self.assignment);
        let mut operands = SmallVec::new();
        for (position, (&operand, &layout)) in
            node.operands.iter().zip(&choice.operands).enumerate()
        {
            let wanted = Wanted::Operand(id, position, &choice.kinds);
            operands.push(self.require(operand, layout, wanted)?);
        }
        let canonical = self.table(id).layout(choice.result).clone();
        let leaf = node.leaf_role().is_some();
        let demand = self.demands.values.get(&id);
        let layout = if leaf { self.leaf_layout(id) } else { canonical };
        let made = self.push(Node { operands, ..node.clone() }, layout, id);
        if leaf {
            self.leaves.insert(id, made);
        }
        let solved = self.problem.solved(id, self.assignment);
        let graph = &self.problem.graphs[id.index()];
        let read: Vec<LayoutId> = solved.users.iter().chain(&solved.outputs).copied().collect();
        let set = layout_set(read.iter().copied());
        let (root, start) = match (solved.pinned, demand) {
            (Some(pinned), Some(partial)) => {
                let edges = graph.tree(solved.made, &layout_set([pinned]));
                let mut way = Copies::new(solved.made, edges, vec![pinned]);
                way.root = Some(made);
                self.copies.push(way);
                let arrived = self.require(id, pinned, Wanted::Pin)?;
                self.copies.pop();
                let layout = partial.over(graph.layouts().layout(pinned));
                let relabelled = self.relabel(id, arrived, layout, Wanted::Pin)?;
                (relabelled, pinned)
            }
            _ => (made, solved.made),
        };
        let mut copies = Copies::new(start, graph.tree(start, &set), read);
        copies.root = Some(root);
        copies.from_pin = solved.pinned.is_some();
        self.copies.push(copies);
        if !leaf {
            self.shrink(id, start)?;
        }
        for (&index, &wanted) in self.problem.values.outputs[id.index()].iter().zip(&solved.outputs)
        {
            let copy = self.require(id, wanted, Wanted::Output(index))?;
            let canonical = graph.layouts().layout(wanted);
            let layout = match OutputDemand::of(program, self.mesh, self.demands, index) {
                OutputDemand::Exactly(layout) => layout,
                OutputDemand::Free(partial) => partial.over(canonical),
                OutputDemand::Follows(of, partial) => partial.over(&self.leaf_layout(of)),
            };
            self.outputs[index] = Some(self.relabel(id, copy, layout, Wanted::Output(index))?);
        }
        Ok(())
    }

    /// The layout of a leaf, which may stand behind a gradient that does not depend on it.
    fn leaf_layout(&self, leaf: NodeId) -> Layout {
        let choice = self.problem.choice(leaf, self.assignment);
        let canonical = self.table(leaf).layout(choice.result);
        self.demands.values.get(&leaf).map_or(canonical.clone(), |d| d.over(canonical))
    }

    /// Follows a layout that nobody reads to the one made from it, as long as nothing grows.
    fn shrink(&mut self, value: NodeId, from: LayoutId) -> Result<(), Error> {
        let copies = &self.copies[value.index()];
        let Some(child) = copies.only_child(from) else { return Ok(()) };
        let ty = &self.program.node(value).ty;
        let size = |id| largest_block(&ty.shape, self.table(value).layout(id), self.mesh);
        if size(child) > size(from) {
            return Ok(());
        }
        let Some(wanted) = self.first_reader(value, child) else { return Ok(()) };
        self.require(value, child, wanted)?;
        self.shrink(value, child)
    }

    /// The first that reads a layout or one made from it.
    fn first_reader(&self, value: NodeId, layout: LayoutId) -> Option<Wanted<'a>> {
        let copies = &self.copies[value.index()];
        let below = |mut at: LayoutId| {
            loop {
                if at == layout {
                    return true;
                }
                match copies.parents.get(&at) {
                    Some(&parent) => at = parent,
                    None => return false,
                }
            }
        };
        let at = copies.read.iter().position(|&l| below(l))?;
        let users = &self.problem.values.users[value.index()];
        Some(match users.get(at) {
            Some(&(user, position)) => {
                Wanted::Operand(user, position, &self.problem.choice(user, self.assignment).kinds)
            }
            None => Wanted::Output(self.problem.values.outputs[value.index()][at - users.len()]),
        })
    }

    /// The node that holds a value in a layout of its table.
    fn require(
        &mut self,
        value: NodeId,
        layout: LayoutId,
        wanted: Wanted<'a>,
    ) -> Result<NodeId, Error> {
        let copies = &self.copies[value.index()];
        if let Some(&node) = copies.made.get(&layout) {
            return Ok(node);
        }
        let target = self.table(value).layout(layout).clone();
        let source = match (copies.root, copies.parents.get(&layout)) {
            (Some(root), _) if layout == copies.start => root,
            (Some(root), Some(&parent)) if parent == copies.start => root,
            (_, Some(&parent)) => self.require(value, parent, wanted)?,
            (_, None) => return Err(self.lost(value)),
        };
        let node = self.relabel(value, source, target, wanted)?;
        self.copies[value.index()].made.insert(layout, node);
        Ok(node)
    }

    fn lost(&self, value: NodeId) -> Error {
        Error::Infeasible {
            value: self.names.name(value),
            hint: "no transition leads to a layout that is read".to_owned(),
        }
    }

    /// The transition from a node to a layout; the node itself if it has the layout.
    fn relabel(
        &mut self,
        value: NodeId,
        source: NodeId,
        layout: Layout,
        wanted: Wanted<'a>,
    ) -> Result<NodeId, Error> {
        if *self.plan.layout(source) == layout {
            return Ok(source);
        }
        let from = self.plan.layout(source).clone();
        let transition = Transition::between(self.mesh, &from, &layout)?;
        let reason = self.reason(value, &from, &layout, wanted);
        let phase = match wanted {
            Wanted::Operand(user, ..) => self.program.node(user).phase,
            Wanted::Output(_) | Wanted::Pin => self.program.node(value).phase,
        };
        let node = Node {
            op: Op::Transition(transition),
            operands: [source].into_iter().collect(),
            ty: self.program.node(value).ty.clone(),
            phase,
            layer: None,
        };
        let id = self.push(node, layout, value);
        self.plan.reasons.insert(id.0, reason);
        Ok(id)
    }

    fn reason(&self, value: NodeId, from: &Layout, to: &Layout, wanted: Wanted<'_>) -> Reason {
        Subject {
            program: self.program,
            demands: self.demands,
            names: &self.names,
            mesh: self.mesh,
            value,
            made: &self.problem.choice(value, self.assignment).kinds,
            from_pin: self.copies.get(value.index()).is_some_and(|c| c.from_pin),
            from,
            to,
            wanted,
        }
        .reason()
    }

    fn finish(mut self) -> Result<Plan, Error> {
        let program = self.program;
        for (output, node) in program.outputs.iter().zip(&self.outputs) {
            let Some(node) = *node else { return Err(self.lost(output.node)) };
            let leaf = |of: NodeId| self.leaves.get(&of).copied().unwrap_or(of);
            let role = match output.role {
                OutputRole::Gradient { of } => OutputRole::Gradient { of: leaf(of) },
                OutputRole::Update { of } => OutputRole::Update { of: leaf(of) },
                OutputRole::Loss => OutputRole::Loss,
                OutputRole::Value => OutputRole::Value,
            };
            self.plan.outputs.push(Output { name: output.name.clone(), node, role });
        }
        memory::assign_slots(&mut self.plan);
        Ok(self.plan)
    }
}
