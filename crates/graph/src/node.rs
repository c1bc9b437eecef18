//! Nodes of a program or a plan.

use std::fmt;

use serde::{Deserialize, Serialize};
use shardgrad_core::ops::Role;
use shardgrad_core::{Op, TensorType};
use smallvec::SmallVec;

/// Index of a node. Operands always have smaller ids than their users, so id order is an execution order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The id as an index.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The id of the node at this index.
    #[must_use]
    pub fn from_index(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

/// The part of a training step that made a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// From inputs to the loss.
    Forward,
    /// Reverse mode.
    Backward,
    /// The optimizer.
    Update,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Forward => "forward",
            Phase::Backward => "backward",
            Phase::Update => "update",
        })
    }
}

/// One op applied to earlier nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The op.
    pub op: Op,
    /// Its operands, in order.
    pub operands: SmallVec<[NodeId; 2]>,
    /// Global type of its result.
    pub ty: TensorType,
    /// The part of the step that it belongs to.
    pub phase: Phase,
    /// The recorded layer of which this is a contraction (forward, weight gradient or input gradient).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<u32>,
}

impl Node {
    /// The role of a leaf; `None` for every other op.
    #[must_use]
    pub fn leaf_role(&self) -> Option<Role> {
        match &self.op {
            Op::Leaf(leaf) => Some(leaf.role),
            _ => None,
        }
    }

    /// The name of a leaf; `None` for every other op.
    #[must_use]
    pub fn leaf_name(&self) -> Option<&str> {
        match &self.op {
            Op::Leaf(leaf) => Some(&leaf.name),
            _ => None,
        }
    }
}

/// What an output of a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputRole {
    /// The scalar that is minimised.
    Loss,
    /// Any other value.
    Value,
    /// The gradient of a leaf; it has the leaf's layout unless it is pinned.
    Gradient {
        /// The leaf.
        of: NodeId,
    },
    /// The next value of a parameter or of optimizer state; it has the leaf's layout.
    Update {
        /// The leaf that it replaces.
        of: NodeId,
    },
}

/// A named output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Name: `loss`, `grad(w0)`, the leaf's name for an update.
    pub name: String,
    /// The node that makes it.
    pub node: NodeId,
    /// What it is.
    pub role: OutputRole,
}
