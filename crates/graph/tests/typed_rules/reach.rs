//! What the dynamic rules admit for a few ops in a row, without a transition between them.

use std::collections::{BTreeMap, BTreeSet};

use shardgrad_core::ops::Role;
use shardgrad_core::rules::axis_rules;
use shardgrad_core::{AxisRule, DType, Layout, Placement, TensorType};
use shardgrad_graph::{Error, Graph, NodeId, OutputRole, Program, Var};

/// Layouts of the operands, and of the result if it is admitted.
pub(crate) type OnLayouts = (Vec<Layout>, Option<Layout>);

/// A short program, and the placements of its result on one axis by those of its leaves.
pub(crate) struct Reach {
    program: Program,
    known: BTreeMap<Vec<Placement>, BTreeSet<Placement>>,
}

impl Reach {
    /// The program that `build` makes of leaves of these types.
    pub(crate) fn new(
        leaves: &[(Vec<usize>, DType)],
        build: impl for<'g> Fn(&[Var<'g>]) -> Result<Var<'g>, Error>,
    ) -> Self {
        let graph = Graph::new("rule", DType::F64);
        let vars: Vec<Var<'_>> = leaves
            .iter()
            .enumerate()
            .map(|(i, (shape, dtype))| {
                let ty = TensorType::new(shape.iter().copied(), *dtype);
                graph.leaf(&format!("x{i}"), Role::Input, ty).unwrap()
            })
            .collect();
        let result = build(&vars).unwrap();
        graph.output("result", result, OutputRole::Value).unwrap();
        Self { program: graph.finish(), known: BTreeMap::new() }
    }

    /// All placements of the result on one axis.
    pub(crate) fn on_axis(&mut self, leaves: &[Placement]) -> BTreeSet<Placement> {
        if let Some(known) = self.known.get(leaves) {
            return known.clone();
        }
        let rules: Vec<Vec<AxisRule>> = self
            .program
            .ids()
            .map(|id| {
                let node = self.program.node(id);
                axis_rules(&node.op.signature(&self.program.operand_types(id), &node.ty))
            })
            .collect();
        let mut found = BTreeSet::new();
        let mut placed = Vec::new();
        self.extend(&rules, leaves, &mut placed, &mut found);
        self.known.insert(leaves.to_vec(), found.clone());
        found
    }

    fn extend(
        &self,
        rules: &[Vec<AxisRule>],
        leaves: &[Placement],
        placed: &mut Vec<Placement>,
        found: &mut BTreeSet<Placement>,
    ) {
        let index = placed.len();
        if index == self.program.nodes.len() {
            found.insert(placed[self.program.outputs[0].node.index()]);
            return;
        }
        let node = self.program.node(NodeId::from_index(index));
        if node.leaf_role().is_some() {
            let ordinal =
                (0..index).filter(|&i| self.program.nodes[i].leaf_role().is_some()).count();
            placed.push(leaves[ordinal]);
            self.extend(rules, leaves, placed, found);
            placed.pop();
            return;
        }
        for rule in &rules[index] {
            let fits =
                node.operands.iter().zip(&rule.operands).all(|(o, p)| placed[o.index()] == *p);
            if fits {
                placed.push(rule.result);
                self.extend(rules, leaves, placed, found);
                placed.pop();
            }
        }
    }

    /// The result's layout, if every axis admits one. No leaf layout of these programs leaves a choice.
    pub(crate) fn result(&mut self, operands: &[Layout]) -> Option<Layout> {
        let axes = operands[0].0.len();
        let mut layout = Layout::replicated(axes);
        for axis in 0..axes {
            let leaves: Vec<Placement> = operands.iter().map(|l| l.on(axis)).collect();
            let results = self.on_axis(&leaves);
            assert!(results.len() <= 1, "{leaves:?} leaves a choice: {results:?}");
            layout = layout.with(axis, results.into_iter().next()?);
        }
        Some(layout)
    }
}
