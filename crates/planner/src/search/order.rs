//! The order in which variables are eliminated: always the one whose bucket is smallest now (min-weight, Kjærulff 1990),
//! the first of equals.
//!
//! Eliminating a variable joins all its neighbours. On a training graph, a ladder of layers, the inner variables of all
//! layers go first, then layer after layer from one end, so the largest bucket does not depend on the depth.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use smallvec::SmallVec;

use super::network::{Network, VarId};

/// An elimination order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The variables; those with one value are left out.
    pub vars: Vec<VarId>,
    /// Entries of the largest bucket.
    pub widest: u64,
}

/// The variables that share a factor with one, in any order: few, as long as buckets are small.
type Neighbours = SmallVec<[VarId; 8]>;

/// Adds others to the neighbours of a variable.
fn join(neighbours: &mut Neighbours, var: VarId, others: &[VarId]) {
    for &other in others {
        if other != var && !neighbours.contains(&other) {
            neighbours.push(other);
        }
    }
}

/// The order in which the variables of a network are eliminated.
#[must_use]
pub fn elimination_order(network: &Network) -> Order {
    let n = network.domains.len();
    let mut neighbours: Vec<Neighbours> = vec![Neighbours::new(); n];
    for factor in &network.factors {
        for &a in &factor.scope {
            join(&mut neighbours[a as usize], a, &factor.scope);
        }
    }
    let weight = |var: VarId, neighbours: &[Neighbours]| {
        neighbours[var as usize].iter().chain([&var]).fold(1_u64, |product, &v| {
            product.saturating_mul(u64::from(network.domains[v as usize]))
        })
    };
    let mut current: Vec<u64> = vec![0; n];
    let mut heap = BinaryHeap::new();
    for var in (0..n).filter(|&v| network.domains[v] > 1) {
        let id = VarId::try_from(var).unwrap_or(VarId::MAX);
        current[var] = weight(id, &neighbours);
        heap.push(Reverse((current[var], id)));
    }
    let mut done = vec![false; n];
    let mut vars = Vec::with_capacity(heap.len());
    let mut widest = 0;
    while let Some(Reverse((key, var))) = heap.pop() {
        if done[var as usize] || current[var as usize] != key {
            continue;
        }
        done[var as usize] = true;
        vars.push(var);
        // Its bucket is over itself and its neighbours of now.
        widest = key.max(widest);
        let clique = std::mem::take(&mut neighbours[var as usize]);
        for &a in &clique {
            let list = &mut neighbours[a as usize];
            list.retain(|v| *v != var);
            join(list, a, &clique);
            let key = weight(a, &neighbours);
            if key != current[a as usize] {
                current[a as usize] = key;
                heap.push(Reverse((key, a)));
            }
        }
    }
    Order { vars, widest }
}
