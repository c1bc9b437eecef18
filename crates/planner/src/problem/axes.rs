//! One mesh axis at a time: a bound and a plan where the whole network is too wide to be solved exactly.
//!
//! *The network of an axis* is the problem of the same program on the same mesh of which all other axes have one device,
//! with *shares* of the costs in place of costs, such that the shares that the axes have of anything add up to no more than
//! it costs. An assignment of the whole network is one of every axis's network, so the sum of their least costs bounds the
//! cost of every plan. Each is small: its domains are those of a mesh of one axis.
//!
//! * A step of a value between placements p and q of an axis has the least cost of any path between layouts that have
//!   them on that axis; where the shares of a path that changes several axes at once add up to more than it costs, all of
//!   them are scaled down to what it costs. What is left between bound and optimum is where other axes are used less than
//!   they could be.
//! * An op costs what its cheapest choice does; of what another choice costs more, each axis has an equal part, the
//!   least over all choices that do the same on that axis.
//!
//! Only the leading field of costs is shared out.
//!
//! With the least cost of an axis's network goes what each of its values costs more. What the values of a choice on all axes
//! cost more is more than the plan that was found is above the bound? Then the choice is in no best plan, and what is left of the
//! whole network may be small enough to be solved exactly.
//!
//! A plan is found by coordinate descent over axes: one axis of two, or two of more, are free; what the others do is held, at
//! first what each does in its own network; and the network of the values left is solved exactly, in turn, until nothing is
//! gained.

use std::collections::HashMap;
use std::rc::Rc;

use shardgrad_core::{AxisSet, Mesh, Placement};
use shardgrad_graph::{NodeId, Program};
use smallvec::SmallVec;

use super::{Builder, NodeSpace, Problem, Reading};
use crate::cost::{INFINITE, Packed, Scale};
use crate::demands::Demands;
use crate::error::Error;
use crate::layouts::{LayoutId, LayoutTable};
use crate::options::Options;
use crate::search::{
    BUCKET_LIMIT, Failure, Known, Solution, Trace, eliminate, eliminated, marginals, restrict,
};
use crate::space::Choice;
use crate::steiner::TransitionGraph;

/// Most rounds over all axes. Each gains something; two or three are what it takes.
const ROUNDS: usize = 8;

/// What the problem of one axis is made from.
pub(super) struct Part<'a> {
    whole: &'a Problem,
    /// All axes of more than one device.
    axes: &'a [usize],
    /// Which of them it is.
    at: usize,
    /// The spaces of this axis, by those of the whole.
    spaces: HashMap<*const NodeSpace, PartSpace>,
}

/// A space of one axis, and the number there of each choice of the whole's.
type PartSpace = (Rc<NodeSpace>, Rc<[u32]>);

impl Part<'_> {
    /// The transition graph of a value on this axis.
    pub(super) fn graph(&self, id: NodeId, alone: &Rc<LayoutTable>) -> TransitionGraph {
        let whole = &self.whole.graphs[id.index()];
        let (shares, base) = shares(whole, self.axes, &self.whole.scale);
        let axis = self.axes[self.at];
        let on = |layout: LayoutId| digit(alone.layout(layout).on(axis), base);
        let share = &shares[self.at];
        TransitionGraph::from_steps(alone.clone(), |from, to| share[on(from) * base + on(to)])
    }

    /// By node: the number on this axis of each choice of the whole's.
    pub(super) fn numbers(&self) -> Vec<Rc<[u32]>> {
        let of = |space: &Rc<NodeSpace>| self.spaces.get(&Rc::as_ptr(space)).map(|s| s.1.clone());
        self.whole.spaces.iter().filter_map(of).collect()
    }
}

impl Builder<'_> {
    /// The choices of a node on the builder's axis: what its choices come to there, in the order in which they first do.
    pub(super) fn part_space(&mut self, id: NodeId) -> Option<Rc<NodeSpace>> {
        let part = self.part.as_ref()?;
        let (whole, share) = (part.whole, part.axes.len() as Packed);
        let space = &whole.spaces[id.index()];
        if let Some((known, _)) = part.spaces.get(&Rc::as_ptr(space)) {
            return Some(known.clone());
        }
        let operands = self.program.node(id).operands.clone();
        let onto_operands: Vec<Vec<LayoutId>> =
            operands.iter().map(|&o| self.onto(whole, o)).collect();
        let onto_result = self.onto(whole, id);
        let costs = whole.network.tables.get(space.costs).clone();
        let units = |cost: Packed| whole.scale.units(cost);
        let least = costs.iter().map(|&c| units(c)).min().unwrap_or(0);
        let mut numbers: HashMap<(SmallVec<[LayoutId; 2]>, LayoutId), usize> = HashMap::new();
        let mut choices: Vec<Choice> = Vec::new();
        let mut more: Vec<Packed> = Vec::new();
        let mut number_of: Vec<u32> = Vec::with_capacity(costs.len());
        for (choice, &cost) in space.choices.iter().zip(costs.iter()) {
            let read = choice.operands.iter().zip(&onto_operands);
            let read: SmallVec<[LayoutId; 2]> =
                read.map(|(&layout, onto)| onto[usize::from(layout)]).collect();
            let result = onto_result[usize::from(choice.result)];
            let number = *numbers.entry((read.clone(), result)).or_insert(choices.len());
            if number == choices.len() {
                let (kinds, fields) = (choice.kinds.clone(), [0; 4]);
                choices.push(Choice { operands: read, result, kinds, fields });
                more.push(INFINITE);
            }
            more[number] = more[number].min((units(cost) - least) / share);
            number_of.push(u32::try_from(number).unwrap_or(u32::MAX));
        }
        let space = Rc::new(NodeSpace {
            pending: AxisSet::default(),
            operands: (0..operands.len())
                .map(|i| self.projection(choices.iter().map(|c| c.operands[i])))
                .collect(),
            result: self.projection(choices.iter().map(|c| c.result)),
            costs: self.network.tables.intern(more),
            choices,
        });
        let key = Rc::as_ptr(&whole.spaces[id.index()]);
        if let Some(part) = &mut self.part {
            part.spaces.insert(key, (space.clone(), number_of.into()));
        }
        Some(space)
    }

    /// What each layout of a value is on the builder's axis.
    fn onto(&mut self, whole: &Problem, value: NodeId) -> Vec<LayoutId> {
        let rank = self.program.node(value).ty.rank();
        let alone = self.table(rank, self.values.with_max[value.index()]);
        let all = whole.graphs[value.index()].layouts().all();
        all.iter().map(|layout| alone.id(layout).unwrap_or_default()).collect()
    }
}

/// A placement as a digit below `base`, for tensors of `base - 3` dims.
fn digit(placement: Placement, base: usize) -> usize {
    match placement {
        Placement::Replicated => 0,
        Placement::Shard(dim) => 1 + dim,
        Placement::PendingSum => base - 2,
        Placement::PendingMax => base - 1,
    }
}

/// By axis, the shares of the cost of each step, from by to, and how many placements there are.
fn shares(graph: &TransitionGraph, axes: &[usize], scale: &Scale) -> (Vec<Vec<Packed>>, usize) {
    let layouts = graph.layouts();
    let base = layouts.rank() + 3;
    let digits: Vec<SmallVec<[usize; 4]>> = layouts
        .all()
        .iter()
        .map(|l| axes.iter().map(|&a| digit(l.on(a), base)).collect())
        .collect();
    // Every path: the axes on which it changes something, with the step there, and what it costs.
    let paths = || {
        digits.iter().zip(0..).flat_map(|(from, i)| {
            digits.iter().zip(0..).filter_map(move |(to, j)| {
                let cost = graph.dist(i, j);
                let steps = from.iter().zip(to).enumerate().filter(|(_, (p, q))| p != q);
                let steps: SmallVec<[(usize, usize); 4]> =
                    steps.map(|(k, (p, q))| (k, p * base + q)).collect();
                (cost < INFINITE).then(|| (steps, scale.units(cost)))
            })
        })
    };
    let mut least = vec![vec![INFINITE; base * base]; axes.len()];
    for (steps, cost) in paths() {
        for (k, step) in steps {
            least[k][step] = least[k][step].min(cost);
        }
    }
    let mut shares = least.clone();
    for (steps, cost) in paths() {
        let sum: Packed = steps.iter().map(|&(k, step)| least[k][step]).sum();
        if sum > cost {
            for (k, step) in steps {
                shares[k][step] = shares[k][step].min(portion(least[k][step], cost, sum));
            }
        }
    }
    (shares, base)
}

/// At most `share * cost / sum`, and that exactly if the product does not overflow.
fn portion(share: Packed, cost: Packed, sum: Packed) -> Packed {
    let bits = |n: Packed| Packed::BITS - n.leading_zeros();
    match (bits(share) + bits(cost)).saturating_sub(Packed::BITS) {
        0 => share * cost / sum,
        excess => share * (cost >> excess) / ((sum >> excess) + 1),
    }
}

/// What the axes tell of a problem.
pub(super) struct Told {
    /// A bound, an assignment, and the values of best assignments.
    pub(super) known: Known,
    /// How the bound follows, by axis, with the values whose readers meet in a variable of sets.
    pub(super) traces: Vec<(Trace, Vec<u32>)>,
}

/// Bounds and plans a problem axis by axis; `None` if an axis is too wide for itself, or no plan was found.
///
/// # Errors
/// No assignment is possible.
pub(super) fn solve(
    program: &Program,
    mesh: &Mesh,
    demands: &Demands,
    options: &Options,
    whole: &Problem,
) -> Result<Option<Told>, Error> {
    let axes: Vec<usize> = (0..mesh.rank()).filter(|&a| mesh.axis_size(a) > 1).collect();
    let mut descent = Descent { whole, read: whole.layout_variables(), held: Vec::new() };
    let mut lower: Packed = whole
        .spaces
        .iter()
        .filter_map(|s| {
            whole.network.tables.get(s.costs).iter().map(|&c| whole.scale.units(c)).min()
        })
        .sum();
    let mut traces = vec![(Trace::default(), Vec::new()); mesh.rank()];
    for (at, &axis) in axes.iter().enumerate() {
        let alone = mesh.only(axis);
        let part = Part { whole, axes: &axes, at, spaces: HashMap::new() };
        let mut problem = Builder::new(program, &alone, demands, options).part(part).build()?;
        let done = match eliminated(&mut problem.network, BUCKET_LIMIT) {
            Ok(done) => done,
            Err(Failure::Infeasible) => return Err(Error::contradicting(program)),
            Err(Failure::TooWide(..)) => return Ok(None),
        };
        lower += done.cost;
        let more = marginals(&mut problem.network, &done);
        let assignment = done.first(&problem.network);
        descent.held.push(Held::of(axis, &problem, &assignment, more));
        traces[axis] = (done.trace, problem.by_sets);
    }
    let Some(best) = descent.run(lower) else { return Ok(None) };
    let kept = descent.in_the_running(whole.scale.units(best.0) - lower);
    let known = Known { kept, best: Some(best), lower: whole.scale.of_units(lower) };
    Ok(Some(Told { known, traces }))
}

impl Problem {
    /// Variables that stand for layouts: of pins, then of outputs, by value.
    fn layout_variables(&self) -> Vec<(NodeId, Reading)> {
        let nodes = self.spaces.len();
        let plans = (0..).map(NodeId).zip(&self.plans);
        plans
            .flat_map(|(id, plan)| {
                plan.pinned.iter().chain(&plan.outputs).map(move |&reading| (id, reading))
            })
            .filter(|(_, reading)| reading.var as usize >= nodes)
            .collect()
    }

    /// The placement on an axis that each value of a reading's variable stands for.
    fn placements(&self, id: NodeId, reading: Reading, axis: usize) -> Vec<Placement> {
        let layouts = self.graphs[id.index()].layouts();
        let numbers = &self.projections[reading.projection as usize];
        numbers.iter().map(|&l| layouts.layout(l).on(axis)).collect()
    }
}

/// What is held on one axis.
struct Held {
    axis: usize,
    /// By node and choice: the number of what the choice comes to on the axis.
    numbers: Vec<Rc<[u32]>>,
    /// By node: that number.
    choices: Vec<u32>,
    /// By layout variable: the placement.
    placements: Vec<Placement>,
    /// By variable of the axis's network and value: how much more than least any assignment costs with it.
    more: Vec<Rc<[Packed]>>,
    /// By layout variable: the number of its variable in the axis's network, and the placement of each value.
    lying: Vec<(usize, Vec<Placement>)>,
}

impl Held {
    /// What an assignment of the axis's own network says.
    fn of(axis: usize, part: &Problem, assignment: &[u32], more: Vec<Rc<[Packed]>>) -> Self {
        let lying = |(id, reading): (NodeId, Reading)| {
            (reading.var as usize, part.placements(id, reading, axis))
        };
        let lying: Vec<_> = part.layout_variables().into_iter().map(lying).collect();
        Self {
            axis,
            numbers: part.numbers.clone(),
            choices: assignment[..part.spaces.len()].to_vec(),
            placements: lying.iter().map(|(var, on)| on[assignment[*var] as usize]).collect(),
            more,
            lying,
        }
    }

    /// How much more than least any assignment costs on the axis with a choice of a node.
    fn more_at_node(&self, node: usize, choice: usize) -> Packed {
        self.more[node][self.numbers[node][choice] as usize]
    }

    /// The same with a placement of a layout variable.
    fn more_at_layout(&self, at: usize, placement: Placement) -> Packed {
        let (var, placements) = &self.lying[at];
        let of = placements.iter().zip(self.more[*var].iter()).filter(|(p, _)| **p == placement);
        of.map(|(_, more)| *more).min().unwrap_or(INFINITE)
    }

    /// Takes over what an assignment of the whole network says.
    fn hold(&mut self, whole: &Problem, read: &[(NodeId, Reading)], assignment: &[u32]) {
        for ((choice, numbers), &value) in
            self.choices.iter_mut().zip(&self.numbers).zip(assignment)
        {
            *choice = numbers[value as usize];
        }
        for (placement, &(id, reading)) in self.placements.iter_mut().zip(read) {
            let value = assignment[reading.var as usize] as usize;
            *placement = whole.placements(id, reading, self.axis)[value];
        }
    }
}

/// Coordinate descent over axes.
struct Descent<'a> {
    whole: &'a Problem,
    read: Vec<(NodeId, Reading)>,
    held: Vec<Held>,
}

impl Descent<'_> {
    /// The best assignment that was found, unless none was; `lower` bounds the leading field.
    fn run(&mut self, lower: Packed) -> Option<(Packed, Vec<u32>)> {
        let mut best: Option<(Packed, Vec<u32>)> = None;
        let sets = self.free_together();
        // Turns since the last gain. Once all other sets were free in vain, nothing is left to try.
        let mut idle = 0;
        for free in sets.iter().cycle().take(ROUNDS * sets.len()) {
            let kept = self.kept(free);
            let mut small = restrict(&self.whole.network, &kept);
            let found = eliminate(&mut small, BUCKET_LIMIT).ok();
            let gain =
                |found: &Solution| best.as_ref().is_none_or(|(least, _)| found.cost < *least);
            if let Some(Solution { cost, assignment, .. }) = found.filter(gain) {
                let values = assignment.iter().zip(&kept);
                let assignment: Vec<u32> = values.map(|(&v, kept)| kept[v as usize]).collect();
                for held in &mut self.held {
                    held.hold(self.whole, &self.read, &assignment);
                }
                best = Some((cost, assignment));
                idle = 0;
                if self.whole.scale.units(cost) == lower {
                    break;
                }
            } else {
                idle += 1;
            }
            if best.is_some() && idle + 1 >= sets.len() {
                break;
            }
        }
        best
    }

    /// The values of each variable that may be in an assignment whose leading field is at most so much above the bound.
    fn in_the_running(&self, gap: Packed) -> Vec<Vec<u32>> {
        let network = &self.whole.network;
        let mut kept: Vec<Vec<u32>> = network.domains.iter().map(|&d| (0..d).collect()).collect();
        for (node, values) in kept.iter_mut().take(self.whole.spaces.len()).enumerate() {
            values.retain(|&value| {
                let more = self.held.iter().map(|h| h.more_at_node(node, value as usize));
                more.sum::<Packed>() <= gap
            });
        }
        for (at, &(id, reading)) in self.read.iter().enumerate() {
            let placements: Vec<Vec<Placement>> =
                self.held.iter().map(|h| self.whole.placements(id, reading, h.axis)).collect();
            kept[reading.var as usize].retain(|&value| {
                let on = self.held.iter().zip(&placements);
                let more = on.map(|(h, on)| h.more_at_layout(at, on[value as usize]));
                more.sum::<Packed>() <= gap
            });
        }
        kept
    }

    /// Axes that are free at once: each of two, or each pair of more.
    fn free_together(&self) -> Vec<Vec<usize>> {
        let axes = 0..self.held.len();
        match self.held.len() {
            0..=2 => axes.map(|axis| vec![axis]).collect(),
            _ => axes.flat_map(|a| (0..a).map(move |b| vec![a, b])).collect(),
        }
    }

    /// The values of each variable that do what is held on all other axes; all values where there are none such.
    fn kept(&self, free: &[usize]) -> Vec<Vec<u32>> {
        let network = &self.whole.network;
        let mut kept: Vec<Vec<u32>> = network.domains.iter().map(|&d| (0..d).collect()).collect();
        let mut keep = |var: usize, does: &dyn Fn(usize) -> bool| {
            let some: Vec<u32> =
                kept[var].iter().copied().filter(|&value| does(value as usize)).collect();
            if !some.is_empty() {
                kept[var] = some;
            }
        };
        let others: Vec<&Held> = self
            .held
            .iter()
            .enumerate()
            .filter(|(k, _)| !free.contains(k))
            .map(|(_, h)| h)
            .collect();
        for node in 0..self.whole.spaces.len() {
            keep(node, &|value| others.iter().all(|h| h.numbers[node][value] == h.choices[node]));
        }
        for (i, &(id, reading)) in self.read.iter().enumerate() {
            let placements: Vec<Vec<Placement>> =
                others.iter().map(|h| self.whole.placements(id, reading, h.axis)).collect();
            keep(reading.var as usize, &|value| {
                others.iter().zip(&placements).all(|(h, on)| on[value] == h.placements[i])
            });
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use shardgrad_graph::{Activation, LayerSpec, Loss, MlpSpec, Optimizer};

    use super::*;
    use crate::options::{Objective, Redundant};
    use crate::request::LayoutRequest;

    fn program(widths: &[usize], optimizer: &str) -> Program {
        let layer = |w: &[usize]| LayerSpec {
            inputs: w[0],
            outputs: w[1],
            bias: true,
            activation: Activation::Relu,
        };
        let optimizer = Optimizer::named(optimizer).unwrap();
        let layers = widths.windows(2).map(layer).collect();
        MlpSpec { layers, loss: Loss::CrossEntropy, optimizer, ..MlpSpec::new("mlp", 8) }
            .training_program()
            .unwrap()
    }

    #[test]
    fn the_optimum_lies_between_the_bound_and_the_plan() {
        let (mut reached, mut tight, mut struck, mut all) = (0, 0, 0, 0);
        for (widths, optimizer) in [(&[6, 8, 4][..], "sgd"), (&[5, 7, 3], "adam"), (&[4, 4], "sgd")]
        {
            let program = program(widths, optimizer);
            for mesh in ["a=2, b=2", "a=2, b=3", "a=3, b=1, c=2"] {
                let mesh: Mesh = mesh.parse().unwrap();
                for preset in ["auto", "data", "megatron", "fsdp"] {
                    let by_axis = mesh.axes().iter().map(|a| format!("{}={preset}", a.name));
                    let request: LayoutRequest =
                        by_axis.collect::<Vec<_>>().join(",").parse().unwrap();
                    let demands = Demands::resolve(&program, &mesh, &request).unwrap();
                    for (objective, redundant) in [
                        (Objective::Volume, Redundant::Never),
                        (Objective::Volume, Redundant::Allow),
                        (Objective::Time, Redundant::Never),
                    ] {
                        let options = Options { objective, redundant, ..Options::default() };
                        let mut whole =
                            Builder::new(&program, &mesh, &demands, &options).build().unwrap();
                        let known = solve(&program, &mesh, &demands, &options, &whole);
                        let known = known.unwrap().unwrap().known;
                        let best = eliminate(&mut whole.network, BUCKET_LIMIT).unwrap().cost;
                        let (found, assignment) = known.best.unwrap();
                        assert!(known.lower <= best && best <= found, "{mesh} {preset}");
                        assert_eq!(whole.network.cost(&assignment), found);
                        // What is struck out is in no best plan.
                        let mut left = restrict(&whole.network, &known.kept);
                        assert_eq!(eliminate(&mut left, BUCKET_LIMIT).unwrap().cost, best);
                        struck += usize::from(left.domains != whole.network.domains);
                        all += 1;
                        reached += usize::from(found == best);
                        tight += usize::from(2 * known.lower >= best);
                    }
                }
            }
        }
        // Most plans are the best, most bounds are more than half of it, and most strike something out.
        let most = 3 * all / 4;
        assert!(
            reached > most && tight > most && struck > most,
            "{reached}, {tight}, {struck} of {all}"
        );
    }

    #[test]
    fn shares_never_add_up_to_more_than_a_path_costs() {
        let mesh: Mesh = "a=2, b=3, c=2".parse().unwrap();
        let request = LayoutRequest::auto();
        let program = program(&[4, 6], "sgd");
        let demands = Demands::resolve(&program, &mesh, &request).unwrap();
        let options = Options::default();
        let whole = Builder::new(&program, &mesh, &demands, &options).build().unwrap();
        let mut several = 0;
        for graph in &whole.graphs {
            let (shares, base) = shares(graph, &[0, 1, 2], &whole.scale);
            let layouts = graph.layouts();
            for (i, from) in (0..).zip(layouts.all()) {
                for (j, to) in
                    (0..).zip(layouts.all()).filter(|(j, _)| graph.dist(i, *j) < INFINITE)
                {
                    let changed = (0..3).filter(|&axis| from.on(axis) != to.on(axis));
                    let step = |axis| digit(from.on(axis), base) * base + digit(to.on(axis), base);
                    let sum: Packed = changed.clone().map(|axis| shares[axis][step(axis)]).sum();
                    assert!(sum <= whole.scale.units(graph.dist(i, j)), "{from:?} -> {to:?}");
                    several += usize::from(changed.count() > 1 && sum > 0);
                }
            }
        }
        assert!(several > 100, "{several}");
    }

    #[test]
    fn a_portion_is_rounded_down_and_never_overflows() {
        assert_eq!(portion(5, 7, 10), 3);
        // A product of 2^190 does not fit, so its last digits are left out.
        let half = portion(1 << 100, 1 << 90, 1 << 91);
        assert!(half <= 1 << 99 && half > (1 << 99) - (1 << 72));
        let large: Packed = 1 << 121;
        assert!(portion(large, large - 1, large) < large);
    }
}
