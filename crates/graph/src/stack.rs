//! Stacks of named layers over sequences of tokens: the description that model files share, and in `program` the programs
//! made of it.

mod build;
mod program;

pub use program::DROPOUT_KEY;

use serde::{Deserialize, Serialize};
use shardgrad_core::DType;

use crate::error::Error;
use crate::layer::Activation;
use crate::mlp::valid_updates;
use crate::nn::NormKind;
use crate::optim::{Optimizer, Schedule};

/// Most layers of a stack.
pub const MAX_LAYERS: usize = 4096;

/// One entry of a stack: a name and what it is. The serialised form has the keys of model files, `kind` among them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum StackLayer {
    /// A table of the vocabulary; the first layer of a stack.
    Embedding {
        /// Name.
        name: String,
        /// Features of a token.
        width: usize,
        /// Whether a table of positions is added.
        #[serde(default = "yes")]
        positions: bool,
    },
    /// A transformer block, or several in a row.
    Block {
        /// Name; with `repeat` blocks are `name.0`, `name.1` …
        name: String,
        /// Heads of queries.
        heads: usize,
        /// Heads of keys and values; as many as of queries unless given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kv_heads: Option<usize>,
        /// Features inside the feed-forward; four times the width unless given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hidden: Option<usize>,
        /// What stands inside the feed-forward.
        #[serde(default = "gelu")]
        activation: Activation,
        /// The norm before each half.
        #[serde(default)]
        norm: NormKind,
        /// Whether linear layers have biases.
        #[serde(default = "yes")]
        bias: bool,
        /// Whether a token sees itself and those before it only.
        #[serde(default = "yes")]
        causal: bool,
        /// The share of each half's output that is dropped in training.
        #[serde(default)]
        dropout: f64,
        /// How many of them.
        #[serde(default = "one")]
        repeat: usize,
    },
    /// A norm over the features.
    Norm {
        /// Name.
        name: String,
        /// Which.
        #[serde(default)]
        norm: NormKind,
    },
    /// A linear layer on every token.
    Linear {
        /// Name.
        name: String,
        /// Output features.
        out: usize,
        /// Whether a bias is added.
        #[serde(default = "yes")]
        bias: bool,
        /// What follows.
        #[serde(default)]
        activation: Activation,
    },
    /// Scores of the vocabulary; the last layer of a stack.
    Head {
        /// Name.
        name: String,
        /// The embedding whose table is the head's weight; a weight of its own unless given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tied: Option<String>,
    },
}

impl StackLayer {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            StackLayer::Embedding { name, .. }
            | StackLayer::Block { name, .. }
            | StackLayer::Norm { name, .. }
            | StackLayer::Linear { name, .. }
            | StackLayer::Head { name, .. } => name,
        }
    }

    /// How many layers the entry stands for: blocks that repeat count each.
    #[must_use]
    pub fn count(&self) -> usize {
        match self {
            StackLayer::Block { repeat, .. } => *repeat,
            StackLayer::Embedding { .. }
            | StackLayer::Norm { .. }
            | StackLayer::Linear { .. }
            | StackLayer::Head { .. } => 1,
        }
    }
}

/// A stack of layers and how it is trained: token ids in, the next token's scores out, cross entropy between.
///
/// ```
/// use shardgrad_graph::StackSpec;
/// let text = r#"
/// batch = 4
/// sequence = 6
/// vocabulary = 10
/// [[stack]]
/// kind = "embedding"
/// name = "tokens"
/// width = 8
/// [[stack]]
/// kind = "block"
/// name = "block"
/// heads = 2
/// [[stack]]
/// kind = "head"
/// name = "scores"
/// tied = "tokens"
/// "#;
/// let spec: StackSpec = toml::from_str(text)?;
/// let program = spec.training_program()?;
/// assert!(program.named("grad(block.attention.q.w)").is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StackSpec {
    /// Name of the model.
    #[serde(default = "default_name")]
    pub name: String,
    /// Sequences in a step.
    pub batch: usize,
    /// Tokens of a sequence.
    pub sequence: usize,
    /// Different tokens.
    pub vocabulary: usize,
    /// Float type of all values.
    #[serde(default = "default_dtype")]
    pub dtype: DType,
    /// Seed of the initial parameters.
    #[serde(default)]
    pub seed: u64,
    /// The part of a token's target that is spread over the vocabulary.
    #[serde(default)]
    pub label_smoothing: f64,
    /// Whether an input `mask` says which tokens count.
    #[serde(default)]
    pub masked: bool,
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
    #[serde(default = "one")]
    pub micro_batches: usize,
    /// The layers, first to last.
    #[serde(rename = "stack")]
    pub layers: Vec<StackLayer>,
}

fn yes() -> bool {
    true
}

fn one() -> usize {
    1
}

fn gelu() -> Activation {
    Activation::Gelu
}

fn default_name() -> String {
    "stack".to_owned()
}

fn default_dtype() -> DType {
    DType::F32
}

impl StackSpec {
    /// A description without layers: f32, seed 0, no optimizer.
    #[must_use]
    pub fn new(name: &str, batch: usize, sequence: usize, vocabulary: usize) -> Self {
        Self {
            name: name.to_owned(),
            batch,
            sequence,
            vocabulary,
            dtype: default_dtype(),
            seed: 0,
            label_smoothing: 0.0,
            masked: false,
            optimizer: Optimizer::None,
            schedule: None,
            clip_norm: None,
            micro_batches: 1,
            layers: Vec::new(),
        }
    }

    /// A decoder as in GPT-2: an embedding with positions, some blocks, a norm, a head that shares the table.
    #[must_use]
    pub fn decoder(mut self, width: usize, heads: usize, blocks: usize) -> Self {
        let name = str::to_owned;
        self.layers = vec![
            StackLayer::Embedding { name: name("tokens"), width, positions: true },
            StackLayer::Block {
                name: name("blocks"),
                heads,
                kv_heads: None,
                hidden: None,
                activation: Activation::Gelu,
                norm: NormKind::Layer,
                bias: true,
                causal: true,
                dropout: 0.0,
                repeat: blocks,
            },
            StackLayer::Norm { name: name("norm"), norm: NormKind::Layer },
            StackLayer::Head { name: name("scores"), tied: Some(name("tokens")) },
        ];
        self
    }

    /// Whether some layer drops elements in training.
    #[must_use]
    pub fn drops(&self) -> bool {
        let drops =
            |l: &StackLayer| matches!(l, StackLayer::Block { dropout, .. } if *dropout > 0.0);
        self.layers.iter().any(drops)
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
            return bad("dtype".into(), self.dtype.to_string(), "it must be f32 or f64");
        }
        let sizes =
            [("batch", self.batch), ("sequence", self.sequence), ("vocabulary", self.vocabulary)];
        if let Some((key, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return bad((*key).to_owned(), "0".into(), "it must be 1 or more");
        }
        if self.micro_batches == 0 || !self.batch.is_multiple_of(self.micro_batches) {
            let problem = format!("it must divide the batch of {}", self.batch);
            return bad("micro_batches".into(), self.micro_batches.to_string(), &problem);
        }
        if !(0.0..1.0).contains(&self.label_smoothing) {
            let found = self.label_smoothing.to_string();
            return bad("label_smoothing".into(), found, "it must be at least 0 and less than 1");
        }
        for (i, layer) in self.layers.iter().enumerate() {
            let (first, last) = (i == 0, i + 1 == self.layers.len());
            let (is_first, is_last) = (
                matches!(layer, StackLayer::Embedding { .. }),
                matches!(layer, StackLayer::Head { .. }),
            );
            if first != is_first || last != is_last {
                let found = format!("`{}`", layer.name());
                let problem = "a stack begins with its one embedding and ends with its one head";
                return bad(format!("stack[{i}]"), found, problem);
            }
            if let StackLayer::Block { dropout, .. } = layer
                && !(0.0..1.0).contains(dropout)
            {
                let key = format!("stack[{i}].dropout");
                return bad(key, dropout.to_string(), "it must be at least 0 and less than 1");
            }
            let name = layer.name();
            if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || "_-".contains(c)) {
                let problem = "it must be letters, digits, `_` and `-`";
                return bad(format!("stack[{i}].name"), format!("`{name}`"), problem);
            }
            if ["x", "y", "mask", "out", "loss", DROPOUT_KEY].contains(&name)
                || self.optimizer.scalars(1).iter().any(|(scalar, _)| scalar == name)
            {
                let problem = "the program has a value of that name; choose another";
                return bad(format!("stack[{i}].name"), format!("`{name}`"), problem);
            }
            if self.layers[..i].iter().any(|other| other.name() == layer.name()) {
                let found = format!("`{}`", layer.name());
                return bad(format!("stack[{i}].name"), found, "another layer has that name");
            }
        }
        let count = self.layers.iter().map(StackLayer::count).fold(0, usize::saturating_add);
        if count > MAX_LAYERS {
            let problem = format!("a stack has at most {MAX_LAYERS} layers, repeats included");
            return bad("stack".into(), format!("{count} layers long"), &problem);
        }
        if self.layers.len() < 2 {
            let found = format!("{} layer(s) long", self.layers.len());
            return bad("stack".into(), found, "a stack has at least an embedding and a head");
        }
        valid_updates(self.optimizer, self.schedule, self.clip_norm, self.dtype)
    }
}
