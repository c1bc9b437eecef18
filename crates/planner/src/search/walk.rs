//! All assignments of a network in order of their cost.
//!
//! Buckets give the least cost of completing a partial assignment exactly, so best-first search over values, the last
//! eliminated variable first, never takes a wrong turn: each step down to a whole assignment follows values that cost
//! nothing more, and what was passed by waits in a heap with its exact excess (the k-best scheme of Lawler, Management
//! Science 18, 1972, on the tree of an eliminated network). Ties go to the first found.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::eliminate::Eliminated;
use super::network::Network;
use crate::cost::{INFINITE, Packed};

/// Most alternatives that wait at once.
const WAITING_LIMIT: usize = 1 << 21;

/// A value of a variable, and the choices before it.
struct Step {
    before: Option<usize>,
    bucket: usize,
    value: u32,
}

/// A walk over assignments, cheapest first.
pub struct Walk<'a> {
    network: &'a Network,
    eliminated: &'a Eliminated,
    steps: Vec<Step>,
    /// Excess, number, and the last step that is decided.
    waiting: BinaryHeap<Reverse<(Packed, u64, Option<usize>)>>,
    number: u64,
    /// Alternatives were dropped: from here on not all assignments are seen.
    pub dropped: bool,
}

impl<'a> Walk<'a> {
    /// A walk that starts at the least cost.
    #[must_use]
    pub fn new(network: &'a Network, eliminated: &'a Eliminated) -> Self {
        let waiting = [Reverse((0, 0, None))].into_iter().collect();
        Self { network, eliminated, steps: Vec::new(), waiting, number: 0, dropped: false }
    }

    /// No assignment that is still to come costs less; `None` if none is to come.
    #[must_use]
    pub fn least_to_come(&self) -> Option<Packed> {
        self.waiting.peek().map(|Reverse((excess, ..))| self.eliminated.cost + excess)
    }

    /// The next assignment and its cost. Values for which `prune` says so are left out: it is told the variable, the
    /// value, and the assignment of all variables decided before, with their number from the end of the order.
    pub fn next(
        &mut self,
        prune: &mut dyn FnMut(usize, &[u32]) -> bool,
    ) -> Option<(Packed, Vec<u32>)> {
        loop {
            let Reverse((excess, _, from)) = self.waiting.pop()?;
            let mut assignment = vec![0; self.network.domains.len()];
            let mut next = self.eliminated.trace.order.len();
            let mut at = from;
            while let Some(step) = at.map(|i| &self.steps[i]) {
                assignment[self.eliminated.trace.order[step.bucket] as usize] = step.value;
                next = next.min(step.bucket);
                at = step.before;
            }
            if self.complete(excess, from, next, &mut assignment, prune) {
                return Some((self.eliminated.cost + excess, assignment));
            }
        }
    }

    /// Follows values that cost nothing more; the others wait. False if none is left.
    fn complete(
        &mut self,
        excess: Packed,
        from: Option<usize>,
        decided: usize,
        assignment: &mut [u32],
        prune: &mut dyn FnMut(usize, &[u32]) -> bool,
    ) -> bool {
        let mut before = from;
        for bucket in (0..decided).rev() {
            let var = self.eliminated.trace.order[bucket] as usize;
            let more = self.eliminated.excess(self.network, bucket, assignment);
            let mut followed: Option<u32> = None;
            for (value, &more) in (0..).zip(&more).filter(|(_, more)| **more < INFINITE) {
                assignment[var] = value;
                if prune(var, assignment) {
                    continue;
                }
                if more == 0 && followed.is_none() {
                    followed = Some(value);
                    continue;
                }
                if self.waiting.len() >= WAITING_LIMIT {
                    self.dropped = true;
                    continue;
                }
                self.steps.push(Step { before, bucket, value });
                self.number += 1;
                let entry = (excess + more, self.number, Some(self.steps.len() - 1));
                self.waiting.push(Reverse(entry));
            }
            let Some(value) = followed else { return false };
            assignment[var] = value;
            self.steps.push(Step { before, bucket, value });
            before = Some(self.steps.len() - 1);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::eliminate::tests::random_network;
    use crate::search::{BUCKET_LIMIT, eliminated};

    #[test]
    fn every_assignment_comes_once_in_order_of_cost() {
        let mut state = 23;
        let mut seen = 0;
        for _ in 0..60 {
            let mut network = random_network(&mut state);
            let Ok(eliminated) = eliminated(&mut network, BUCKET_LIMIT) else { continue };
            let total: usize = network.domains.iter().map(|&d| d as usize).product();
            let mut expected: Vec<Packed> = (0..total)
                .map(|mut code| {
                    let digits: Vec<u32> = network
                        .domains
                        .iter()
                        .map(|&d| {
                            let digit = code % d as usize;
                            code /= d as usize;
                            u32::try_from(digit).unwrap()
                        })
                        .collect();
                    network.cost(&digits)
                })
                .filter(|&cost| cost < INFINITE)
                .collect();
            expected.sort_unstable();
            let mut walk = Walk::new(&network, &eliminated);
            let mut found: Vec<(Packed, Vec<u32>)> = Vec::new();
            while let Some((cost, assignment)) = walk.next(&mut |_, _| false) {
                assert_eq!(network.cost(&assignment), cost);
                assert!(walk.least_to_come().is_none_or(|least| least >= cost));
                found.push((cost, assignment));
            }
            assert_eq!(found.iter().map(|f| f.0).collect::<Vec<_>>(), expected);
            let mut different: Vec<_> = found.iter().map(|f| &f.1).collect();
            different.sort();
            different.dedup();
            assert_eq!(different.len(), found.len());
            seen += found.len();
        }
        assert!(seen > 1000, "{seen}");
    }
}
