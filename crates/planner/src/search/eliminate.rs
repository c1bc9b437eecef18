//! Min-sum variable elimination (bucket elimination; Dechter, Artificial Intelligence 113, 1999).
//!
//! To eliminate variable x: take all factors whose scope has x (its bucket), add them up over the union of their scopes,
//! and put in their place the *message*: for each assignment of the other variables (the separator), the least sum over
//! the values of x. What is left at the end is the least cost of all, and going back through the buckets in reverse,
//! each x takes the first value that attains its message. Exact, and linear in the number of variables as long as
//! buckets stay small.
//!
//! Messages are normalised (their least entry is moved into a constant) and interned like all tables, and a bucket's
//! message is remembered by the numbers of its tables and how their scopes overlap. So identical layers are eliminated
//! once: along a chain of them the message soon repeats itself up to the constant, and the rest is look-ups.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::network::{Factor, Network, Scope, TableId, VarId};
use super::order::{Order, elimination_order};
use crate::cost::{INFINITE, Packed};

/// The largest bucket that is still eliminated exactly, in entries.
pub const BUCKET_LIMIT: u64 = 1 << 25;

/// The least cost and an assignment that attains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Solution {
    /// The least cost.
    pub cost: Packed,
    /// A value for each variable.
    pub assignment: Vec<u32>,
    /// How the cost follows, bucket by bucket.
    pub trace: Trace,
}

/// How a bound follows from a network: the buckets in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The variable that each bucket eliminates.
    pub order: Vec<VarId>,
    /// The factors of each bucket, messages numbered after the network's factors; `None` where each bucket has all that
    /// mention its variable.
    pub factors: Option<Vec<Vec<u32>>>,
    /// The constant taken out of each bucket's message.
    pub minima: Vec<Packed>,
    /// Entries of all different buckets.
    pub entries: u64,
}

/// Why there is no exact solution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Every assignment costs infinitely much.
    Infeasible,
    /// The largest bucket has so many entries, more than the limit.
    TooWide(u64),
}

/// Messages that are known.
#[derive(Default)]
pub(super) struct Messages {
    /// The numbers that determine a message, then its table and the constant taken out of it.
    known: FxHashMap<SmallVec<[u32; 24]>, (TableId, Packed)>,
    /// Entries of all buckets that were added up.
    pub(super) entries: u64,
}

/// A network whose variables are eliminated: what it takes to read off assignments.
#[derive(Debug)]
pub struct Eliminated {
    /// The least cost.
    pub cost: Packed,
    /// How it follows.
    pub trace: Trace,
    /// The factors of each bucket, in order.
    pub(super) buckets: Vec<Vec<Factor>>,
    /// The message of each bucket.
    pub(super) sent: Vec<Factor>,
    /// The buckets whose messages each bucket has.
    pub(super) senders: Vec<Vec<usize>>,
}

impl Eliminated {
    /// The first assignment that costs least.
    #[must_use]
    pub fn first(&self, network: &Network) -> Vec<u32> {
        let mut assignment = vec![0; network.domains.len()];
        for (i, &var) in self.trace.order.iter().enumerate().rev() {
            assignment[var as usize] = best_value(network, &self.buckets[i], var, &assignment);
        }
        assignment
    }

    /// How much more than least an assignment costs at least when bucket `i`'s variable has each of its values, the
    /// variables of all later buckets being assigned.
    #[must_use]
    pub fn excess(&self, network: &Network, i: usize, assignment: &[u32]) -> Vec<Packed> {
        let var = self.trace.order[i];
        let least = network.entry(&self.sent[i], assignment) + self.trace.minima[i];
        bucket_sums(network, &self.buckets[i], var, assignment)
            .into_iter()
            .map(|sum| if sum >= INFINITE { INFINITE } else { sum.saturating_sub(least) })
            .collect()
    }
}

/// Eliminates all variables of a network.
///
/// # Errors
/// No assignment is possible, or a bucket has more than `limit` entries.
pub fn eliminated(network: &mut Network, limit: u64) -> Result<Eliminated, Failure> {
    let Order { vars: order, widest } = elimination_order(network);
    if widest > limit {
        return Err(Failure::TooWide(widest));
    }
    let mut position = vec![usize::MAX; network.domains.len()];
    for (i, &var) in order.iter().enumerate() {
        position[var as usize] = i;
    }
    let mut buckets: Vec<Vec<Factor>> = vec![Vec::new(); order.len()];
    let mut constant: Packed = 0;
    let first = |scope: &Scope| scope.iter().map(|&v| position[v as usize]).min();
    for factor in &network.factors {
        match first(&factor.scope) {
            Some(bucket) => buckets[bucket].push(factor.clone()),
            None => constant = (constant + network.tables.get(factor.table)[0]).min(INFINITE),
        }
    }
    let mut messages = Messages::default();
    let mut minima = Vec::with_capacity(order.len());
    let mut sent = Vec::with_capacity(order.len());
    let mut senders = vec![Vec::new(); order.len()];
    for i in 0..order.len() {
        let (message, least) = message(network, &mut messages, order[i], &buckets[i])?;
        constant += least;
        minima.push(least);
        if constant >= INFINITE {
            return Err(Failure::Infeasible);
        }
        sent.push(message.clone());
        if let Some(later) = first(&message.scope) {
            buckets[later].push(message);
            senders[later].push(i);
        }
    }
    if constant >= INFINITE {
        return Err(Failure::Infeasible);
    }
    let trace = Trace { order, factors: None, minima, entries: messages.entries };
    Ok(Eliminated { cost: constant, trace, buckets, sent, senders })
}

/// Solves a network exactly.
///
/// # Errors
/// As [`eliminated`].
pub fn eliminate(network: &mut Network, limit: u64) -> Result<Solution, Failure> {
    let done = eliminated(network, limit)?;
    let assignment = done.first(network);
    Ok(Solution { cost: done.cost, assignment, trace: done.trace })
}

/// The first value of `var` with the least sum, all other variables of the bucket being assigned.
pub(super) fn best_value(
    network: &Network,
    bucket: &[Factor],
    var: VarId,
    assignment: &[u32],
) -> u32 {
    let sums = bucket_sums(network, bucket, var, assignment);
    let best = (0..sums.len()).min_by_key(|&value| sums[value]).unwrap_or(0);
    u32::try_from(best).unwrap_or(u32::MAX)
}

/// The bucket's sum for each value of `var`, all other variables of the bucket being assigned.
fn bucket_sums(
    network: &Network,
    bucket: &[Factor],
    var: VarId,
    assignment: &[u32],
) -> Vec<Packed> {
    let mut trial: SmallVec<[(&[Packed], usize, usize); 8]> = SmallVec::new();
    for factor in bucket {
        let (mut offset, mut stride, mut size) = (0, 0, 1);
        for &v in factor.scope.iter().rev() {
            if v == var {
                stride = size;
            } else {
                offset += assignment[v as usize] as usize * size;
            }
            size *= network.domain(v);
        }
        trial.push((network.tables.get(factor.table), offset, stride));
    }
    let cost = |value: usize| -> Packed {
        let entries = trial.iter().map(|(table, offset, stride)| table[offset + value * stride]);
        entries.fold(0, |sum, entry| (sum + entry).min(INFINITE))
    };
    (0..network.domain(var)).map(cost).collect()
}

/// The message of a bucket, and the constant taken out of it.
pub(super) fn message(
    network: &mut Network,
    messages: &mut Messages,
    var: VarId,
    bucket: &[Factor],
) -> Result<(Factor, Packed), Failure> {
    let mut separator: Scope = bucket.iter().flat_map(|f| f.scope.iter().copied()).collect();
    separator.sort_unstable();
    separator.dedup();
    separator.retain(|v| *v != var);
    // The eliminated variable has the number past the separator's last.
    let number = |v: VarId| {
        let index = if v == var {
            separator.len()
        } else {
            separator.iter().position(|&s| s == v).unwrap_or(0)
        };
        u32::try_from(index).unwrap_or(u32::MAX)
    };
    let mut parts: SmallVec<[SmallVec<[u32; 8]>; 8]> = bucket
        .iter()
        .map(|f| [f.table].into_iter().chain(f.scope.iter().map(|&v| number(v))).collect())
        .collect();
    parts.sort_unstable();
    let mut key: SmallVec<[u32; 24]> = SmallVec::new();
    key.push(network.domains[var as usize]);
    key.extend(separator.iter().map(|&v| network.domains[v as usize]));
    for part in &parts {
        key.push(u32::MAX);
        key.extend(part.iter().copied());
    }
    if let Some(&(table, least)) = messages.known.get(&key) {
        return Ok((Factor { scope: separator, table }, least));
    }
    let sums = minimise(network, &separator, var, bucket);
    messages.entries += sums.len() as u64 * u64::from(network.domains[var as usize]);
    let least = sums.iter().copied().min().unwrap_or(INFINITE);
    if least >= INFINITE {
        return Err(Failure::Infeasible);
    }
    let normalised =
        sums.into_iter().map(|s| if s >= INFINITE { INFINITE } else { s - least }).collect();
    let table = network.tables.intern(normalised);
    messages.known.insert(key, (table, least));
    Ok((Factor { scope: separator, table }, least))
}

/// Per assignment of the separator, the least sum of the bucket over the values of `var`.
fn minimise(network: &Network, separator: &[VarId], var: VarId, bucket: &[Factor]) -> Vec<Packed> {
    struct Operand<'a> {
        table: &'a [Packed],
        /// Step of the index per separator variable.
        strides: SmallVec<[usize; 8]>,
        /// Step per value of the eliminated variable.
        own: usize,
        offset: usize,
    }
    let mut operands: SmallVec<[Operand<'_>; 8]> = bucket
        .iter()
        .map(|factor| {
            let mut strides: SmallVec<[usize; 8]> = SmallVec::from_elem(0, separator.len());
            let (mut own, mut size) = (0, 1);
            for &v in factor.scope.iter().rev() {
                match separator.iter().position(|&s| s == v) {
                    Some(i) => strides[i] = size,
                    None => own = size,
                }
                size *= network.domain(v);
            }
            Operand { table: network.tables.get(factor.table), strides, own, offset: 0 }
        })
        .collect();
    let extents: SmallVec<[usize; 8]> = separator.iter().map(|&v| network.domain(v)).collect();
    let values = network.domain(var);
    let mut digits: SmallVec<[usize; 8]> = SmallVec::from_elem(0, separator.len());
    let mut sums: Vec<Packed> = Vec::with_capacity(extents.iter().product());
    let mut row = vec![0; values];
    loop {
        row.fill(0);
        for operand in &operands {
            let entries = operand.table[operand.offset..].iter().step_by(operand.own.max(1));
            row.iter_mut()
                .zip(entries)
                .for_each(|(sum, entry)| *sum = (*sum + entry).min(INFINITE));
        }
        sums.push(row.iter().copied().min().unwrap_or(INFINITE));
        // Advance the odometer, the last separator variable fastest.
        let mut at = separator.len();
        loop {
            if at == 0 {
                return sums;
            }
            at -= 1;
            digits[at] += 1;
            if digits[at] < extents[at] {
                operands.iter_mut().for_each(|o| o.offset += o.strides[at]);
                break;
            }
            digits[at] = 0;
            operands.iter_mut().for_each(|o| o.offset -= o.strides[at] * (extents[at] - 1));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A fixed pseudo-random sequence (Steele, Lea, Flood 2014: splitmix64).
    pub(crate) fn draw(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn random_network(state: &mut u64) -> Network {
        let mut network = Network::default();
        let count = 3 + draw(state) % 5;
        for _ in 0..count {
            let domain = 1 + draw(state) % 4;
            network.variable(domain as usize);
        }
        for _ in 0..2 + draw(state) % 7 {
            let mut scope: Vec<VarId> =
                (0..count as VarId).filter(|_| draw(state).is_multiple_of(3)).collect();
            scope.truncate(4);
            let size: usize = scope.iter().map(|&v| network.domain(v)).product();
            let table = (0..size)
                .map(|_| match draw(state) % 12 {
                    0 => INFINITE,
                    n => Packed::from(n) * 7,
                })
                .collect();
            let table = network.tables.intern(table);
            network.factor(scope, table);
        }
        network
    }

    pub(crate) fn exhaustive(network: &Network) -> Option<Packed> {
        let total: usize = network.domains.iter().map(|&d| d as usize).product();
        let cost = |mut code: usize| {
            let assignment: Vec<u32> = network
                .domains
                .iter()
                .map(|&d| {
                    let digit = code % d as usize;
                    code /= d as usize;
                    digit as u32
                })
                .collect();
            network.cost(&assignment)
        };
        (0..total).map(cost).min().filter(|&c| c < INFINITE)
    }

    /// 64 of them add up to more than a number holds.
    #[test]
    fn what_is_impossible_without_a_variable_is_so_however_often() {
        let mut network = Network::default();
        network.variable(2);
        let table = network.tables.intern(vec![INFINITE]);
        (0..64).for_each(|_| network.factor([], table));
        assert_eq!(eliminated(&mut network, BUCKET_LIMIT).err(), Some(Failure::Infeasible));
        let bound = crate::search::bound::bound(&mut network, 16);
        assert_eq!(bound.err(), Some(Failure::Infeasible));
    }

    #[test]
    fn elimination_equals_exhaustion() {
        let mut state = 7;
        let mut infeasible = 0;
        for _ in 0..500 {
            let mut network = random_network(&mut state);
            let expected = exhaustive(&network);
            match eliminate(&mut network, BUCKET_LIMIT) {
                Ok(solution) => {
                    assert_eq!(Some(solution.cost), expected);
                    assert_eq!(network.cost(&solution.assignment), solution.cost);
                }
                Err(failure) => {
                    assert_eq!(failure, Failure::Infeasible);
                    assert_eq!(expected, None);
                    infeasible += 1;
                }
            }
        }
        assert!((1..250).contains(&infeasible), "{infeasible}");
    }
}
