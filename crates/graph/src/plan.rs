//! A plan: a program with transitions in it, a layout on every node, and an order.
//!
//! Collectives are ops (identities on the global value), so programs and plans share nodes, printer and executor. Node
//! order is execution order, the same on all ranks. Every node names its *origin*, the program node whose value it is;
//! a transition's origin is its operand's. Storage is decided with the plan: each node lives in a slot, and slots are
//! shared where a value overwrites another at its last use.
//!
//! Collectives that follow each other may run as one launch, a *bucket* ([`shardgrad_core::launch`]): all its members read
//! their operands before any result is there, and what any of them touches lives until the last is done.
//!
//! A launch *starts* where its last node stands. It is *waited for* at once, or behind a later node: until then it is in
//! flight, nobody else touches the slots of its operands and results, and these and its messages are live.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use shardgrad_core::launch::Member;
use shardgrad_core::price::Fields;
use shardgrad_core::{Layout, LayoutSpec, Mesh, Op, Prices, TensorType, Transition};

use crate::node::{Node, NodeId, Output};

/// Index of a buffer that nodes share.
pub type SlotId = u32;

/// Why a transition is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// One sentence: which op, which label, which placements made it necessary.
    pub why: String,
}

/// A program laid out over a mesh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The mesh.
    pub mesh: Mesh,
    /// The layout request it was made for, as printed: `dp=data, tp=megatron`.
    pub layout: String,
    /// Nodes in execution order: the program's, some in several layouts, and transitions.
    pub nodes: Vec<Node>,
    /// Layout of each node's result.
    pub layouts: Vec<Layout>,
    /// The program node whose value each node is.
    pub origins: Vec<NodeId>,
    /// The slot each node's result lives in.
    pub slots: Vec<SlotId>,
    /// Outputs, in the program's order; nodes are the plan's, leaves in roles are the plan's.
    pub outputs: Vec<Output>,
    /// Placements demanded of named values; axes that a pin does not name are free.
    pub pins: BTreeMap<String, LayoutSpec>,
    /// Why each transition is there, by its index.
    pub reasons: BTreeMap<u32, Reason>,
    /// Collectives that run as one launch: nodes that follow each other, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<Vec<NodeId>>,
    /// Launches that run beside what follows: by the last node of each, the node behind which it is waited for. Every
    /// other launch is waited for at once.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub waits: BTreeMap<u32, NodeId>,
}

impl Plan {
    /// The node with this id.
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The layout of a node's result.
    #[must_use]
    pub fn layout(&self, id: NodeId) -> &Layout {
        &self.layouts[id.index()]
    }

    /// Ids of all nodes, in order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + ExactSizeIterator + use<> {
        (0..self.nodes.len()).map(NodeId::from_index)
    }

    /// Types of a node's operands.
    #[must_use]
    pub fn operand_types(&self, id: NodeId) -> Vec<TensorType> {
        self.node(id).operands.iter().map(|&o| self.node(o).ty.clone()).collect()
    }

    /// All transitions, with the layouts at both ends.
    pub fn transitions(&self) -> impl Iterator<Item = PlannedTransition<'_>> + '_ {
        self.ids().filter_map(|id| self.transition(id))
    }

    /// The node's transition, if it is one.
    #[must_use]
    pub fn transition(&self, id: NodeId) -> Option<PlannedTransition<'_>> {
        let node = self.node(id);
        let Op::Transition(transition) = node.op else { return None };
        let from = self.layout(*node.operands.first()?);
        Some(PlannedTransition { id, transition, ty: &node.ty, from, to: self.layout(id) })
    }

    /// The nodes in the steps in which they run: a bucket is one step, every other node a step of its own. A bucket whose
    /// nodes do not follow each other is none.
    pub fn steps(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let mut bucket_from: BTreeMap<usize, usize> = BTreeMap::new();
        for bucket in &self.buckets {
            let follows = |w: &[NodeId]| w[0].index() + 1 == w[1].index();
            if let Some(first) = bucket.first().filter(|_| bucket.windows(2).all(follows)) {
                bucket_from.entry(first.index()).or_insert(bucket.len());
            }
        }
        let count = self.nodes.len();
        let mut at = 0;
        std::iter::from_fn(move || {
            let len = bucket_from.get(&at).copied().unwrap_or(1);
            let step = at..(at + len).min(count);
            at = step.end;
            (!step.is_empty()).then_some(step)
        })
    }

    /// The node behind which the launch that ends with this one is waited for: a later one if it is in flight for a while.
    #[must_use]
    pub fn wait(&self, last: NodeId) -> NodeId {
        self.waits.get(&last.0).map_or(last, |&wait| wait.max(last))
    }

    /// What is sent together, in order: the collectives of each bucket, every other collective by itself.
    pub fn launches(&self) -> impl Iterator<Item = Vec<PlannedTransition<'_>>> + '_ {
        self.steps().filter_map(|step| {
            let ids = step.map(NodeId::from_index);
            let members: Vec<PlannedTransition<'_>> = ids
                .filter_map(|id| self.transition(id))
                .filter(|t| t.transition.kind.is_collective())
                .collect();
            (!members.is_empty()).then_some(members)
        })
    }

    /// The transitions that communicate.
    pub fn collectives(&self) -> impl Iterator<Item = PlannedTransition<'_>> + '_ {
        self.transitions().filter(|t| t.transition.kind.is_collective())
    }
}

/// A transition of a plan.
#[derive(Clone, Copy, Debug)]
pub struct PlannedTransition<'a> {
    /// Its node.
    pub id: NodeId,
    /// What it does.
    pub transition: Transition,
    /// The tensor's global type.
    pub ty: &'a TensorType,
    /// Layout before.
    pub from: &'a Layout,
    /// Layout after.
    pub to: &'a Layout,
}

impl<'a> PlannedTransition<'a> {
    /// It as a member of a launch.
    #[must_use]
    pub fn member(&self) -> Member<'a> {
        Member { transition: self.transition, ty: self.ty, from: self.from, to: self.to }
    }

    /// Bytes each rank sends, largest over ranks.
    #[must_use]
    pub fn bytes_sent(&self, mesh: &Mesh) -> u64 {
        self.transition.bytes_sent(mesh, self.ty, self.from, self.to)
    }

    /// Whether the tensor is a scalar, whose reductions are counted apart.
    #[must_use]
    pub fn is_scalar(&self) -> bool {
        self.ty.rank() == 0
    }
}

/// What a plan costs each step, by the book. Reductions of scalars are counted apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Launches: a bucket is one. Those of scalars alone are not counted.
    pub launches: u64,
    /// Collectives of each kind, in buckets or not, scalars not counted.
    pub by_kind: BTreeMap<String, u64>,
    /// Sum over collectives of the largest count over ranks, scalars not counted.
    pub bytes_per_device: u64,
    /// Collectives of scalars.
    pub scalar_reductions: u64,
    /// Their bytes.
    pub scalar_bytes_per_device: u64,
}

impl Totals {
    /// Collectives, scalars counted too.
    #[must_use]
    pub fn collectives(&self) -> u64 {
        self.by_kind.values().sum::<u64>() + self.scalar_reductions
    }
}

impl Plan {
    /// Gives every transition the algorithm that the objective prefers.
    pub fn choose_algorithms(&mut self, prices: &Prices<'_>) {
        for id in self.ids() {
            let node = self.node(id);
            let (&Op::Transition(transition), Some(&operand)) = (&node.op, node.operands.first())
            else {
                continue;
            };
            let (from, to) = (self.layout(operand), self.layout(id));
            let chosen = prices.fastest(transition, &node.ty, from, to);
            self.nodes[id.index()].op = Op::Transition(chosen);
        }
    }

    /// What the plan costs under an objective: the sum over its nodes.
    #[must_use]
    pub fn cost(&self, prices: &Prices<'_>) -> Fields {
        let mut total = [0; 4];
        for id in self.ids() {
            let node = self.node(id);
            let layouts: Vec<&Layout> = node.operands.iter().map(|&o| self.layout(o)).collect();
            let fields = match (&node.op, layouts.first()) {
                (Op::Transition(transition), Some(from)) => {
                    prices.transition(*transition, &node.ty, from, self.layout(id))
                }
                _ => {
                    let types = self.operand_types(id);
                    prices.op(&node.op, &types, &node.ty, &layouts, self.layout(id))
                }
            };
            for (sum, field) in total.iter_mut().zip(fields) {
                *sum = u64::saturating_add(*sum, field);
            }
        }
        total
    }

    /// Adds up the collectives.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        let tensors = |launch: &Vec<PlannedTransition<'_>>| launch.iter().any(|c| !c.is_scalar());
        totals.launches = self.launches().filter(tensors).count() as u64;
        for collective in self.collectives() {
            let bytes = collective.bytes_sent(&self.mesh);
            if collective.is_scalar() {
                totals.scalar_reductions += 1;
                totals.scalar_bytes_per_device += bytes;
            } else {
                totals.bytes_per_device += bytes;
                *totals.by_kind.entry(collective.transition.kind.name().to_owned()).or_default() +=
                    1;
            }
        }
        totals
    }
}
