//! A model together with how it is trained and laid out, up to the plan.

use shardgrad_core::{DType, Machine, Mesh};
use shardgrad_graph::{Loss, MlpSpec, Model, Optimizer, Program, Schedule};
use shardgrad_planner::{Free, LayoutRequest, Options};

use crate::error::Error;
use crate::model_file::{LayoutFile, ModelFile};
use crate::nn::Mlp;
use crate::planned::Planned;
use crate::report::ParetoReport;

/// Rows of a training step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch(pub usize);

/// A model with loss, optimizer, batch size and layout.
///
/// ```
/// use shardgrad::prelude::*;
/// let model = Mlp::new(&[64, 128, 10]).activation(Activation::Relu);
/// let mesh = Mesh::new([("dp", 2), ("tp", 2)])?;
/// let plan = Training::new(model, Loss::CrossEntropy, AdamW::new(1e-3), Batch(128))
///     .layout("dp=data, tp=megatron")?
///     .plan(&mesh, &Machine::default())?;
/// assert_eq!(plan.plan().layout, "dp=data, tp=megatron");
/// assert!(plan.check().violations.is_empty());
/// println!("{}", plan.explain());
/// # Ok::<(), shardgrad::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Training {
    spec: Model,
    request: LayoutRequest,
    options: Options,
}

impl Training {
    /// A model to train on batches of one size: f32, seed 0, every axis replicated until [`Training::layout`] says more.
    #[must_use]
    pub fn new(model: Mlp, loss: Loss, optimizer: impl Into<Optimizer>, batch: Batch) -> Self {
        let spec = MlpSpec {
            loss,
            optimizer: optimizer.into(),
            layers: model.layers(),
            ..MlpSpec::new(model.name(), batch.0)
        };
        Self::of(spec)
    }

    /// The training that a description says.
    #[must_use]
    pub fn of(spec: impl Into<Model>) -> Self {
        Self { spec: spec.into(), request: LayoutRequest::default(), options: Options::default() }
    }

    /// The training that a model file says, with its pins and splits.
    #[must_use]
    pub fn from_file(file: &ModelFile) -> Self {
        let training = Self::of(file.spec.clone());
        Self { request: file.layouts.add_to(training.request), ..training }
    }

    /// With the seed of initial parameters.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        *self.spec.seed_mut() = seed;
        self
    }

    /// With another float type.
    #[must_use]
    pub fn dtype(mut self, dtype: DType) -> Self {
        *self.spec.dtype_mut() = dtype;
        self
    }

    /// With the gradient of the input as an output, `grad(x)`; token ids have none.
    #[must_use]
    pub fn input_gradient(mut self, wanted: bool) -> Self {
        if let Model::Mlp(spec) = &mut self.spec {
            spec.input_gradient = wanted;
        }
        self
    }

    /// With a schedule of the learning rate.
    #[must_use]
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        *self.spec.schedule_mut() = Some(schedule);
        self
    }

    /// With gradients scaled down so that the norm of all of them together is at most this.
    #[must_use]
    pub fn clip_norm(mut self, limit: f64) -> Self {
        *self.spec.clip_norm_mut() = Some(limit);
        self
    }

    /// With gradients added over this many parts of the batch.
    #[must_use]
    pub fn micro_batches(mut self, parts: usize) -> Self {
        *self.spec.micro_batches_mut() = parts;
        self
    }

    /// With a preset for every mesh axis: `dp=data, tp=megatron`; one preset alone for a mesh of one axis; `auto` alone for
    /// any mesh. Axes that are not named are replicated. Pins and splits stay.
    ///
    /// # Errors
    /// The text is no layout, or names a preset that does not exist.
    pub fn layout(mut self, text: &str) -> Result<Self, Error> {
        let parsed: LayoutRequest = text.parse()?;
        self.request.presets = parsed.presets;
        Ok(self)
    }

    /// With the presets, pins and splits of a layout file over those there are.
    ///
    /// # Errors
    /// As [`Training::layout`].
    pub fn layout_file(self, file: &LayoutFile) -> Result<Self, Error> {
        let mut training = match &file.layout {
            Some(text) => self.layout(text)?,
            None => self,
        };
        training.request = file.add_to(training.request);
        Ok(training)
    }

    /// With the layout of a named value fixed: `pin("grad(x)", "tp: S(0)")`. Axes that are not named fall to the preset.
    ///
    /// # Errors
    /// The text is no layout.
    pub fn pin(mut self, name: &str, layout: &str) -> Result<Self, Error> {
        self.request = self.request.pin(name, layout.parse()?);
        Ok(self)
    }

    /// With more left to the planner.
    #[must_use]
    pub fn free(mut self, free: Free) -> Self {
        self.request.free = free;
        self
    }

    /// With other options of the search.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// The description of the model.
    #[must_use]
    pub fn spec(&self) -> &Model {
        &self.spec
    }

    /// The training step as a program over global tensors.
    ///
    /// # Errors
    /// Sizes or hyperparameters that make no model.
    pub fn program(&self) -> Result<Program, Error> {
        Ok(self.spec.training_program()?)
    }

    /// The best plan of the step on a mesh.
    ///
    /// # Errors
    /// The model is none, or the layout does not fit it or the mesh.
    pub fn plan(&self, mesh: &Mesh, machine: &Machine) -> Result<Planned, Error> {
        let planned = Planned::new(self.program()?, mesh, &self.request, machine, &self.options)?;
        Ok(planned.with_spec(self.spec.clone()))
    }

    /// The plans of which none is better than another in both the objective and memory, every layout free that is not
    /// pinned.
    ///
    /// # Errors
    /// As [`Training::plan`].
    pub fn pareto(&self, mesh: &Mesh, machine: &Machine) -> Result<ParetoReport, Error> {
        let request = self.request.clone().free(Free::All);
        let front = shardgrad_planner::pareto(&self.program()?, mesh, &request, &self.options)?;
        Ok(ParetoReport::new(&front, machine, self.options.objective.name()))
    }

    /// Drops pins of values that a program does not have.
    fn keep_pins_of(&mut self, program: &Program) {
        self.request.pins.retain(|name, _| {
            program.named(name).is_some() || program.outputs.iter().any(|o| o.name == *name)
        });
    }

    /// The forward pass on `rows` rows, with the weights where the training plan of this layout keeps them.
    ///
    /// # Errors
    /// As [`Training::plan`].
    pub fn plan_forward(
        &self,
        rows: usize,
        mesh: &Mesh,
        machine: &Machine,
    ) -> Result<Planned, Error> {
        let program = self.spec.forward_program(rows)?;
        let mut training = self.clone();
        training.keep_pins_of(&program);
        Planned::new(program, mesh, &training.request, machine, &training.options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_replaces_auto_and_auto_goes_with_freed_splits() {
        let training = || {
            Training::new(Mlp::new(&[4, 3]), Loss::Mse, Optimizer::None, Batch(4)).layout("auto")
        };
        let mesh = Mesh::new([("dp", 2), ("tp", 2)]).unwrap();
        let layout = |training: Training| {
            training.plan(&mesh, &Machine::default()).unwrap().plan().layout.clone()
        };
        let replaced = training().unwrap().layout("dp=data").unwrap();
        assert_eq!(layout(replaced), "dp=data, tp=replicated");
        assert_eq!(layout(training().unwrap().free(Free::Splits)), "dp=auto, tp=auto");
    }
}
