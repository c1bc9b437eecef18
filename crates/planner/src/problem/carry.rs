//! The factor of one value: what it costs to carry it from where it stands to its readers.
//!
//! A *reading* is a variable together with the layout that each of its values stands for. If few variables are involved,
//! the factor is one table over all of them. A value with many readers gets a variable of its own, whose values are the
//! sets of layouts that the readers may want together: the root meets the set, and each reader meets the set, but no
//! longer each other.

use shardgrad_graph::NodeId;
use smallvec::SmallVec;

use super::{Builder, ProjectionId, Reading};
use crate::cost::{INFINITE, Packed};
use crate::error::Error;
use crate::layouts::LayoutId;
use crate::search::network::VarId;
use crate::steiner::{LayoutSet, TransitionGraph, layout_set};

/// Largest table that is made directly over all consumers of a value.
const DIRECT_LIMIT: usize = 1 << 22;
/// Most readers of a value for which tables may be that large.
const DIRECT_READERS: usize = 4;
/// Most sets of layouts that one value's consumers may ask for.
const SET_LIMIT: usize = 1 << 13;

impl Builder<'_> {
    /// The layout that a reading stands for whatever its variable's value, if there is one.
    fn constant(&self, reading: &Reading) -> Option<LayoutId> {
        let layouts = &self.projections[reading.projection as usize];
        let (first, rest) = layouts.split_first()?;
        rest.iter().all(|l| l == first).then_some(*first)
    }

    /// The factor that carries a value from where it stands to its readers.
    pub(super) fn cover(
        &mut self,
        id: NodeId,
        number: u32,
        graph: &TransitionGraph,
        root: Reading,
        readers: &[Reading],
    ) -> Result<(), Error> {
        if readers.is_empty() {
            return Ok(());
        }
        let fixed = layout_set(readers.iter().filter_map(|r| self.constant(r)));
        let readers: SmallVec<[Reading; 4]> =
            readers.iter().filter(|r| self.constant(r).is_none()).copied().collect();
        let mut scope: SmallVec<[VarId; 8]> = readers.iter().map(|r| r.var).collect();
        scope.extend(self.constant(&root).is_none().then_some(root.var));
        scope.sort_unstable();
        scope.dedup();
        let size = scope.iter().fold(1_usize, |n, &v| n.saturating_mul(self.network.domain(v)));
        let most = if readers.len() <= DIRECT_READERS { DIRECT_LIMIT } else { DIRECT_LIMIT >> 8 };
        if size > most && readers.len() > 2 {
            return self.star(id, graph, root, &readers, &fixed);
        }
        // What the table depends on: the graph, and what each variable of the scope projects to.
        let mut key: SmallVec<[u32; 16]> = SmallVec::new();
        key.push(number);
        key.extend(fixed.iter().map(|&l| u32::from(l)));
        key.push(u32::MAX);
        key.push(root.projection);
        for &var in &scope {
            key.push(u32::MAX);
            key.push(u32::from(root.var == var));
            let mut demanded: SmallVec<[u32; 4]> =
                readers.iter().filter(|r| r.var == var).map(|r| r.projection).collect();
            demanded.sort_unstable();
            demanded.dedup();
            key.extend(demanded);
        }
        let table = match self.covers.get(&key) {
            Some(&table) => table,
            None => {
                let entries = self.cover_table(graph, root, &readers, &fixed, &scope);
                let table = self.network.tables.intern(entries);
                self.covers.insert(key, table);
                table
            }
        };
        self.network.factor(scope, table);
        Ok(())
    }

    fn cover_table(
        &self,
        graph: &TransitionGraph,
        root: Reading,
        readers: &[Reading],
        fixed: &LayoutSet,
        scope: &[VarId],
    ) -> Vec<Packed> {
        let extents: SmallVec<[usize; 8]> = scope.iter().map(|&v| self.network.domain(v)).collect();
        let mut strides: SmallVec<[usize; 8]> = SmallVec::from_elem(1, scope.len());
        for at in (1..scope.len()).rev() {
            strides[at - 1] = strides[at] * extents[at];
        }
        let position = |r: &Reading| scope.iter().position(|&v| v == r.var);
        let lookup: Vec<(usize, &[LayoutId])> = readers
            .iter()
            .map(|r| (position(r).unwrap_or(0), &*self.projections[r.projection as usize]))
            .collect();
        let start = &*self.projections[root.projection as usize];
        let start_at = self.constant(&root).map_or_else(|| position(&root), |_| None);
        // A set's costs are looked up once and written for all layouts that the root may have.
        let column = start_at.filter(|&at| readers.iter().all(|r| r.var != scope[at]));
        let mut entries = vec![0; extents.iter().product()];
        let mut digits: SmallVec<[usize; 8]> = SmallVec::from_elem(0, scope.len());
        let mut index = 0;
        loop {
            let wanted = lookup.iter().map(|(at, layouts)| layouts[digits[*at]]);
            let costs = graph.cover(&layout_set(wanted.chain(fixed.iter().copied())));
            match column {
                Some(at) => {
                    let column = entries[index..].iter_mut().step_by(strides[at]);
                    for (entry, &layout) in column.zip(start) {
                        *entry = costs[usize::from(layout)];
                    }
                }
                None => {
                    entries[index] = costs[usize::from(start[start_at.map_or(0, |at| digits[at])])];
                }
            }
            let mut at = scope.len();
            loop {
                if at == 0 {
                    return entries;
                }
                at -= 1;
                if Some(at) == column {
                    continue;
                }
                digits[at] += 1;
                index += strides[at];
                if digits[at] < extents[at] {
                    break;
                }
                index -= strides[at] * extents[at];
                digits[at] = 0;
            }
        }
    }

    /// The same with a variable for the set of layouts, so that readers only meet in it.
    fn star(
        &mut self,
        id: NodeId,
        graph: &TransitionGraph,
        root: Reading,
        readers: &[Reading],
        fixed: &LayoutSet,
    ) -> Result<(), Error> {
        let mut by_var: Vec<(VarId, Vec<ProjectionId>)> = Vec::new();
        for reader in readers {
            match by_var.iter_mut().find(|(v, _)| *v == reader.var) {
                Some((_, projections)) => projections.push(reader.projection),
                None => by_var.push((reader.var, vec![reader.projection])),
            }
        }
        let wanted: Vec<(VarId, Vec<LayoutSet>)> = by_var
            .into_iter()
            .map(|(var, projections)| {
                let of = |value: usize| {
                    layout_set(projections.iter().map(|&p| self.projections[p as usize][value]))
                };
                (var, (0..self.network.domain(var)).map(of).collect())
            })
            .collect();
        let mut sets: Vec<LayoutSet> = vec![fixed.clone()];
        for (_, options) in &wanted {
            let mut options = options.clone();
            options.sort_unstable();
            options.dedup();
            let mut unions: Vec<LayoutSet> = sets
                .iter()
                .flat_map(|s| options.iter().map(|o| layout_set(s.iter().chain(o).copied())))
                .collect();
            unions.sort_unstable();
            unions.dedup();
            if unions.len() > SET_LIMIT {
                let name = self.program.name_of(id).map_or_else(|| id.to_string(), str::to_owned);
                return Err(Error::TooLarge { value: name, readers: readers.len() });
            }
            sets = unions;
        }
        self.by_sets.push(id.0);
        let set_var = self.network.variable(sets.len());
        let mut root_table = Vec::new();
        for &layout in self.projections[root.projection as usize].iter() {
            root_table.extend(sets.iter().map(|set| graph.cover(set)[usize::from(layout)]));
        }
        let table = self.network.tables.intern(root_table);
        self.network.factor([root.var, set_var], table);
        for (var, options) in wanted {
            let contains = |set: &LayoutSet, o: &LayoutSet| o.iter().all(|l| set.contains(l));
            let entries = options
                .iter()
                .flat_map(|o| sets.iter().map(|s| if contains(s, o) { 0 } else { INFINITE }))
                .collect();
            let table = self.network.tables.intern(entries);
            self.network.factor([var, set_var], table);
        }
        Ok(())
    }
}
