//! Training with a plan: the runtime's trainer, with the optimizer's scalars set from the step count.

use std::collections::BTreeMap;
use std::path::Path;

use shardgrad_core::geometry::split;
use shardgrad_core::ops::Role;
use shardgrad_core::{Block, DType};
use shardgrad_graph::{Model, NodeId, Optimizer, Start, Value};
use shardgrad_runtime::{
    Buffers, Checkpoint, Counters, Data, Init, StepReport, Trainer as Ranks, TrainerOptions,
};

use crate::dataset::{Dataset, Inputs};
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
    spec: Option<Model>,
    scalars: BTreeMap<String, DType>,
    /// Element types of the inputs.
    types: BTreeMap<String, DType>,
    steps: u64,
}

impl Trainer {
    /// Every device of the plan on a thread of this process, parameters at their initial values.
    ///
    /// # Errors
    /// Threads cannot be started.
    pub fn threads(planned: &Planned) -> Result<Self, Error> {
        Self::threads_with(planned, Buffers::Keep)
    }

    /// [`Trainer::threads`] with another use of buffers: [`Buffers::Record`] is needed for [`Trainer::recorded`].
    ///
    /// # Errors
    /// As [`Trainer::threads`].
    pub fn threads_with(planned: &Planned, buffers: Buffers) -> Result<Self, Error> {
        let options = TrainerOptions { buffers, ..options_of(planned) };
        Ok(Self::of(planned, Ranks::with_options(planned.plan(), options)?))
    }

    /// The device of the plan that this process is, one of as many as `mpirun` started, parameters at their initial values.
    /// Every process makes the same trainer at once, and then the same calls; values that come out are the same on all.
    ///
    /// ```no_run
    /// use shardgrad::prelude::*;
    /// use shardgrad::mpi;
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let mesh = Mesh::new([("dp", 2)])?;
    ///     let model = Mlp::new(&[64, 32, 10]).activation(Activation::Relu);
    ///     let plan = Training::new(model, Loss::CrossEntropy, AdamW::new(1e-3), Batch(64))
    ///         .layout("dp=data")?
    ///         .plan(&mesh, &Machine::default())?;
    ///     Ok(mpi::run(|universe| {
    ///         let digits = Dataset::digits();
    ///         let mut trainer = Trainer::mpi(&plan, universe)?;
    ///         for rows in digits.epoch(0, 0, 64) {
    ///             let report = trainer.step_rows(&digits, &rows)?;
    ///             if universe.is_first() {
    ///                 println!("loss {:?}", report.loss);
    ///             }
    ///         }
    ///         trainer.save("digits.safetensors".as_ref())
    ///     })?)
    /// }
    /// ```
    ///
    /// # Errors
    /// The mesh has another size than the world, or a process runs another program, plan, build or environment: then all
    /// of them get the same error, which names it.
    #[cfg(feature = "mpi")]
    pub fn mpi(planned: &Planned, universe: &crate::mpi::Universe) -> Result<Self, Error> {
        Self::mpi_with(planned, universe, crate::mpi::MpiOptions::default(), Buffers::Keep)
    }

    /// [`Trainer::mpi`] with another choice of collectives and another use of buffers.
    ///
    /// # Errors
    /// As [`Trainer::mpi`].
    #[cfg(feature = "mpi")]
    pub fn mpi_with(
        planned: &Planned,
        universe: &crate::mpi::Universe,
        options: crate::mpi::MpiOptions,
        buffers: Buffers,
    ) -> Result<Self, Error> {
        let comm = universe.communicator(options);
        let options = TrainerOptions { buffers, ..options_of(planned) };
        Ok(Self::of(planned, Ranks::mpi(planned.plan(), &options, comm)?))
    }

    fn of(planned: &Planned, ranks: Ranks) -> Self {
        let program = planned.program();
        let types_of = |role| {
            program
                .leaves()
                .map(|id| program.node(id))
                .filter(|node| node.leaf_role() == Some(role))
                .filter_map(|node| Some((node.leaf_name()?.to_owned(), node.ty.dtype)))
                .collect()
        };
        let (scalars, types) = (types_of(Role::Scalar), types_of(Role::Input));
        Self {
            ranks,
            name: program.name.clone(),
            optimizer: planned.optimizer(),
            spec: planned.spec().cloned(),
            scalars,
            types,
            steps: 0,
        }
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

    /// Says what characters token ids stand for: those of the text that is learnt ([`Dataset::text`]). Checkpoints say it
    /// too, and one that says otherwise is refused. A first step on rows of a text says it, if nobody did.
    pub fn set_vocabulary(&mut self, characters: &[char]) {
        self.ranks.set_vocabulary(characters.iter().copied());
    }

    /// One step on some rows of a data set, of which every device reads its block and nothing else: the loss.
    ///
    /// # Errors
    /// The data set lacks an input of the program, a label out of range, a device that failed.
    pub fn step_rows(&mut self, data: &Dataset, rows: &[usize]) -> Result<StepReport, Error> {
        let scalars = self.with_scalars(&Inputs::new(), self.steps + 1);
        if let (Some(text), None) = (data.text(), self.ranks.vocabulary()) {
            self.ranks.set_vocabulary(text.characters().iter().copied());
        }
        let (spec, types) = (self.spec.as_ref(), &self.types);
        let report = self
            .ranks
            .train_blocks(|name, block| read(data, rows, spec, types, &scalars, name, block))?;
        self.steps += 1;
        Ok(report)
    }

    /// [`Trainer::step`] of a forward pass on some rows of a data set, as in [`Trainer::step_rows`]: its outputs, as
    /// global values.
    ///
    /// # Errors
    /// As [`Trainer::step_rows`].
    pub fn outputs_of_rows(&mut self, data: &Dataset, rows: &[usize]) -> Result<StepReport, Error> {
        let (spec, types, scalars) = (self.spec.as_ref(), &self.types, Inputs::new());
        Ok(self
            .ranks
            .step_blocks(|name, block| read(data, rows, spec, types, &scalars, name, block))?)
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
        let scalars = match &self.spec {
            Some(spec) => spec.scalars(step),
            None => self.optimizer.scalars(step),
        };
        for (name, value) in scalars {
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

    /// By rank, what a node of the plan made in the last step; `None` unless the trainer was made with [`Buffers::Record`] and
    /// has stepped.
    ///
    /// # Errors
    /// An earlier failure.
    pub fn recorded(&mut self, node: NodeId) -> Result<Option<Vec<Data>>, Error> {
        Ok(self.ranks.recorded(node)?)
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

    /// Writes what [`Trainer::checkpoint`] holds to a file, block by block: every device writes what it owns, and no tensor
    /// is put together. Over MPI all hosts must see the file's directory.
    ///
    /// # Errors
    /// Whatever the file system reports; the old file is then as it was. An earlier failure.
    pub fn save(&mut self, path: &Path) -> Result<(), Error> {
        Ok(self.ranks.save(path, &self.name, self.steps)?)
    }

    /// Whether [`Trainer::save`] can write this file, to be asked before a long training: makes a file beside it, shows it to
    /// all ranks, and removes it.
    ///
    /// # Errors
    /// There is no such directory, or no file can be made in it; what is there is no regular file; a host does not see it.
    pub fn can_save(&mut self, path: &Path) -> Result<(), Error> {
        Ok(self.ranks.can_save(path)?)
    }

    /// Goes on from a file as [`Trainer::restore`] does, every device reading its blocks.
    ///
    /// # Errors
    /// Whatever the file system reports; a file that is no checkpoint; as [`Trainer::restore`].
    pub fn load(&mut self, path: &Path) -> Result<(), Error> {
        self.steps = self.ranks.load(path)?.step;
        Ok(())
    }

    /// Takes over parameters and state of the same names and the number of steps from another trainer, whatever its layout.
    ///
    /// # Errors
    /// A name that the other one lacks, a value of another type, an earlier failure.
    pub fn copy_stored(&mut self, other: &mut Trainer) -> Result<(), Error> {
        self.ranks.copy_stored(&mut other.ranks)?;
        self.steps = other.steps;
        Ok(())
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

/// A block of an input: a scalar, or rows of the data, which micro-batches share in order.
fn read(
    data: &Dataset,
    rows: &[usize],
    spec: Option<&Model>,
    types: &BTreeMap<String, DType>,
    scalars: &Inputs,
    name: &str,
    block: &Block,
) -> Result<Value, shardgrad_runtime::Error> {
    if let Some(scalar) = scalars.get(name) {
        return Ok(scalar.clone());
    }
    let parts = spec.map_or(1, |spec| (*spec.micro_batches()).max(1));
    let (base, part) = match name.split_once('.') {
        Some((base, part)) if parts > 1 => (base, part.parse().unwrap_or(parts)),
        _ => (name, 0),
    };
    let part = if part < parts { split(rows.len(), parts, part) } else { 0..0 };
    let dtype = types.get(name).copied().unwrap_or(DType::F32);
    let missing = || shardgrad_runtime::Error::MissingInput {
        name: name.to_owned(),
        known: types
            .keys()
            .chain(scalars.keys())
            .map(|n| format!("`{n}`"))
            .collect::<Vec<_>>()
            .join(", "),
    };
    data.block(base, &rows[part], block, dtype).ok_or_else(missing)
}

/// The seed, and how parameters start.
fn options_of(planned: &Planned) -> TrainerOptions {
    let program = planned.program();
    let init = planned
        .starts()
        .iter()
        .filter(|(name, _)| program.named(name).is_some())
        .map(|(name, start)| (name.clone(), init_of(*start)))
        .collect();
    TrainerOptions { seed: planned.seed(), init, ..TrainerOptions::default() }
}

fn init_of(start: Start) -> Init {
    match start {
        Start::Constant(value) => Init::Constant(value),
        Start::Uniform(bound) => Init::Uniform { bound },
        Start::Normal(deviation) => Init::Normal { deviation },
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
