//! The bags of a certificate: each one's claim against all entries of the sum that it minimises.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::network::{Factor, Network};
use crate::certificate::{Bags, IMPOSSIBLE, Weights};

/// Most entries of a bag.
const BAG_LIMIT: usize = 1 << 26;
/// Most entries of all different bags together.
const TOTAL_LIMIT: usize = 1 << 30;

/// What is wrong with bags.
pub(super) enum Fault {
    /// Not of the form that the network calls for.
    Malformed(String),
    /// A bag claims more than its factors have: its number, its variable, the claim and the least entry.
    Overclaims { bag: usize, var: u32, claimed: u128, least: u128 },
    /// Too many entries to look at.
    TooLarge(usize),
}

/// Verifies every bag and adds up their minima.
pub(super) fn verify(network: &mut Network, bags: &Bags, weights: &Weights) -> Result<u128, Fault> {
    let malformed = |what: String| Err(Fault::Malformed(what));
    if bags.minimum.len() != bags.order.len()
        || bags.factors.as_ref().is_some_and(|f| f.len() != bags.order.len())
    {
        return malformed("there must be one minimum, and one list of factors, per bag".to_owned());
    }
    let mut run = Run { known: HashMap::new(), looked_at: 0 };
    let mut factors: Vec<Option<Factor>> = network.factors.iter().cloned().map(Some).collect();
    let mut mentions: Vec<Vec<usize>> = vec![Vec::new(); network.domains.len()];
    let mut total = 0_u128;
    for (at, factor) in network.factors.iter().enumerate() {
        for &var in &factor.scope {
            mentions[var as usize].push(at);
        }
    }
    for (bag, (&var, &minimum)) in bags.order.iter().zip(&bags.minimum).enumerate() {
        let Some(&claimed) = bags.minima.get(minimum as usize) else {
            return malformed(format!("bag {bag} has minimum {minimum}, but there is none such"));
        };
        if var as usize >= network.domains.len() {
            return malformed(format!("bag {bag} is of variable {var}, but there is none such"));
        }
        let claimed = weights.join(claimed);
        let numbers: Vec<usize> = match &bags.factors {
            Some(lists) => lists[bag].iter().map(|&f| f as usize).collect(),
            None => mentions[var as usize].clone(),
        };
        let mut taken: Vec<Factor> = Vec::new();
        for number in numbers {
            match factors.get_mut(number).map(Option::take) {
                Some(Some(factor)) => taken.push(factor),
                Some(None) if bags.factors.is_none() => {}
                Some(None) | None => {
                    return malformed(format!(
                        "bag {bag} takes factor {number}, which is not there or taken already"
                    ));
                }
            }
        }
        let message = run.message(network, bag, var, &taken, claimed)?;
        total = (total + claimed).min(IMPOSSIBLE);
        let number = factors.len();
        for &var in &message.scope {
            mentions[var as usize].push(number);
        }
        factors.push(Some(message));
    }
    // What is left over is at least its least entry, and that is 0 or more.
    for factor in factors.into_iter().flatten().filter(|f| f.scope.is_empty()) {
        total = (total + network.tables.get(factor.table)[0]).min(IMPOSSIBLE);
    }
    Ok(total)
}

/// A factor as the sum over a bag reads it.
struct Term {
    table: u32,
    /// Step of the index per variable of the message.
    steps: SmallVec<[usize; 8]>,
    /// Step per value of the bag's variable.
    own: usize,
    at: usize,
}

/// All that a message depends on: the bag's claim, the extents of its variables, and the tables with their variables' places.
type Content = (u128, Vec<usize>, Vec<(u32, Vec<u8>)>);

struct Run {
    /// Messages by their content.
    known: HashMap<Content, u32>,
    looked_at: usize,
}

impl Run {
    fn message(
        &mut self,
        network: &mut Network,
        bag: usize,
        var: u32,
        taken: &[Factor],
        claimed: u128,
    ) -> Result<Factor, Fault> {
        let mut scope: SmallVec<[u32; 6]> = taken.iter().flat_map(|f| f.scope.clone()).collect();
        scope.sort_unstable();
        scope.dedup();
        scope.retain(|v| *v != var);
        let domain = |v: u32| network.domains[v as usize];
        let mut extents: Vec<usize> = scope.iter().map(|&v| domain(v)).collect();
        extents.push(domain(var));
        // Variables by place in the message, the bag's own last.
        let place = |v: u32| scope.iter().position(|&s| s == v).unwrap_or(scope.len());
        let places = |f: &Factor| -> Vec<u8> {
            f.scope.iter().map(|&v| u8::try_from(place(v)).unwrap_or(u8::MAX)).collect()
        };
        let mut parts: Vec<(u32, Vec<u8>)> = taken.iter().map(|f| (f.table, places(f))).collect();
        parts.sort();
        let size = extents.iter().copied().fold(1_usize, usize::saturating_mul);
        let key = (claimed, extents, parts);
        if let Some(&table) = self.known.get(&key) {
            return Ok(Factor { scope, table });
        }
        self.looked_at = self.looked_at.saturating_add(size);
        if size > BAG_LIMIT || self.looked_at > TOTAL_LIMIT {
            return Err(Fault::TooLarge(size));
        }
        let sums = least_sums(network, &key.1, &key.2);
        let least = sums.iter().copied().min().unwrap_or(IMPOSSIBLE);
        if least < claimed {
            return Err(Fault::Overclaims { bag, var, claimed, least });
        }
        let rest = |sum: u128| if sum >= IMPOSSIBLE { IMPOSSIBLE } else { sum - claimed };
        let table = network.tables.add(sums.into_iter().map(rest).collect());
        self.known.insert(key, table);
        Ok(Factor { scope, table })
    }
}

/// For each assignment of all variables but the last, the least sum over the values of the last.
fn least_sums(network: &Network, extents: &[usize], parts: &[(u32, Vec<u8>)]) -> Vec<u128> {
    let (&values, outer) = match extents.split_last() {
        Some(split) => split,
        None => return vec![0],
    };
    let mut terms: Vec<Term> = parts
        .iter()
        .map(|(table, places)| {
            let mut term =
                Term { table: *table, steps: SmallVec::from_elem(0, outer.len()), own: 0, at: 0 };
            let mut step = 1;
            for &place in places.iter().rev() {
                match term.steps.get_mut(usize::from(place)) {
                    Some(entry) => *entry = step,
                    None => term.own = step,
                }
                step *= extents[usize::from(place)];
            }
            term
        })
        .collect();
    let mut sums = Vec::with_capacity(outer.iter().product());
    let mut at = vec![0_usize; outer.len()];
    let mut row = vec![0_u128; values];
    loop {
        row.fill(0);
        for term in &terms {
            let table = &network.tables.get(term.table)[term.at..];
            if term.own == 0 {
                row.iter_mut().for_each(|sum| *sum += table[0]);
            } else {
                row.iter_mut().zip(table.iter().step_by(term.own)).for_each(|(sum, e)| *sum += e);
            }
            row.iter_mut().for_each(|sum| *sum = (*sum).min(IMPOSSIBLE));
        }
        sums.push(row.iter().copied().min().unwrap_or(IMPOSSIBLE));
        let mut axis = outer.len();
        loop {
            if axis == 0 {
                return sums;
            }
            axis -= 1;
            at[axis] += 1;
            if at[axis] < outer[axis] {
                terms.iter_mut().for_each(|t| t.at += t.steps[axis]);
                break;
            }
            terms.iter_mut().for_each(|t| t.at -= t.steps[axis] * (outer[axis] - 1));
            at[axis] = 0;
        }
    }
}
