//! Training with a plan: the runtime's trainer, with the optimizer's scalars set from the step count.

use std::collections::BTreeMap;

use shardgrad_core::DType;
use shardgrad_core::ops::Role;
use shardgrad_graph::{MlpSpec, Optimizer, Value};
use shardgrad_runtime::{Checkpoint, Counters, StepReport, Trainer as Ranks};

use crate::dataset::Inputs;
use crate::error::Error;
use crate::planned::Planned;
use crate::report::TotalsReport;

/// The devices of a plan, with parameters and optimizer state on them.
///
/// ```
/// use shardgrad::prelude::*;
/// let model = Mlp::new(&[64, 16, 10]).activation(Activation::Tanh);
/// let mesh = Mesh::new([("tp", 3)])?;
/// let plan = Training::new(model, Loss::CrossEntropy, Sgd::new(0.1), Batch(30))
///     .layout("megatron")?
///     .plan(&mesh, &Machine::default())?;
///
/// let digits = Dataset::digits();
/// let mut trainer = Trainer::threads(&plan)?;
/// for rows in digits.epoch(0, 0, 30).iter().take(3) {
///     let report = trainer.step(&digits.batch(rows, DType::F32))?;
///     assert!(report.loss.is_some_and(f64::is_finite));
///     // What was predicted is what was counted.
///     assert_eq!(report.counted.bytes_per_device, plan.report().totals.bytes_per_device);
/// }
/// assert_eq!(trainer.get("w0")?.ty().to_string(), "f32[64, 16]");
/// # Ok::<(), shardgrad::Error>(())
/// ```
pub struct Trainer {
    ranks: Ranks,
    name: String,
    optimizer: Optimizer,
    spec: Option<MlpSpec>,
    scalars: BTreeMap<String, DType>,
    steps: u64,
}

impl Trainer {
    /// Every device of the plan on a thread of this process, parameters at their initial values.
    ///
    /// # Errors
    /// Threads cannot be started.
    pub fn threads(planned: &Planned) -> Result<Self, Error> {
        let program = planned.program();
        let scalars = program
            .leaves()
            .map(|id| program.node(id))
            .filter(|node| node.leaf_role() == Some(Role::Scalar))
            .filter_map(|node| Some((node.leaf_name()?.to_owned(), node.ty.dtype)))
            .collect();
        Ok(Self {
            ranks: Ranks::threads(planned.plan(), planned.seed())?,
            name: program.name.clone(),
            optimizer: planned.optimizer(),
            spec: planned.spec().cloned(),
            scalars,
            steps: 0,
        })
    }

    /// Steps made so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// One step on global inputs, all of it (micro-batches are cut from `x` and `y` here): the loss, and every output that is no update as a global value.
    ///
    /// # Errors
    /// An input that is missing, unknown or of another type, a label out of range, a device that failed.
    pub fn step(&mut self, inputs: &Inputs) -> Result<StepReport, Error> {
        let inputs = self.with_scalars(inputs, self.steps + 1);
        let report = self.ranks.step(&inputs)?;
        self.steps += 1;
        Ok(report)
    }

    /// The inputs of a step, counted from 1, under the names of the program's leaves: the data cut into micro-batches where
    /// the program wants them, and the scalars that the optimizer sets in this step.
    #[must_use]
    pub fn with_scalars(&self, inputs: &Inputs, step: u64) -> Inputs {
        let inputs = inputs.clone();
        let mut inputs = match &self.spec {
            Some(spec) => spec.program_inputs(inputs),
            None => inputs,
        };
        for (name, value) in self.optimizer.scalars(step) {
            if let Some(&dtype) = self.scalars.get(&name) {
                inputs.insert(name, Value::scalar(value, dtype));
            }
        }
        inputs
    }

    /// Names of parameters and optimizer state.
    #[must_use]
    pub fn stored(&self) -> Vec<String> {
        self.ranks.stored().map(|(name, _)| name.to_owned()).collect()
    }

    /// The global value of a parameter or of optimizer state.
    ///
    /// # Errors
    /// An unknown name, or an earlier failure.
    pub fn get(&mut self, name: &str) -> Result<Value, Error> {
        Ok(self.ranks.gather(name)?)
    }

    /// All parameters and optimizer state, as global values.
    ///
    /// # Errors
    /// An earlier failure.
    pub fn get_all(&mut self) -> Result<BTreeMap<String, Value>, Error> {
        self.stored().into_iter().map(|name| Ok((name.clone(), self.get(&name)?))).collect()
    }

    /// Overwrites a parameter or optimizer state with a global value.
    ///
    /// # Errors
    /// An unknown name, a value of another type, or an earlier failure.
    pub fn set(&mut self, name: &str, value: &Value) -> Result<(), Error> {
        Ok(self.ranks.set(name, value)?)
    }

    /// All that training goes on from: parameters, optimizer state and the number of steps.
    ///
    /// # Errors
    /// An earlier failure.
    pub fn checkpoint(&mut self) -> Result<Checkpoint, Error> {
        Ok(Checkpoint::of(&mut self.ranks, &self.name, self.steps)?)
    }

    /// Goes on from a checkpoint, of any mesh and layout; from the weights alone, if another program saved them.
    ///
    /// # Errors
    /// A tensor that is missing, one too many, or of another type; then nothing is changed.
    pub fn restore(&mut self, checkpoint: &Checkpoint) -> Result<(), Error> {
        checkpoint.restore(&mut self.ranks)?;
        self.steps = checkpoint.about.step;
        Ok(())
    }
}

/// Whether what a step counted is what its plan predicts: launches, bytes, reductions of scalars and their bytes, peak.
///
/// # Errors
/// Names the first figure that differs, with both values.
pub fn counted_as_predicted(totals: &TotalsReport, counted: &Counters) -> Result<(), Error> {
    let figures = [
        ("launches", totals.launches, counted.launches),
        ("bytes per device", totals.bytes_per_device, counted.bytes_per_device),
        ("reductions of scalars", totals.scalar_reductions, counted.scalar_reductions),
        ("bytes of scalars", totals.scalar_bytes_per_device, counted.scalar_bytes_per_device),
        ("peak bytes", totals.peak_bytes_per_device, counted.peak_bytes),
    ];
    match figures.into_iter().find(|(_, predicted, counted)| predicted != counted) {
        None => Ok(()),
        Some((what, predicted, counted)) => Err(Error::Mismatch {
            problem: format!("{what}: {predicted} predicted, but {counted} counted"),
        }),
    }
}
