//! From a program with demands to a network of cost functions.
//!
//! Variables: one per node, whose values are its choices ([`crate::space`]); one per value whose pin leaves an axis open;
//! one per output whose layout is free; and, for values with very many consumers, one whose values are sets of layouts.
//! Factors: what computing a node in a choice costs, and, per value, the cheapest arborescence from the layout it is
//! made in (or pinned to) over the layouts its consumers read ([`crate::steiner`]).
//!
//! [`solve`] minimises it: at once, or axis by axis (`axes`) where buckets would be too large.
//!
//! Everything that depends on types and attributes alone is made once and shared: choices, transition graphs, tables.

mod axes;
mod bounds;
mod carry;
mod descent;
mod solve;

use std::rc::Rc;

use rustc_hash::FxHashMap;
use shardgrad_core::{AxisSet, Layout, Mesh, Op, Placement, Prices, TensorType};
use shardgrad_graph::{NodeId, Program};
use smallvec::SmallVec;

use self::axes::Part;
pub use self::solve::solve;
use crate::cost::{Fields, Scale};
use crate::demands::{Demands, Partial};
use crate::error::Error;
use crate::layouts::{LayoutId, LayoutTable};
use crate::options::{Options, Redundant};
use crate::presets::Split;
use crate::search::network::{Network, TableId, VarId};
use crate::space::{Allowed, Choice, OpSpace};
use crate::steiner::TransitionGraph;
use crate::values::{OutputDemand, Values};

/// Number of an interned projection: the layout that each value of a variable stands for.
type ProjectionId = u32;

/// The choices of a node, and what they project to.
#[derive(Debug)]
pub struct NodeSpace {
    /// The choices.
    pub choices: Vec<Choice>,
    /// Axes on which some choice leaves the result pending.
    pending: AxisSet,
    operands: SmallVec<[ProjectionId; 2]>,
    result: ProjectionId,
    costs: TableId,
}

/// A variable that stands for a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    var: VarId,
    projection: ProjectionId,
}

/// How a value gets to its readers.
#[derive(Debug)]
pub struct ValuePlan {
    made: Reading,
    pinned: Option<Reading>,
    /// One reading per user, in the order of [`Values::users`].
    users: Vec<Reading>,
    /// One reading per output, in the order of [`Values::outputs`].
    outputs: Vec<Reading>,
}

/// A network, and what its variables mean.
#[derive(Debug)]
pub struct Problem {
    /// The network.
    pub network: Network,
    /// The scale of its costs.
    pub scale: Scale,
    /// Choices of each node; variable i is node i.
    pub spaces: Vec<Rc<NodeSpace>>,
    /// Transition graph of each value.
    pub graphs: Vec<Rc<TransitionGraph>>,
    /// Facts about values.
    pub values: Values,
    /// Values whose readers meet in a variable of sets of layouts.
    pub by_sets: Vec<u32>,
    plans: Vec<ValuePlan>,
    projections: Vec<Rc<[LayoutId]>>,
    /// In the problem of one axis: by node, the number here of each choice of the whole problem.
    numbers: Vec<Rc<[u32]>>,
}

/// Layouts of a solved value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SolvedValue {
    /// Where it is made.
    pub made: LayoutId,
    /// Where it is pinned, if it is pinned and no leaf.
    pub pinned: Option<LayoutId>,
    /// What each user reads.
    pub users: Vec<LayoutId>,
    /// What each output wants.
    pub outputs: Vec<LayoutId>,
}

impl Problem {
    /// Layouts of a value under an assignment.
    #[must_use]
    pub fn solved(&self, id: NodeId, assignment: &[u32]) -> SolvedValue {
        let plan = &self.plans[id.index()];
        let read = |r: &Reading| {
            self.projections[r.projection as usize][assignment[r.var as usize] as usize]
        };
        SolvedValue {
            made: read(&plan.made),
            pinned: plan.pinned.as_ref().map(read),
            users: plan.users.iter().map(read).collect(),
            outputs: plan.outputs.iter().map(read).collect(),
        }
    }

    /// The choice of a node under an assignment.
    #[must_use]
    pub fn choice(&self, id: NodeId, assignment: &[u32]) -> &Choice {
        &self.spaces[id.index()].choices[assignment[id.index()] as usize]
    }
}

/// What the choices of a reader depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OperandFacts {
    ty: TensorType,
    with_max: bool,
    uniform: bool,
    pending: AxisSet,
}

/// What the choices of a node depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SpaceKey {
    op: Option<Op>,
    operands: SmallVec<[OperandFacts; 2]>,
    result: (TensorType, bool),
    allowed: SmallVec<[Allowed; 4]>,
}

/// What the leading field of a cost adds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weighing {
    /// Weight of the objective.
    pub objective: u64,
    /// Weight of the bytes of leaves.
    pub stored: u64,
    /// Weight of the bytes of all other values and copies.
    pub made: u64,
}

impl Default for Weighing {
    /// The objective alone.
    fn default() -> Self {
        Self { objective: 1, stored: 0, made: 0 }
    }
}

impl Weighing {
    fn apply(self, fields: Fields, leaf: bool) -> Fields {
        let memory = if leaf { self.stored } else { self.made };
        let [leading, a, b, bytes] = fields;
        let sum = leading.saturating_mul(self.objective);
        [sum.saturating_add(bytes.saturating_mul(memory)), a, b, bytes]
    }

    /// The scale of the costs of a program's plans.
    fn scale(self, program: &Program, mesh: &Mesh, options: &Options, values: &Values) -> Scale {
        let bounds = bounds::bounds(program, mesh, options.objective, values);
        // Every node and every transition is an addend.
        let addends = bounds[1] + program.nodes.len() as u128;
        let [leading, a, b, bytes] = bounds::of_objective(&options.prices(mesh), bounds);
        let memory = bytes * u128::from(self.stored.max(self.made));
        Scale::for_bounds([leading * u128::from(self.objective) + memory, a, b, bytes], addends)
    }
}

/// Makes a [`Problem`].
pub struct Builder<'a> {
    program: &'a Program,
    mesh: &'a Mesh,
    demands: &'a Demands,
    options: &'a Options,
    weighing: Weighing,
    values: Values,
    scale: Scale,
    network: Network,
    tables: FxHashMap<(usize, bool), Rc<LayoutTable>>,
    graphs: FxHashMap<(TensorType, bool), (u32, Rc<TransitionGraph>)>,
    spaces: FxHashMap<SpaceKey, Rc<NodeSpace>>,
    projections: Vec<Rc<[LayoutId]>>,
    projection_ids: FxHashMap<Rc<[LayoutId]>, ProjectionId>,
    /// Tables of values by graph and by what each variable of the scope projects to.
    covers: FxHashMap<SmallVec<[u32; 16]>, TableId>,
    by_sets: Vec<u32>,
    /// Set where the problem is one axis's part of another.
    part: Option<Part<'a>>,
}

impl<'a> Builder<'a> {
    /// A builder for a program on a mesh.
    #[must_use]
    pub fn new(
        program: &'a Program,
        mesh: &'a Mesh,
        demands: &'a Demands,
        options: &'a Options,
    ) -> Self {
        let values = Values::of(program);
        let scale = Weighing::default().scale(program, mesh, options, &values);
        Self::with(program, mesh, demands, options, values, scale)
    }

    fn with(
        program: &'a Program,
        mesh: &'a Mesh,
        demands: &'a Demands,
        options: &'a Options,
        values: Values,
        scale: Scale,
    ) -> Self {
        Self {
            program,
            mesh,
            demands,
            options,
            weighing: Weighing::default(),
            values,
            scale,
            network: Network::default(),
            tables: FxHashMap::default(),
            graphs: FxHashMap::default(),
            spaces: FxHashMap::default(),
            projections: Vec::new(),
            projection_ids: FxHashMap::default(),
            covers: FxHashMap::default(),
            by_sets: Vec::new(),
            part: None,
        }
    }

    /// With a leading field that adds memory to the objective.
    #[must_use]
    pub fn weighing(mut self, weighing: Weighing) -> Self {
        self.weighing = weighing;
        self.scale = weighing.scale(self.program, self.mesh, self.options, &self.values);
        self
    }

    /// A builder for one axis's part of a problem, on the mesh of this axis alone.
    fn of_part(
        program: &'a Program,
        alone: &'a Mesh,
        demands: &'a Demands,
        options: &'a Options,
        part: Part<'a>,
    ) -> Self {
        let Problem { values, scale, .. } = part.whole();
        let builder = Self::with(program, alone, demands, options, values.clone(), *scale);
        Self { part: Some(part), ..builder }
    }

    fn prices(&self) -> Prices<'a> {
        self.options.prices(self.mesh)
    }

    /// The network.
    ///
    /// # Errors
    /// A node that no demand-abiding choice can compute.
    pub fn build(mut self) -> Result<Problem, Error> {
        let mut spaces = Vec::with_capacity(self.program.nodes.len());
        for id in self.program.ids() {
            let space = self.space(id, &spaces);
            if space.choices.is_empty() {
                return Err(self.infeasible(id));
            }
            let var = self.network.variable(space.choices.len());
            self.network.factor([var], space.costs);
            spaces.push(space);
        }
        let mut graphs = Vec::with_capacity(spaces.len());
        let mut plans = Vec::with_capacity(spaces.len());
        for id in self.program.ids() {
            let (number, graph) = self.graph(id);
            plans.push(self.value(id, number, &graph, &spaces)?);
            graphs.push(graph);
        }
        Ok(Problem {
            network: self.network,
            scale: self.scale,
            spaces,
            graphs,
            values: self.values,
            by_sets: self.by_sets,
            plans,
            projections: self.projections,
            numbers: self.part.map(|part| part.numbers()).unwrap_or_default(),
        })
    }

    fn infeasible(&self, id: NodeId) -> Error {
        let name = self.program.name_of(id).map_or_else(|| id.to_string(), str::to_owned);
        let op = &self.program.node(id).op;
        Error::Infeasible {
            value: name,
            hint: format!("the split or pin asked of its `{op}` names a dim that it cannot split"),
        }
    }

    fn table(&mut self, rank: usize, with_max: bool) -> Rc<LayoutTable> {
        let mesh = self.mesh;
        self.tables
            .entry((rank, with_max))
            .or_insert_with(|| Rc::new(LayoutTable::new(mesh, rank, with_max)))
            .clone()
    }

    fn graph(&mut self, id: NodeId) -> (u32, Rc<TransitionGraph>) {
        let ty = &self.program.node(id).ty;
        let with_max = self.values.with_max[id.index()];
        let table = self.table(ty.rank(), with_max);
        let number = u32::try_from(self.graphs.len()).unwrap_or(u32::MAX);
        let (mesh, scale, weighing) = (self.mesh, self.scale, self.weighing);
        let prices = self.prices();
        let part = self.part.as_ref();
        let entry = self.graphs.entry((ty.clone(), with_max)).or_insert_with(|| {
            if let Some(part) = part {
                return (number, Rc::new(part.graph(id, &table)));
            }
            let graph =
                TransitionGraph::new(mesh, table.clone(), &scale, |transition, from, to| {
                    let (from, to) = (table.layout(from), table.layout(to));
                    let transition = prices.fastest(transition, ty, from, to);
                    weighing.apply(prices.transition(transition, ty, from, to), false)
                });
            (number, Rc::new(graph))
        });
        (entry.0, entry.1.clone())
    }

    fn projection(&mut self, layouts: impl Iterator<Item = LayoutId>) -> ProjectionId {
        let layouts: Rc<[LayoutId]> = layouts.collect();
        let next = ProjectionId::try_from(self.projections.len()).unwrap_or(ProjectionId::MAX);
        let id = *self.projection_ids.entry(layouts.clone()).or_insert(next);
        if id == next {
            self.projections.push(layouts);
        }
        id
    }

    /// What each axis may do to a node.
    fn allowed(&self, id: NodeId) -> SmallVec<[Allowed; 4]> {
        let node = self.program.node(id);
        let axes = 0..self.mesh.rank();
        if matches!(node.op, Op::Leaf(_)) {
            let demand = self.demands.values.get(&id);
            return axes
                .map(|a| demand.and_then(|d| d.on(a)).map_or(Allowed::Any, Allowed::Result))
                .collect();
        }
        let signature = node.op.signature(&self.program.operand_types(id), &node.ty);
        if node.layer.is_none() && !signature.is_contraction() {
            return axes.map(|_| Allowed::Any).collect();
        }
        let may_repeat = self.options.redundant == Redundant::Allow;
        let free =
            |shares: bool| if shares && !may_repeat { Allowed::Shares } else { Allowed::Any };
        let layer = node.layer.and_then(|l| {
            Some((self.demands.splits.get(l as usize)?, self.program.layers.get(l as usize)?))
        });
        axes.map(|axis| match layer {
            None => free(self.demands.sharing[axis]),
            Some((splits, layer)) => match splits[axis] {
                None => free(true),
                Some(Split::None) => Allowed::Repeats,
                Some(Split::In) => Allowed::Splits(layer.in_label),
                Some(Split::Out) => Allowed::Splits(layer.out_label),
                Some(Split::Batch) => {
                    layer.batch.first().map_or(Allowed::Repeats, |&label| Allowed::Splits(label))
                }
            },
        })
        .collect()
    }

    fn space(&mut self, id: NodeId, spaces: &[Rc<NodeSpace>]) -> Rc<NodeSpace> {
        if let Some(space) = self.part_space(id) {
            return space;
        }
        let node = self.program.node(id);
        let types = self.program.operand_types(id);
        let uniform = self.values.uniform[id.index()];
        let allowed = if uniform {
            SmallVec::from_elem(Allowed::Repeats, self.mesh.rank())
        } else {
            self.allowed(id)
        };
        let facts = |(o, ty): (&NodeId, &TensorType)| OperandFacts {
            ty: ty.clone(),
            with_max: self.values.with_max[o.index()],
            uniform: self.values.uniform[o.index()],
            pending: self.can_be_pending(*o, spaces),
        };
        let key = SpaceKey {
            // Leaves differ by name, but not in their choices.
            op: (!matches!(node.op, Op::Leaf(_))).then(|| node.op.clone()),
            operands: node.operands.iter().zip(&types).map(facts).collect(),
            result: (node.ty.clone(), self.values.with_max[id.index()]),
            allowed,
        };
        if let Some(space) = self.spaces.get(&key) {
            return space.clone();
        }
        let operand_tables: Vec<Rc<LayoutTable>> =
            key.operands.iter().map(|o| self.table(o.ty.rank(), o.with_max)).collect();
        let result_table = self.table(node.ty.rank(), key.result.1);
        let choices = OpSpace {
            mesh: self.mesh,
            prices: self.prices(),
            op: &node.op,
            operands: &types,
            result: &node.ty,
            operand_tables: &operand_tables.iter().map(Rc::as_ref).collect::<Vec<_>>(),
            result_table: &result_table,
            replicated_operands: &key.operands.iter().map(|o| o.uniform).collect::<Vec<_>>(),
            pending_operands: &key.operands.iter().map(|o| o.pending).collect::<Vec<_>>(),
            allowed: &key.allowed,
        }
        .choices();
        let leaf = key.op.is_none();
        let weighed = |c: &Choice| self.scale.pack(self.weighing.apply(c.fields, leaf));
        let costs = choices.iter().map(weighed).collect();
        let pending = (0..self.mesh.rank())
            .filter(|&axis| {
                let pends =
                    |c: &Choice| result_table.layout(c.result).on(axis) == Placement::PendingSum;
                choices.iter().any(pends)
            })
            .collect();
        let space = Rc::new(NodeSpace {
            pending,
            operands: (0..types.len())
                .map(|i| self.projection(choices.iter().map(|c| c.operands[i])))
                .collect(),
            result: self.projection(choices.iter().map(|c| c.result)),
            costs: self.network.tables.intern(costs),
            choices,
        });
        self.spaces.insert(key, space.clone());
        space
    }

    /// Axes on which a value can be read as a sum of terms: where it is made so, or pinned so.
    fn can_be_pending(&self, id: NodeId, spaces: &[Rc<NodeSpace>]) -> AxisSet {
        let pinned = |axis: &usize| {
            let partial = self.demands.values.get(&id);
            partial.and_then(|p| p.on(*axis)) == Some(Placement::PendingSum)
        };
        let made = spaces[id.index()].pending;
        (0..self.mesh.rank()).filter(|a| made.contains(*a) || pinned(a)).collect()
    }

    /// A new variable over the layouts that a value may have at its pin or as an output.
    fn layout_variable(&mut self, id: NodeId, layouts: Vec<LayoutId>) -> Result<Reading, Error> {
        if layouts.is_empty() {
            return Err(self.unreachable(id));
        }
        let var = self.network.variable(layouts.len());
        Ok(Reading { var, projection: self.projection(layouts.into_iter()) })
    }

    /// No layout of the value has the placements that are demanded: `Pmax` of a value that is no maximum, say.
    fn unreachable(&self, id: NodeId) -> Error {
        let value = self.values.names[id.index()].clone();
        Error::Infeasible {
            value: value.unwrap_or_else(|| format!("{id} ({})", self.program.node(id).op.name())),
            hint: "it cannot have the placements that its pin asks for; Pmax is for maxima only, and P and Pmax do not mix".to_owned(),
        }
    }

    /// The layouts of a table that have these placements.
    fn admitted(&self, table: &LayoutTable, partial: &Partial, pending: bool) -> Vec<LayoutId> {
        let fits = |layout: &&Layout| {
            partial.admits(layout, self.mesh)
                && (pending
                    || (0..self.mesh.rank())
                        .all(|a| partial.on(a).is_some() || !layout.on(a).is_pending()))
        };
        table.all().iter().filter(fits).filter_map(|l| table.id(l)).collect()
    }

    fn value(
        &mut self,
        id: NodeId,
        number: u32,
        graph: &Rc<TransitionGraph>,
        spaces: &[Rc<NodeSpace>],
    ) -> Result<ValuePlan, Error> {
        let reading = |node: NodeId, projection| Reading { var: node.0, projection };
        let made = reading(id, spaces[id.index()].result);
        let leaf = self.program.node(id).leaf_role().is_some();
        let partial = self.demands.values.get(&id).filter(|_| !leaf).cloned();
        let pinned = match partial {
            None => None,
            Some(partial) => {
                let layouts = self.admitted(graph.layouts(), &partial, true);
                Some(self.layout_variable(id, layouts)?)
            }
        };
        let users: Vec<Reading> = self.values.users[id.index()]
            .iter()
            .map(|&(user, position)| reading(user, spaces[user.index()].operands[position]))
            .collect();
        let mut outputs = Vec::new();
        for index in self.values.outputs[id.index()].clone() {
            let demand = OutputDemand::of(self.program, self.mesh, self.demands, index);
            outputs.push(match demand {
                OutputDemand::Exactly(layout) => {
                    let layouts = self.admitted(graph.layouts(), &Partial::exactly(&layout), true);
                    self.layout_variable(id, layouts)?
                }
                OutputDemand::Free(partial) => {
                    let layouts = self.admitted(graph.layouts(), &partial, false);
                    self.layout_variable(id, layouts)?
                }
                OutputDemand::Follows(of, partial) => {
                    let space = spaces[of.index()].clone();
                    let table = self.table(self.program.node(of).ty.rank(), false);
                    let overlaid = space
                        .choices
                        .iter()
                        .map(|c| graph.layouts().id(&partial.over(table.layout(c.result))));
                    let overlaid: Option<Vec<LayoutId>> = overlaid.collect();
                    let overlaid = overlaid.ok_or_else(|| self.unreachable(id))?;
                    Reading { var: of.0, projection: self.projection(overlaid.into_iter()) }
                }
            });
        }
        let readers: Vec<Reading> = users.iter().chain(&outputs).copied().collect();
        match pinned {
            None => self.cover(id, number, graph, made, &readers)?,
            Some(pin) => {
                self.cover(id, number, graph, made, &[pin])?;
                self.cover(id, number, graph, pin, &readers)?;
            }
        }
        Ok(ValuePlan { made, pinned, users, outputs })
    }
}
