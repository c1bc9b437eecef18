//! Coordinate descent over axes: one axis is free, or two of more than two; what the others do is held, at first what each
//! does in its own network; and the network of the values left is solved exactly, in turn, until nothing is gained.

use std::rc::Rc;

use shardgrad_core::Placement;
use shardgrad_graph::NodeId;

use super::{Problem, Reading};
use crate::cost::{INFINITE, Packed};
use crate::search::{BUCKET_LIMIT, Solution, eliminate, restrict};

/// Most rounds over all axes. Each gains something; two or three are what it takes.
const ROUNDS: usize = 8;

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
pub(super) struct Held {
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
    pub(super) fn of(
        axis: usize,
        part: &Problem,
        assignment: &[u32],
        more: Vec<Rc<[Packed]>>,
    ) -> Self {
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
pub(super) struct Descent<'a> {
    whole: &'a Problem,
    read: Vec<(NodeId, Reading)>,
    held: Vec<Held>,
}

impl<'a> Descent<'a> {
    /// For a problem, with what each axis does in its own network.
    pub(super) fn new(whole: &'a Problem, held: Vec<Held>) -> Self {
        Self { whole, read: whole.layout_variables(), held }
    }

    /// The best assignment that was found, unless none was; `lower` bounds the leading field.
    pub(super) fn run(&mut self, lower: Packed) -> Option<(Packed, Vec<u32>)> {
        let mut best: Option<(Packed, Vec<u32>)> = None;
        let sets = self.free_together();
        // Turns since the last gain. Once all other sets were free in vain, nothing is left to try.
        let mut idle = 0;
        for free in sets.iter().cycle().take(ROUNDS * sets.len()) {
            let kept = self.kept(free);
            let small = restrict(&self.whole.network, &kept);
            let found = small.and_then(|mut small| eliminate(&mut small, BUCKET_LIMIT).ok());
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
    pub(super) fn in_the_running(&self, gap: Packed) -> Vec<Vec<u32>> {
        let network = &self.whole.network;
        let mut kept = network.all_values();
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

    /// Axes that are free at once: each by itself, and each pair of more than two.
    fn free_together(&self) -> Vec<Vec<usize>> {
        let axes = 0..self.held.len();
        match self.held.len() {
            0..=2 => axes.map(|axis| vec![axis]).collect(),
            _ => {
                let pairs = axes.clone().flat_map(|a| (0..a).map(move |b| vec![a, b]));
                axes.map(|axis| vec![axis]).chain(pairs).collect()
            }
        }
    }

    /// The values of each variable that do what is held on all other axes; all values where there are none such.
    fn kept(&self, free: &[usize]) -> Vec<Vec<u32>> {
        let network = &self.whole.network;
        let mut kept = network.all_values();
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
