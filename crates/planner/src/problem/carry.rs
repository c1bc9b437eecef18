//! The factor of one value: what it costs to carry it from where it stands to its readers.
//!
//! A *reading* is a variable together with the layout that each of its values stands for. If few variables are involved,
//! the factor is one table over all of them. A value with many readers gets a variable of its own, whose values are the
//! sets of layouts that the readers may want together: the root meets the set, and each reader meets the set, but no
//! longer each other.

use std::rc::Rc;

use shardgrad_graph::NodeId;
use smallvec::SmallVec;

use super::{Builder, ProjectionId, Reading};
use crate::cost::{INFINITE, Packed};
use crate::error::Error;
use crate::layouts::LayoutId;
use crate::search::network::{Lazy, VarId};
use crate::steiner::{LayoutSet, TransitionGraph, layout_set};

/// Largest table that is made directly over all consumers of a value.
const DIRECT_LIMIT: usize = 1 << 22;
/// Most readers of a value for which tables may be that large.
const DIRECT_READERS: usize = 4;
/// Most sets of layouts that one value's consumers may ask for.
const SET_LIMIT: usize = 1 << 13;
/// Most readers of a value whose table is as large as it comes, where the search goes axis by axis.
const WIDE_READERS: usize = 8;

/// What each reader's variable may want of a value, and all unions of these.
struct Sets {
    wanted: Vec<(VarId, Vec<LayoutSet>)>,
    all: Vec<LayoutSet>,
}

/// Most entries of a table that is made at once.
const LARGE: usize = 1 << 12;

/// The table of what it costs to carry a value from where it stands to its readers.
#[derive(Debug)]
struct Cover {
    graph: Rc<TransitionGraph>,
    /// Numbers of values of the variables of its scope.
    extents: SmallVec<[usize; 8]>,
    /// By reader: its variable, and the layout that each value stands for.
    readers: SmallVec<[(usize, Rc<[LayoutId]>); 4]>,
    /// Layouts that are read whatever the variables' values.
    fixed: LayoutSet,
    /// Where the value stands: the same, without a variable if it is always in one layout.
    root: (Option<usize>, Rc<[LayoutId]>),
}

impl Cover {
    /// What the readers cost, by the layout in which the value stands.
    fn costs(&self, digits: &[usize]) -> Rc<[Packed]> {
        let wanted = self.readers.iter().map(|(at, layouts)| layouts[digits[*at]]);
        self.graph.cover(&layout_set(wanted.chain(self.fixed.iter().copied())))
    }

    fn cost(&self, costs: &[Packed], digits: &[usize]) -> Packed {
        let (at, layouts) = &self.root;
        costs[usize::from(layouts[at.map_or(0, |at| digits[at])])]
    }
}

impl Lazy for Cover {
    fn size(&self) -> usize {
        self.extents.iter().fold(1, |size: usize, &extent| size.saturating_mul(extent))
    }

    fn entry(&self, mut index: usize) -> Packed {
        let mut digits: SmallVec<[usize; 8]> = SmallVec::from_elem(0, self.extents.len());
        for (digit, extent) in digits.iter_mut().zip(&self.extents).rev() {
            *digit = index % extent;
            index /= extent;
        }
        self.cost(&self.costs(&digits), &digits)
    }

    fn all(&self) -> Vec<Packed> {
        let rank = self.extents.len();
        let mut strides: SmallVec<[usize; 8]> = SmallVec::from_elem(1, rank);
        for at in (1..rank).rev() {
            strides[at - 1] = strides[at] * self.extents[at];
        }
        // A set's costs are looked up once and written for all layouts that the root may have.
        let (root, start) = &self.root;
        let column = root.filter(|root| self.readers.iter().all(|(at, _)| at != root));
        let mut entries = vec![0; self.size()];
        let mut digits: SmallVec<[usize; 8]> = SmallVec::from_elem(0, rank);
        let mut index = 0;
        loop {
            let costs = self.costs(&digits);
            match column {
                Some(at) => {
                    let column = entries[index..].iter_mut().step_by(strides[at]);
                    for (entry, &layout) in column.zip(start.iter()) {
                        *entry = costs[usize::from(layout)];
                    }
                }
                None => entries[index] = self.cost(&costs, &digits),
            }
            let mut at = rank;
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
                if digits[at] < self.extents[at] {
                    break;
                }
                index -= strides[at] * self.extents[at];
                digits[at] = 0;
            }
        }
    }
}

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
        graph: &Rc<TransitionGraph>,
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
            match self.sets(&readers, &fixed) {
                Some(sets) => {
                    self.star(id, graph, root, sets);
                    return Ok(());
                }
                // One axis after the other, few of its entries are read.
                None if self.goes_by_axes()
                    && readers.len() <= WIDE_READERS
                    && size < usize::MAX => {}
                None => {
                    let value =
                        self.program.name_of(id).map_or_else(|| id.to_string(), str::to_owned);
                    return Err(Error::TooLarge { value, readers: readers.len() });
                }
            }
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
                let cover = self.cover_of(graph, root, &readers, &fixed, &scope);
                let table = if size > LARGE {
                    self.network.tables.later(Box::new(cover))
                } else {
                    self.network.tables.intern(cover.all())
                };
                self.covers.insert(key, table);
                table
            }
        };
        self.network.factor(scope, table);
        Ok(())
    }

    fn cover_of(
        &self,
        graph: &Rc<TransitionGraph>,
        root: Reading,
        readers: &[Reading],
        fixed: &LayoutSet,
        scope: &[VarId],
    ) -> Cover {
        let position = |r: &Reading| scope.iter().position(|&v| v == r.var);
        let layouts = |r: &Reading| self.projections[r.projection as usize].clone();
        Cover {
            graph: graph.clone(),
            extents: scope.iter().map(|&v| self.network.domain(v)).collect(),
            readers: readers.iter().map(|r| (position(r).unwrap_or(0), layouts(r))).collect(),
            fixed: fixed.clone(),
            root: (self.constant(&root).map_or_else(|| position(&root), |_| None), layouts(&root)),
        }
    }

    /// Whether the problem can be solved axis by axis.
    fn goes_by_axes(&self) -> bool {
        self.part.is_none()
            && (0..self.mesh.rank()).filter(|&a| self.mesh.axis_size(a) > 1).count() > 1
    }

    /// The sets of layouts that readers may want together; `None` if they are too many.
    fn sets(&self, readers: &[Reading], fixed: &LayoutSet) -> Option<Sets> {
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
        let mut all: Vec<LayoutSet> = vec![fixed.clone()];
        for (_, options) in &wanted {
            let mut options = options.clone();
            options.sort_unstable();
            options.dedup();
            all = all
                .iter()
                .flat_map(|s| options.iter().map(|o| layout_set(s.iter().chain(o).copied())))
                .collect();
            all.sort_unstable();
            all.dedup();
            if all.len() > SET_LIMIT {
                return None;
            }
        }
        Some(Sets { wanted, all })
    }

    /// The same with a variable for the set of layouts, so that readers only meet in it.
    fn star(
        &mut self,
        id: NodeId,
        graph: &TransitionGraph,
        root: Reading,
        Sets { wanted, all: sets }: Sets,
    ) {
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
    }
}

#[cfg(test)]
mod tests {
    use shardgrad_core::Mesh;
    use shardgrad_graph::StackSpec;

    use super::*;
    use crate::demands::Demands;
    use crate::options::Options;
    use crate::request::LayoutRequest;

    #[test]
    fn entries_of_large_tables_are_those_of_the_whole_tables() {
        let program = StackSpec::new("gpt", 2, 4, 6).decoder(8, 2, 1).training_program().unwrap();
        let mesh: Mesh = "dp=2, tp=2".parse().unwrap();
        let request: LayoutRequest = "dp=data, tp=megatron".parse().unwrap();
        let demands = Demands::resolve(&program, &mesh, &request).unwrap();
        let problem = Builder::new(&program, &mesh, &demands, &Options::default()).build().unwrap();
        let tables = &problem.network.tables;
        let mut large: Vec<_> = problem.network.factors.iter().map(|f| f.table).collect();
        large.sort_unstable();
        large.dedup();
        large.retain(|&id| tables.len(id) > LARGE);
        for &id in &large {
            let some: Vec<usize> = (0..tables.len(id)).step_by(97).collect();
            let alone: Vec<Packed> = some.iter().map(|&i| tables.entry(id, i)).collect();
            assert_eq!(tables.entries(id, &some), alone);
            let all: Vec<Packed> = some.iter().map(|&i| tables.get(id)[i]).collect();
            assert_eq!(alone, all);
            // The same once all is made.
            assert_eq!(tables.entries(id, &some), all);
            assert_eq!((tables.entry(id, 97), tables.len(id)), (all[1], tables.get(id).len()));
        }
        assert!(large.len() > 3, "{}", large.len());
    }

    /// Where a reader's variable decides where the value stands too, one column has no single set.
    #[test]
    fn a_root_that_reads_itself_is_looked_up_entry_by_entry() {
        let program = StackSpec::new("gpt", 2, 4, 6).decoder(8, 2, 1).training_program().unwrap();
        let mesh: Mesh = "tp=2".parse().unwrap();
        let request: LayoutRequest = "megatron".parse().unwrap();
        let demands = Demands::resolve(&program, &mesh, &request).unwrap();
        let problem = Builder::new(&program, &mesh, &demands, &Options::default()).build().unwrap();
        let graph = problem.graphs.iter().find(|g| g.layouts().len() > 3).unwrap();
        let layouts: Rc<[LayoutId]> = (0..4).collect();
        let cover = |root, readers: &[usize]| Cover {
            graph: graph.clone(),
            extents: SmallVec::from_slice(&[4, 4]),
            readers: readers.iter().map(|&at| (at, layouts.clone())).collect(),
            fixed: LayoutSet::new(),
            root: (root, layouts.clone()),
        };
        for (root, readers) in
            [(Some(0), &[0, 1][..]), (Some(1), &[0, 1]), (Some(0), &[1]), (None, &[0, 1])]
        {
            let cover = cover(root, readers);
            let alone: Vec<Packed> = (0..cover.size()).map(|i| cover.entry(i)).collect();
            assert_eq!(cover.all(), alone, "{root:?} {readers:?}");
            let stands = |i: usize| root.map_or(0, |at| [i / 4, i % 4][at]);
            let direct = |i: usize| {
                let wanted = readers.iter().map(|&at| layouts[[i / 4, i % 4][at]]);
                graph.cover(&layout_set(wanted))[stands(i)]
            };
            assert_eq!(alone, (0..16).map(direct).collect::<Vec<_>>());
        }
    }
}
