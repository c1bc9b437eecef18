//! Random programs, step by step.
//!
//! A [`Recipe`] is a list of small numbers, so that it shrinks well: each [`Step`] names an op, operands counted back from
//! the newest value, and an attribute. A step that does not fit the values at hand is skipped, so every list of steps
//! makes a valid program, and removing any of them leaves one. Functions with poles are composed with something that
//! keeps them away from the pole, and a coarse bound of magnitudes keeps values finite.
//!
//! The program is a DAG with shared values, a scalar loss, the gradients of all float leaves, and sometimes other values as
//! outputs. Leaves and steps are named (`x0`, `w1`, `v3` …), so that layouts can be pinned.

use shardgrad_core::DType;
use shardgrad_core::ops::Role;
use shardgrad_graph::{Error, Graph, Program};

mod draft;
mod placed;

use draft::Draft;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which op; taken modulo their number.
    pub kind: u8,
    /// First operand: 0 is the newest value.
    pub a: u8,
    /// Second operand.
    pub b: u8,
    /// Attributes: dims, extents, variants.
    pub attr: u16,
}

/// A program to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// Float type.
    pub dtype: DType,
    /// Only ops that are exact on small integers.
    pub exact: bool,
    /// Shapes of the first leaves.
    pub leaves: Vec<Vec<usize>>,
    /// The steps.
    pub steps: Vec<Step>,
    /// How the loss is made of the last values.
    pub loss: u8,
}

impl Recipe {
    /// The program.
    ///
    /// # Errors
    /// None for the recipes that [`crate::strategies`] makes; a builder's refusal otherwise.
    pub fn program(&self) -> Result<Program, Error> {
        let graph = Graph::new("random", self.dtype);
        let mut draft = Draft::new(&graph, self.exact);
        for (i, shape) in self.leaves.iter().enumerate() {
            let role = if i == 0 { Role::Input } else { Role::Param };
            draft.leaf(role, shape)?;
        }
        for step in &self.steps {
            draft.take(*step)?;
        }
        draft.finish(self.loss)?;
        Ok(graph.finish())
    }
}
