//! The model file: a model, its training, and optionally pins and splits, in TOML.
//!
//! | key | default | meaning |
//! |---|---|---|
//! | `name` | the file's name | shown in reports |
//! | `batch` | | rows of a step |
//! | `dtype` | `"f32"` | `"f32"` or `"f64"` |
//! | `seed` | 0 | of initial parameters and of the order of rows |
//! | `loss` | `"mse"` | `"mse"`, `"cross_entropy"` or `"sum"` |
//! | `optimizer` | `"none"` | `"none"`, `"sgd"`, `"momentum"`, `"adam"`, `"adamw"`, or a table of `name` and hyperparameters |
//! | `micro_batches` | 1 | more than 1: gradients accumulate over that many parts of the batch |
//! | `input_gradient` | false | also produce `grad(x)` |
//! | `[[layer]]` | | one or more: `in`, `out`, `bias` (true), `activation` (`"none"`, `"relu"`, `"gelu"`, `"tanh"`, `"sigmoid"`) |
//! | `clip_norm` | none | the most that the norm of all gradients together may be |
//! | `schedule` | none | of the learning rate, in steps: `{ warmup = 100, total = 1000, floor = 0.1 }` |
//! | `[pins]` | none | layouts of named values: `"grad(x)" = "tp: S(0)"` |
//! | `[splits]` | none | work of layers by axis, numbered from 0 in the order in which they are made: `"0" = "tp: out"`; `batch`, `in`, `out` or `none` |
//!
//! Instead of `[[layer]]`, an MLP, a file may have `[[stack]]`, a stack of named layers on sequences of tokens trained with
//! cross entropy. Then `loss` and `input_gradient` are no keys, and these are:
//!
//! | key | default | meaning |
//! |---|---|---|
//! | `sequence` | | tokens of a sequence |
//! | `vocabulary` | | different tokens |
//! | `label_smoothing` | 0 | the part of a token's target that is spread over the vocabulary |
//! | `masked` | false | an input `mask` says which tokens count |
//! | `[[stack]]` | | `kind` and `name` and, by kind, what follows |
//! | `embedding` | first | `width`, `positions` (true) |
//! | `block` | | `heads`, `kv_heads` (`heads`), `hidden` (4 · width), `activation` (`"gelu"`), `norm` (`"layer"`, `"rms"`), `bias` (true), `causal` (true), `dropout` (0), `repeat` (1) |
//! | `norm` | | `norm` (`"layer"`, `"rms"`) |
//! | `linear` | | `out`, `bias` (true), `activation` (`"none"`) |
//! | `head` | last | `tied`: the name of the embedding whose table it shares |
//!
//! A *layout file* has `[pins]`, `[splits]` and `layout`, the presets as on the command line.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Deserializer};
use shardgrad_core::{DType, LayoutSpec, Machine};
use shardgrad_graph::{
    LayerSpec, Loss, MlpSpec, Model, Optimizer, Schedule, StackLayer, StackSpec,
};
use shardgrad_planner::{LayoutRequest, Split};

use crate::error::Error;
use crate::toml_file;

/// A model with the layouts that its author demands.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFile {
    /// The model and how it is trained.
    pub spec: Model,
    /// Pins and splits.
    pub layouts: LayoutFile,
}

/// Pins and splits by name: those of a model file, or a layout file of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayoutFile {
    /// The presets, as in `dp=data, tp=megatron`; axes they do not name are replicated.
    pub layout: Option<String>,
    /// Layouts of named values.
    pub pins: BTreeMap<String, LayoutSpec>,
    /// Splits of layers, by axis.
    pub splits: BTreeMap<usize, Vec<(String, Split)>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelFields {
    name: Option<String>,
    batch: usize,
    dtype: Option<DType>,
    #[serde(default)]
    seed: u64,
    loss: Option<Loss>,
    #[serde(default)]
    optimizer: Optimizer,
    micro_batches: Option<usize>,
    schedule: Option<Schedule>,
    clip_norm: Option<f64>,
    input_gradient: Option<bool>,
    sequence: Option<usize>,
    vocabulary: Option<usize>,
    label_smoothing: Option<f64>,
    masked: Option<bool>,
    #[serde(default)]
    stack: Vec<StackLayer>,
    #[serde(default, rename = "layer")]
    layers: Vec<LayerSpec>,
    #[serde(default)]
    pins: BTreeMap<String, LayoutSpec>,
    #[serde(default)]
    splits: BTreeMap<String, SplitsOfLayer>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LayoutFields {
    layout: Option<String>,
    #[serde(default)]
    pins: BTreeMap<String, LayoutSpec>,
    #[serde(default)]
    splits: BTreeMap<String, SplitsOfLayer>,
}

/// `tp: out, dp: batch`.
#[derive(Clone)]
struct SplitsOfLayer(Vec<(String, Split)>);

impl<'de> Deserialize<'de> for SplitsOfLayer {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        let mut splits: Vec<(String, Split)> = Vec::new();
        for part in text.split(',') {
            let Some((axis, split)) = part.split_once(':') else {
                return Err(serde::de::Error::custom(format!(
                    "split `{text}` is not of the form `axis: split, …`, for example `tp: out`"
                )));
            };
            let axis = axis.trim().to_owned();
            if splits.iter().any(|(known, _)| *known == axis) {
                return Err(serde::de::Error::custom(format!(
                    "axis `{axis}` is named twice in split `{text}`"
                )));
            }
            splits.push((axis, split.parse().map_err(serde::de::Error::custom)?));
        }
        Ok(Self(splits))
    }
}

impl ModelFile {
    /// Reads a model file.
    ///
    /// # Errors
    /// The file cannot be read, or says something that is no model: the error names file, line or key, what was found and
    /// what was expected.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Self::from_fields(path, toml_file::read(path)?)
    }

    /// As [`ModelFile::read`], of text; `path` is for messages and for the default name.
    ///
    /// ```
    /// use shardgrad::ModelFile;
    /// let text = "batch = 8\n[[layer]]\nin = 4\nout = 3\n";
    /// let model = ModelFile::parse("tiny.toml".as_ref(), text)?;
    /// assert_eq!((model.spec.name().as_str(), *model.spec.batch()), ("tiny", 8));
    ///
    /// let error = ModelFile::parse("tiny.toml".as_ref(), "batch = \"8\"").unwrap_err();
    /// assert_eq!(error.to_string(), "tiny.toml:1: `batch`: invalid type: string \"8\", expected usize");
    /// # Ok::<(), shardgrad::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`ModelFile::read`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        Self::from_fields(path, toml_file::parse(path, text)?)
    }

    fn from_fields(path: &Path, fields: ModelFields) -> Result<Self, Error> {
        let stem = path.file_stem().map_or("model".into(), |s| s.to_string_lossy().into_owned());
        let name = fields.name.clone().unwrap_or(stem);
        let unfit = |key: &str, problem: &str| {
            Err(Error::bad_file(path, None, format!("`{key}`: {problem}")))
        };
        let (pins, splits) = (fields.pins.clone(), fields.splits.clone());
        let spec: Model = if fields.stack.is_empty() {
            let keys = [
                ("sequence", fields.sequence.is_some()),
                ("vocabulary", fields.vocabulary.is_some()),
                ("label_smoothing", fields.label_smoothing.is_some()),
                ("masked", fields.masked.is_some()),
            ];
            if let Some((key, _)) = keys.iter().find(|(_, given)| *given) {
                return unfit(key, "a key of models with [[stack]]; this one has none");
            }
            fields.mlp(&name).into()
        } else {
            let keys = [
                ("layer", !fields.layers.is_empty()),
                ("loss", fields.loss.is_some()),
                ("input_gradient", fields.input_gradient.is_some()),
            ];
            if let Some((key, _)) = keys.iter().find(|(_, given)| *given) {
                return unfit(key, "a key of models with [[layer]]; this one has [[stack]]");
            }
            let (Some(sequence), Some(vocabulary)) = (fields.sequence, fields.vocabulary) else {
                let key = if fields.sequence.is_none() { "sequence" } else { "vocabulary" };
                return unfit(key, "missing; a model with [[stack]] needs it, 1 or more");
            };
            fields.stacked(&name, sequence, vocabulary).into()
        };
        let program = match &spec {
            Model::Mlp(spec) => spec.validate(),
            // Sizes of layers are checked where parameters are made.
            Model::Stack(spec) => spec.starts().map(|_| ()),
        };
        program.map_err(|e| Error::bad_file(path, None, e.to_string()))?;
        Ok(Self { spec, layouts: LayoutFile::new(path, None, pins, splits)? })
    }
}

impl ModelFields {
    fn mlp(self, name: &str) -> MlpSpec {
        let base = MlpSpec::new(name, self.batch);
        MlpSpec {
            dtype: self.dtype.unwrap_or(base.dtype),
            seed: self.seed,
            loss: self.loss.unwrap_or(base.loss),
            optimizer: self.optimizer,
            schedule: self.schedule,
            clip_norm: self.clip_norm,
            micro_batches: self.micro_batches.unwrap_or(base.micro_batches),
            input_gradient: self.input_gradient.unwrap_or(base.input_gradient),
            layers: self.layers,
            ..base
        }
    }

    fn stacked(self, name: &str, sequence: usize, vocabulary: usize) -> StackSpec {
        let base = StackSpec::new(name, self.batch, sequence, vocabulary);
        StackSpec {
            dtype: self.dtype.unwrap_or(base.dtype),
            seed: self.seed,
            label_smoothing: self.label_smoothing.unwrap_or(base.label_smoothing),
            masked: self.masked.unwrap_or(base.masked),
            optimizer: self.optimizer,
            schedule: self.schedule,
            clip_norm: self.clip_norm,
            micro_batches: self.micro_batches.unwrap_or(base.micro_batches),
            layers: self.stack,
            ..base
        }
    }
}

/// Splits by the layer's number.
fn numbered(
    path: &Path,
    splits: BTreeMap<String, SplitsOfLayer>,
) -> Result<BTreeMap<usize, Vec<(String, Split)>>, Error> {
    let mut by_number = BTreeMap::new();
    for (layer, SplitsOfLayer(splits)) in splits {
        let Ok(index) = layer.parse() else {
            return Err(Error::bad_file(
                path,
                None,
                format!(
                    "`splits.{layer}`: the number of a layer was expected, as in \"0\" = \"tp: out\""
                ),
            ));
        };
        if by_number.insert(index, splits).is_some() {
            return Err(Error::bad_file(
                path,
                None,
                format!(
                    "`splits.{layer}`: layer {index} is split twice; one key for it was expected"
                ),
            ));
        }
    }
    Ok(by_number)
}

impl LayoutFile {
    /// Reads a layout file: the keys `layout`, `[pins]` and `[splits]`.
    ///
    /// # Errors
    /// As [`ModelFile::read`].
    pub fn read(path: &Path) -> Result<Self, Error> {
        Self::from_fields(path, toml_file::read(path)?)
    }

    /// As [`LayoutFile::read`], of text; `path` is for messages.
    ///
    /// # Errors
    /// As [`LayoutFile::read`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        Self::from_fields(path, toml_file::parse(path, text)?)
    }

    fn from_fields(path: &Path, fields: LayoutFields) -> Result<Self, Error> {
        Self::new(path, fields.layout, fields.pins, fields.splits)
    }

    fn new(
        path: &Path,
        layout: Option<String>,
        pins: BTreeMap<String, LayoutSpec>,
        splits: BTreeMap<String, SplitsOfLayer>,
    ) -> Result<Self, Error> {
        if let Some((name, _)) = pins.iter().find(|(_, pin)| pin.0.is_empty()) {
            return Err(Error::bad_file(
                path,
                None,
                format!(
                    "`pins.{name}` names no axis; a layout was expected, for example \"tp: S(0)\""
                ),
            ));
        }
        Ok(Self { layout, pins, splits: numbered(path, splits)? })
    }

    /// A request with these pins and splits added.
    #[must_use]
    pub fn add_to(&self, mut request: LayoutRequest) -> LayoutRequest {
        for (name, pin) in &self.pins {
            request = request.pin(name, pin.clone());
        }
        for (layer, splits) in &self.splits {
            for (axis, split) in splits {
                request = request.split(*layer, axis, *split);
            }
        }
        request
    }
}

/// Reads a machine file: `flops`, `memory_bandwidth`, `link` (`latency`, `bandwidth`) and, by axis, `axes`.
///
/// # Errors
/// The file cannot be read, or a key is missing, unknown, or no positive rate.
pub fn read_machine(path: &Path) -> Result<Machine, Error> {
    valid(path, toml_file::read(path)?)
}

/// As [`read_machine`], of text; `path` is for messages.
///
/// # Errors
/// As [`read_machine`].
pub fn parse_machine(path: &Path, text: &str) -> Result<Machine, Error> {
    valid(path, toml_file::parse(path, text)?)
}

fn valid(path: &Path, machine: Machine) -> Result<Machine, Error> {
    match machine.validate() {
        Ok(()) => Ok(machine),
        Err(shardgrad_core::Error::BadMachine { problem }) => {
            Err(Error::bad_file(path, None, problem))
        }
        Err(other) => Err(other.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYER: &str = "[[layer]]\nin = 4\nout = 3\n";

    fn parse(text: &str) -> Result<ModelFile, String> {
        ModelFile::parse(Path::new("m.toml"), text).map_err(|e| e.to_string())
    }

    #[test]
    fn every_key_is_read() {
        let text = "name = \"two\"\nbatch = 6\ndtype = \"f64\"\nseed = 7\nloss = \"cross_entropy\"\n\
            micro_batches = 1\ninput_gradient = true\n\
            optimizer = { name = \"adam\", lr = 0.25, beta1 = 0.5 }\n\
            [[layer]]\nin = 4\nout = 5\nbias = false\nactivation = \"gelu\"\n[[layer]]\nin = 5\nout = 3\n\
            [pins]\n\"grad(x)\" = \"tp: S(0)\"\n[splits]\n\"0\" = \"tp: out, dp: batch\"\n";
        let file = parse(text).unwrap();
        let spec = file.spec.mlp().unwrap();
        assert_eq!(
            (spec.name.as_str(), spec.batch, spec.dtype, spec.seed),
            ("two", 6, DType::F64, 7)
        );
        assert_eq!((spec.loss, spec.input_gradient), (Loss::CrossEntropy, true));
        let adam =
            Optimizer::Adam { lr: 0.25, beta1: 0.5, beta2: 0.999, eps: 1e-8, weight_decay: 0.0 };
        assert_eq!(spec.optimizer, adam);
        assert_eq!(spec.layers.len(), 2);
        assert!(!spec.layers[0].bias && spec.layers[1].bias);
        assert_eq!(file.layouts.pins["grad(x)"].to_string(), "[tp: S(0)]");
        let splits = [("tp".to_owned(), Split::Out), ("dp".to_owned(), Split::Batch)];
        assert_eq!(file.layouts.splits[&0], splits);
    }

    const STACK: &str = "batch = 4\nsequence = 3\nvocabulary = 7\n\
        [[stack]]\nkind = \"embedding\"\nname = \"t\"\nwidth = 8\n\
        [[stack]]\nkind = \"block\"\nname = \"b\"\nheads = 4\nkv_heads = 2\nhidden = 6\nnorm = \"rms\"\n\
        bias = false\ncausal = false\ndropout = 0.5\nrepeat = 2\n\
        [[stack]]\nkind = \"norm\"\nname = \"n\"\n\
        [[stack]]\nkind = \"linear\"\nname = \"l\"\nout = 8\nactivation = \"relu\"\n\
        [[stack]]\nkind = \"head\"\nname = \"h\"\ntied = \"t\"\n";

    #[test]
    fn every_key_of_a_stack_is_read() {
        let head = "masked = true\nlabel_smoothing = 0.25\nclip_norm = 2.0\nmicro_batches = 2\n\
            optimizer = \"sgd\"\nschedule = { warmup = 2, total = 9, floor = 0.5 }\n";
        let file = parse(&format!("{head}{STACK}[pins]\n\"b.0.mlp.up.w\" = \"tp: R\"\n")).unwrap();
        let Model::Stack(spec) = &file.spec else { panic!("{file:?}") };
        assert_eq!((spec.name.as_str(), spec.sequence, spec.vocabulary), ("m", 3, 7));
        assert_eq!((spec.masked, spec.label_smoothing, spec.clip_norm), (true, 0.25, Some(2.0)));
        assert_eq!(spec.schedule, Some(Schedule { warmup: 2, total: Some(9), floor: 0.5 }));
        assert!(spec.drops());
        let program = spec.training_program().unwrap();
        let leaf = |name: &str| program.node(program.named(name).unwrap()).ty.to_string();
        for (name, ty) in [
            ("x.1", "i32[2, 3]"),
            ("mask.0", "f32[2, 3]"),
            ("dropout_key", "i64[]"),
            ("t.w", "f32[7, 8]"),
            ("t.positions", "f32[3, 8]"),
            ("b.1.attention.q.w", "f32[8, 2, 2, 2]"),
            ("b.1.attention.k.w", "f32[8, 2, 2]"),
            ("b.0.attention.out.w", "f32[2, 2, 2, 8]"),
            ("b.0.mlp.up.w", "f32[8, 6]"),
            ("b.0.norm1.scale", "f32[8]"),
            ("n.shift", "f32[8]"),
            ("l.b", "f32[8]"),
        ] {
            assert_eq!(leaf(name), ty, "{name}");
        }
        for absent in ["h.w", "b.0.norm1.shift", "b.0.attention.q.b"] {
            assert!(program.named(absent).is_none(), "{absent}");
        }
    }

    #[test]
    fn bad_stacks_are_refused_on_one_line_naming_the_key() {
        let with = |from: &str, to: &str| {
            assert!(STACK.contains(from), "{from}");
            STACK.replacen(from, to, 1)
        };
        let cases: [(String, &[&str]); 19] = [
            (
                with("name = \"l\"", "name = \"loss\""),
                &["`stack[3].name`", "`loss`", "choose another"],
            ),
            (with("name = \"l\"", "name = \"\""), &["`stack[3].name`", "letters"]),
            (with("name = \"l\"", "name = \"grad(x)\""), &["`stack[3].name`", "letters"]),
            (with("vocabulary = 7\n", ""), &["`vocabulary`", "missing"]),
            (with("sequence = 3", "sequence = 0"), &["`sequence`", "0"]),
            (format!("loss = \"mse\"\n{STACK}"), &["`loss`", "[[stack]]"]),
            (format!("masked = true\nbatch = 2\n{LAYER}"), &["`masked`", "[[stack]]"]),
            (format!("{STACK}{LAYER}"), &["`layer`", "[[stack]]"]),
            (format!("clip_norm = 0.0\n{STACK}"), &["`clip_norm`", "positive"]),
            // In f32 these are infinite and 0.
            (format!("clip_norm = 1e39\n{STACK}"), &["`clip_norm`", "1e39", "in f32"]),
            (format!("clip_norm = 1e-50\n{STACK}"), &["`clip_norm`", "1e-50", "in f32"]),
            (
                format!("schedule = {{ total = 0 }}\noptimizer = \"sgd\"\n{STACK}"),
                &["`schedule.total`"],
            ),
            (format!("schedule = {{ warmup = 2 }}\n{STACK}"), &["`schedule`", "optimizer"]),
            (with("heads = 4", "heads = 3"), &["`b.0.attention.heads`", "3", "width of 8"]),
            (with("kv_heads = 2", "kv_heads = 3"), &["`b.0.attention.kv_heads`", "4 heads"]),
            (with("kind = \"norm\"", "kind = \"nrm\""), &["m.toml", "nrm", "norm"]),
            (with("name = \"n\"\n", "name = \"b\"\n"), &["`stack[2].name`", "`b`"]),
            (with("tied = \"t\"", "tied = \"b\""), &["`stack[4].tied`", "`b`", "embedding"]),
            (with("repeat = 2", "repeat = 100000"), &["`stack`", "4096"]),
        ];
        for (text, parts) in cases {
            let message = parse(&text).unwrap_err();
            assert!(!message.contains('\n'), "{message}");
            for part in parts {
                assert!(message.contains(part), "{message:?} lacks {part:?}");
            }
        }
    }

    #[test]
    fn bad_models_are_refused_on_one_line_naming_the_key() {
        let cases: [(String, &[&str]); 14] = [
            ("batch = 2".into(), &["m.toml", "`layer`"]),
            (LAYER.into(), &["m.toml", "`batch`"]),
            (format!("batch = 0\n{LAYER}"), &["`batch`", "0"]),
            (
                format!("batch = 2\ndtype = \"f16\"\n{LAYER}"),
                &["m.toml:2", "`dtype`", "f16", "f32"],
            ),
            (format!("batch = 2\ndtype = \"i32\"\n{LAYER}"), &["`dtype`", "i32", "f32"]),
            (format!("batch = 2\nlos = \"mse\"\n{LAYER}"), &["m.toml:2", "`los`", "`loss`"]),
            (format!("batch = 2\noptimizer = \"adm\"\n{LAYER}"), &["m.toml:2", "adm", "adamw"]),
            (
                format!("batch = 2\noptimizer = {{ name = \"sgd\", beta1 = 0.5 }}\n{LAYER}"),
                &["m.toml:2", "optimizer.beta1", "sgd", "lr"],
            ),
            (
                format!("batch = 2\n{LAYER}[[layer]]\nin = 4\nout = 3\n"),
                &["`layer[1].in`", "4", "3"],
            ),
            (format!("batch = 2\n{LAYER}activation = \"rely\"\n"), &["m.toml:5", "rely", "relu"]),
            (
                format!("batch = 2\n{LAYER}[pins]\nx = \"tp: Q\"\n"),
                &["m.toml:6", "`x`", "Q", "S(dim)"],
            ),
            (
                format!("batch = 2\n{LAYER}[splits]\n\"0\" = \"tp\"\n"),
                &["m.toml:6", "`0`", "tp: out"],
            ),
            (
                format!("batch = 2\n{LAYER}[splits]\nfirst = \"tp: out\"\n"),
                &["splits.first", "number"],
            ),
            (
                format!("batch = 2\n{LAYER}[splits]\n\"0\" = \"tp: out\"\n\"00\" = \"tp: in\"\n"),
                &["splits.00", "layer 0", "twice"],
            ),
        ];
        for (text, parts) in cases {
            let message = parse(&text).unwrap_err();
            assert!(!message.contains('\n'), "{message}");
            for part in parts {
                assert!(message.contains(part), "{message:?} lacks {part:?}");
            }
        }
    }
}
