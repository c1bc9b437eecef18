//! The bags of a certificate: each one's claim against all entries of the sum that it minimises.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::network::{Factor, Network};
use crate::certificate::{Bags, IMPOSSIBLE, Weights};

/// How many entries are looked at.
pub(super) struct Limits {
    /// Of one bag.
    bag: usize,
    /// Of all different bags together.
    total: usize,
}

pub(super) const LIMITS: Limits = Limits { bag: 1 << 26, total: 1 << 30 };

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
pub(super) fn verify(
    network: &mut Network,
    bags: &Bags,
    weights: &Weights,
    limits: &Limits,
) -> Result<u128, Fault> {
    let malformed = |what: String| Err(Fault::Malformed(what));
    if bags.minimum.len() != bags.order.len()
        || bags.factors.as_ref().is_some_and(|f| f.len() != bags.order.len())
    {
        return malformed("there must be one minimum, and one list of factors, per bag".to_owned());
    }
    let mut run = Run { limits, known: HashMap::new(), looked_at: 0 };
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

struct Run<'a> {
    limits: &'a Limits,
    /// Messages by their content.
    known: HashMap<Content, u32>,
    looked_at: usize,
}

impl Run<'_> {
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
        if size > self.limits.bag || self.looked_at > self.limits.total {
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

#[cfg(test)]
mod tests {
    use super::*;

    const WEIGHTS: Weights = Weights { shift: [0; 4], dropped: [0; 4] };

    /// Variables x of 2 values, y of 3 and z of 2; the last runs fastest. x alone, x and y, y and z, a constant.
    fn network() -> Network {
        let mut network = Network { domains: vec![2, 3, 2], ..Network::default() };
        for (scope, table) in [
            (&[0_u32][..], &[4_u128, 1][..]),
            (&[0, 1], &[5, 2, 7, 6, 9, 1]),
            (&[1, 2], &[4, 8, 3, 2, 6, 5]),
            (&[], &[10]),
        ] {
            let table = network.tables.add(table.to_vec());
            network.factors.push(Factor { scope: scope.iter().copied().collect(), table });
        }
        network
    }

    /// Bags over these variables with these claims, each its own.
    fn bags(order: &[u32], claims: &[u64], factors: Option<&[&[u32]]>) -> Bags {
        Bags {
            order: order.to_vec(),
            minimum: (0..).take(claims.len()).collect(),
            minima: claims.iter().map(|&claim| [0, 0, 0, claim]).collect(),
            factors: factors.map(|lists| lists.iter().map(|list| list.to_vec()).collect()),
            ..Bags::default()
        }
    }

    fn total(bags: &Bags, limits: &Limits) -> Result<u128, Fault> {
        verify(&mut network(), bags, &WEIGHTS, limits)
    }

    fn refused(bags: &Bags) -> Fault {
        total(bags, &LIMITS).expect_err("a fault")
    }

    /// x = 1, y = 2, z = 1: 1 + 1 + 5 + 10. In which order, and how much each bag claims, makes no difference.
    #[test]
    fn all_orders_and_claims_give_the_least_sum() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            for claims in [[0, 0, 0], [1, 0, 0], [2, 2, 1]] {
                assert!(matches!(total(&bags(&order, &claims, None), &LIMITS), Ok(17)));
            }
        }
    }

    /// Over y of the table of x and y: 2 and 1; over x of that and x: 6 and 2. A factor without the bag's variable is repeated
    /// along it.
    #[test]
    fn claims_end_at_the_least_entry_of_what_a_bag_takes() {
        let claims = |least: u64, factors: &[&[u32]], order: &[u32], bag: usize| {
            let mut claims = vec![0; order.len()];
            claims[bag] = least;
            assert!(total(&bags(order, &claims, Some(factors)), &LIMITS).is_ok());
            claims[bag] += 1;
            let Fault::Overclaims { bag: found, var, claimed, least: entry } =
                refused(&bags(order, &claims, Some(factors)))
            else {
                panic!("{claims:?} are too much")
            };
            assert_eq!((found, var, claimed), (bag, order[bag], u128::from(least) + 1));
            assert_eq!(entry, u128::from(least));
        };
        claims(1, &[&[1]], &[1], 0);
        claims(2, &[&[1], &[0, 4]], &[1, 0], 1);
        claims(3, &[&[0, 2]], &[0], 0);
        claims(4, &[&[1, 2]], &[2], 0);
    }

    #[test]
    fn lists_of_factors_are_complete_and_take_each_once() {
        let malformed = |bags: &Bags| matches!(refused(bags), Fault::Malformed(_));
        assert!(matches!(total(&bags(&[1], &[0], Some(&[&[1, 2]])), &LIMITS), Ok(10)));
        assert!(malformed(&bags(&[0, 1], &[0, 0], Some(&[&[0, 1]]))));
        assert!(malformed(&bags(&[0], &[0, 0], None)));
        assert!(malformed(&bags(&[0, 1], &[0, 0], Some(&[&[0, 1], &[1]]))));
        assert!(malformed(&bags(&[0], &[0], Some(&[&[4]]))));
        assert!(malformed(&bags(&[3], &[0], None)));
        let mut unknown = bags(&[0], &[0], None);
        unknown.minimum[0] = 1;
        assert!(malformed(&unknown));
    }

    /// Over x 6 entries, then over y 6.
    #[test]
    fn what_is_larger_than_the_limits_is_not_looked_at() {
        let bags = bags(&[0, 1], &[0, 0], None);
        assert!(total(&bags, &Limits { bag: 6, total: 12 }).is_ok());
        let sizes = [(5, 12, 6), (6, 11, 6), (6, 5, 6), (5, 5, 6)];
        for (bag, all, size) in sizes {
            let fault = total(&bags, &Limits { bag, total: all }).err();
            assert!(matches!(fault, Some(Fault::TooLarge(found)) if found == size), "{bag} {all}");
        }
    }
}
