//! The costs of a space as factors over variables, rebuilt from the program, the pins and core's tables.
//!
//! [`crate::certificate`] says which variables and factors there are, and in which order.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use shardgrad_core::ops::{Reduction, Role};
use shardgrad_core::price::most_sent;
use shardgrad_core::{AxisSet, Layout, Objective, Op, Placement, Prices, TensorType};
use smallvec::SmallVec;

use super::axes::Part;
use super::choices::{Axis, Choices, OperandFacts, Subject};
use super::layouts::{Carriage, LayoutId, LayoutSet, Layouts};
use crate::certificate::{Space, Weights, Work};
use crate::node::{NodeId, OutputRole};
use crate::program::Program;

/// Largest table of costs that is made, in entries.
pub(super) const TABLE_LIMIT: usize = 1 << 24;

/// Placements that a value is pinned to, by axis.
pub(super) type Pinned = SmallVec<[Option<Placement>; 4]>;

/// Costs over the values of a few variables.
#[derive(Clone)]
pub(super) struct Factor {
    /// Its variables, ascending; the last runs fastest in the table. Variables of one value are left out.
    pub(super) scope: SmallVec<[u32; 6]>,
    pub(super) table: u32,
}

/// Tables, equal ones under one number.
#[derive(Default)]
pub(super) struct Tables {
    all: Vec<Rc<[u128]>>,
    numbers: HashMap<Rc<[u128]>, u32>,
}

impl Tables {
    pub(super) fn add(&mut self, table: Vec<u128>) -> u32 {
        let table: Rc<[u128]> = table.into();
        let next = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(table.clone()).or_insert(next);
        if number == next {
            self.all.push(table);
        }
        number
    }

    pub(super) fn get(&self, number: u32) -> &Rc<[u128]> {
        &self.all[number as usize]
    }
}

/// Variables and factors.
#[derive(Default)]
pub(super) struct Network {
    /// Number of values of each variable.
    pub(super) domains: Vec<usize>,
    pub(super) factors: Vec<Factor>,
    pub(super) tables: Tables,
    /// Bounds on the fields of a best plan.
    pub(super) most: [u128; 4],
    /// Most nodes of a best plan.
    pub(super) addends: u128,
}

impl Network {
    pub(super) fn variable(&mut self, values: usize) -> u32 {
        self.domains.push(values);
        u32::try_from(self.domains.len() - 1).unwrap_or(u32::MAX)
    }

    pub(super) fn factor(&mut self, scope: &[u32], table: u32) {
        let scope = scope.iter().copied().filter(|&v| self.domains[v as usize] > 1).collect();
        self.factors.push(Factor { scope, table });
    }
}

/// A variable, and the layout that each of its values stands for.
#[derive(Clone)]
pub(super) struct Reading {
    pub(super) var: u32,
    pub(super) layouts: Rc<[LayoutId]>,
}

impl Reading {
    /// The layout, if it is the same whatever the variable's value.
    pub(super) fn constant(&self) -> Option<LayoutId> {
        let (first, rest) = self.layouts.split_first()?;
        rest.iter().all(|l| l == first).then_some(*first)
    }
}

/// How an axis and a program node restrict the rules of a contraction, or of another op that belongs to a layer.
pub(super) fn axis_of(space: &Space, program: &Program, id: NodeId, axis: usize) -> Axis {
    let node = program.node(id);
    let types = program.operand_types(id);
    if node.layer.is_none() && !node.op.signature(&types, &node.ty).is_contraction() {
        return Axis::Any;
    }
    let layer = node.layer.map(|l| l as usize);
    let layer = layer.and_then(|l| Some((space.layers.get(l)?, program.layers.get(l)?)));
    let work = layer.map_or(space.others[axis], |(works, _)| works[axis]);
    let label = |label: Option<char>| label.map_or(Axis::Repeats, Axis::Along);
    match work {
        Work::Any => Axis::Any,
        Work::Shared => Axis::Shares,
        Work::Repeated => Axis::Repeats,
        Work::Batch => label(layer.and_then(|(_, l)| l.batch.first().copied())),
        Work::In => label(layer.map(|(_, l)| l.in_label)),
        Work::Out => label(layer.map(|(_, l)| l.out_label)),
    }
}

type ChoicesKey = (Option<Op>, Vec<OperandFacts>, TensorType, bool, Vec<Axis>);

/// Makes the [`Network`] of a space.
pub(super) struct Builder<'a> {
    pub(super) program: &'a Program,
    pub(super) pins: &'a BTreeMap<NodeId, Pinned>,
    pub(super) space: &'a Space,
    pub(super) sets: &'a [u32],
    pub(super) prices: Prices<'a>,
    pub(super) weights: Weights,
    /// The factors that carry values are left out.
    pub(super) shared_out: bool,
    /// Set for the network of an axis.
    pub(super) part: Option<Part<'a>>,
}

impl Builder<'_> {
    /// The network with what it is made from, or why it cannot be made.
    pub(super) fn build(&self) -> Result<State, String> {
        let program = self.program;
        let facts = self.facts();
        let mut state = State::default();
        for id in program.ids() {
            let choices = self.choices(&mut state, &facts, id);
            if choices.result.is_empty() {
                return Err(format!("the space admits no way to compute {id}"));
            }
            let var = state.network.variable(choices.result.len());
            let table = state.network.tables.add(choices.costs.clone());
            state.network.factor(&[var], table);
            state.network.addends += 1;
            for (most, field) in state.network.most.iter_mut().zip(choices.most) {
                *most += u128::from(field);
            }
            state.choices.push(choices);
        }
        let users = program.users();
        for id in program.ids() {
            self.value(&mut state, &facts, &users, id)?;
        }
        Ok(state)
    }

    /// By node: whether it can be pending a maximum, and whether it is a scalar that every rank has by construction.
    fn facts(&self) -> Vec<(bool, bool)> {
        let mut facts: Vec<(bool, bool)> = Vec::new();
        for id in self.program.ids() {
            let node = self.program.node(id);
            let signature = node.op.signature(&self.program.operand_types(id), &node.ty);
            let of = |o: &NodeId| facts[o.index()];
            let with_max = signature.reduction == Some(Reduction::Max)
                || signature.monotone && node.operands.iter().any(|o| of(o).0);
            let uniform = node.ty.rank() == 0
                && match node.leaf_role() {
                    Some(role) => role == Role::Scalar,
                    None => node.operands.iter().all(|o| of(o).1),
                };
            facts.push((with_max, uniform));
        }
        facts
    }

    fn choices(&self, state: &mut State, facts: &[(bool, bool)], id: NodeId) -> Rc<Choices> {
        let node = self.program.node(id);
        let mesh = self.prices.mesh;
        let leaf = node.leaf_role().is_some();
        let pinned = self.pins.get(&id);
        let axes: Vec<Axis> = (0..mesh.rank())
            .map(|axis| match pinned.and_then(|p| p[axis]) {
                _ if facts[id.index()].1 => Axis::Repeats,
                Some(placement) if leaf => Axis::Gives(placement),
                _ if leaf => Axis::Any,
                _ => axis_of(self.space, self.program, id, axis),
            })
            .collect();
        let operands: Vec<OperandFacts> = node
            .operands
            .iter()
            .map(|&o| OperandFacts {
                ty: self.program.node(o).ty.clone(),
                with_max: facts[o.index()].0,
                uniform: facts[o.index()].1,
                pending: self.pending(state, o),
            })
            .collect();
        let with_max = facts[id.index()].0;
        if let Some(part) = &self.part {
            let all = &part.whole.choices[id.index()];
            if let Some(known) = state.known_parts.get(&Rc::as_ptr(all)) {
                return known.clone();
            }
            let kinds = operands.iter().map(|o| (o.ty.rank(), o.with_max));
            let tables: Vec<_> = kinds
                .chain([(node.ty.rank(), with_max)])
                .map(|kind| {
                    let whole = part.whole.known_layouts[&kind].clone();
                    (whole, state.layouts(&self.prices, kind.0, kind.1))
                })
                .collect();
            let choices = Rc::new(part.choices(all, &tables));
            state.known_parts.insert(Rc::as_ptr(all), choices.clone());
            return choices;
        }
        let key: ChoicesKey =
            ((!leaf).then(|| node.op.clone()), operands, node.ty.clone(), with_max, axes);
        if let Some(known) = state.known_choices.get(&key) {
            return known.clone();
        }
        let tables: Vec<Rc<Layouts>> =
            key.1.iter().map(|o| state.layouts(&self.prices, o.ty.rank(), o.with_max)).collect();
        let result = state.layouts(&self.prices, node.ty.rank(), with_max);
        let subject = Subject {
            op: &node.op,
            operands: &key.1,
            ty: &node.ty,
            axes: &key.4,
            operand_layouts: &tables.iter().map(Rc::as_ref).collect::<Vec<_>>(),
            result_layouts: &result,
        };
        let choices = Rc::new(subject.choices(&self.prices, &self.weights));
        state.known_choices.insert(key, choices.clone());
        choices
    }

    /// Axes on which a value arises pending, or is pinned so.
    fn pending(&self, state: &State, id: NodeId) -> AxisSet {
        let pinned =
            |axis: usize| self.pins.get(&id).and_then(|p| p[axis]) == Some(Placement::PendingSum);
        let made = state.choices[id.index()].pending;
        (0..self.prices.mesh.rank()).filter(|&a| made.contains(a) || pinned(a)).collect()
    }

    /// Adds the factors that carry a value.
    fn value(
        &self,
        state: &mut State,
        facts: &[(bool, bool)],
        users: &[Vec<(NodeId, usize)>],
        id: NodeId,
    ) -> Result<(), String> {
        let program = self.program;
        let ty = &program.node(id).ty;
        let with_max = facts[id.index()].0;
        let carriage = self.carriage(state, ty, with_max);
        let layouts = state.carriages[carriage].layouts.clone();
        // A best plan makes each layout of the value at most once, or twice where it passes a pin.
        let steps = 2 * layouts.all.len() as u128;
        let (bytes, collectives) = match self.space.objective {
            Objective::Volume | Objective::Memory => (0, 1),
            Objective::Time => (1, 2),
        };
        state.network.addends += steps;
        state.network.most[bytes] += steps * most_sent(self.prices.mesh, ty);
        // No transition counts more than three.
        state.network.most[collectives] += 3 * steps;
        state.network.most[3] += steps * ty.bytes() as u128;

        let read = |state: &State, node: NodeId, layouts: &[LayoutId]| Reading {
            var: node.0,
            layouts: state.shared(layouts),
        };
        let made = read(state, id, &state.choices[id.index()].result.clone());
        let leaf = program.node(id).leaf_role().is_some();
        let pinned = match self.pins.get(&id).filter(|_| !leaf) {
            Some(pinned) => Some(self.lying(state, &layouts, pinned, true, id)?),
            None => None,
        };
        let mut readers: Vec<Reading> = users[id.index()]
            .iter()
            .map(|&(user, at)| read(state, user, &state.choices[user.index()].operands[at].clone()))
            .collect();
        for output in program.outputs.iter().filter(|o| o.node == id) {
            let free: Pinned = SmallVec::from_elem(None, self.prices.mesh.rank());
            let pin = self.pins.get(&id).cloned().unwrap_or_else(|| free.clone());
            let follows = match output.role {
                OutputRole::Loss => {
                    let whole = pin.iter().map(|p| Some(p.unwrap_or(Placement::Replicated)));
                    readers.push(self.lying(state, &layouts, &whole.collect(), true, id)?);
                    continue;
                }
                OutputRole::Value if leaf => (id, free),
                OutputRole::Value => {
                    readers.push(self.lying(state, &layouts, &pin, false, id)?);
                    continue;
                }
                OutputRole::Gradient { of } => (of, pin),
                OutputRole::Update { of } => (of, free),
            };
            let (of, over) = follows;
            let of_layouts = state.layouts(&self.prices, program.node(of).ty.rank(), false);
            let overlaid: Option<Vec<LayoutId>> = state.choices[of.index()]
                .result
                .iter()
                .map(|&l| {
                    let layout = of_layouts.all[usize::from(l)].iter();
                    layouts.number(&Layout(
                        layout.zip(&over).map(|(own, pin)| pin.unwrap_or(own)).collect(),
                    ))
                })
                .collect();
            let overlaid = overlaid.ok_or_else(|| format!("{id} cannot lie as it is pinned"))?;
            readers.push(Reading { var: of.0, layouts: state.shared(&overlaid) });
        }
        if self.shared_out {
            return Ok(());
        }
        let by_sets = self.sets.binary_search(&id.0).is_ok();
        match pinned {
            None => self.carry(state, carriage, &made, &readers, by_sets),
            Some(pin) => {
                self.carry(state, carriage, &made, std::slice::from_ref(&pin), false)?;
                self.carry(state, carriage, &pin, &readers, by_sets)
            }
        }
    }

    /// What it costs to carry values of a type, by number.
    fn carriage(&self, state: &mut State, ty: &TensorType, with_max: bool) -> usize {
        let key = (ty.clone(), with_max);
        if let Some(&known) = state.known_carriages.get(&key) {
            return known;
        }
        let layouts = state.layouts(&self.prices, ty.rank(), with_max);
        let carriage = match &self.part {
            Some(part) => {
                let whole = &part.whole.carriages[part.whole.known_carriages[&key]];
                part.carriage(whole, layouts)
            }
            None => Carriage::new(layouts, ty, &self.prices, &self.weights),
        };
        state.carriages.push(carriage);
        state.known_carriages.insert(key, state.carriages.len() - 1);
        state.carriages.len() - 1
    }

    /// A new variable over the layouts with these placements.
    fn lying(
        &self,
        state: &mut State,
        layouts: &Layouts,
        pinned: &Pinned,
        pending: bool,
        id: NodeId,
    ) -> Result<Reading, String> {
        let mesh = self.prices.mesh;
        let fits = |layout: &Layout| {
            (0..mesh.rank()).all(|axis| {
                let placement = layout.on(axis);
                let meets = pinned[axis].is_none_or(|p| p == placement) || mesh.axis_size(axis) < 2;
                meets && (pending || pinned[axis].is_some() || !placement.is_pending())
            })
        };
        let numbers: Vec<LayoutId> =
            (0..).zip(&layouts.all).filter(|(_, l)| fits(l)).map(|(number, _)| number).collect();
        if numbers.is_empty() {
            return Err(format!("{id} cannot lie as it is pinned"));
        }
        let var = state.network.variable(numbers.len());
        Ok(Reading { var, layouts: state.shared(&numbers) })
    }
}

/// By variable of a scope: where the value starts, and what is read.
type CarryScope = Vec<(Option<Rc<[LayoutId]>>, Vec<Rc<[LayoutId]>>)>;

/// The network, and what is made once and shared.
#[derive(Default)]
pub(super) struct State {
    pub(super) network: Network,
    pub(super) choices: Vec<Rc<Choices>>,
    known_choices: HashMap<ChoicesKey, Rc<Choices>>,
    /// Choices of an axis, by those of the whole mesh.
    known_parts: HashMap<*const Choices, Rc<Choices>>,
    known_layouts: BTreeMap<(usize, bool), Rc<Layouts>>,
    pub(super) carriages: Vec<Carriage>,
    known_carriages: HashMap<(TensorType, bool), usize>,
    pub(super) known_carries: HashMap<(usize, LayoutSet, Option<LayoutId>, CarryScope), u32>,
}

impl State {
    fn layouts(&mut self, prices: &Prices<'_>, rank: usize, with_max: bool) -> Rc<Layouts> {
        let make = || Rc::new(Layouts::new(prices.mesh, rank, with_max));
        self.known_layouts.entry((rank, with_max)).or_insert_with(make).clone()
    }

    pub(super) fn shared(&self, layouts: &[LayoutId]) -> Rc<[LayoutId]> {
        layouts.into()
    }
}

/// The fields of a best plan stay below what the scale has room for.
pub(super) fn has_room(weights: &Weights, most: &[u128; 4], addends: u128) -> bool {
    (1..4).all(|i| {
        let room = 1_u128 << (weights.shift[i - 1] - weights.shift[i]);
        (most[i] >> weights.dropped[i]) + addends < room
            || weights.dropped[i] == 0 && most[i] < room
    })
}

#[cfg(test)]
mod tests {
    use shardgrad_core::{DType, Machine, Mesh};

    use super::*;
    use crate::builder::Graph;

    /// An input that several products read.
    fn fan(readers: usize) -> Program {
        let g = Graph::new("fan", DType::F32);
        let x = g.input("x", [6, 5]).unwrap();
        for i in 0..readers {
            let w = g.param(&format!("w{i}"), [5, 3]).unwrap();
            g.output(&format!("y{i}"), x.matmul(w).unwrap(), OutputRole::Value).unwrap();
        }
        g.finish()
    }

    fn build(
        program: &Program,
        mesh: &str,
        objective: Objective,
        sets: &[u32],
    ) -> Result<Network, String> {
        let (mesh, machine): (Mesh, _) = (mesh.parse().unwrap(), Machine::default());
        let prices = Prices { mesh: &mesh, objective, machine: &machine };
        let others = vec![Work::Any; mesh.rank()];
        let space = Space { objective, machine: machine.clone(), layers: Vec::new(), others };
        let weights = Weights { shift: [90, 60, 30, 0], dropped: [0; 4] };
        let pins = BTreeMap::new();
        let builder = Builder {
            program,
            pins: &pins,
            space: &space,
            sets,
            prices,
            weights,
            shared_out: false,
            part: None,
        };
        Ok(builder.build()?.network)
    }

    /// x · w on three devices: a value has the layouts R, S(0), S(1) and P, and may be brought to each of them twice.
    #[test]
    fn room_is_made_for_the_most_that_a_best_plan_needs() {
        let program = fan(1);
        let most = |objective: Objective| {
            let network = build(&program, "x=3", objective, &[]).unwrap();
            assert_eq!(network.addends, 3 + 3 * 8);
            network.most
        };
        let types = program.nodes.iter().map(|node| &node.ty);
        let sent: u128 = types.map(|ty| 8 * most_sent(&"x=3".parse().unwrap(), ty)).sum();
        let (flops, bytes) = (2 * 6 * 5 * 3, 4 * (6 * 5 + 5 * 3 + 6 * 3));
        assert_eq!(most(Objective::Volume), [sent, 3 * 3 * 8, flops, bytes + 8 * bytes]);
        let [_, found_sent, steps, copies] = most(Objective::Time);
        assert_eq!([found_sent, steps, copies], [sent, 3 * 3 * 8, bytes + 8 * bytes]);
    }

    /// A table over all readers, or the sets of layouts on several axes.
    #[test]
    fn what_would_take_too_long_is_not_built() {
        let problem = |readers: usize, mesh: &str, sets: &[u32]| {
            build(&fan(readers), mesh, Objective::Volume, sets).err().unwrap_or_default()
        };
        assert!(problem(12, "x=3", &[]).starts_with("a value's table would have"));
        assert_eq!(problem(12, "x=3", &[0]), "");
        let found = problem(5, "a=2, b=2, c=2", &[0]);
        assert!(found.starts_with("a value's readers want"), "{found}");
    }

    #[test]
    fn a_field_has_room_for_its_sum_and_for_rounding() {
        let exact = Weights { shift: [30, 20, 10, 0], dropped: [0; 4] };
        assert!(has_room(&exact, &[u128::MAX, 1023, 1023, 1023], 5000));
        for field in 1..4 {
            let mut most = [0; 4];
            most[field] = 1024;
            assert!(!has_room(&exact, &most, 0), "{field}");
            // In units of four, rounded up by every addend.
            let mut rounded = exact;
            rounded.dropped[field] = 2;
            most[field] = 4003;
            assert!(has_room(&rounded, &most, 23), "{field}");
            assert!(!has_room(&rounded, &most, 24), "{field}");
        }
    }
}
