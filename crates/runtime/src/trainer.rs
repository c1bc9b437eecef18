//! All ranks of a plan, step by step.
//!
//! Every rank keeps its blocks of parameters and state from step to step; a step sends it its blocks of the inputs. Values
//! go in and out as global tensors. Rank 0 runs on the caller's thread, each other rank on one of its own.
//!
//! A rank that fails fails the step with its cause on every rank, and the trainer refuses further steps.

use std::collections::BTreeMap;
use std::sync::Arc;

use shardgrad_core::ops::Role;
use shardgrad_core::{Block, Layout, Mesh, TensorType};
use shardgrad_graph::{NodeId, OutputRole, Plan, Value, blocks};

use crate::counters::{Counters, counters};
use crate::error::Error;
use crate::executor::{Buffers, Executor};
use crate::init::Init;
use crate::inputs::{Input, check_inputs, expect_type, inputs_of};
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

/// The ranks of a plan on threads of this process. It runs plans of forward programs as well.
pub struct Trainer {
    mesh: Mesh,
    seed: u64,
    ranks: Ranks,
    inputs: Arc<Vec<Input>>,
    /// Parameters and state by name.
    stored: BTreeMap<String, Placed>,
    /// Outputs in the plan's order.
    outputs: Vec<(String, OutputRole, Placed)>,
    /// Spare input buffers of every rank, and their blocks.
    spare: Vec<Vec<Data>>,
    blocks: Vec<Vec<Block>>,
    stopped: Option<Error>,
}

#[derive(Clone)]
struct Placed {
    ty: TensorType,
    layout: Layout,
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
        plan.validate()?;
        let size = plan.mesh.size();
        if size > MAX_RANKS {
            return Err(too_many(size));
        }
        let inputs = Arc::new(inputs_of(plan));
        let stored = stored_of(plan);
        if let Some(name) = options.init.keys().find(|name| !stored.contains_key(*name)) {
            return Err(unknown(name, "parameter or state", &stored));
        }
        let outputs =
            plan.outputs.iter().map(|o| (o.name.clone(), o.role, placed(plan, o.node))).collect();
        let block = |rank: usize, ty: &TensorType, layout: &Layout| {
            shardgrad_core::geometry::block(&ty.shape, layout, &plan.mesh, rank)
        };
        let blocks: Vec<Vec<Block>> = (0..size)
            .map(|r| inputs.iter().map(|i| block(r, &i.ty, &i.layout)).collect())
            .collect();
        let spare = blocks
            .iter()
            .map(|own: &Vec<Block>| {
                own.iter()
                    .zip(inputs.iter())
                    .map(|(b, i)| Data::zeros(i.ty.dtype, b.len()))
                    .collect()
            })
            .collect();
        let mut ranks = Vec::with_capacity(size);
        for comm in ThreadComm::world(size, options.world) {
            let rank = ranks.len();
            let mut executor = Executor::new(plan, rank, options.buffers)?;
            for (ordinal, id) in ordinals(plan) {
                let node = plan.node(id);
                let Some(name) = node.leaf_name() else { continue };
                let role = node.leaf_role().unwrap_or(Role::Input);
                let init =
                    options.init.get(name).copied().unwrap_or_else(|| Init::of(role, &node.ty));
                let values = init.block(
                    options.seed,
                    ordinal,
                    &node.ty,
                    &block(rank, &node.ty, plan.layout(id)),
                );
                if let Some(leaf) = executor.leaf_mut(name) {
                    *leaf = values;
                }
            }
            ranks.push(Rank { comm, executor, inputs: Arc::clone(&inputs) });
        }
        Ok(Self {
            mesh: plan.mesh.clone(),
            seed: options.seed,
            ranks: Ranks::start(ranks, options.world.grace)?,
            inputs,
            stored,
            outputs,
            spare,
            blocks,
            stopped: None,
        })
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
        let wanted: Vec<usize> = (0..self.outputs.len())
            .filter(|&i| !matches!(self.outputs[i].1, OutputRole::Update { .. }))
            .collect();
        self.run(inputs, &wanted)
    }

    /// [`Trainer::step`], returning the loss only.
    ///
    /// # Errors
    /// As [`Trainer::step`].
    pub fn train(&mut self, inputs: &BTreeMap<String, Value>) -> Result<StepReport, Error> {
        let wanted: Vec<usize> =
            (0..self.outputs.len()).filter(|&i| self.outputs[i].1 == OutputRole::Loss).collect();
        self.run(inputs, &wanted)
    }

    fn run(
        &mut self,
        values: &BTreeMap<String, Value>,
        wanted: &[usize],
    ) -> Result<StepReport, Error> {
        self.refuse_if_stopped()?;
        check_inputs(&self.inputs, values)?;
        for (own, blocks) in self.spare.iter_mut().zip(&self.blocks) {
            for ((data, block), input) in own.iter_mut().zip(blocks).zip(self.inputs.iter()) {
                data.copy_block(&values[&input.name], block)?;
            }
        }
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
        let mut report = StepReport { counted: counters(&counts), ..StepReport::default() };
        for (at, &i) in wanted.iter().enumerate() {
            let (name, role, placed) = &self.outputs[i];
            let value = self.assemble(placed, by_rank.iter().map(|outputs| &outputs[at]))?;
            if *role == OutputRole::Loss {
                report.loss = value.item();
            }
            report.outputs.insert(name.clone(), value);
        }
        Ok(report)
    }

    /// The global value of a parameter or of state. Replicas must be equal to the last bit.
    ///
    /// # Errors
    /// An unknown name; replicas that differ; an earlier failure.
    pub fn gather(&mut self, name: &str) -> Result<Value, Error> {
        self.refuse_if_stopped()?;
        let placed = self.placed(name)?;
        let commands = (0..self.mesh.size()).map(|_| Command::Read(name.to_owned())).collect();
        let replies = self.command(commands)?;
        let blocks: Vec<Data> = replies
            .into_iter()
            .filter_map(|reply| if let Reply::Block(block) = reply { block } else { None })
            .collect();
        self.assemble(&placed, blocks.iter())
    }

    /// Overwrites a parameter or state with a global value.
    ///
    /// # Errors
    /// An unknown name; a value of another type; an earlier failure.
    pub fn set(&mut self, name: &str, value: &Value) -> Result<(), Error> {
        self.refuse_if_stopped()?;
        let placed = self.placed(name)?;
        expect_type(name, &placed.ty, value)?;
        let commands = (0..self.mesh.size())
            .map(|rank| {
                let block = shardgrad_core::geometry::block(
                    &placed.ty.shape,
                    &placed.layout,
                    &self.mesh,
                    rank,
                );
                Ok(Command::Write(name.to_owned(), Data::of_block(value, &block)?))
            })
            .collect::<Result<_, Error>>()?;
        self.command(commands).map(|_| ())
    }

    fn placed(&self, name: &str) -> Result<Placed, Error> {
        let known = || unknown(name, "parameter or state", &self.stored);
        self.stored.get(name).cloned().ok_or_else(known)
    }

    fn refuse_if_stopped(&self) -> Result<(), Error> {
        match &self.stopped {
            Some(error) => Err(Error::Stopped { cause: error.to_string() }),
            None => Ok(()),
        }
    }

    fn assemble<'a>(
        &self,
        placed: &Placed,
        by_rank: impl Iterator<Item = &'a Data>,
    ) -> Result<Value, Error> {
        let shape = |rank| {
            shardgrad_core::geometry::block(&placed.ty.shape, &placed.layout, &self.mesh, rank)
                .shape()
        };
        let values = by_rank
            .enumerate()
            .map(|(rank, data)| data.to_value(&shape(rank)))
            .collect::<Result<Vec<_>, Error>>()?;
        Ok(blocks::gather(&values, &placed.ty, &placed.layout, &self.mesh)?)
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
