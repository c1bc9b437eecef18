//! Updates as early as they can be.
//!
//! A program updates its parameters after the whole backward pass, so that all gradients live at once. Nothing needs
//! them for so long: what leads to an update stands right behind the last node outside of the update phase that it reads,
//! or that reads the leaf which it overwrites. Nodes of the update phase that several updates share stand with the first.
//! Everything else keeps its order.

use std::collections::BTreeMap;

use shardgrad_graph::{NodeId, OutputRole, Phase, Plan, memory};

use crate::reorder::permuted;

/// The plan in that order, its slots assigned anew.
#[must_use]
pub fn updates_early(plan: &Plan) -> Plan {
    let late =
        |id: NodeId| plan.node(id).phase == Phase::Update && plan.node(id).leaf_role().is_none();
    // The last node outside of the update phase that each node depends on; leaves are there from the start.
    let mut after: Vec<usize> = Vec::with_capacity(plan.nodes.len());
    // Names of one buffer stand for its first.
    let mut root: Vec<NodeId> = Vec::with_capacity(plan.nodes.len());
    let mut read_until: BTreeMap<NodeId, usize> = BTreeMap::new();
    let updates: BTreeMap<NodeId, NodeId> = plan
        .outputs
        .iter()
        .filter_map(|output| match output.role {
            OutputRole::Update { of } => Some((output.node, of)),
            OutputRole::Gradient { .. } | OutputRole::Loss | OutputRole::Value => None,
        })
        .collect();
    for id in plan.ids() {
        let node = plan.node(id);
        let own = match node.leaf_role() {
            Some(_) => 0,
            None if late(id) => {
                let operands = node.operands.iter().map(|o| after[o.index()]).max().unwrap_or(0);
                let leaf = updates.get(&id).and_then(|leaf| read_until.get(leaf));
                operands.max(leaf.copied().unwrap_or(0))
            }
            None => id.index() + 1,
        };
        if !late(id) {
            for operand in &node.operands {
                read_until.insert(root[operand.index()], own);
            }
        }
        after.push(own);
        let source = node.operands.first().filter(|_| memory::is_alias(&node.op));
        root.push(source.map_or(id, |o| root[o.index()]));
    }
    // A node that leads to an update waits for it.
    let mut wanted: Vec<Option<usize>> = vec![None; plan.nodes.len()];
    for id in plan.ids().rev().filter(|&id| late(id)) {
        let at = wanted[id.index()].unwrap_or(after[id.index()]).max(after[id.index()]);
        after[id.index()] = at;
        for operand in &plan.node(id).operands {
            let known = &mut wanted[operand.index()];
            *known = Some(known.map_or(at, |k| k.min(at)));
        }
    }
    let mut order: Vec<NodeId> = plan.ids().collect();
    order.sort_by_key(|&id| (after[id.index()], late(id), id));
    permuted(plan, &order)
}
