//! A plan in another order.

use shardgrad_graph::{NodeId, OutputRole, Plan, memory};

/// The plan with its nodes in another order, which must put operands before their readers; its slots assigned anew, and
/// every launch waited for at once.
pub(crate) fn permuted(plan: &Plan, order: &[NodeId]) -> Plan {
    let mut place = vec![NodeId(0); plan.nodes.len()];
    for (at, id) in order.iter().enumerate() {
        place[id.index()] = NodeId::from_index(at);
    }
    let mut moved = plan.clone();
    for (at, &id) in order.iter().enumerate() {
        let mut node = plan.node(id).clone();
        node.operands.iter_mut().for_each(|o| *o = place[o.index()]);
        moved.nodes[at] = node;
        moved.layouts[at] = plan.layout(id).clone();
        moved.origins[at] = plan.origins[id.index()];
    }
    for output in &mut moved.outputs {
        output.node = place[output.node.index()];
        output.role = match output.role {
            OutputRole::Gradient { of } => OutputRole::Gradient { of: place[of.index()] },
            OutputRole::Update { of } => OutputRole::Update { of: place[of.index()] },
            role @ (OutputRole::Loss | OutputRole::Value) => role,
        };
    }
    moved.reasons = plan
        .reasons
        .iter()
        .filter_map(|(id, why)| Some((place.get(*id as usize)?.0, why.clone())))
        .collect();
    for id in moved.buckets.iter_mut().flatten() {
        *id = place[id.index()];
    }
    moved.waits.clear();
    memory::assign_slots(&mut moved);
    moved
}
