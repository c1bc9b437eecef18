//! Min-marginals: how much more than least any assignment costs in which a variable has a value.
//!
//! Elimination sends messages from the first bucket to the last; a pass back gives each bucket what the rest of the network costs,
//! by its separator. The bucket's factors and that, added up, are what any assignment of the bucket's variables costs
//! (two-pass elimination: Dechter, Artificial Intelligence 113, 1999). Like messages, what goes back is interned and
//! remembered, so that layers which repeat each other are worked out once.

use std::rc::Rc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::bound::{add, normalised, project};
use super::eliminate::Eliminated;
use super::network::{Factor, Network, Scope, TableId};
use crate::cost::{INFINITE, Packed};

/// What a bucket works out: its variable's marginal, and what goes back to each bucket that sent it a message.
type Back = (Rc<[Packed]>, SmallVec<[TableId; 4]>);

/// By variable and value: how much more than least any assignment costs with it; [`INFINITE`] where none is possible.
pub fn marginals(network: &mut Network, done: &Eliminated) -> Vec<Rc<[Packed]>> {
    let order = &done.trace.order;
    let mut marginals: Vec<Rc<[Packed]>> =
        network.domains.iter().map(|&d| vec![0; d as usize].into()).collect();
    let mut known: FxHashMap<Vec<u32>, Back> = FxHashMap::default();
    let mut back: Vec<Option<Factor>> = vec![None; order.len()];
    for (i, &var) in order.iter().enumerate().rev() {
        let mut factors = done.buckets[i].clone();
        factors.extend(back[i].take());
        factors.sort_by(|a, b| (a.table, &a.scope).cmp(&(b.table, &b.scope)));
        let read = factors.iter().flat_map(|f| f.scope.iter().copied());
        let mut scope: Scope = read.chain([var]).collect();
        scope.sort_unstable();
        scope.dedup();
        let place = |v| scope.iter().position(|&s| s == v).and_then(|at| u32::try_from(at).ok());
        let places = |f: &Factor| -> SmallVec<[u32; 6]> {
            f.scope.iter().map(|&v| place(v).unwrap_or(u32::MAX)).collect()
        };
        let mut key: Vec<u32> = scope.iter().map(|&v| network.domains[v as usize]).collect();
        key.extend(place(var));
        key.extend(u32::try_from(factors.len()));
        for factor in factors.iter().chain(done.senders[i].iter().map(|&s| &done.sent[s])) {
            key.extend([u32::MAX, factor.table]);
            key.extend(places(factor));
        }
        let known_back = known.get(&key).cloned();
        let (marginal, tables) = known_back.unwrap_or_else(|| {
            let size: usize = scope.iter().map(|&v| network.domain(v)).product();
            let mut sums = vec![0; size];
            for factor in &factors {
                add(network, &scope, &mut sums, &factor.scope, network.tables.get(factor.table));
            }
            let marginal = normalised(project(network, &scope, &sums, &[var])).into();
            let to_senders = done.senders[i].iter().map(|&sender| {
                let sent = &done.sent[sender];
                let mut rest = project(network, &scope, &sums, &sent.scope);
                // What the sender sent is in the sums.
                for (rest, own) in rest.iter_mut().zip(network.tables.get(sent.table).iter()) {
                    *rest = if *rest >= INFINITE { INFINITE } else { *rest - *own };
                }
                normalised(rest)
            });
            let tables: Vec<Vec<Packed>> = to_senders.collect();
            let tables = tables.into_iter().map(|t| network.tables.intern(t)).collect();
            let back: Back = (marginal, tables);
            known.insert(key, back.clone());
            back
        });
        marginals[var as usize] = marginal;
        for (&sender, table) in done.senders[i].iter().zip(tables) {
            back[sender] = Some(Factor { scope: done.sent[sender].scope.clone(), table });
        }
    }
    marginals
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::eliminate::tests::{exhaustive, random_network};
    use crate::search::{BUCKET_LIMIT, eliminated, restrict};

    #[test]
    fn marginals_are_what_assignments_with_the_value_cost_more() {
        let mut state = 29;
        let mut compared = 0;
        for _ in 0..300 {
            let mut network = random_network(&mut state);
            let Ok(done) = eliminated(&mut network, BUCKET_LIMIT) else { continue };
            let marginals = marginals(&mut network, &done);
            for (var, marginal) in marginals.iter().enumerate().filter(|(_, m)| m.len() > 1) {
                for (value, &more) in marginal.iter().enumerate() {
                    let mut kept = network.all_values();
                    kept[var] = vec![u32::try_from(value).unwrap()];
                    let with = exhaustive(&restrict(&network, &kept).unwrap());
                    assert_eq!(more, with.map_or(INFINITE, |with| with - done.cost));
                    compared += 1;
                }
            }
        }
        assert!(compared > 1000, "{compared}");
    }
}
