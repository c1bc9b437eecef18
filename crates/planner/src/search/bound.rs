//! Mini-buckets: bounds where exact elimination would need tables too large (Dechter and Rish, Journal of the ACM 50,
//! 2003).
//!
//! A bucket whose join would exceed a limit is parted into *mini-buckets* that do not, each eliminated for itself: its
//! variable may then take another value in each, so the sum of the minima is a lower bound. Every mini-bucket sends one
//! message, so they form a forest, the exact elimination of a relaxed network in which variables have copies. A second
//! pass from the roots down gives each mini-bucket what the rest of its tree costs; with it, the least cost of the
//! relaxed network under the condition that a variable has a value, which is a lower bound on that of the network. A
//! value whose bound exceeds the cost of a known assignment is in no optimum and can be struck out.

use std::ops::Range;

use smallvec::SmallVec;

use super::eliminate::{Failure, Messages, Trace, best_value, message};
use super::network::{Factor, Network, Scope, VarId};
use super::order::elimination_order;
use crate::cost::{INFINITE, Packed};

/// A lower bound, an assignment, and bounds on each value of each variable.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// No assignment costs less.
    pub lower: Packed,
    /// An assignment that the bound suggests.
    pub assignment: Vec<u32>,
    /// How much more than `lower` any assignment with this value of this variable costs at least.
    pub excess: Vec<Vec<Packed>>,
    /// How the bound follows.
    pub trace: Trace,
}

struct MiniBucket {
    scope: Scope,
    factors: Vec<Factor>,
    /// The number of each factor, messages after the network's.
    numbers: Vec<u32>,
    /// The mini-buckets whose messages are among the factors, with those messages.
    children: Vec<(usize, Factor)>,
}

/// Where a factor comes from.
#[derive(Clone, Copy)]
enum Sender {
    /// The network's own, by number.
    Network(usize),
    /// The message of a mini-bucket.
    Mini(usize),
}

/// Factors that wait in a bucket, with who sent them.
type Waiting = Vec<(Factor, Sender)>;

/// Bounds a network with mini-buckets of at most `limit` entries (or one factor's).
///
/// # Errors
/// The relaxed network, and so the network, is infeasible.
pub fn bound(network: &mut Network, limit: u64) -> Result<Bounds, Failure> {
    let order = elimination_order(network).vars;
    let mut position = vec![usize::MAX; network.domains.len()];
    for (i, &var) in order.iter().enumerate() {
        position[var as usize] = i;
    }
    let first = |scope: &Scope| scope.iter().map(|&v| position[v as usize]).min();
    let mut buckets: Vec<Waiting> = vec![Vec::new(); order.len()];
    let mut lower: Packed = 0;
    for (number, factor) in network.factors.iter().enumerate() {
        match first(&factor.scope) {
            Some(bucket) => buckets[bucket].push((factor.clone(), Sender::Network(number))),
            None => lower = (lower + network.tables.get(factor.table)[0]).min(INFINITE),
        }
    }
    if lower >= INFINITE {
        return Err(Failure::Infeasible);
    }
    let mut minis: Vec<MiniBucket> = Vec::new();
    let mut messages = Messages::default();
    let mut trace = Trace { factors: Some(Vec::new()), ..Trace::default() };
    for i in 0..order.len() {
        let waiting = buckets[i].clone();
        for mini in part(network, waiting, limit) {
            let (up, least) = message(network, &mut messages, order[i], &mini.factors)?;
            lower += least;
            if lower >= INFINITE {
                return Err(Failure::Infeasible);
            }
            if let Some(later) = first(&up.scope) {
                buckets[later].push((up, Sender::Mini(minis.len())));
            }
            trace.order.push(order[i]);
            trace.minima.push(least);
            trace.factors.get_or_insert_default().push(mini.numbers.clone());
            minis.push(mini);
        }
    }
    trace.entries = messages.entries;
    let mut assignment = vec![0; network.domains.len()];
    for (i, &var) in order.iter().enumerate().rev() {
        let factors: Vec<Factor> = buckets[i].iter().map(|(f, _)| f.clone()).collect();
        assignment[var as usize] = best_value(network, &factors, var, &assignment);
    }
    let excess = excess(network, &minis);
    Ok(Bounds { lower, assignment, excess, trace })
}

/// Parts a bucket, larger scopes first, each factor to the first mini-bucket that has room.
fn part(network: &Network, mut waiting: Waiting, limit: u64) -> Vec<MiniBucket> {
    waiting.sort_by_key(|(factor, _)| std::cmp::Reverse(entries(network, &factor.scope)));
    let mut minis: Vec<MiniBucket> = Vec::new();
    for (factor, sender) in waiting {
        let joined = |mini: &MiniBucket| {
            let mut scope: Scope = mini.scope.iter().chain(&factor.scope).copied().collect();
            scope.sort_unstable();
            scope.dedup();
            scope
        };
        let room = minis.iter().position(|mini| {
            let scope = joined(mini);
            scope == mini.scope || entries(network, &scope) <= limit
        });
        let at = room.unwrap_or_else(|| {
            minis.push(MiniBucket {
                scope: Scope::new(),
                factors: Vec::new(),
                numbers: Vec::new(),
                children: Vec::new(),
            });
            minis.len() - 1
        });
        let mini = &mut minis[at];
        mini.scope = joined(mini);
        let number = match sender {
            Sender::Network(number) => number,
            Sender::Mini(sender) => {
                mini.children.push((sender, factor.clone()));
                network.factors.len() + sender
            }
        };
        mini.numbers.push(u32::try_from(number).unwrap_or(u32::MAX));
        mini.factors.push(factor);
    }
    minis
}

fn entries(network: &Network, scope: &[VarId]) -> u64 {
    scope.iter().fold(1, |n, &v| n.saturating_mul(u64::from(network.domains[v as usize])))
}

/// The pass from the roots down: per variable and value, the largest excess over all mini-buckets.
fn excess(network: &Network, minis: &[MiniBucket]) -> Vec<Vec<Packed>> {
    let mut excess: Vec<Vec<Packed>> =
        network.domains.iter().map(|&d| vec![0; d as usize]).collect();
    let mut down: Vec<Option<(Scope, Vec<Packed>)>> = (0..minis.len()).map(|_| None).collect();
    for (i, mini) in minis.iter().enumerate().rev() {
        let size: usize = mini.scope.iter().map(|&v| network.domain(v)).product();
        let mut belief = vec![0; size];
        for factor in &mini.factors {
            add(network, &mini.scope, &mut belief, &factor.scope, network.tables.get(factor.table));
        }
        if let Some((scope, table)) = down[i].take() {
            add(network, &mini.scope, &mut belief, &scope, &table);
        }
        for &var in &mini.scope {
            let marginal = normalised(project(network, &mini.scope, &belief, &[var]));
            for (known, found) in excess[var as usize].iter_mut().zip(marginal) {
                *known = (*known).max(found);
            }
        }
        for (child, up) in &mini.children {
            let mut rest = project(network, &mini.scope, &belief, &up.scope);
            for (entry, own) in rest.iter_mut().zip(network.tables.get(up.table).iter()) {
                // The child's own message is one of the belief's terms.
                *entry = if *entry >= INFINITE { INFINITE } else { *entry - *own };
            }
            down[*child] = Some((up.scope.clone(), normalised(rest)));
        }
    }
    excess
}

/// The table with its least entry taken out.
pub(super) fn normalised(mut table: Vec<Packed>) -> Vec<Packed> {
    let least = table.iter().copied().min().unwrap_or(0);
    for entry in &mut table {
        *entry = if *entry >= INFINITE { INFINITE } else { *entry - least };
    }
    table
}

/// Steps of an index into a table over `scope`, per variable of `outer`.
fn strides(network: &Network, outer: &[VarId], scope: &[VarId]) -> SmallVec<[usize; 8]> {
    let mut strides: SmallVec<[usize; 8]> = SmallVec::from_elem(0, outer.len());
    let mut size = 1;
    for &v in scope.iter().rev() {
        if let Some(at) = outer.iter().position(|&o| o == v) {
            strides[at] = size;
        }
        size *= network.domain(v);
    }
    strides
}

/// Calls `visit` with each row of a table over `outer`, along its last variable: its indices, the index of the entry of a
/// table over `scope` that matches the first, and the step to the next.
fn walk(
    network: &Network,
    outer: &[VarId],
    scope: &[VarId],
    mut visit: impl FnMut(Range<usize>, usize, usize),
) {
    let strides = strides(network, outer, scope);
    let extents: SmallVec<[usize; 8]> = outer.iter().map(|&v| network.domain(v)).collect();
    let (Some((&row, extents)), Some((&step, strides))) =
        (extents.split_last(), strides.split_last())
    else {
        return visit(0..1, 0, 0);
    };
    let mut digits: SmallVec<[usize; 8]> = SmallVec::from_elem(0, extents.len());
    let (mut index, mut inner) = (0, 0);
    loop {
        visit(index..index + row, inner, step);
        index += row;
        let mut at = extents.len();
        loop {
            if at == 0 {
                return;
            }
            at -= 1;
            digits[at] += 1;
            inner += strides[at];
            if digits[at] < extents[at] {
                break;
            }
            inner -= strides[at] * extents[at];
            digits[at] = 0;
        }
    }
}

pub(super) fn add(
    network: &Network,
    outer: &[VarId],
    sums: &mut [Packed],
    scope: &[VarId],
    table: &[Packed],
) {
    walk(network, outer, scope, |to, from, step| {
        let sums = sums[to].iter_mut();
        match step {
            0 => sums.for_each(|sum| *sum = (*sum + table[from]).min(INFINITE)),
            _ => sums
                .zip(table[from..].iter().step_by(step))
                .for_each(|(sum, entry)| *sum = (*sum + entry).min(INFINITE)),
        }
    });
}

/// The least entry per assignment of `scope`.
pub(super) fn project(
    network: &Network,
    outer: &[VarId],
    table: &[Packed],
    scope: &[VarId],
) -> Vec<Packed> {
    let mut least = vec![INFINITE; scope.iter().map(|&v| network.domain(v)).product()];
    walk(network, outer, scope, |from, to, step| {
        let entries = table[from].iter();
        match step {
            0 => least[to] = entries.fold(least[to], |least, &entry| least.min(entry)),
            _ => least[to..]
                .iter_mut()
                .step_by(step)
                .zip(entries)
                .for_each(|(least, &entry)| *least = (*least).min(entry)),
        }
    });
    least
}
