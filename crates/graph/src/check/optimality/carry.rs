//! The factors of one value: what it costs to carry it from where it stands to its readers.

use std::rc::Rc;

use super::layouts::{LayoutId, LayoutSet, set_of};
use super::network::{Builder, Reading, State, TABLE_LIMIT};
use crate::certificate::IMPOSSIBLE;

impl Builder<'_> {
    /// Adds the factors of a value that starts at one reading and is read at others.
    pub(super) fn carry(
        &self,
        state: &mut State,
        carriage: usize,
        start: &Reading,
        readers: &[Reading],
        by_sets: bool,
    ) -> Result<(), String> {
        if readers.is_empty() {
            return Ok(());
        }
        let fixed = set_of(readers.iter().filter_map(Reading::constant));
        let open: Vec<&Reading> = readers.iter().filter(|r| r.constant().is_none()).collect();
        if by_sets {
            return self.carry_by_sets(state, carriage, start, &open, &fixed);
        }
        let mut scope: Vec<u32> = open.iter().map(|r| r.var).collect();
        scope.extend(start.constant().is_none().then_some(start.var));
        scope.sort_unstable();
        scope.dedup();
        let domains = scope.iter().map(|&v| state.network.domains[v as usize]);
        let size = domains.fold(1_usize, usize::saturating_mul);
        if size > TABLE_LIMIT {
            return Err(format!("a value's table would have {size} entries"));
        }
        let mut key = (carriage, fixed.clone(), start.constant(), Vec::new());
        for &var in &scope {
            let starts = (start.var == var).then(|| start.layouts.clone());
            let mut read: Vec<Rc<[LayoutId]>> =
                open.iter().filter(|r| r.var == var).map(|r| r.layouts.clone()).collect();
            read.sort();
            read.dedup();
            key.3.push((starts, read));
        }
        if let Some(&table) = state.known_carries.get(&key) {
            state.network.factor(&scope, table);
            return Ok(());
        }
        let place = |var: u32| scope.iter().position(|&v| v == var);
        let mut table = Vec::with_capacity(size);
        let mut values = vec![0_usize; scope.len()];
        for _ in 0..size {
            let value = |r: &Reading| r.layouts[place(r.var).map_or(0, |at| values[at])];
            let set = set_of(open.iter().map(|r| value(r)).chain(fixed.iter().copied()));
            let costs = state.carriages[carriage].reaching(&set);
            table.push(costs[usize::from(start.constant().unwrap_or_else(|| value(start)))]);
            for at in (0..scope.len()).rev() {
                values[at] += 1;
                if values[at] < state.network.domains[scope[at] as usize] {
                    break;
                }
                values[at] = 0;
            }
        }
        let table = state.network.tables.add(table);
        state.known_carries.insert(key, table);
        state.network.factor(&scope, table);
        Ok(())
    }

    /// The same through a variable whose values are sets of layouts: the start meets the set, and each reader does.
    fn carry_by_sets(
        &self,
        state: &mut State,
        carriage: usize,
        start: &Reading,
        open: &[&Reading],
        fixed: &LayoutSet,
    ) -> Result<(), String> {
        let mut vars: Vec<u32> = Vec::new();
        for reader in open {
            if !vars.contains(&reader.var) {
                vars.push(reader.var);
            }
        }
        let mut sets = vec![fixed.clone()];
        let mut wanted: Vec<Vec<LayoutSet>> = Vec::new();
        for &var in &vars {
            let of: Vec<LayoutSet> = (0..state.network.domains[var as usize])
                .map(|v| set_of(open.iter().filter(|r| r.var == var).map(|r| r.layouts[v])))
                .collect();
            let mut different = of.clone();
            different.sort();
            different.dedup();
            sets = sets
                .iter()
                .flat_map(|s| {
                    different.iter().map(move |d| set_of(s.iter().chain(d.iter()).copied()))
                })
                .collect();
            sets.sort();
            sets.dedup();
            if sets.len() > TABLE_LIMIT >> 8 {
                return Err(format!("a value's readers want {} sets of layouts", sets.len()));
            }
            wanted.push(of);
        }
        let set_var = state.network.variable(sets.len());
        let mut table = Vec::new();
        for &layout in start.layouts.iter() {
            for set in &sets {
                table.push(state.carriages[carriage].reaching(set)[usize::from(layout)]);
            }
        }
        let table = state.network.tables.add(table);
        state.network.factor(&[start.var, set_var], table);
        for (var, of) in vars.into_iter().zip(wanted) {
            let mut table = Vec::new();
            for want in &of {
                let has = |set: &LayoutSet| want.iter().all(|l| set.contains(l));
                table.extend(sets.iter().map(|s| if has(s) { 0 } else { IMPOSSIBLE }));
            }
            let table = state.network.tables.add(table);
            state.network.factor(&[var, set_var], table);
        }
        Ok(())
    }
}
