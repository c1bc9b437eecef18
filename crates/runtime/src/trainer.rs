//! All ranks of a plan, step by step.
//!
//! Every rank keeps its blocks of parameters and state from step to step; a step sends it its blocks of the inputs. Values
//! go in and out as global tensors, or block by block where they may be too large for that. On threads rank 0 runs on the
//! caller's, each other rank on one of its own. Over MPI every process is one rank: all of them make the same calls in the
//! same order, and what comes out is the same on all.
//!
//! A rank that fails fails the step with its cause on every rank, and the trainer refuses further steps.

use std::collections::BTreeMap;
use std::sync::Arc;

use shardgrad_core::geometry::block;
use shardgrad_core::ops::Role;
use shardgrad_core::{Block, Layout, Mesh, Placement, TensorType};
use shardgrad_graph::{NodeId, OutputRole, Plan, Value, blocks};

use crate::backend::Backend;
use crate::counters::{Counters, counters};
use crate::error::Error;
use crate::executor::{Buffers, Executor};
use crate::init::Init;
use crate::inputs::{Input, check_block, check_inputs, expect_type, inputs_of};
use crate::ranks::{Command, Rank, Ranks, Reply};
use crate::shared::MAX_RANKS;
use crate::tensor::Data;
use crate::threads::{ThreadComm, WorldOptions};
use crate::world::too_many;

/// How a trainer starts and runs.
#[derive(Clone, Debug, Default)]
pub struct TrainerOptions {
    /// Seed of the initial parameters.
    pub seed: u64,
    /// Initial values other than [`Init::of`], by leaf.
    pub init: BTreeMap<String, Init>,
    /// How ranks talk.
    pub world: WorldOptions,
    /// What happens to buffers that are not in use.
    pub buffers: Buffers,
}

/// The outcome of a step.
#[derive(Clone, Debug, Default)]
pub struct StepReport {
    /// The loss, if the plan has one.
    pub loss: Option<f64>,
    /// Outputs that are values or gradients, as global tensors, by name. Empty if the step was asked for its loss only.
    pub outputs: BTreeMap<String, Value>,
    /// What it cost.
    pub counted: Counters,
}

/// The ranks of a plan. It runs plans of forward programs as well.
pub struct Trainer {
    pub(crate) mesh: Mesh,
    seed: u64,
    pub(crate) ranks: Backend,
    inputs: Arc<Vec<Input>>,
    /// Parameters and state by name.
    stored: BTreeMap<String, Placed>,
    /// Outputs in the plan's order.
    outputs: Vec<(String, OutputRole, Placed)>,
    /// Spare input buffers of every rank that is here, and their blocks.
    spare: Vec<Vec<Data>>,
    blocks: Vec<Vec<Block>>,
    vocabulary: Option<String>,
    stopped: Option<Error>,
}

#[derive(Clone)]
pub(crate) struct Placed {
    pub(crate) ty: TensorType,
    pub(crate) layout: Layout,
    role: Option<Role>,
}

impl Trainer {
    /// Starts a plan's ranks on threads, parameters drawn from `seed`.
    ///
    /// # Errors
    /// A plan that is not sound, or threads that cannot be started.
    pub fn threads(plan: &Plan, seed: u64) -> Result<Self, Error> {
        Self::with_options(plan, TrainerOptions { seed, ..TrainerOptions::default() })
    }

    /// Starts a plan's ranks on threads.
    ///
    /// # Errors
    /// As [`Trainer::threads`]; an initial value for a name that is no parameter or state.
    pub fn with_options(plan: &Plan, options: TrainerOptions) -> Result<Self, Error> {
        let size = plan.mesh.size();
        if size > MAX_RANKS {
            return Err(too_many(size));
        }
        let inputs = Arc::new(inputs_of(plan));
        let ranks = ThreadComm::world(size, options.world)
            .into_iter()
            .enumerate()
            .map(|(rank, comm)| {
                let executor = start(plan, rank, &options)?;
                Ok(Rank { comm, executor, inputs: Arc::clone(&inputs) })
            })
            .collect::<Result<Vec<_>, Error>>()?;
        let ranks = Backend::Threads(Ranks::start(ranks, options.world.grace)?);
        Ok(Self::of(plan, &options, inputs, ranks))
    }

    /// This process' rank of a plan. All processes make the same trainer at once.
    ///
    /// # Errors
    /// As [`Trainer::with_options`]; the mesh has another size than the world, or a rank differs from another in program,
    /// plan, seed, build or environment: then all ranks get the same error.
    #[cfg(feature = "mpi")]
    pub fn mpi(
        plan: &Plan,
        options: &TrainerOptions,
        comm: crate::mpi::MpiComm,
    ) -> Result<Self, Error> {
        let inputs = Arc::new(inputs_of(plan));
        let process = crate::mpi::Process::new(plan, options, comm, Arc::clone(&inputs))?;
        Ok(Self::of(plan, options, inputs, Backend::Process(Box::new(process))))
    }

    fn of(plan: &Plan, options: &TrainerOptions, inputs: Arc<Vec<Input>>, ranks: Backend) -> Self {
        let outputs =
            plan.outputs.iter().map(|o| (o.name.clone(), o.role, placed(plan, o.node))).collect();
        let blocks: Vec<Vec<Block>> = ranks
            .here(plan.mesh.size())
            .map(|r| inputs.iter().map(|i| block(&i.ty.shape, &i.layout, &plan.mesh, r)).collect())
            .collect();
        let buffer = |(block, input): (&Block, &Input)| Data::zeros(input.ty.dtype, block.len());
        let spare = blocks
            .iter()
            .map(|own: &Vec<Block>| own.iter().zip(inputs.iter()).map(buffer).collect())
            .collect();
        Self {
            mesh: plan.mesh.clone(),
            seed: options.seed,
            ranks,
            inputs,
            stored: stored_of(plan),
            outputs,
            spare,
            blocks,
            vocabulary: None,
            stopped: None,
        }
    }

    /// The mesh.
    #[must_use]
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// The seed of the initial parameters.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The characters that token ids stand for, in order, if that was said.
    #[must_use]
    pub fn vocabulary(&self) -> Option<&str> {
        self.vocabulary.as_deref()
    }

    /// Says what characters token ids stand for. Checkpoints say it too, and one that says otherwise is refused.
    pub fn set_vocabulary(&mut self, characters: impl IntoIterator<Item = char>) {
        self.vocabulary = Some(characters.into_iter().collect());
    }

    /// The layout of a parameter or of state.
    #[must_use]
    pub fn layout(&self, name: &str) -> Option<&Layout> {
        self.stored.get(name).map(|placed| &placed.layout)
    }

    /// What a parameter or state is for.
    #[must_use]
    pub fn role(&self, name: &str) -> Option<Role> {
        self.stored.get(name).and_then(|placed| placed.role)
    }

    /// Names of parameters and state, with their types, in alphabetical order.
    pub fn stored(&self) -> impl Iterator<Item = (&str, &TensorType)> {
        self.stored.iter().map(|(name, placed)| (name.as_str(), &placed.ty))
    }

    /// Runs one step on global inputs (scalars included) and returns all outputs but updates, which become the new values
    /// of their leaves.
    ///
    /// # Errors
    /// An input that is missing, unknown, of another type, or a label out of range, before anything runs; a rank's
    /// failure; an earlier failure.
    pub fn step(&mut self, inputs: &BTreeMap<String, Value>) -> Result<StepReport, Error> {
        let wanted = self.not_updates();
        self.run(inputs, &wanted)
    }

    /// [`Trainer::step`], returning the loss only.
    ///
    /// # Errors
    /// As [`Trainer::step`].
    pub fn train(&mut self, inputs: &BTreeMap<String, Value>) -> Result<StepReport, Error> {
        let wanted = self.losses();
        self.run(inputs, &wanted)
    }

    /// [`Trainer::train`] on inputs that are read block by block: `read` is asked for the elements of a block of the input
    /// with this name, for every rank that is here, and returns a value of the block's shape.
    ///
    /// # Errors
    /// As [`Trainer::step`]; a value of another type or shape.
    pub fn train_blocks(
        &mut self,
        read: impl FnMut(&str, &Block) -> Result<Value, Error>,
    ) -> Result<StepReport, Error> {
        let wanted = self.losses();
        self.run_blocks(read, &wanted)
    }

    /// [`Trainer::step`] on inputs that are read block by block, as in [`Trainer::train_blocks`].
    ///
    /// # Errors
    /// As [`Trainer::train_blocks`].
    pub fn step_blocks(
        &mut self,
        read: impl FnMut(&str, &Block) -> Result<Value, Error>,
    ) -> Result<StepReport, Error> {
        let wanted = self.not_updates();
        self.run_blocks(read, &wanted)
    }

    fn run_blocks(
        &mut self,
        mut read: impl FnMut(&str, &Block) -> Result<Value, Error>,
        wanted: &[usize],
    ) -> Result<StepReport, Error> {
        self.refuse_if_stopped()?;
        let filled = self.fill_blocks(&mut read);
        self.told(filled)?;
        self.execute(wanted)
    }

    fn fill_blocks(
        &mut self,
        read: &mut dyn FnMut(&str, &Block) -> Result<Value, Error>,
    ) -> Result<(), Error> {
        for (own, blocks) in self.spare.iter_mut().zip(&self.blocks) {
            for ((data, block), input) in own.iter_mut().zip(blocks).zip(self.inputs.iter()) {
                let value = read(&input.name, block)?;
                check_block(input, block, &value)?;
                data.copy_block(&value, &Block::whole(&block.shape()))?;
            }
        }
        Ok(())
    }

    fn not_updates(&self) -> Vec<usize> {
        let update = |i: &usize| matches!(self.outputs[*i].1, OutputRole::Update { .. });
        (0..self.outputs.len()).filter(|i| !update(i)).collect()
    }

    fn losses(&self) -> Vec<usize> {
        (0..self.outputs.len()).filter(|&i| self.outputs[i].1 == OutputRole::Loss).collect()
    }

    fn run(
        &mut self,
        values: &BTreeMap<String, Value>,
        wanted: &[usize],
    ) -> Result<StepReport, Error> {
        self.refuse_if_stopped()?;
        let cut = self.cut_blocks(values);
        self.told(cut)?;
        self.execute(wanted)
    }

    fn cut_blocks(&mut self, values: &BTreeMap<String, Value>) -> Result<(), Error> {
        check_inputs(&self.inputs, values)?;
        for (own, blocks) in self.spare.iter_mut().zip(&self.blocks) {
            for ((data, block), input) in own.iter_mut().zip(blocks).zip(self.inputs.iter()) {
                data.copy_block(&values[&input.name], block)?;
            }
        }
        Ok(())
    }

    /// What other ranks cannot know of is noted.
    fn told(&self, result: Result<(), Error>) -> Result<(), Error> {
        result.inspect_err(|error| self.ranks.fail(error))
    }

    /// Runs a step on what the spare buffers hold.
    fn execute(&mut self, wanted: &[usize]) -> Result<StepReport, Error> {
        let names: Vec<String> = wanted.iter().map(|&i| self.outputs[i].0.clone()).collect();
        let commands = std::mem::take(&mut self.spare)
            .into_iter()
            .map(|inputs| Command::Step { inputs, outputs: names.clone() })
            .collect();
        let replies = self.command(commands)?;
        let mut counts = Vec::with_capacity(replies.len());
        let mut by_rank: Vec<Vec<Data>> = Vec::with_capacity(replies.len());
        for reply in replies {
            if let Reply::Stepped(inputs, outputs, counted) = reply {
                self.spare.push(inputs);
                by_rank.push(outputs);
                counts.push(counted);
            }
        }
        let counts = self.ranks.counts(counts)?;
        let mut report = StepReport { counted: counters(&counts), ..StepReport::default() };
        for &i in wanted.iter().rev() {
            let (name, role, placed) = self.outputs[i].clone();
            let here = by_rank.iter_mut().filter_map(Vec::pop).collect();
            let value = self.assemble(&placed, here)?;
            if role == OutputRole::Loss {
                report.loss = value.item();
            }
            report.outputs.insert(name, value);
        }
        Ok(report)
    }

    /// The global value of a parameter or of state. On threads, replicas must be equal to the last bit.
    ///
    /// # Errors
    /// An unknown name; replicas that differ; an earlier failure.
    pub fn gather(&mut self, name: &str) -> Result<Value, Error> {
        let placed = self.placed(name)?;
        let blocks = self.read_blocks(name)?;
        self.assemble(&placed, blocks)
    }

    /// By rank, what a node of the plan made in the last step; `None` unless the trainer has [`Buffers::Record`] and has
    /// stepped.
    ///
    /// # Errors
    /// An earlier failure.
    pub fn recorded(&mut self, node: NodeId) -> Result<Option<Vec<Data>>, Error> {
        self.refuse_if_stopped()?;
        let here = self.ranks.here(self.mesh.size());
        let replies = self.command(here.map(|_| Command::Recorded(node)).collect())?;
        let block = |reply| if let Reply::Block(block) = reply { block } else { None };
        match replies.into_iter().map(block).collect::<Option<Vec<Data>>>() {
            Some(blocks) => self.ranks.gather(blocks).map(Some),
            None => Ok(None),
        }
    }

    /// The blocks of a parameter or of state of the ranks that are here.
    pub(crate) fn read_blocks(&mut self, name: &str) -> Result<Vec<Data>, Error> {
        self.refuse_if_stopped()?;
        let here = self.ranks.here(self.mesh.size());
        let replies = self.command(here.map(|_| Command::Read(name.to_owned())).collect())?;
        let block = |reply| if let Reply::Block(block) = reply { block } else { None };
        Ok(replies.into_iter().filter_map(block).collect())
    }

    /// Overwrites them.
    pub(crate) fn write_blocks(&mut self, name: &str, blocks: Vec<Data>) -> Result<(), Error> {
        self.refuse_if_stopped()?;
        let write = |block| Command::Write(name.to_owned(), block);
        self.command(blocks.into_iter().map(write).collect()).map(|_| ())
    }

    /// Overwrites a parameter or state with a global value.
    ///
    /// # Errors
    /// An unknown name; a value of another type; an earlier failure.
    pub fn set(&mut self, name: &str, value: &Value) -> Result<(), Error> {
        self.refuse_if_stopped()?;
        let placed = self.placed(name)?;
        expect_type(name, &placed.ty, value)?;
        let blocks = self.places(&placed);
        let blocks = blocks.iter().map(|block| Data::of_block(value, block));
        self.write_blocks(name, blocks.collect::<Result<_, Error>>()?)
    }

    /// Where the blocks of the ranks that are here lie.
    pub(crate) fn places(&self, placed: &Placed) -> Vec<Block> {
        let here = self.ranks.here(self.mesh.size());
        here.map(|rank| block(&placed.ty.shape, &placed.layout, &self.mesh, rank)).collect()
    }

    pub(crate) fn placed(&self, name: &str) -> Result<Placed, Error> {
        let known = || unknown(name, "parameter or state", &self.stored);
        self.stored.get(name).cloned().ok_or_else(known)
    }

    fn refuse_if_stopped(&self) -> Result<(), Error> {
        match &self.stopped {
            Some(error) => Err(Error::Stopped { cause: error.to_string() }),
            None => Ok(()),
        }
    }

    fn assemble(&mut self, placed: &Placed, here: Vec<Data>) -> Result<Value, Error> {
        let Placed { ty, layout, .. } = placed;
        let whole = layout.iter().all(|placement| placement == Placement::Replicated);
        if let ([own], true) = (&here[..], whole) {
            return own.to_value(&ty.shape);
        }
        let values = self
            .ranks
            .gather(here)?
            .iter()
            .enumerate()
            .map(|(rank, data)| data.to_value(&block(&ty.shape, layout, &self.mesh, rank).shape()))
            .collect::<Result<Vec<_>, Error>>()?;
        Ok(blocks::gather(&values, ty, layout, &self.mesh)?)
    }

    /// Gives every rank its command; a failure stops the trainer.
    fn command(&mut self, commands: Vec<Command>) -> Result<Vec<Reply>, Error> {
        let replies = self.ranks.command(commands);
        if let Err(error) = &replies {
            self.stopped = Some(error.clone());
        }
        replies
    }
}

/// One rank's executor, with its blocks of the initial values.
pub(crate) fn start(plan: &Plan, rank: usize, options: &TrainerOptions) -> Result<Executor, Error> {
    plan.validate()?;
    let stored = stored_of(plan);
    if let Some(name) = options.init.keys().find(|name| !stored.contains_key(*name)) {
        return Err(unknown(name, "parameter or state", &stored));
    }
    let mut executor = Executor::new(plan, rank, options.buffers)?;
    for (ordinal, id) in ordinals(plan) {
        let node = plan.node(id);
        let Some(name) = node.leaf_name() else { continue };
        let role = node.leaf_role().unwrap_or(Role::Input);
        let init = options.init.get(name).copied().unwrap_or_else(|| Init::of(role, &node.ty));
        let own = block(&node.ty.shape, plan.layout(id), &plan.mesh, rank);
        let values = init.block(options.seed, ordinal, &node.ty, &own);
        if let Some(leaf) = executor.leaf_mut(name) {
            *leaf = values;
        }
    }
    Ok(executor)
}

fn placed(plan: &Plan, id: NodeId) -> Placed {
    let node = plan.node(id);
    Placed { ty: node.ty.clone(), layout: plan.layout(id).clone(), role: node.leaf_role() }
}

/// Parameters in the program's order, numbered, then state and the rest.
fn ordinals(plan: &Plan) -> Vec<(u64, NodeId)> {
    let mut leaves: Vec<NodeId> = plan
        .ids()
        .filter(|&id| matches!(plan.node(id).leaf_role(), Some(Role::Param | Role::State)))
        .collect();
    leaves.sort_by_key(|&id| {
        (plan.node(id).leaf_role() != Some(Role::Param), plan.origins[id.index()])
    });
    (0..).zip(leaves).collect()
}

fn stored_of(plan: &Plan) -> BTreeMap<String, Placed> {
    plan.ids()
        .filter_map(|id| Some((plan.node(id).leaf_name()?.to_owned(), placed(plan, id))))
        .filter(|(_, placed)| matches!(placed.role, Some(Role::Param | Role::State)))
        .collect()
}

fn unknown(name: &str, wanted: &'static str, stored: &BTreeMap<String, Placed>) -> Error {
    let known = stored.keys().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ");
    let known = if known.is_empty() { "none".to_owned() } else { known };
    Error::UnknownName { name: name.to_owned(), wanted, known }
}
