//! Copies of stored values, kept or made again.
//!
//! A gathered parameter is read in the forward pass and again in the backward pass. To keep it costs memory in between;
//! to make it again costs its collective a second time. A *gap* is the longest stretch between two readers of a
//! collective's result whose operand is a leaf, which is there anyway. Closing a gap makes the copy again right before
//! the readers behind it.

use shardgrad_core::Prices;
use shardgrad_core::geometry::largest_block;
use shardgrad_graph::{NodeId, Plan, memory};

/// Most gaps of which every set is tried.
const ALL_SETS: usize = 10;

/// A stretch in which a copy is only kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The transition.
    pub copy: NodeId,
    /// The last reader before it.
    pub from: NodeId,
    /// The first reader behind it.
    pub to: NodeId,
    /// Bytes of the copy on the largest rank.
    pub bytes: u64,
    /// The leading cost of making it again.
    pub cost: u64,
}

/// All gaps of a plan, in order of their copies.
#[must_use]
pub fn gaps(plan: &Plan, prices: &Prices<'_>) -> Vec<Gap> {
    let mut readers: Vec<Vec<NodeId>> = vec![Vec::new(); plan.nodes.len()];
    for id in plan.ids() {
        for operand in &plan.node(id).operands {
            readers[operand.index()].push(id);
        }
    }
    let is_output = |id| plan.outputs.iter().any(|o| o.node == id);
    plan.collectives()
        .filter_map(|c| {
            let operand = *plan.node(c.id).operands.first()?;
            if plan.node(operand).leaf_role().is_none() || is_output(c.id) {
                return None;
            }
            let pairs = readers[c.id.index()].windows(2).map(|pair| (pair[0], pair[1]));
            let (from, to) = pairs.max_by_key(|(a, b)| b.index() - a.index())?;
            let block = largest_block(&c.ty.shape, c.to, &plan.mesh) * c.ty.dtype.size();
            let cost = prices.transition(c.transition, c.ty, c.from, c.to)[0];
            (to.index() > from.index() + 1).then_some(Gap {
                copy: c.id,
                from,
                to,
                bytes: block as u64,
                cost,
            })
        })
        .collect()
}

/// The plan with these gaps closed, its slots assigned anew.
#[must_use]
pub fn close(plan: &Plan, gaps: &[Gap]) -> Plan {
    let mut made = plan.clone();
    made.nodes.clear();
    made.layouts.clear();
    made.origins.clear();
    made.reasons.clear();
    let mut place: Vec<NodeId> = Vec::with_capacity(plan.nodes.len());
    // The newest copy of each closed transition.
    let mut again: Vec<Option<NodeId>> = vec![None; plan.nodes.len()];
    for id in plan.ids() {
        for gap in gaps.iter().filter(|gap| gap.to == id) {
            let mut node = plan.node(gap.copy).clone();
            node.operands.iter_mut().for_each(|o| *o = place[o.index()]);
            node.phase = plan.node(id).phase;
            let copy = NodeId::from_index(made.nodes.len());
            if let Some(reason) = plan.reasons.get(&gap.copy.0) {
                let mut reason = reason.clone();
                reason.why.push_str("; made again, since memory has no room to keep it");
                made.reasons.insert(copy.0, reason);
            }
            made.nodes.push(node);
            made.layouts.push(plan.layout(gap.copy).clone());
            made.origins.push(plan.origins[gap.copy.index()]);
            again[gap.copy.index()] = Some(copy);
        }
        let mut node = plan.node(id).clone();
        node.operands.iter_mut().for_each(|o| *o = again[o.index()].unwrap_or(place[o.index()]));
        let new = NodeId::from_index(made.nodes.len());
        if let Some(reason) = plan.reasons.get(&id.0) {
            made.reasons.insert(new.0, reason.clone());
        }
        made.nodes.push(node);
        made.layouts.push(plan.layout(id).clone());
        made.origins.push(plan.origins[id.index()]);
        place.push(new);
    }
    use shardgrad_graph::OutputRole::{Gradient, Loss, Update, Value};
    for output in &mut made.outputs {
        output.node = place[output.node.index()];
        output.role = match output.role {
            Gradient { of } => Gradient { of: place[of.index()] },
            Update { of } => Update { of: place[of.index()] },
            role @ (Loss | Value) => role,
        };
    }
    memory::assign_slots(&mut made);
    made
}

/// The plan with the cheapest set of gaps closed that brings its peak under a limit, if one was found; and whether every
/// set was in question.
#[must_use]
pub fn fit(plan: &Plan, prices: &Prices<'_>, limit: u64) -> (Option<Plan>, bool) {
    let fits = |plan: &Plan| memory::peak(plan).bytes <= limit;
    if fits(plan) {
        return (Some(plan.clone()), true);
    }
    let gaps = gaps(plan, prices);
    if gaps.len() > ALL_SETS {
        return (greedy(plan, prices, limit), false);
    }
    let chosen = |set: usize| -> Vec<Gap> {
        gaps.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1).map(|(_, g)| *g).collect()
    };
    let mut sets: Vec<(u64, usize)> =
        (1..1 << gaps.len()).map(|set| (chosen(set).iter().map(|g| g.cost).sum(), set)).collect();
    sets.sort_unstable();
    (sets.into_iter().map(|(_, set)| close(plan, &chosen(set))).find(fits), true)
}

/// Closes gaps at the peak, those that free most for their cost first, until the plan fits.
fn greedy(plan: &Plan, prices: &Prices<'_>, limit: u64) -> Option<Plan> {
    let mut plan = plan.clone();
    loop {
        let peak = memory::peak(&plan);
        let mut excess = peak.bytes.checked_sub(limit).filter(|&excess| excess > 0);
        if excess.is_none() {
            return Some(plan);
        }
        let mut spanning: Vec<Gap> = gaps(&plan, prices)
            .into_iter()
            .filter(|gap| gap.from < peak.at && peak.at < gap.to)
            .collect();
        if spanning.is_empty() {
            return None;
        }
        let dearer = |a: &Gap, b: &Gap| {
            let (a, b) = (
                u128::from(a.cost) * u128::from(b.bytes),
                u128::from(b.cost) * u128::from(a.bytes),
            );
            a.cmp(&b)
        };
        spanning.sort_by(dearer);
        let mut taken = 0;
        while let (Some(left), Some(gap)) = (excess, spanning.get(taken)) {
            taken += 1;
            excess = left.checked_sub(gap.bytes).filter(|&left| left > 0);
        }
        plan = close(&plan, &spanning[..taken]);
    }
}
