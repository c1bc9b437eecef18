//! Running a plan on threads and keeping what every rank holds of every value.

use std::collections::BTreeMap;
use std::sync::Arc;

use shardgrad::Error;
use shardgrad::core::geometry::block;
use shardgrad::graph::{Output, OutputRole, Plan, Value, memory};
use shardgrad::runtime::{Buffers, Communicator, Executor, World};

/// What every rank holds of every node, by node and rank.
///
/// The plan is run with every value an output, so that no buffer is written over.
///
/// # Errors
/// The runtime refuses the plan, or a rank fails.
pub(super) fn trace(
    plan: &Plan,
    leaves: &BTreeMap<String, Value>,
) -> Result<Vec<Vec<Value>>, Error> {
    let mut traced = plan.clone();
    traced.outputs = plan
        .ids()
        .filter(|&id| plan.node(id).leaf_role().is_none())
        .map(|node| Output { name: node.to_string(), node, role: OutputRole::Value })
        .collect();
    memory::assign_slots(&mut traced);
    let (plan, leaves) = (Arc::new(traced), Arc::new(leaves.clone()));
    let ranks = World::new(plan.mesh.size()).run(move |comm| {
        let rank = comm.rank();
        let mut executor = Executor::new(&plan, rank, Buffers::Free)?;
        let place = |id| block(&plan.node(id).ty.shape, plan.layout(id), &plan.mesh, rank);
        for id in plan.ids() {
            if let Some((name, value)) =
                plan.node(id).leaf_name().and_then(|n| leaves.get_key_value(n))
                && let Some(leaf) = executor.leaf_mut(name)
            {
                leaf.copy_block(value, &place(id))?;
            }
        }
        executor.step(comm)?;
        plan.ids()
            .map(|id| {
                let data = match plan.node(id).leaf_name() {
                    Some(name) => executor.leaf(name),
                    None => executor.output(&id.to_string()),
                };
                data.map(|d| d.to_value(&place(id).shape())).transpose()
            })
            .collect::<Result<Vec<Option<Value>>, _>>()
    });
    let ranks: Vec<Vec<Option<Value>>> = ranks.into_iter().collect::<Result<_, _>>()?;
    let nodes = ranks.first().map_or(0, Vec::len);
    Ok((0..nodes)
        .map(|id| ranks.iter().filter_map(|values| values[id].clone()).collect())
        .collect())
}
