//! Multilayer perceptrons: the description that model files share, and in `program` the programs made of it.

mod program;

use serde::{Deserialize, Serialize};
use shardgrad_core::DType;

use crate::error::Error;
use crate::layer::Activation;
use crate::loss::Loss;
use crate::optim::{Optimizer, Schedule};

/// One linear layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerSpec {
    /// Input features.
    #[serde(rename = "in")]
    pub inputs: usize,
    /// Output features.
    #[serde(rename = "out")]
    pub outputs: usize,
    /// Whether a bias is added.
    #[serde(default = "yes")]
    pub bias: bool,
    /// What follows.
    #[serde(default)]
    pub activation: Activation,
}

/// A multilayer perceptron and how it is trained. The serialised form has the keys of model files.
///
/// ```
/// use shardgrad_graph::{Activation, LayerSpec, Loss, MlpSpec};
/// let layer = |inputs, outputs, activation| LayerSpec { inputs, outputs, bias: true, activation };
/// let spec = MlpSpec {
///     layers: vec![layer(64, 32, Activation::Relu), layer(32, 10, Activation::None)],
///     loss: Loss::CrossEntropy,
///     ..MlpSpec::new("digits", 128)
/// };
/// let program = spec.training_program()?;
/// assert!(program.named("grad(w1)").is_some());
/// # Ok::<(), shardgrad_graph::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MlpSpec {
    /// Name of the model.
    #[serde(default = "default_name")]
    pub name: String,
    /// Examples in a step.
    pub batch: usize,
    /// Float type of all values.
    #[serde(default = "default_dtype")]
    pub dtype: DType,
    /// Seed of the initial parameters.
    #[serde(default)]
    pub seed: u64,
    /// What is minimised.
    #[serde(default = "default_loss")]
    pub loss: Loss,
    /// How parameters are updated.
    #[serde(default)]
    pub optimizer: Optimizer,
    /// How the learning rate goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// Gradients are scaled down so that the norm of all of them together is at most this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip_norm: Option<f64>,
    /// Parts of the batch whose gradients are added before the update.
    #[serde(default = "default_micro_batches")]
    pub micro_batches: usize,
    /// Whether the gradient of the input is an output.
    #[serde(default)]
    pub input_gradient: bool,
    /// The layers, first to last.
    #[serde(rename = "layer")]
    pub layers: Vec<LayerSpec>,
}

fn yes() -> bool {
    true
}

fn default_name() -> String {
    "mlp".to_owned()
}

fn default_dtype() -> DType {
    DType::F32
}

fn default_loss() -> Loss {
    Loss::Mse
}

fn default_micro_batches() -> usize {
    1
}

impl MlpSpec {
    /// A description without layers: f32, seed 0, mean squared error, no optimizer.
    #[must_use]
    pub fn new(name: &str, batch: usize) -> Self {
        Self {
            name: name.to_owned(),
            batch,
            dtype: default_dtype(),
            seed: 0,
            loss: default_loss(),
            optimizer: Optimizer::None,
            schedule: None,
            clip_norm: None,
            micro_batches: 1,
            input_gradient: false,
            layers: Vec::new(),
        }
    }

    /// Input features.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.layers.first().map_or(0, |l| l.inputs)
    }

    /// Output features: the classes of cross entropy.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.layers.last().map_or(0, |l| l.outputs)
    }

    /// Checks sizes and hyperparameters.
    ///
    /// # Errors
    /// The key that is wrong, what it is and what is legal.
    pub fn validate(&self) -> Result<(), Error> {
        let bad = |key: String, found: String, problem: &str| {
            Err(Error::BadModel { key, found, problem: problem.to_owned() })
        };
        if !self.dtype.is_float() {
            return bad("dtype".to_owned(), self.dtype.to_string(), "it must be f32 or f64");
        }
        if self.batch == 0 {
            return bad("batch".to_owned(), "0".to_owned(), "a step has at least one example");
        }
        if self.micro_batches == 0 || !self.batch.is_multiple_of(self.micro_batches) {
            let found = self.micro_batches.to_string();
            let problem = format!("it must divide the batch of {}", self.batch);
            return bad("micro_batches".to_owned(), found, &problem);
        }
        if self.layers.is_empty() {
            return bad("layer".to_owned(), "empty".to_owned(), "a model has at least one layer");
        }
        for (i, layer) in self.layers.iter().enumerate() {
            for (key, size) in [("in", layer.inputs), ("out", layer.outputs)] {
                if size == 0 {
                    let key = format!("layer[{i}].{key}");
                    return bad(key, "0".to_owned(), "a layer has at least one feature");
                }
            }
        }
        for (i, pair) in self.layers.windows(2).enumerate() {
            if pair[0].outputs != pair[1].inputs {
                let key = format!("layer[{}].in", i + 1);
                let problem = format!("layer[{i}].out is {}; they must be equal", pair[0].outputs);
                return bad(key, pair[1].inputs.to_string(), &problem);
            }
        }
        valid_updates(self.optimizer, self.schedule, self.clip_norm, self.dtype)
    }
}

/// Checks what is said about updates.
pub(crate) fn valid_updates(
    optimizer: Optimizer,
    schedule: Option<Schedule>,
    clip_norm: Option<f64>,
    dtype: DType,
) -> Result<(), Error> {
    let bad = |key: &str, found: String, problem: &str| {
        Err(Error::BadModel { key: key.to_owned(), found, problem: problem.to_owned() })
    };
    if let Some(limit) = clip_norm.filter(|&limit| !dtype.is_positive(limit)) {
        let problem = format!("in {dtype} it must be positive and finite");
        return bad("clip_norm", format!("{limit:e}"), &problem);
    }
    if optimizer == Optimizer::None && (schedule.is_some() || clip_norm.is_some()) {
        let key = if schedule.is_some() { "schedule" } else { "clip_norm" };
        return bad(key, "given".to_owned(), "without an optimizer nothing is updated");
    }
    schedule.map_or(Ok(()), Schedule::validate)?;
    optimizer.validate()
}
