//! Where results live, when buffers die, and how much memory a step needs.
//!
//! A *value* is a node together with all its aliases (`reshape`, `stop_gradient`, `constrain`, relabelling transitions):
//! one buffer under several names. A *slot* is a buffer that values share, one after another.
//!
//! * An alias lives in its operand's slot; nothing is copied.
//! * An elementwise op, an `all_reduce` or a `mask` overwrites the slot of its first operand that is eligible: same
//!   local block on every rank, same element type, and the value in the slot is neither read later nor an output.
//! * A leaf's slot is never overwritten, except that of a parameter or of state by the node that is its update.
//! * Everything else gets a slot of its own.
//! * A slot is freed after the last node that reads or makes a value in it, or after the last node of its bucket, or
//!   after the node behind which its collective is waited for. Slots of
//!   leaves and of outputs live to the end of the step; leaves are there from its start.
//!
//! All of it is linear in the number of nodes and operands.

mod buckets;
mod peak;
mod sizes;

use std::collections::BTreeMap;

use shardgrad_core::ops::Role;
use shardgrad_core::{Mesh, Op, TransitionKind};

use crate::node::{Node, NodeId, OutputRole};
use crate::plan::{Plan, SlotId};

pub use peak::{Categories, Loads, Peak, Stored, loads, peak, profile};

/// Whether the node's result is its operand's buffer under another name.
#[must_use]
pub fn is_alias(op: &Op) -> bool {
    match op {
        Op::Transition(transition) => transition.kind == TransitionKind::Relabel,
        other => other.is_alias(),
    }
}

/// Whether the op may write its result over an operand's block of the same shape.
#[must_use]
pub fn may_overwrite(op: &Op) -> bool {
    match op {
        Op::Transition(transition) => match transition.kind {
            TransitionKind::AllReduce | TransitionKind::Mask => true,
            TransitionKind::Relabel
            | TransitionKind::Slice
            | TransitionKind::Pad
            | TransitionKind::AllGather
            | TransitionKind::ReduceScatter
            | TransitionKind::AllToAll
            | TransitionKind::Reshard => false,
        },
        other => other.is_elementwise(),
    }
}

/// Whether two nodes have the same element type and, on every rank, blocks of the same shape.
#[must_use]
pub fn same_local_type(plan: &Plan, a: NodeId, b: NodeId) -> bool {
    plan.node(a).ty == plan.node(b).ty
        && real_axes(&plan.mesh).all(|axis| {
            plan.layout(a).on(axis).sharded_dim() == plan.layout(b).on(axis).sharded_dim()
        })
}

/// When a value is last needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LastNeed {
    /// The last node that reads it, or makes an alias of it.
    Node(NodeId),
    /// It is an output.
    End,
}

/// The values of a plan: classes of aliases.
struct Values {
    /// The first node of each node's class.
    root: Vec<NodeId>,
    /// By root: when the value is last needed.
    last_need: Vec<LastNeed>,
    /// By root: the leaves that the value updates.
    updates: BTreeMap<NodeId, Vec<NodeId>>,
}

impl Values {
    fn of(plan: &Plan) -> Self {
        let mut root: Vec<NodeId> = Vec::with_capacity(plan.nodes.len());
        let mut last_need: Vec<LastNeed> = plan.ids().map(LastNeed::Node).collect();
        for id in plan.ids() {
            let node = plan.node(id);
            for operand in &node.operands {
                last_need[root[operand.index()].index()] = LastNeed::Node(id);
            }
            root.push(alias_source(node).map_or(id, |operand| root[operand.index()]));
        }
        let mut updates: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
        for output in &plan.outputs {
            let value = root[output.node.index()];
            last_need[value.index()] = LastNeed::End;
            if let OutputRole::Update { of } = output.role {
                updates.entry(value).or_default().push(of);
            }
        }
        Self { root, last_need, updates }
    }

    /// Whether the value of `operand` is not needed after node `reader`.
    fn ends_at(&self, operand: NodeId, reader: NodeId) -> bool {
        self.last_need[self.root[operand.index()].index()] <= LastNeed::Node(reader)
    }
}

/// The operand whose buffer an alias names; `None` for a node that makes a buffer.
fn alias_source(node: &Node) -> Option<NodeId> {
    node.operands.first().copied().filter(|_| is_alias(&node.op))
}

/// Decides where every node's result lives. Slots are numbered in the order of their first use.
pub fn assign_slots(plan: &mut Plan) {
    let values = Values::of(plan);
    let mut slots: Vec<SlotId> = Vec::with_capacity(plan.nodes.len());
    let mut leaf_of: Vec<Option<NodeId>> = Vec::new();
    for id in plan.ids() {
        let node = plan.node(id);
        let is_free = |operand: NodeId| {
            let writable = match leaf_of[slots[operand.index()] as usize] {
                None => true,
                Some(leaf) => {
                    matches!(plan.node(leaf).leaf_role(), Some(Role::Param | Role::State))
                        && values.updates.get(&id).is_some_and(|leaves| leaves.contains(&leaf))
                }
            };
            writable && values.ends_at(operand, id) && same_local_type(plan, operand, id)
        };
        let inherited = if is_alias(&node.op) {
            node.operands.first().copied()
        } else if may_overwrite(&node.op) {
            node.operands.iter().copied().find(|&operand| is_free(operand))
        } else {
            None
        };
        let slot = match inherited {
            Some(operand) => slots[operand.index()],
            None => {
                leaf_of.push(node.leaf_role().map(|_| id));
                SlotId::try_from(leaf_of.len() - 1).unwrap_or(SlotId::MAX)
            }
        };
        slots.push(slot);
    }
    plan.slots = slots;
}

/// The slots to free after each node, in order of their numbers. What a launch touches lives to its last
/// node, and on until it is waited for.
#[must_use]
pub fn frees(plan: &Plan) -> Vec<Vec<SlotId>> {
    let count = plan.slots.iter().max().map_or(0, |&slot| slot as usize + 1);
    let mut last: Vec<Option<usize>> = vec![None; count];
    for step in plan.steps() {
        // What a launch touches is needed until it is waited for.
        let end = plan.wait(NodeId::from_index(step.end - 1)).index();
        for id in step.map(NodeId::from_index) {
            for touched in plan.node(id).operands.iter().chain([&id]) {
                let known = &mut last[plan.slots[touched.index()] as usize];
                *known = Some(end).max(*known);
            }
        }
    }
    let leaves = plan.ids().filter(|&id| plan.node(id).leaf_role().is_some());
    for kept in leaves.chain(plan.outputs.iter().map(|output| output.node)) {
        last[plan.slots[kept.index()] as usize] = None;
    }
    let mut frees = vec![Vec::new(); plan.nodes.len()];
    for (slot, node) in (0..).zip(last) {
        if let Some(node) = node {
            frees[node].push(slot);
        }
    }
    frees
}

/// The axes of a mesh that have more than one device.
fn real_axes(mesh: &Mesh) -> impl Iterator<Item = usize> + Clone + '_ {
    (0..mesh.rank()).filter(|&axis| mesh.axis_size(axis) > 1)
}
