//! The layouts of a tensor, and what it costs to bring it from one over a tree of transitions to several.
//!
//! The cost of a set of layouts is that of the cheapest arborescence over it, shared copies counted once: the recursion
//! of Dreyfus and Wagner (Networks 1, 1971), evaluated here from the smallest sets up.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use shardgrad_core::{Layout, Mesh, Placement, Prices, TensorType, Transition};
use smallvec::SmallVec;

use crate::certificate::{IMPOSSIBLE, Weights};

/// Number of a layout of a tensor.
pub(super) type LayoutId = u16;

/// A set of layouts, ascending.
pub(super) type LayoutSet = SmallVec<[LayoutId; 6]>;

/// All layouts of tensors of one rank. Axes of one device replicate.
pub(super) struct Layouts {
    pub(super) all: Vec<Layout>,
    numbers: BTreeMap<Layout, LayoutId>,
    wide: Vec<bool>,
}

impl Layouts {
    pub(super) fn new(mesh: &Mesh, rank: usize, with_max: bool) -> Self {
        let wide: Vec<bool> = (0..mesh.rank()).map(|axis| mesh.axis_size(axis) > 1).collect();
        let mut all = vec![Layout::replicated(0)];
        for &wide in &wide {
            let mut placements = vec![Placement::Replicated];
            if wide {
                placements.extend((0..rank).map(Placement::Shard));
                placements.push(Placement::PendingSum);
                placements.extend(with_max.then_some(Placement::PendingMax));
            }
            all = all
                .iter()
                .flat_map(|head| {
                    placements.iter().map(|&last| Layout(head.iter().chain([last]).collect()))
                })
                .collect();
        }
        all.retain(|l| {
            !(l.0.contains(&Placement::PendingSum) && l.0.contains(&Placement::PendingMax))
        });
        let numbers = all.iter().cloned().zip(0..).collect();
        Self { all, numbers, wide }
    }

    /// The number of a layout, whatever it says on axes of one device.
    pub(super) fn number(&self, layout: &Layout) -> Option<LayoutId> {
        let placements = layout.iter().zip(&self.wide);
        let idle = placements.map(|(p, &wide)| if wide { p } else { Placement::Replicated });
        self.numbers.get(&Layout(idle.collect())).copied()
    }
}

/// Costs of carrying a tensor of one type.
pub(super) struct Carriage {
    pub(super) layouts: Rc<Layouts>,
    /// Cheapest way from each layout, row by row, to each.
    pub(super) way: Vec<u128>,
    sets: HashMap<LayoutSet, Rc<[u128]>>,
}

impl Carriage {
    pub(super) fn new(
        layouts: Rc<Layouts>,
        ty: &TensorType,
        prices: &Prices<'_>,
        weights: &Weights,
    ) -> Self {
        Self::of_steps(layouts, |from, to| {
            let step = Transition::between(prices.mesh, from, to);
            step.map_or(IMPOSSIBLE, |step| {
                let step = prices.fastest(step, ty, from, to);
                weights.pack(prices.transition(step, ty, from, to))
            })
        })
    }

    /// With what a single step costs.
    pub(super) fn of_steps(
        layouts: Rc<Layouts>,
        mut step: impl FnMut(&Layout, &Layout) -> u128,
    ) -> Self {
        let n = layouts.all.len();
        let mut way = Vec::with_capacity(n * n);
        for from in &layouts.all {
            way.extend(layouts.all.iter().map(|to| if from == to { 0 } else { step(from, to) }));
        }
        for k in 0..n {
            for i in 0..n {
                for j in 0..n {
                    way[i * n + j] = way[i * n + j].min(way[i * n + k] + way[k * n + j]);
                }
            }
        }
        Self { layouts, way, sets: HashMap::new() }
    }

    /// What it costs to have the tensor in all layouts of a set, by the layout it starts in.
    pub(super) fn reaching(&mut self, set: &LayoutSet) -> Rc<[u128]> {
        if let Some(known) = self.sets.get(set) {
            return known.clone();
        }
        let n = self.layouts.all.len();
        let mut apart = match set.len() {
            0 => vec![0; n],
            1 => {
                let mut end = vec![IMPOSSIBLE; n];
                end[usize::from(set[0])] = 0;
                end
            }
            _ => vec![IMPOSSIBLE; n],
        };
        // Every way to part the set in two, the first part holding its first element.
        for bits in 0..(1_u64 << set.len().saturating_sub(1)).saturating_sub(1) {
            let of = |side: u64| -> LayoutSet {
                let members = set.iter().enumerate();
                members
                    .filter(|(i, _)| (*i > 0 && bits >> (i - 1) & 1 == 0) as u64 == side)
                    .map(|(_, &l)| l)
                    .collect()
            };
            let (a, b) = (self.reaching(&of(0)), self.reaching(&of(1)));
            for (sum, (a, b)) in apart.iter_mut().zip(a.iter().zip(b.iter())) {
                *sum = (*sum).min(a + b);
            }
        }
        let costs: Rc<[u128]> = if set.is_empty() {
            apart.into()
        } else {
            self.way
                .chunks(n)
                .map(|row| {
                    let through = row.iter().zip(&apart).map(|(way, rest)| way + rest);
                    through.min().unwrap_or(IMPOSSIBLE).min(IMPOSSIBLE)
                })
                .collect()
        };
        self.sets.insert(set.clone(), costs.clone());
        costs
    }
}

/// Ascending, each once.
pub(super) fn set_of(layouts: impl IntoIterator<Item = LayoutId>) -> LayoutSet {
    let mut set: LayoutSet = layouts.into_iter().collect();
    set.sort_unstable();
    set.dedup();
    set
}

#[cfg(test)]
mod tests {
    use shardgrad_core::{DType, Machine, Objective};

    use super::*;

    /// Ways to reach a set are the least of all trees from the start over any layouts.
    #[test]
    fn sets_are_reached_over_the_cheapest_of_all_trees() {
        let mesh: Mesh = "x=3".parse().unwrap();
        let machine = Machine::default();
        let prices = Prices { mesh: &mesh, objective: Objective::Volume, machine: &machine };
        let weights = Weights { shift: [90, 60, 30, 0], dropped: [0; 4] };
        let ty = TensorType::new([6, 5], DType::F32);
        let layouts = Rc::new(Layouts::new(&mesh, 2, true));
        let mut carriage = Carriage::new(layouts.clone(), &ty, &prices, &weights);
        let n = layouts.all.len();
        assert_eq!(n, 5);
        // Each layout has one it is made from, or is left out (n).
        let mut least = HashMap::new();
        for code in 0..(n + 1).pow(5) {
            let from: Vec<usize> = (0..5).map(|i| code / (n + 1).pow(i) % (n + 1)).collect();
            for start in 0..n {
                let leads_to_start = |layout: usize| {
                    let mut at = layout;
                    for _ in 0..n {
                        if at != start && at != n {
                            at = from[at];
                        }
                    }
                    at == start
                };
                let made: Vec<usize> = (0..n).filter(|&l| l != start && from[l] != n).collect();
                if !made.iter().all(|&l| leads_to_start(l)) {
                    continue;
                }
                let cost: u128 = made.iter().map(|&l| carriage.way[from[l] * n + l]).sum();
                for bits in 0..1_usize << n {
                    let mut wanted = (0..n).filter(|l| bits >> l & 1 == 1);
                    if wanted.all(|l| l == start || from[l] != n) {
                        let entry = least.entry((bits, start)).or_insert(cost);
                        *entry = cost.min(*entry);
                    }
                }
            }
        }
        for bits in 0..1_usize << n {
            let set = set_of((0..5).filter(|l| bits >> l & 1 == 1));
            let costs = carriage.reaching(&set);
            for start in 0..n {
                let expected = least[&(bits, start)].min(IMPOSSIBLE);
                assert_eq!(costs[start], expected, "{set:?} from {start}");
            }
        }
    }
}
