//! The search where exact elimination of the whole network is out of reach: bounds, and exact elimination of what the bounds
//! leave.
//!
//! Mini-buckets give a lower bound and an assignment, which coordinate descent improves; every value of every variable
//! whose own bound exceeds that assignment's cost is struck out (it is in no optimum), and elimination is tried again on
//! the smaller domains. This repeats with larger mini-buckets. If elimination stays out of reach, the best assignment is
//! the answer, and the bound says how far from the optimum it may be.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::bound::bound;
use super::eliminate::{Failure, Solution, Trace, eliminate};
use super::network::{Factor, Network, TableId};
use crate::cost::{INFINITE, Packed};

/// Entries of a mini-bucket, round by round.
pub const ROUNDS: [u64; 4] = [1 << 14, 1 << 17, 1 << 20, 1 << 22];

/// Entries of the largest table of a network whose values are restricted.
const RESTRICTED: usize = 1 << 20;

/// An assignment, its cost, and a bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The assignment's cost.
    pub cost: Packed,
    /// A value for each variable.
    pub assignment: Vec<u32>,
    /// No assignment costs less; equal to `cost` if the assignment is optimal.
    pub lower: Packed,
    /// How a bound follows.
    pub proof: Proof,
    /// That bound. It is less than `lower` where values had to be struck out.
    pub traced: Packed,
}

/// How a bound follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// From the whole network.
    Whole(Trace),
    /// From the network of each axis of the mesh, with the values whose readers meet in a variable of sets there.
    Axes(Vec<(Trace, Vec<u32>)>),
}

/// What is known of the best assignments of a network.
#[derive(Clone, Debug)]
pub struct Known {
    /// The values that they may have, by variable.
    pub kept: Vec<Vec<u32>>,
    /// The cheapest assignment that was found, with its cost.
    pub best: Option<(Packed, Vec<u32>)>,
    /// No assignment costs less.
    pub lower: Packed,
}

/// What striking out leads to from what is known, whose bound `proof` shows; `None` if no assignment was found.
///
/// # Errors
/// No assignment is possible.
pub fn refine(
    network: &Network,
    limit: u64,
    rounds: &[u64],
    mut known: Known,
    mut proof: Proof,
) -> Result<Option<Outcome>, Failure> {
    let mut traced = known.lower;
    if let Some((bound, trace)) = strike(network, limit, rounds, &mut known)?
        && bound > traced
    {
        (traced, proof) = (bound, Proof::Whole(trace));
    }
    let Known { best, lower, .. } = known;
    Ok(best.map(|(cost, assignment)| Outcome { cost, assignment, lower, proof, traced }))
}

/// Strikes out values that are in no best assignment until what is left can be eliminated exactly, with mini-buckets of so many
/// entries in each round. Returns the best bound that was made of the whole network, and how it follows.
///
/// # Errors
/// No assignment is possible.
fn strike(
    network: &Network,
    limit: u64,
    rounds: &[u64],
    known: &mut Known,
) -> Result<Option<(Packed, Trace)>, Failure> {
    let mut whole: Option<(Packed, Trace)> = None;
    if known.best.is_some() && exact(network, limit, known)? {
        return Ok(whole);
    }
    for &round in rounds {
        let Some(mut small) = restrict(network, &known.kept) else { break };
        let bounds = bound(&mut small, round.min(limit))?;
        known.lower = known.lower.max(bounds.lower);
        if small.domains == network.domains
            && whole.as_ref().is_none_or(|(known, _)| *known < bounds.lower)
        {
            whole = Some((bounds.lower, bounds.trace));
        }
        let mut found = bounds.assignment;
        descend(&small, &mut found);
        let original = known.original(&found);
        let cost = network.cost(&original);
        if cost < INFINITE && known.best.as_ref().is_none_or(|(least, _)| cost < *least) {
            known.best = Some((cost, original));
        }
        let Some((least, _)) = &known.best else { continue };
        for (values, excess) in known.kept.iter_mut().zip(&bounds.excess) {
            let mut at = 0;
            values.retain(|_| {
                at += 1;
                bounds.lower + excess[at - 1] <= *least
            });
        }
        if exact(network, limit, known)? {
            break;
        }
    }
    Ok(whole)
}

/// Whether what is left can be eliminated exactly; if so it is, and all is known.
fn exact(network: &Network, limit: u64, known: &mut Known) -> Result<bool, Failure> {
    let Some(mut left) = restrict(network, &known.kept) else { return Ok(false) };
    match eliminate(&mut left, limit) {
        Ok(Solution { cost, assignment, .. }) => {
            known.best = Some((cost, known.original(&assignment)));
            known.lower = cost;
            Ok(true)
        }
        Err(Failure::Infeasible) => Err(Failure::Infeasible),
        Err(Failure::TooWide(..)) => Ok(false),
    }
}

impl Known {
    /// Nothing yet.
    #[must_use]
    pub fn nothing(network: &Network) -> Self {
        Self { kept: network.all_values(), best: None, lower: 0 }
    }

    /// An assignment of the values that are kept, as one of the whole network.
    fn original(&self, assignment: &[u32]) -> Vec<u32> {
        let values = assignment.iter().zip(&self.kept);
        values.map(|(&value, kept)| kept[value as usize]).collect()
    }
}

/// The network with these values only; `None` if a table of it would have more than [`RESTRICTED`] entries.
pub(crate) fn restrict(network: &Network, kept: &[Vec<u32>]) -> Option<Network> {
    let size = |factor: &Factor| {
        let values = factor.scope.iter().map(|&var| kept[var as usize].len());
        values.fold(1, usize::saturating_mul)
    };
    if network.factors.iter().any(|factor| size(factor) > RESTRICTED) {
        return None;
    }
    let mut small = Network::default();
    let mut numbers: FxHashMap<&[u32], u32> = FxHashMap::default();
    let mut number = Vec::with_capacity(kept.len());
    for values in kept {
        small.variable(values.len());
        let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
        number.push(*numbers.entry(values).or_insert(next));
    }
    // Layers that repeat each other restrict the same tables in the same way.
    let mut known: FxHashMap<(TableId, SmallVec<[u32; 6]>), TableId> = FxHashMap::default();
    for factor in &network.factors {
        let how = factor.scope.iter().map(|&var| number[var as usize]).collect();
        let table = *known.entry((factor.table, how)).or_insert_with(|| {
            let mut indices = vec![0_usize];
            for &var in &factor.scope {
                let domain = network.domain(var);
                indices = indices
                    .iter()
                    .flat_map(|i| kept[var as usize].iter().map(move |&v| i * domain + v as usize))
                    .collect();
            }
            small.tables.intern(network.tables.entries(factor.table, &indices))
        });
        small.factor(factor.scope.iter().copied(), table);
    }
    Some(small)
}

/// Coordinate descent: each variable in turn takes its best value, until nothing improves.
fn descend(network: &Network, assignment: &mut [u32]) {
    let mut touching: Vec<Vec<usize>> = vec![Vec::new(); network.domains.len()];
    for (i, factor) in network.factors.iter().enumerate() {
        for &var in &factor.scope {
            touching[var as usize].push(i);
        }
    }
    let mut cost = network.cost(assignment);
    loop {
        for var in 0..assignment.len() {
            let local = |assignment: &[u32]| {
                touching[var].iter().fold(0, |sum: Packed, &f| {
                    (sum + network.entry(&network.factors[f], assignment)).min(INFINITE)
                })
            };
            let mut least = (local(assignment), assignment[var]);
            for value in 0..network.domains[var] {
                assignment[var] = value;
                let found = local(assignment);
                if found < least.0 {
                    least = (found, value);
                }
            }
            assignment[var] = least.1;
        }
        let improved = network.cost(assignment);
        if improved >= cost {
            return;
        }
        cost = improved;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::eliminate::tests::{draw, exhaustive, random_network};

    #[test]
    fn bounds_hold_and_small_limits_still_find_the_optimum_or_a_gap() {
        let mut state = 11;
        let (mut exact, mut gaps) = (0, 0);
        for _ in 0..600 {
            let mut network = random_network(&mut state);
            let Some(expected) = exhaustive(&network) else { continue };
            let limit = 2 + draw(&mut state) % 60;
            let bounds = bound(&mut network, limit).unwrap();
            assert!(bounds.lower <= expected);
            for (var, excess) in bounds.excess.iter().enumerate() {
                for (value, excess) in excess.iter().enumerate() {
                    let mut kept = network.all_values();
                    kept[var] = vec![value as u32];
                    let with = exhaustive(&restrict(&network, &kept).unwrap()).unwrap_or(INFINITE);
                    assert!(with >= (bounds.lower + excess).min(INFINITE), "{var} {value}");
                }
            }
            let (known, proof) = (Known::nothing(&network), Proof::Whole(Trace::default()));
            if let Some(outcome) = refine(&network, limit, &ROUNDS, known, proof).unwrap() {
                assert_eq!(network.cost(&outcome.assignment), outcome.cost);
                assert!(outcome.traced <= outcome.lower && outcome.lower <= expected);
                assert!(expected <= outcome.cost);
                if outcome.lower == outcome.cost { exact += 1 } else { gaps += 1 }
            }
        }
        assert!(exact > 300 && gaps > 0, "{exact} exact, {gaps} with a gap");
    }
}
