//! Networks of cost functions over finite variables.
//!
//! A *variable* has values `0..domain`. A *factor* is a table of costs over the values of a few variables, its scope.
//! The cost of an assignment is the sum of all factors; the problem is to find the least. (Cost-function networks, also
//! weighted constraint satisfaction: Schiex, Fargier, Verfaillie 1995.)
//!
//! Tables are interned: equal tables have one number, so that equal work is recognised by comparing numbers. Large ones can
//! be left to be made when they are read.

use std::cell::OnceCell;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;

use crate::cost::{INFINITE, Packed};

/// Index of a variable.
pub type VarId = u32;

/// A table is made whole once more than one entry in so many is wanted.
const FEW: usize = 8;

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

/// A table that is made when it is read: of large ones it is often a few entries.
pub trait Lazy: Debug {
    /// Number of entries.
    fn size(&self) -> usize;
    /// One entry.
    fn entry(&self, index: usize) -> Packed;
    /// All entries.
    fn all(&self) -> Vec<Packed>;
}

#[derive(Debug)]
struct Table {
    made: OnceCell<Vec<Packed>>,
    lazy: Option<Box<dyn Lazy>>,
}

/// Interned tables.
#[derive(Debug, Default)]
pub struct Tables {
    store: Vec<Table>,
    by_hash: FxHashMap<u64, SmallVec<[TableId; 1]>>,
}

impl Tables {
    /// The number of this table.
    pub fn intern(&mut self, table: Vec<Packed>) -> TableId {
        let mut hasher = FxHasher::default();
        table.hash(&mut hasher);
        let same = self.by_hash.entry(hasher.finish()).or_default();
        let known = |id: TableId| self.store[id as usize].made.get() == Some(&table);
        if let Some(&id) = same.iter().find(|&&id| known(id)) {
            return id;
        }
        let id = TableId::try_from(self.store.len()).unwrap_or(TableId::MAX);
        same.push(id);
        self.store.push(Table { made: table.into(), lazy: None });
        id
    }

    /// The number of a table that is made when it is read. It is compared with no other.
    pub fn later(&mut self, lazy: Box<dyn Lazy>) -> TableId {
        let id = TableId::try_from(self.store.len()).unwrap_or(TableId::MAX);
        self.store.push(Table { made: OnceCell::new(), lazy: Some(lazy) });
        id
    }

    /// The table with this number.
    #[must_use]
    pub fn get(&self, id: TableId) -> &[Packed] {
        let Table { made, lazy } = &self.store[id as usize];
        made.get_or_init(|| lazy.as_ref().map_or_else(Vec::new, |lazy| lazy.all()))
    }

    /// Its number of entries.
    #[must_use]
    pub fn len(&self, id: TableId) -> usize {
        self.store[id as usize].unmade().map_or_else(|| self.get(id).len(), |lazy| lazy.size())
    }

    /// One entry of it.
    #[must_use]
    pub fn entry(&self, id: TableId, index: usize) -> Packed {
        self.store[id as usize]
            .unmade()
            .map_or_else(|| self.get(id)[index], |lazy| lazy.entry(index))
    }

    /// Some of its entries.
    #[must_use]
    pub fn entries(&self, id: TableId, indices: &[usize]) -> Vec<Packed> {
        if let Some(lazy) = self.store[id as usize].unmade()
            && indices.len() <= lazy.size() / FEW
        {
            return indices.iter().map(|&index| lazy.entry(index)).collect();
        }
        let table = self.get(id);
        indices.iter().map(|&index| table[index]).collect()
    }
}

impl Table {
    fn unmade(&self) -> Option<&dyn Lazy> {
        self.lazy.as_deref().filter(|_| self.made.get().is_none())
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
        self.tables.entry(factor.table, index)
    }
}
