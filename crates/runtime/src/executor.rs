//! One rank's part of a plan: compiled once, run every step.
//!
//! The executor follows the plan's slots and frees exactly: a slot comes to life at its first definition, is overwritten
//! where the plan says so, and dies when [`memory::frees`] says so. It counts what is alive, what is staged and what is
//! sent; the plan's prediction of these is compared with the counts, never used for them.
//!
//! Invariants: leaves' slots hold their values from step to step; after a step every `Update` output has become the value
//! of its leaf; buffers of dead slots are kept for the next step unless [`Buffers::Free`] is asked for.

use std::collections::BTreeMap;

use shardgrad_core::geometry::block;
use shardgrad_core::ops::Role;
use shardgrad_core::{Block, Layout, Op, Shape, TensorType};
use shardgrad_graph::{NodeId, OutputRole, Plan, SlotId, memory};
use smallvec::SmallVec;

use crate::collective::Collective;
use crate::comm::Communicator;
use crate::error::Error;
use crate::kernels::{Kernel, Operands};
use crate::tensor::Data;

/// What happens to buffers of slots that die.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Buffers {
    /// They are kept for the next step: no allocation in a step, more memory.
    #[default]
    Keep,
    /// They are freed: memory is what is counted.
    Free,
}

/// A leaf or an output of one rank.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Where it lives.
    slot: SlotId,
    /// Global type.
    pub ty: TensorType,
    /// Its layout.
    pub layout: Layout,
    /// The rank's block.
    pub block: Block,
    /// What it is for, if it is a leaf.
    pub role: Option<Role>,
}

/// What one step cost one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Payload bytes of every collective, in order; and whether its tensor is a scalar.
    pub collectives: Vec<(bool, u64)>,
    /// Most bytes alive at once: slots and staging.
    pub peak_bytes: u64,
    /// Bytes alive after the step.
    pub current_bytes: u64,
}

#[derive(Debug)]
enum Work {
    Local(Kernel),
    Move {
        collective: Collective,
        scalar: bool,
    },
    /// The result is the operand's buffer, or a leaf's.
    Nothing,
}

#[derive(Debug)]
struct Step {
    op: &'static str,
    work: Work,
    result: SlotId,
    operands: SmallVec<[SlotId; 2]>,
    /// The result's slot comes to life here.
    born: bool,
    frees: Vec<SlotId>,
}

#[derive(Debug)]
struct Slot {
    data: Data,
    len: usize,
    live: bool,
}

/// After a step the leaf's slot takes the value of another.
#[derive(Clone, Copy, Debug)]
struct Update {
    leaf: SlotId,
    value: SlotId,
    /// The value is needed elsewhere too: it is copied, else the buffers change places.
    copy: bool,
}

/// One rank's part of a plan.
#[derive(Debug)]
pub struct Executor {
    steps: Vec<Step>,
    slots: Vec<Slot>,
    leaves: BTreeMap<String, Stored>,
    outputs: BTreeMap<String, Stored>,
    /// Updates whose value is not in the leaf's slot already.
    updates: Vec<Update>,
    /// Slots of outputs that are no leaves: they die when the next step begins.
    retired: Vec<SlotId>,
    buffers: Buffers,
    live_bytes: u64,
}

impl Executor {
    /// Compiles a plan for one rank. Leaves start at zero.
    ///
    /// # Errors
    /// A plan that is not sound: ids, types, layouts, transitions or slots that do not fit.
    pub fn new(plan: &Plan, rank: usize, buffers: Buffers) -> Result<Self, Error> {
        plan.validate()?;
        let compiler = Compiler::new(plan, rank)?;
        let frees = memory::frees(plan);
        let mut slots: Vec<Option<Slot>> = (0..compiler.slot_count).map(|_| None).collect();
        let mut steps = Vec::with_capacity(plan.nodes.len());
        let mut leaves = BTreeMap::new();
        for (id, frees) in plan.ids().zip(frees) {
            let node = plan.node(id);
            let slot = plan.slots[id.index()];
            let len = compiler.blocks[id.index()].len();
            let first = slots[slot as usize].is_none();
            let entry = slots[slot as usize].get_or_insert_with(|| Slot {
                data: Data::empty(node.ty.dtype),
                len,
                live: false,
            });
            if entry.len != len || entry.data.dtype() != node.ty.dtype {
                return Err(bad(plan, id, "its slot holds values of other types"));
            }
            if let Some(name) = node.leaf_name() {
                if !first {
                    return Err(bad(plan, id, "a leaf needs a slot of its own"));
                }
                *entry = Slot { data: Data::zeros(node.ty.dtype, len), len, live: true };
                leaves.insert(name.to_owned(), compiler.stored(id));
            }
            steps.push(compiler.step(id, first && node.leaf_name().is_none(), frees)?);
        }
        let slots = slots
            .into_iter()
            .map(|slot| slot.unwrap_or(Slot { data: Data::I32(Vec::new()), len: 0, live: false }))
            .collect();
        let mut outputs = BTreeMap::new();
        let mut updates: Vec<Update> = Vec::new();
        let is_leaf = |slot: SlotId| leaves.values().any(|leaf: &Stored| leaf.slot == slot);
        for output in &plan.outputs {
            let mut stored = compiler.stored(output.node);
            if let OutputRole::Update { of } = output.role {
                let same = plan.node(of).ty == plan.node(output.node).ty
                    && compiler.blocks[of.index()] == compiler.blocks[output.node.index()];
                if !same {
                    return Err(bad(plan, output.node, "an update must lie as its leaf does"));
                }
                let (leaf, value) = (plan.slots[of.index()], stored.slot);
                stored.slot = leaf;
                if leaf != value {
                    let uses = plan.outputs.iter().filter(|o| plan.slots[o.node.index()] == value);
                    let copy = is_leaf(value) || uses.count() > 1;
                    updates.push(Update { leaf, value, copy });
                }
            }
            outputs.insert(output.name.clone(), stored);
        }
        let mut retired: Vec<SlotId> = plan
            .outputs
            .iter()
            .map(|o| plan.slots[o.node.index()])
            .filter(|&slot| !is_leaf(slot))
            .collect();
        retired.sort_unstable();
        retired.dedup();
        let mut executor =
            Self { steps, slots, leaves, outputs, updates, retired, buffers, live_bytes: 0 };
        executor.live_bytes =
            executor.slots.iter().filter(|s| s.live).map(|s| s.data.bytes() as u64).sum();
        Ok(executor)
    }

    /// The rank's leaves by name.
    #[must_use]
    pub fn leaves(&self) -> &BTreeMap<String, Stored> {
        &self.leaves
    }

    /// The plan's outputs by name.
    #[must_use]
    pub fn outputs(&self) -> &BTreeMap<String, Stored> {
        &self.outputs
    }

    /// The block of a leaf.
    #[must_use]
    pub fn leaf(&self, name: &str) -> Option<&Data> {
        self.leaves.get(name).map(|stored| &self.slots[stored.slot as usize].data)
    }

    /// The block of a leaf, to overwrite; its length must stay.
    pub fn leaf_mut(&mut self, name: &str) -> Option<&mut Data> {
        self.leaves.get(name).map(|stored| &mut self.slots[stored.slot as usize].data)
    }

    /// The block of an output, after a step.
    #[must_use]
    pub fn output(&self, name: &str) -> Option<&Data> {
        self.outputs.get(name).map(|stored| &self.slots[stored.slot as usize].data)
    }

    /// Runs one step.
    ///
    /// # Errors
    /// Integers that overflow, and whatever the communicator reports. The executor is of no use after an error.
    pub fn step<C: Communicator + ?Sized>(&mut self, comm: &mut C) -> Result<Counted, Error> {
        self.release_outputs();
        let mut counted = Counted { peak_bytes: self.live_bytes, ..Counted::default() };
        for step in &self.steps {
            let at = step.result as usize;
            if step.born {
                let slot = &mut self.slots[at];
                slot.live = true;
                if slot.data.len() != slot.len {
                    slot.data = Data::zeros(slot.data.dtype(), slot.len);
                }
                self.live_bytes += slot.data.bytes() as u64;
            }
            let mut staging = 0;
            match &step.work {
                Work::Nothing => {}
                Work::Local(kernel) => {
                    let mut result = take(&mut self.slots, at);
                    let run = kernel.run(step.op, &operands(&self.slots, step), &mut result);
                    self.slots[at].data = result;
                    run?;
                }
                Work::Move { collective, scalar } => {
                    let mut result = take(&mut self.slots, at);
                    let source = operands(&self.slots, step).first().copied().flatten();
                    let run = collective.run_data(comm, source, &mut result);
                    self.slots[at].data = result;
                    let sent = run?;
                    staging = sent.staging;
                    if collective.transition().kind.is_collective() {
                        counted.collectives.push((*scalar, sent.bytes));
                    }
                }
            }
            counted.peak_bytes = counted.peak_bytes.max(self.live_bytes + staging);
            for &freed in &step.frees {
                let slot = &mut self.slots[freed as usize];
                slot.live = false;
                self.live_bytes -= slot.data.bytes() as u64;
                if self.buffers == Buffers::Free {
                    slot.data = Data::empty(slot.data.dtype());
                }
            }
        }
        self.update_leaves();
        counted.current_bytes = self.live_bytes;
        Ok(counted)
    }

    /// Ends the life of the last step's outputs, leaves apart; the next step does so otherwise.
    pub fn release_outputs(&mut self) {
        for &retired in &self.retired {
            let slot = &mut self.slots[retired as usize];
            if slot.live {
                slot.live = false;
                self.live_bytes -= slot.data.bytes() as u64;
                if self.buffers == Buffers::Free {
                    slot.data = Data::empty(slot.data.dtype());
                }
            }
        }
    }

    fn update_leaves(&mut self) {
        let copies: SmallVec<[(SlotId, Data); 2]> = self
            .updates
            .iter()
            .filter(|update| update.copy)
            .map(|update| (update.leaf, self.slots[update.value as usize].data.clone()))
            .collect();
        for i in 0..self.updates.len() {
            let Update { leaf, value, copy } = self.updates[i];
            if !copy {
                let new = take(&mut self.slots, value as usize);
                let old = std::mem::replace(&mut self.slots[leaf as usize].data, new);
                self.slots[value as usize].data = old;
            }
        }
        for (leaf, data) in copies {
            self.slots[leaf as usize].data = data;
        }
    }
}

fn take(slots: &mut [Slot], at: usize) -> Data {
    let data = &mut slots[at].data;
    let empty = Data::empty(data.dtype());
    std::mem::replace(data, empty)
}

fn operands<'a>(slots: &'a [Slot], step: &Step) -> Operands<'a> {
    let apart = |slot: SlotId| (slot != step.result).then(|| &slots[slot as usize].data);
    step.operands.iter().map(|&slot| apart(slot)).collect()
}

fn bad(plan: &Plan, id: NodeId, problem: &str) -> Error {
    Error::BadPlan { node: id.0, op: plan.node(id).op.to_string(), problem: problem.to_owned() }
}

struct Compiler<'a> {
    plan: &'a Plan,
    rank: usize,
    blocks: Vec<Block>,
    shapes: Vec<Shape>,
    slot_count: usize,
}

impl<'a> Compiler<'a> {
    fn new(plan: &'a Plan, rank: usize) -> Result<Self, Error> {
        if rank >= plan.mesh.size() {
            return Err(Error::NoSuchRank { rank, me: rank, size: plan.mesh.size() });
        }
        let blocks: Vec<Block> = plan
            .ids()
            .map(|id| block(&plan.node(id).ty.shape, plan.layout(id), &plan.mesh, rank))
            .collect();
        let shapes = blocks.iter().map(Block::shape).collect();
        let slot_count = plan.slots.iter().max().map_or(0, |&slot| slot as usize + 1);
        Ok(Self { plan, rank, blocks, shapes, slot_count })
    }

    fn stored(&self, id: NodeId) -> Stored {
        let node = self.plan.node(id);
        Stored {
            slot: self.plan.slots[id.index()],
            ty: node.ty.clone(),
            layout: self.plan.layout(id).clone(),
            block: self.blocks[id.index()].clone(),
            role: node.leaf_role(),
        }
    }

    fn step(&self, id: NodeId, born: bool, frees: Vec<SlotId>) -> Result<Step, Error> {
        let node = self.plan.node(id);
        let result = self.plan.slots[id.index()];
        let operands: SmallVec<[SlotId; 2]> =
            node.operands.iter().map(|o| self.plan.slots[o.index()]).collect();
        let in_place = operands.contains(&result);
        let alias = memory::is_alias(&node.op) && in_place;
        let work = match &node.op {
            Op::Leaf(_) => Work::Nothing,
            _ if alias => Work::Nothing,
            Op::Transition(_) => {
                let from = node.operands.first().copied().unwrap_or(id);
                let collective = Collective::new(
                    &self.plan.mesh,
                    &node.ty,
                    self.plan.layout(from),
                    self.plan.layout(id),
                    self.rank,
                )?;
                if in_place && !collective.can_run_in_place() {
                    return Err(bad(self.plan, id, "it cannot overwrite its operand"));
                }
                Work::Move { collective, scalar: node.ty.rank() == 0 }
            }
            op => {
                let shapes: SmallVec<[&[usize]; 2]> =
                    node.operands.iter().map(|o| self.shapes[o.index()].as_slice()).collect();
                let kernel = Kernel::new(op, &shapes, &self.blocks[id.index()])
                    .ok_or_else(|| bad(self.plan, id, "it is no op to run"))?;
                if in_place && !kernel.can_run_in_place() {
                    return Err(bad(self.plan, id, "it cannot overwrite an operand"));
                }
                Work::Local(kernel)
            }
        };
        Ok(Step { op: node.op.name(), work, result, operands, born, frees })
    }
}
