//! A model's description, of either kind.

use std::collections::BTreeMap;

use shardgrad_core::DType;
use shardgrad_core::random::step_key;

use crate::error::Error;
use crate::mlp::MlpSpec;
use crate::optim::{Optimizer, Schedule};
use crate::program::Program;
use crate::stack::{DROPOUT_KEY, StackSpec};
use crate::start::Start;
use crate::value::Value;

/// What a model file describes.
#[derive(Clone, Debug, PartialEq)]
pub enum Model {
    /// A multilayer perceptron on rows.
    Mlp(MlpSpec),
    /// A stack of named layers on sequences of tokens.
    Stack(StackSpec),
}

impl From<MlpSpec> for Model {
    fn from(spec: MlpSpec) -> Self {
        Model::Mlp(spec)
    }
}

impl From<StackSpec> for Model {
    fn from(spec: StackSpec) -> Self {
        Model::Stack(spec)
    }
}

/// A field that both descriptions have.
macro_rules! shared {
    ($($(#[$doc:meta])* $get:ident, $get_mut:ident, $field:ident: $ty:ty;)*) => {
        impl Model {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $get(&self) -> &$ty {
                    match self {
                        Model::Mlp(spec) => &spec.$field,
                        Model::Stack(spec) => &spec.$field,
                    }
                }

                $(#[$doc])*
                #[must_use]
                pub fn $get_mut(&mut self) -> &mut $ty {
                    match self {
                        Model::Mlp(spec) => &mut spec.$field,
                        Model::Stack(spec) => &mut spec.$field,
                    }
                }
            )*
        }
    };
}
shared! {
    /// Name of the model.
    name, name_mut, name: String;
    /// Examples or sequences in a step.
    batch, batch_mut, batch: usize;
    /// Float type of all values.
    dtype, dtype_mut, dtype: DType;
    /// Seed of the initial parameters.
    seed, seed_mut, seed: u64;
    /// How parameters are updated.
    optimizer, optimizer_mut, optimizer: Optimizer;
    /// How the learning rate goes.
    schedule, schedule_mut, schedule: Option<Schedule>;
    /// The most that the norm of all gradients may be.
    clip_norm, clip_norm_mut, clip_norm: Option<f64>;
    /// Parts of the batch whose gradients are added.
    micro_batches, micro_batches_mut, micro_batches: usize;
}

impl Model {
    /// The multilayer perceptron, if it is one.
    #[must_use]
    pub fn mlp(&self) -> Option<&MlpSpec> {
        match self {
            Model::Mlp(spec) => Some(spec),
            Model::Stack(_) => None,
        }
    }

    /// One training step.
    ///
    /// # Errors
    /// Sizes or hyperparameters that make no model.
    pub fn training_program(&self) -> Result<Program, Error> {
        match self {
            Model::Mlp(spec) => spec.training_program(),
            Model::Stack(spec) => spec.training_program(),
        }
    }

    /// The forward pass on a batch of any size.
    ///
    /// # Errors
    /// As [`Model::training_program`], or the batch is 0.
    pub fn forward_program(&self, batch: usize) -> Result<Program, Error> {
        match self {
            Model::Mlp(spec) => spec.forward_program(batch),
            Model::Stack(spec) => spec.forward_program(batch),
        }
    }

    /// Initial values of the parameters that want others than usual.
    ///
    /// # Errors
    /// As [`Model::training_program`].
    pub fn starts(&self) -> Result<BTreeMap<String, Start>, Error> {
        match self {
            Model::Mlp(_) => Ok(BTreeMap::new()),
            Model::Stack(spec) => spec.starts(),
        }
    }

    /// The data of a step under the names of the program's leaves.
    #[must_use]
    pub fn program_inputs(&self, inputs: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
        match self {
            Model::Mlp(spec) => spec.program_inputs(inputs),
            Model::Stack(spec) => spec.program_inputs(inputs),
        }
    }

    /// The scalar leaves of a step, counted from 1: the optimizer's, the learning rate by the schedule, and the key of what
    /// is dropped.
    #[must_use]
    pub fn scalars(&self, step: u64) -> Vec<(String, f64)> {
        let factor = self.schedule().map_or(1.0, |schedule| schedule.factor(step));
        let mut scalars = self.optimizer().scalars(step);
        for (_, value) in scalars.iter_mut().filter(|(name, _)| name == "lr") {
            *value *= factor;
        }
        // A key has 53 bits: it passes f64 unchanged.
        #[allow(clippy::cast_precision_loss)]
        if let Model::Stack(spec) = self
            && spec.drops()
        {
            scalars.push((DROPOUT_KEY.to_owned(), step_key(spec.seed, step) as f64));
        }
        scalars
    }
}
