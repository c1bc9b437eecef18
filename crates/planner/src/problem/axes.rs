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
//! A plan is found by coordinate descent over axes ([`super::descent`]).

use std::rc::Rc;

use rustc_hash::FxHashMap;
use shardgrad_core::{AxisSet, Mesh, Placement};
use shardgrad_graph::{NodeId, Program};
use smallvec::SmallVec;

use super::descent::{Descent, Held};
use super::{Builder, NodeSpace, Problem};
use crate::cost::{INFINITE, Packed, Scale};
use crate::demands::Demands;
use crate::error::Error;
use crate::layouts::{LayoutId, LayoutTable};
use crate::options::Options;
use crate::search::{BUCKET_LIMIT, Failure, Known, Trace, eliminated, marginals};
use crate::space::Choice;
use crate::steiner::TransitionGraph;

/// What the problem of one axis is made from.
pub(super) struct Part<'a> {
    whole: &'a Problem,
    /// All axes of more than one device.
    axes: &'a [usize],
    /// Which of them it is.
    at: usize,
    /// The spaces of this axis, by those of the whole.
    spaces: FxHashMap<*const NodeSpace, PartSpace>,
}

/// A space of one axis, and the number there of each choice of the whole's.
type PartSpace = (Rc<NodeSpace>, Rc<[u32]>);

impl<'a> Part<'a> {
    /// The problem that it is a part of.
    pub(super) fn whole(&self) -> &'a Problem {
        self.whole
    }

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
        let costs = whole.network.tables.get(space.costs);
        let units = |cost: Packed| whole.scale.units(cost);
        let least = costs.iter().map(|&c| units(c)).min().unwrap_or(0);
        let mut numbers: FxHashMap<(SmallVec<[LayoutId; 2]>, LayoutId), usize> =
            FxHashMap::default();
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

/// `share * cost / sum`, rounded down; nothing where the product is too large.
fn portion(share: Packed, cost: Packed, sum: Packed) -> Packed {
    share.checked_mul(cost).map_or(0, |product| product / sum)
}

/// What the axes tell of a problem.
pub(super) struct Told {
    /// A bound, an assignment, and the values of best assignments.
    pub(super) known: Known,
    /// How the bound follows, by axis, with the values whose readers meet in a variable of sets.
    pub(super) traces: Vec<(Trace, Vec<u32>)>,
}

/// Bounds and plans a problem axis by axis; `None` if it has one axis only, or one that is too wide for itself, or if no plan
/// was found.
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
    if axes.len() < 2 {
        return Ok(None);
    }
    let mut held = Vec::with_capacity(axes.len());
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
        let part = Part { whole, axes: &axes, at, spaces: FxHashMap::default() };
        let mut problem = Builder::of_part(program, &alone, demands, options, part).build()?;
        let done = match eliminated(&mut problem.network, BUCKET_LIMIT) {
            Ok(done) => done,
            Err(Failure::Infeasible) => return Err(Error::contradicting(program)),
            Err(Failure::TooWide(_)) => return Ok(None),
        };
        lower += done.cost;
        let more = marginals(&mut problem.network, &done);
        let assignment = done.first(&problem.network);
        held.push(Held::of(axis, &problem, &assignment, more));
        traces[axis] = (done.trace, problem.by_sets);
    }
    let mut descent = Descent::new(whole, held);
    let Some(best) = descent.run(lower) else { return Ok(None) };
    let kept = descent.in_the_running(whole.scale.units(best.0) - lower);
    let known = Known { kept, best: Some(best), lower: whole.scale.of_units(lower) };
    Ok(Some(Told { known, traces }))
}

#[cfg(test)]
mod tests {
    use shardgrad_graph::{Activation, LayerSpec, Loss, MlpSpec, Optimizer};

    use super::*;
    use crate::options::{Objective, Redundant};
    use crate::request::LayoutRequest;
    use crate::search::{eliminate, restrict};

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
                        let mut left = restrict(&whole.network, &known.kept).unwrap();
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
        assert_eq!(portion(1 << 70, 1 << 70, 1 << 71), 0);
    }
}
