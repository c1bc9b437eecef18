//! How a value gets from the layout it is made in to the set of layouts its consumers want, at least cost.
//!
//! The *transition graph* of a tensor has its layouts as nodes and single transitions as edges. A value that must exist
//! in a set of layouts is brought there along a cheapest arborescence from the layout it is made in: copies are made
//! once and shared, and layouts nobody asked for may stand between. That is the directed Steiner problem; the sets are
//! small, so the dynamic programme over subsets of Dreyfus and Wagner (Networks 1, 1971) is exact and fast:
//!
//! cover({t}, v) = dist(v, t)
//! cover(S, v) = min over u of dist(v, u) + min over S = A ∪ B of cover(A, u) + cover(B, u)
//!
//! Ties go to the first layout and the first partition in order, so trees are the same from run to run.

use std::cell::RefCell;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use shardgrad_core::{Mesh, Transition};
use smallvec::SmallVec;

use crate::cost::{Fields, INFINITE, Packed, Scale};
use crate::layouts::{LayoutId, LayoutTable};

/// A set of layouts: sorted, each once.
pub type LayoutSet = SmallVec<[LayoutId; 6]>;

/// Sorted, each once.
pub fn layout_set(layouts: impl IntoIterator<Item = LayoutId>) -> LayoutSet {
    let mut set: LayoutSet = layouts.into_iter().collect();
    set.sort_unstable();
    set.dedup();
    set
}

/// The transition graph of one tensor type, with cheapest paths and cheapest arborescences.
#[derive(Debug)]
pub struct TransitionGraph {
    layouts: Rc<LayoutTable>,
    /// Cost of the cheapest path, row by source.
    dist: Vec<Packed>,
    /// First layout after the source on that path.
    next: Vec<LayoutId>,
    /// Cost of covering a set, by root.
    covers: RefCell<FxHashMap<LayoutSet, Rc<[Packed]>>>,
}

impl TransitionGraph {
    /// The graph of a tensor type; `fields` prices a single transition between two layouts of the table.
    pub fn new(
        mesh: &Mesh,
        layouts: Rc<LayoutTable>,
        scale: &Scale,
        mut fields: impl FnMut(Transition, LayoutId, LayoutId) -> Fields,
    ) -> Self {
        let table = layouts.clone();
        Self::from_steps(layouts, |from, to| {
            let step = Transition::between(mesh, table.layout(from), table.layout(to));
            step.map_or(INFINITE, |transition| scale.pack(fields(transition, from, to)))
        })
    }

    /// The graph in which a single step costs so much; [`INFINITE`] where there is none.
    pub fn from_steps(
        layouts: Rc<LayoutTable>,
        mut step: impl FnMut(LayoutId, LayoutId) -> Packed,
    ) -> Self {
        let n = layouts.len();
        let mut dist = vec![INFINITE; n * n];
        let mut next = vec![0; n * n];
        let ids = || (0..n).map(|i| LayoutId::try_from(i).unwrap_or(LayoutId::MAX));
        for from in ids() {
            for to in ids() {
                let at = usize::from(from) * n + usize::from(to);
                next[at] = to;
                dist[at] = if from == to { 0 } else { step(from, to) };
            }
        }
        for via in 0..n {
            for from in 0..n {
                let first = dist[from * n + via];
                if first >= INFINITE || from == via {
                    continue;
                }
                for to in 0..n {
                    let longer = first + dist[via * n + to];
                    if longer < dist[from * n + to] {
                        dist[from * n + to] = longer;
                        next[from * n + to] = next[from * n + via];
                    }
                }
            }
        }
        Self { layouts, dist, next, covers: RefCell::default() }
    }

    /// The layouts.
    #[must_use]
    pub fn layouts(&self) -> &Rc<LayoutTable> {
        &self.layouts
    }

    /// Cost of the cheapest path; [`INFINITE`] or more if there is none.
    #[must_use]
    pub fn dist(&self, from: LayoutId, to: LayoutId) -> Packed {
        self.dist[usize::from(from) * self.layouts.len() + usize::from(to)]
    }

    /// Cost of covering a set, from every root.
    #[must_use]
    pub fn cover(&self, set: &LayoutSet) -> Rc<[Packed]> {
        if let Some(known) = self.covers.borrow().get(set) {
            return known.clone();
        }
        let n = self.layouts.len();
        let costs: Rc<[Packed]> = match set.as_slice() {
            [] => vec![0; n].into(),
            [only] => (0..n).map(|v| self.dist[v * n + usize::from(*only)]).collect(),
            _ => {
                let mut merged = vec![INFINITE; n];
                for (a, b) in partitions(set) {
                    let (left, right) = (self.cover(&a), self.cover(&b));
                    for u in 0..n {
                        merged[u] = merged[u].min(left[u] + right[u]);
                    }
                }
                (0..n)
                    .map(|v| {
                        let row = &self.dist[v * n..(v + 1) * n];
                        row.iter().zip(&merged).map(|(d, m)| d + m).min().unwrap_or(INFINITE)
                    })
                    .map(|cost| cost.min(INFINITE))
                    .collect()
            }
        };
        self.covers.borrow_mut().insert(set.clone(), costs.clone());
        costs
    }

    /// The edges of a cheapest arborescence from `root` that covers `set`, each layout entered once, parents first.
    #[must_use]
    pub fn tree(&self, root: LayoutId, set: &LayoutSet) -> Vec<(LayoutId, LayoutId)> {
        let mut edges = Vec::new();
        self.grow(root, set, &mut edges);
        let mut entered = vec![root];
        edges.retain(|&(_, to)| {
            let fresh = !entered.contains(&to);
            if fresh {
                entered.push(to);
            }
            fresh
        });
        edges
    }

    fn grow(&self, root: LayoutId, set: &LayoutSet, edges: &mut Vec<(LayoutId, LayoutId)>) {
        match set.as_slice() {
            [] => {}
            [only] => self.path(root, *only, edges),
            _ => {
                let total = self.cover(set)[usize::from(root)];
                let n = self.layouts.len();
                for u in (0..n).filter_map(|u| LayoutId::try_from(u).ok()) {
                    let way = self.dist(root, u);
                    for (a, b) in partitions(set) {
                        let (left, right) = (self.cover(&a), self.cover(&b));
                        let both = left[usize::from(u)] + right[usize::from(u)];
                        if way + both == total {
                            self.path(root, u, edges);
                            self.grow(u, &a, edges);
                            self.grow(u, &b, edges);
                            return;
                        }
                    }
                }
            }
        }
    }

    fn path(&self, from: LayoutId, to: LayoutId, edges: &mut Vec<(LayoutId, LayoutId)>) {
        let n = self.layouts.len();
        let mut at = from;
        while at != to {
            let step = self.next[usize::from(at) * n + usize::from(to)];
            edges.push((at, step));
            at = step;
        }
    }
}

/// The ways to part a set of two or more into two non-empty sets, the first of which has the first element.
fn partitions(set: &LayoutSet) -> impl Iterator<Item = (LayoutSet, LayoutSet)> + '_ {
    let rest = set.len() - 1;
    (0..(1_u32 << rest) - 1).map(move |bits| {
        let chosen = |i: usize| i == 0 || bits >> (i - 1) & 1 == 1;
        let part = |wanted: bool| {
            let members = set.iter().enumerate().filter(|(i, _)| chosen(*i) == wanted);
            members.map(|(_, &l)| l).collect::<LayoutSet>()
        };
        (part(true), part(false))
    })
}
