//! Networks of cost functions over finite variables.
//!
//! A *variable* has values `0..domain`. A *factor* is a table of costs over the values of a few variables, its scope.
//! The cost of an assignment is the sum of all factors; the problem is to find the least. (Cost-function networks, also
//! weighted constraint satisfaction: Schiex, Fargier, Verfaillie 1995.)
//!
//! Tables are interned: equal tables have one number, so that equal work is recognised by comparing numbers.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use smallvec::SmallVec;

use crate::cost::{INFINITE, Packed};

/// Index of a variable.
pub type VarId = u32;

/// Number of an interned table.
pub type TableId = u32;

/// Variables of a factor, ascending; the last runs fastest in the table.
pub type Scope = SmallVec<[VarId; 6]>;

/// A table of costs over a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Factor {
    /// Its variables, ascending.
    pub scope: Scope,
    /// Its table.
    pub table: TableId,
}

/// Interned tables.
#[derive(Debug, Default)]
pub struct Tables {
    store: Vec<Rc<[Packed]>>,
    by_hash: HashMap<u64, SmallVec<[TableId; 1]>>,
}

impl Tables {
    /// The number of this table.
    pub fn intern(&mut self, table: Vec<Packed>) -> TableId {
        let mut hasher = DefaultHasher::new();
        table.hash(&mut hasher);
        let same = self.by_hash.entry(hasher.finish()).or_default();
        if let Some(&id) = same.iter().find(|&&id| *self.store[id as usize] == *table) {
            return id;
        }
        let id = TableId::try_from(self.store.len()).unwrap_or(TableId::MAX);
        same.push(id);
        self.store.push(table.into());
        id
    }

    /// The table with this number.
    #[must_use]
    pub fn get(&self, id: TableId) -> &Rc<[Packed]> {
        &self.store[id as usize]
    }
}

/// Variables, factors and their tables.
#[derive(Debug, Default)]
pub struct Network {
    /// Number of values of each variable.
    pub domains: Vec<u32>,
    /// The factors.
    pub factors: Vec<Factor>,
    /// All tables.
    pub tables: Tables,
}

impl Network {
    /// Adds a variable.
    pub fn variable(&mut self, domain: usize) -> VarId {
        let id = VarId::try_from(self.domains.len()).unwrap_or(VarId::MAX);
        self.domains.push(u32::try_from(domain).unwrap_or(u32::MAX));
        id
    }

    /// Number of values of a variable.
    #[must_use]
    pub fn domain(&self, var: VarId) -> usize {
        self.domains[var as usize] as usize
    }

    /// All values of each variable.
    #[must_use]
    pub fn all_values(&self) -> Vec<Vec<u32>> {
        self.domains.iter().map(|&domain| (0..domain).collect()).collect()
    }

    /// Adds a factor; variables with one value are dropped from the scope, which does not change the table.
    pub fn factor(&mut self, scope: impl IntoIterator<Item = VarId>, table: TableId) {
        let scope: Scope = scope.into_iter().filter(|&v| self.domain(v) > 1).collect();
        debug_assert!(scope.is_sorted());
        self.factors.push(Factor { scope, table });
    }

    /// The cost of a whole assignment.
    #[must_use]
    pub fn cost(&self, assignment: &[u32]) -> Packed {
        let entries = self.factors.iter().map(|f| self.entry(f, assignment));
        entries.fold(0, |sum, entry| (sum + entry).min(INFINITE))
    }

    /// A factor's entry under an assignment.
    #[must_use]
    pub fn entry(&self, factor: &Factor, assignment: &[u32]) -> Packed {
        let index = factor
            .scope
            .iter()
            .fold(0, |index, &v| index * self.domain(v) + assignment[v as usize] as usize);
        self.tables.get(factor.table)[index]
    }
}
