//! Whole cases of the central property: a program, a mesh, a layout request, data.
//!
//! Everything is drawn as small numbers that are *interpreted* against the program at hand (a pin names the n-th value of
//! the program, its placements are digits), so that removing a step from the program leaves the rest of the case valid,
//! and failing cases shrink to a few lines. A case prints itself as program text, mesh and layout.

use std::fmt;

use proptest::collection::vec;
use proptest::prelude::{Strategy, any};
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, Reason, RngAlgorithm, TestRng, TestRunner};
use shardgrad_core::{LayoutSpec, Mesh, Op, Placement};
use shardgrad_graph::{Activation, LayerSpec, Loss, MlpSpec, Optimizer, OutputRole, Plan, Program};
use shardgrad_planner::{LayoutRequest, Preset};

use crate::data::Style;
use crate::equivalence::Options;
use crate::error::Error;
use crate::random_plan::random_plan;
use crate::recipe::Recipe;
use crate::strategies::{extents, floats, meshes, recipes, styles};

/// What a case computes.
#[derive(Clone, Debug, PartialEq)]
pub enum Model {
    /// A random program.
    Random(Recipe),
    /// A training program of an MLP.
    Mlp(MlpSpec),
}

impl Model {
    /// The program.
    ///
    /// # Errors
    /// The builder's refusal.
    pub fn program(&self) -> Result<Program, Error> {
        Ok(match self {
            Model::Random(recipe) => recipe.program()?,
            Model::Mlp(spec) => spec.training_program()?,
        })
    }
}

/// One case.
#[derive(Clone, PartialEq)]
pub struct Case {
    /// What is computed.
    pub model: Model,
    /// Where.
    pub mesh: Mesh,
    /// Share of wild choices of a random plan ([`crate::random_plan`]).
    pub wildness: u8,
    /// A preset for each axis; only `auto` and `replicated` count for programs without layers.
    pub presets: [Preset; 3],
    /// Pins: the n-th named value, with placements as digits.
    pub pins: Vec<(u8, u16)>,
    /// Style of data.
    pub style: Style,
    /// Seed of data.
    pub seed: u64,
}

impl Case {
    /// The layout request for the case's program.
    #[must_use]
    pub fn request(&self, program: &Program) -> LayoutRequest {
        let presets = self.mesh.axes().iter().zip(self.presets).map(|(axis, preset)| {
            let fits =
                !program.layers.is_empty() || matches!(preset, Preset::Auto | Preset::Replicated);
            (axis.name.clone(), if fits { preset } else { Preset::Auto })
        });
        let mut request = LayoutRequest::by_axis(presets.collect());
        let names: Vec<&String> = program.names.keys().collect();
        for &(which, digits) in &self.pins {
            let Some(&name) = names.get(usize::from(which) % names.len().max(1)) else { continue };
            if let Some(spec) = self.pin(program, name, digits) {
                request = request.pin(name, spec);
            }
        }
        request
    }

    /// Placements for a value: `R`, `S` of each dim, and `P` for values that are neither stored nor outputs.
    fn pin(&self, program: &Program, name: &str, digits: u16) -> Option<LayoutSpec> {
        let id = program.named(name)?;
        let node = program.node(id);
        let is_scalar_leaf = node.leaf_role() == Some(shardgrad_core::ops::Role::Scalar);
        let is_loss = program.outputs.iter().any(|o| o.node == id && o.role == OutputRole::Loss);
        if is_scalar_leaf || is_loss {
            return None;
        }
        let stored = node.leaf_role().is_some() || program.outputs.iter().any(|o| o.node == id);
        let mut choices = vec![Placement::Replicated];
        choices.extend((0..node.ty.rank()).map(Placement::Shard));
        // What is neither linear nor a sum is never pending; the planner refuses such a pin.
        let can_pend = matches!(
            node.op,
            Op::Einsum(_) | Op::Sum(_) | Op::Add | Op::Sub | Op::Scale(_) | Op::Transpose(_)
        );
        if !stored && can_pend && node.ty.dtype.is_float() {
            choices.push(Placement::PendingSum);
        }
        let mut digits = usize::from(digits);
        let mut spec = Vec::new();
        for axis in self.mesh.axes() {
            // One more choice: the axis is not named.
            let digit = digits % (choices.len() + 1);
            digits /= choices.len() + 1;
            if let Some(placement) = choices.get(digit) {
                spec.push((axis.name.clone(), *placement));
            }
        }
        Some(LayoutSpec(spec))
    }

    /// A random plan for the case's program.
    #[must_use]
    pub fn random_plan(&self, program: &Program) -> Plan {
        random_plan(program, &self.mesh, self.seed, self.wildness)
    }

    /// Options of the comparison.
    #[must_use]
    pub fn options(&self) -> Options {
        Options { style: self.style, seed: self.seed, ..Options::default() }
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(program) = self.model.program() else {
            return f.write_str("a case whose program cannot be built");
        };
        let request = self.request(&program);
        write!(f, "mesh {}, layout {:?}", self.mesh, request.presets)?;
        for (name, spec) in &request.pins {
            write!(f, ", {name} = {spec}")?;
        }
        write!(
            f,
            ", {:?} data of seed {}, wildness {}\n{program}",
            self.style, self.seed, self.wildness
        )?;
        match &self.model {
            Model::Random(recipe) => write!(f, "{recipe:?}"),
            Model::Mlp(spec) => write!(f, "{spec:?}"),
        }
    }
}

/// MLPs of 1 to 3 layers with extents of 1 to 7, every loss, activation and optimizer. A third are plain (relu, sum of
/// outputs, no optimizer): exact on whole numbers.
pub fn mlps() -> impl Strategy<Value = MlpSpec> {
    let activations = select(vec![
        Activation::None,
        Activation::Relu,
        Activation::Tanh,
        Activation::Gelu,
        Activation::Sigmoid,
    ]);
    let optimizers = select(vec!["none", "sgd", "momentum", "adam", "adamw"]);
    let losses = select(vec![Loss::Sum, Loss::Mse, Loss::CrossEntropy]);
    let layer = (extents(), any::<bool>(), activations);
    let plain = select(vec![false, false, true]);
    let flags = (any::<bool>(), plain);
    (vec(layer, 1..=3), extents(), extents(), losses, optimizers, floats(), flags).prop_map(
        |(layers, inputs, batch, loss, optimizer, dtype, (input_gradient, plain))| {
            let mut width = inputs;
            let layers = layers
                .into_iter()
                .map(|(outputs, bias, activation)| {
                    let inputs = std::mem::replace(&mut width, outputs);
                    let activation = match activation {
                        Activation::None | Activation::Relu => activation,
                        _ if plain => Activation::Relu,
                        other => other,
                    };
                    LayerSpec { inputs, outputs, bias, activation }
                })
                .collect();
            MlpSpec {
                layers,
                loss: if plain { Loss::Sum } else { loss },
                dtype,
                input_gradient,
                optimizer: Optimizer::named(optimizer)
                    .ok()
                    .filter(|_| !plain)
                    .unwrap_or(Optimizer::None),
                ..MlpSpec::new("mlp", batch)
            }
        },
    )
}

/// Cases with random programs of up to `most` steps.
pub fn random_cases(most: usize) -> impl Strategy<Value = Case> {
    cases(recipes(most).prop_map(Model::Random))
}

/// Cases with MLPs.
pub fn mlp_cases() -> impl Strategy<Value = Case> {
    cases(mlps().prop_map(Model::Mlp))
}

fn cases(models: impl Strategy<Value = Model>) -> impl Strategy<Value = Case> {
    let preset = || select(Preset::ALL.to_vec());
    (
        models,
        meshes(),
        any::<u8>(),
        [preset(), preset(), preset()],
        vec((any::<u8>(), any::<u16>()), 0..4),
        styles(),
        any::<u64>(),
    )
        .prop_map(|(model, mesh, wildness, presets, pins, style, seed)| Case {
            model,
            mesh,
            wildness,
            presets,
            pins,
            style,
            seed,
        })
}

/// The case of a kind, `mlp` or `random`, that follows from its number alone, with what it shrinks to.
///
/// # Errors
/// Proptest finds none, which does not happen.
pub fn numbered(kind: &str, number: u64) -> Result<Box<dyn ValueTree<Value = Case>>, Reason> {
    let mut seed = [0_u8; 32];
    seed[..8].copy_from_slice(&number.to_le_bytes());
    seed[8..].iter_mut().zip(kind.bytes()).for_each(|(seed, byte)| *seed = byte);
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    match kind {
        "mlp" => mlp_cases().boxed().new_tree(&mut runner),
        _ => random_cases(8).boxed().new_tree(&mut runner),
    }
}
