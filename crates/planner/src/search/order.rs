//! The order in which variables are eliminated: always the one whose bucket is smallest now (min-weight, Kjærulff 1990),
//! the first of equals.
//!
//! Eliminating a variable joins all its neighbours. On a training graph, a ladder of layers, the inner variables of all
//! layers go first, then layer after layer from one end, so the largest bucket does not depend on the depth.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::network::{Network, VarId};

/// Variables in elimination order; those with one value are left out.
#[must_use]
pub fn elimination_order(network: &Network) -> Vec<VarId> {
    let n = network.domains.len();
    let mut neighbours: Vec<Vec<VarId>> = vec![Vec::new(); n];
    for factor in &network.factors {
        for &a in &factor.scope {
            let list = &mut neighbours[a as usize];
            list.extend(factor.scope.iter().filter(|&&b| b != a));
        }
    }
    for list in &mut neighbours {
        list.sort_unstable();
        list.dedup();
    }
    let weight = |var: VarId, neighbours: &[Vec<VarId>]| {
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
    let mut order = Vec::with_capacity(heap.len());
    while let Some(Reverse((key, var))) = heap.pop() {
        if done[var as usize] || current[var as usize] != key {
            continue;
        }
        done[var as usize] = true;
        order.push(var);
        let clique = std::mem::take(&mut neighbours[var as usize]);
        for &a in &clique {
            let list = &mut neighbours[a as usize];
            list.retain(|&v| v != var);
            list.extend(clique.iter().filter(|&&b| b != a));
            list.sort_unstable();
            list.dedup();
            let key = weight(a, &neighbours);
            if key != current[a as usize] {
                current[a as usize] = key;
                heap.push(Reverse((key, a)));
            }
        }
    }
    order
}
