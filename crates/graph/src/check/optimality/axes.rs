//! Bounds that are made axis by axis: the shares that an axis has of the costs of a space.
//!
//! What the shares are, and why the networks of the axes bound the space, is said in [`crate::certificate`].

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use shardgrad_core::{AxisSet, Layout, Mesh, Placement, Prices};

use super::bags::{self, Fault, LIMITS};
use super::choices::Choices;
use super::layouts::{Carriage, LayoutId, Layouts};
use super::network::{Builder, State};
use crate::certificate::{Bags, IMPOSSIBLE, Weights};

/// Shares are whole numbers of units of the leading field.
pub(super) const UNITS: Weights = Weights { shift: [0; 4], dropped: [0; 4] };

/// A space whose costs are shared out, and the axis that the shares are of.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) whole: &'a State,
    /// All axes of more than one device.
    axes: &'a [usize],
    axis: usize,
    /// Bits below the leading field.
    below: u32,
}

impl Part<'_> {
    /// What the choices of a node come to on the axis; `tables` has the layouts of the operands, and last of the result, on
    /// the whole mesh and on this axis.
    pub(super) fn choices(&self, all: &Choices, tables: &[(Rc<Layouts>, Rc<Layouts>)]) -> Choices {
        let units = |cost: &u128| cost >> self.below;
        let least = all.costs.iter().map(units).min().unwrap_or(0);
        let mut found = Choices {
            operands: vec![Vec::new(); all.operands.len()],
            result: Vec::new(),
            costs: Vec::new(),
            pending: AxisSet::default(),
            most: [0; 4],
        };
        let mut seen: HashMap<Vec<LayoutId>, usize> = HashMap::new();
        for (choice, cost) in all.costs.iter().enumerate() {
            let lists = all.operands.iter().chain([&all.result]);
            let here: Vec<LayoutId> = lists
                .zip(tables)
                .map(|(list, (whole, alone))| {
                    let layout = &whole.all[usize::from(list[choice])];
                    alone.number(layout).unwrap_or_default()
                })
                .collect();
            let share = (units(cost) - least) / self.axes.len() as u128;
            let at = *seen.entry(here.clone()).or_insert(found.costs.len());
            if let Some(known) = found.costs.get_mut(at) {
                *known = (*known).min(share);
                continue;
            }
            found.costs.push(share);
            let lists = found.operands.iter_mut().chain([&mut found.result]);
            lists.zip(here).for_each(|(list, number)| list.push(number));
        }
        found
    }

    /// What it costs to carry on the axis what costs `whole` to carry on all of them.
    pub(super) fn carriage(&self, whole: &Carriage, layouts: Rc<Layouts>) -> Carriage {
        let mut least: BTreeMap<Step, u128> = BTreeMap::new();
        self.paths(whole, |steps, cost| {
            for step in steps {
                let known = least.entry(*step).or_insert(cost);
                *known = cost.min(*known);
            }
        });
        let mut shares = least.clone();
        self.paths(whole, |steps, cost| {
            let sum: u128 = steps.iter().map(|step| least[step]).sum();
            if sum > cost {
                for step in steps {
                    let share = portion(least[step], cost, sum);
                    shares.entry(*step).and_modify(|known| *known = share.min(*known));
                }
            }
        });
        let on = |layout: &Layout| layout.on(self.axis);
        Carriage::of_steps(layouts, |from, to| {
            shares.get(&(self.axis, on(from), on(to))).copied().unwrap_or(IMPOSSIBLE)
        })
    }

    /// Visits every way between two layouts: its steps on axes, and its cost.
    fn paths(&self, whole: &Carriage, mut visit: impl FnMut(&[Step], u128)) {
        let all = &whole.layouts.all;
        let mut steps: Vec<Step> = Vec::new();
        for (from, row) in all.iter().zip(whole.way.chunks(all.len())) {
            for (to, &cost) in all.iter().zip(row).filter(|(_, cost)| **cost < IMPOSSIBLE) {
                steps.clear();
                let axes = self.axes.iter().map(|&axis| (axis, from.on(axis), to.on(axis)));
                steps.extend(axes.filter(|(_, p, q)| p != q));
                visit(&steps, cost >> self.below);
            }
        }
    }
}

/// An axis, and placements from and to.
type Step = (usize, Placement, Placement);

/// `share * cost / sum`, rounded down; nothing where the product is too large.
fn portion(share: u128, cost: u128, sum: u128) -> u128 {
    share.checked_mul(cost).map_or(0, |product| product / sum)
}

/// Verifies the bags of every axis and adds up what they prove; `whole` is the space of `builder`.
pub(super) fn verify(builder: &Builder<'_>, whole: &State, lists: &[Bags]) -> Result<u128, Fault> {
    let mesh = builder.prices.mesh;
    let axes: Vec<usize> = (0..mesh.rank()).filter(|&axis| mesh.axis_size(axis) > 1).collect();
    let idle = (0..mesh.rank()).filter(|axis| !axes.contains(axis));
    if lists.len() != mesh.rank() || idle.into_iter().any(|axis| !lists[axis].is_empty()) {
        let what = "there must be bags for each axis of more than one device, and for no other";
        return Err(Fault::Malformed(what.to_owned()));
    }
    if lists.iter().flat_map(|bags| &bags.minima).any(|claim| claim[1..] != [0; 3]) {
        let what = "those of an axis claim units of the first field alone";
        return Err(Fault::Malformed(what.to_owned()));
    }
    let below = builder.weights.shift[0];
    let cheapest = whole.choices.iter().filter_map(|c| c.costs.iter().map(|c| c >> below).min());
    let mut total: u128 = cheapest.sum();
    for &axis in &axes {
        let alone: Mesh = mesh.only(axis);
        let bags = &lists[axis];
        let part = Part { whole, axes: &axes, axis, below };
        let part = Builder {
            sets: &bags.sets,
            prices: Prices { mesh: &alone, ..builder.prices },
            part: Some(part),
            shared_out: false,
            ..*builder
        };
        let mut state = part.build().map_err(Fault::Malformed)?;
        total += bags::verify(&mut state.network, bags, &UNITS, &LIMITS)?;
    }
    Ok(total.saturating_mul(1 << below).min(IMPOSSIBLE))
}
