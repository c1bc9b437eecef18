//! What is known of each value before the search: which layouts it can have, who reads it, what is demanded of it.

use shardgrad_core::ops::{Reduction, Role};
use shardgrad_core::{Layout, Mesh, Op};
use shardgrad_graph::{NodeId, OutputRole, Program};

use crate::demands::{Demands, Partial};

/// Facts about the values of a program.
#[derive(Clone, Debug)]
pub struct Values {
    /// Whether the value can be pending a maximum: a max-reduction made it, directly or through monotone ops.
    pub with_max: Vec<bool>,
    /// Whether the value is a scalar computed from scalar inputs and constants alone. Such values are replicated
    /// everywhere and read so.
    pub uniform: Vec<bool>,
    /// The users of each value, one entry per operand position.
    pub users: Vec<Vec<(NodeId, usize)>>,
    /// The outputs that are this value, by index.
    pub outputs: Vec<Vec<usize>>,
    /// The name of each value that has one, as [`Program::name_of`] gives it.
    pub names: Vec<Option<String>>,
}

impl Values {
    /// Collects the facts.
    #[must_use]
    pub fn of(program: &Program) -> Self {
        let mut with_max = Vec::with_capacity(program.nodes.len());
        let mut uniform = Vec::with_capacity(program.nodes.len());
        for id in program.ids() {
            let node = program.node(id);
            let signature = node.op.signature(&program.operand_types(id), &node.ty);
            let inherits = signature.monotone && node.operands.iter().any(|o| with_max[o.index()]);
            with_max.push(inherits || signature.reduction == Some(Reduction::Max));
            uniform.push(
                node.ty.rank() == 0
                    && match node.leaf_role() {
                        Some(role) => role == Role::Scalar,
                        None => node.operands.iter().all(|o| uniform[o.index()]),
                    },
            );
        }
        let mut outputs = vec![Vec::new(); program.nodes.len()];
        for (i, output) in program.outputs.iter().enumerate() {
            outputs[output.node.index()].push(i);
        }
        let mut names: Vec<Option<String>> =
            program.ids().map(|id| program.node(id).leaf_name().map(str::to_owned)).collect();
        for (name, id) in &program.names {
            names[id.index()].get_or_insert_with(|| name.clone());
        }
        Self { with_max, uniform, users: program.users(), outputs, names }
    }
}

/// The layout that an output must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputDemand {
    /// This one.
    Exactly(Layout),
    /// The leaf's, with these placements put in.
    Follows(NodeId, Partial),
    /// Any without pending terms that has these placements.
    Free(Partial),
}

impl OutputDemand {
    /// The demand on the output with this index.
    #[must_use]
    pub fn of(program: &Program, mesh: &Mesh, demands: &Demands, index: usize) -> Self {
        let output = &program.outputs[index];
        let pin = demands.values.get(&output.node).cloned();
        let is_leaf = matches!(program.node(output.node).op, Op::Leaf(_));
        let pin = pin.unwrap_or_else(|| Partial::free(mesh));
        match output.role {
            OutputRole::Loss => Self::Exactly(pin.over(&Layout::replicated(mesh.rank()))),
            OutputRole::Value if is_leaf => Self::Follows(output.node, Partial::free(mesh)),
            OutputRole::Value => Self::Free(pin),
            OutputRole::Gradient { of } => Self::Follows(of, pin),
            OutputRole::Update { of } => Self::Follows(of, Partial::free(mesh)),
        }
    }
}
