//! Assembly of forward and training programs.

use std::collections::BTreeMap;

use shardgrad_core::ops::Role;

use super::StackSpec;
use super::build::Parts;
use crate::builder::{Graph, Var};
use crate::cross_entropy::{CrossEntropy, count_of};
use crate::error::Error;
use crate::node::OutputRole;
use crate::program::Program;
use crate::start::Start;
use crate::step::{Step, cut, data_name};
use crate::value::Value;

/// The scalar that decides which elements a step drops.
pub const DROPOUT_KEY: &str = "dropout_key";

impl StackSpec {
    /// The forward pass on a batch of any size: leaf `x`, ids `[batch, sequence]`, parameters, and the output `out`, scores
    /// `[batch, sequence, vocabulary]`.
    ///
    /// # Errors
    /// As [`StackSpec::validate`], or the batch is 0.
    pub fn forward_program(&self, batch: usize) -> Result<Program, Error> {
        let spec = Self { batch, micro_batches: 1, ..self.clone() };
        spec.validate()?;
        let g = Graph::new(&spec.name, spec.dtype);
        let x = g.labels("x", [batch, spec.sequence])?;
        let out = Parts::new(&g, &spec)?.of(x, None)?.named("out")?;
        g.output("out", out, OutputRole::Value)?;
        Ok(g.finish())
    }

    /// Initial values of the parameters that want others than usual: tables, scales of norms, weights by their inputs.
    ///
    /// # Errors
    /// As [`StackSpec::validate`].
    pub fn starts(&self) -> Result<BTreeMap<String, Start>, Error> {
        self.validate()?;
        let g = Graph::new(&self.name, self.dtype);
        Parts::new(&g, self)?;
        Ok(g.starts())
    }

    /// One training step: forward, backward and update. Leaves: `x` and `y`, ids `[batch, sequence]`, with a mask `mask`;
    /// parameters, optimizer state and scalars, among them [`DROPOUT_KEY`] if something is dropped. Outputs: `loss`, the mean over the tokens that count; without an optimizer
    /// the gradients `grad(tokens.w)` …, with one the updates, named as the leaves that they replace.
    ///
    /// With m > 1 micro-batches the leaves are `x.0`, `y.0`, `x.1` …, equal parts of the batch in order. Tokens are counted
    /// over the whole batch, and gradients are added before they are used.
    ///
    /// # Errors
    /// As [`StackSpec::validate`].
    pub fn training_program(&self) -> Result<Program, Error> {
        self.validate()?;
        let g = Graph::new(&self.name, self.dtype);
        let data = (0..self.micro_batches)
            .map(|part| self.data_leaves(&g, part))
            .collect::<Result<Vec<_>, Error>>()?;
        let layers = Parts::new(&g, self)?;
        let key = if self.drops() { Some(g.key(DROPOUT_KEY)?) } else { None };
        let params: Vec<Var<'_>> = (0..g.len())
            .map(|i| g.var(crate::NodeId::from_index(i)))
            .filter(|v| g.node(v.id()).leaf_role() == Some(Role::Param))
            .collect();
        let masks: Vec<Var<'_>> = data.iter().filter_map(|(_, target)| target.mask).collect();
        let count = if masks.is_empty() { None } else { Some(count_of(&masks)?) };

        let mut step = Step::new(&g, params);
        for (part, (ids, target)) in data.iter().enumerate() {
            let out = layers.of(*ids, key)?;
            let out = out.named(&self.data_name("out", part))?;
            let total = target.total(out)?;
            #[allow(clippy::cast_precision_loss)]
            let of_part = match count {
                Some(count) => total.div(count)?,
                None => total.scale(1.0 / (self.batch * self.sequence) as f64)?,
            };
            let gradients = g.grad(of_part, step.params())?;
            step.add(of_part, gradients)?;
        }
        step.finish(self.optimizer, self.clip_norm, Vec::new())?;
        Ok(g.finish())
    }

    /// The data of a step under the names of the program's leaves: with micro-batches, `x`, `y` and `mask` are cut into
    /// `x.0`, `y.0`, `x.1` …; everything else stays.
    #[must_use]
    pub fn program_inputs(&self, inputs: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
        cut(&["x", "y", "mask"], self.micro_batches, inputs)
    }

    /// `x`, or `x.1` for part 1 of several.
    fn data_name(&self, name: &str, part: usize) -> String {
        data_name(name, self.micro_batches, part)
    }

    /// Ids and targets of a part of the batch.
    fn data_leaves<'g>(
        &self,
        g: &'g Graph,
        part: usize,
    ) -> Result<(Var<'g>, CrossEntropy<'g>), Error> {
        let shape = [self.batch / self.micro_batches, self.sequence];
        let ids = g.labels(&self.data_name("x", part), shape)?;
        let labels = g.labels(&self.data_name("y", part), shape)?;
        let mask = match self.masked {
            true => Some(g.input(&self.data_name("mask", part), shape)?),
            false => None,
        };
        Ok((ids, CrossEntropy { labels, mask, smoothing: self.label_smoothing }))
    }
}
