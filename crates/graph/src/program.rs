//! A program: ops over *global* tensors, whose meaning never depends on a mesh.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shardgrad_core::ops::Labels;
use shardgrad_core::{LayoutSpec, TensorType};

use crate::node::{Node, NodeId, Output};

/// What a layer is to its neighbour in a pair of which the first is split by output and the second by input features
/// (Megatron-LM): the features between them are sharded, and nothing is sent there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Half {
    /// It opens a pair: its output features are spread.
    Opens,
    /// It closes one: its input features are spread, and its output is a sum over them.
    Closes,
}

/// A recorded linear layer: its three contractions carry its index in [`Node::layer`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// The input.
    pub input: NodeId,
    /// The weight, `[in, out]` unless `weight_labels` say otherwise.
    pub weight: NodeId,
    /// The bias, which has the weight's last dims.
    pub bias: Option<NodeId>,
    /// The activated output, named `h0`, `h1` …
    pub output: NodeId,
    /// Labels of the batch dims in the layer's contractions.
    pub batch: Labels,
    /// Label of the input features.
    pub in_label: char,
    /// Label of the output features.
    pub out_label: char,
    /// Labels of the weight's dims; none: the input's, then the output's.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub weight_labels: Labels,
    /// Its place in a pair; none: layers open and close pairs in turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half: Option<Half>,
}

impl Layer {
    /// The weight's dim that carries a label.
    #[must_use]
    pub fn weight_dim(&self, label: char) -> Option<usize> {
        if self.weight_labels.is_empty() {
            return [self.in_label, self.out_label].iter().position(|&l| l == label);
        }
        self.weight_labels.iter().position(|&l| l == label)
    }

    /// The dim of a bias of this rank that carries a label; its dims are the weight's last ones.
    #[must_use]
    pub fn bias_dim(&self, label: char, rank: usize) -> Option<usize> {
        let weight = if self.weight_labels.is_empty() { 2 } else { self.weight_labels.len() };
        self.weight_dim(label)?.checked_sub(weight.checked_sub(rank)?)
    }

    /// Its place in a pair, given its index.
    #[must_use]
    pub fn half(&self, index: usize) -> Half {
        let in_turn = if index.is_multiple_of(2) { Half::Opens } else { Half::Closes };
        self.half.unwrap_or(in_turn)
    }
}

/// A finished program: nodes in execution order, named values, outputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Name of the model.
    pub name: String,
    /// Nodes; operands come before their users.
    pub nodes: Vec<Node>,
    /// Named values: leaves, `h0`, `out`, `grad(w0)` and whatever the user named.
    pub names: BTreeMap<String, NodeId>,
    /// Recorded layers, in order.
    pub layers: Vec<Layer>,
    /// Outputs, in order.
    pub outputs: Vec<Output>,
    /// Layouts that the author of the program wants for named values.
    pub pins: BTreeMap<String, LayoutSpec>,
}

impl Program {
    /// The node with this id.
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
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

    /// Ids of all leaves, in order.
    pub fn leaves(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.ids().filter(|&id| self.node(id).leaf_role().is_some())
    }

    /// The value with this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<NodeId> {
        self.names.get(name).copied()
    }

    /// The name under which a value is best known: a leaf's own, else the first in alphabetical order.
    #[must_use]
    pub fn name_of(&self, id: NodeId) -> Option<&str> {
        self.node(id)
            .leaf_name()
            .or_else(|| self.names.iter().find(|(_, n)| **n == id).map(|(name, _)| name.as_str()))
    }

    /// All names of a value in alphabetical order, and the names of outputs that are the name of no value.
    #[must_use]
    pub fn names_of(&self, id: NodeId) -> Vec<&str> {
        let given = self.names.iter().filter(|(_, named)| **named == id).map(|(name, _)| name);
        let outputs = self.outputs.iter().filter(|o| o.node == id).map(|o| &o.name);
        let unnamed = outputs.filter(|name| !self.names.contains_key(*name));
        given.chain(unnamed).map(String::as_str).collect()
    }

    /// The users of every node, in order, one entry per operand position.
    #[must_use]
    pub fn users(&self) -> Vec<Vec<(NodeId, usize)>> {
        let mut users = vec![Vec::new(); self.nodes.len()];
        for id in self.ids() {
            for (position, operand) in self.node(id).operands.iter().enumerate() {
                users[operand.index()].push((id, position));
            }
        }
        users
    }
}
