//! From a plan to what one rank does: steps with kernels and schedules, slots with buffers, leaves and outputs.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use shardgrad_core::geometry::block;
use shardgrad_core::{Block, Op, Shape};
use shardgrad_graph::{NodeId, OutputRole, Plan, SlotId, memory};
use smallvec::SmallVec;

use crate::collective::Collective;
use crate::descent::{self, DEEPEST, Descent};
use crate::error::Error;
use crate::executor::{Buffers, Stored};
use crate::fused::{Candidate, Fused, Group};
use crate::kernels::Kernel;
use crate::kernels::einsum::Contraction;
use crate::slots::{Need, Slot, Slots};

/// What a step does.
#[derive(Debug)]
pub(crate) enum Work {
    /// One op.
    Local { name: &'static str, kernel: Kernel },
    /// Several elementwise ops in one pass.
    Fused(Box<Fused>),
    /// The product of the operands times a scalar, subtracted from the result.
    Descend { contraction: Box<Contraction>, scalar: SlotId },
    /// A transition, or collectives that are one launch: of each the operand's slot, unless it is overwritten, the
    /// result's, and whether it is a scalar.
    Move { launch: Box<Collective>, members: SmallVec<[Moved; 1]> },
    /// The result is the operand's buffer, or a leaf's.
    Nothing,
}

/// The slots of a transition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    /// The operand's, unless it is overwritten.
    pub(crate) source: Option<SlotId>,
    pub(crate) result: SlotId,
    pub(crate) scalar: bool,
}

/// What happens to slots at one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Life {
    /// The slot that comes to life.
    pub(crate) born: Option<SlotId>,
    /// Slots that die after the node.
    pub(crate) frees: Vec<SlotId>,
}

/// One node, or several fused ones.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) nodes: Range<usize>,
    pub(crate) work: Work,
    pub(crate) result: SlotId,
    pub(crate) operands: SmallVec<[SlotId; 2]>,
    /// Slots that come to life and need a buffer.
    pub(crate) fills: SmallVec<[SlotId; 1]>,
    /// Multiplications and additions, roughly.
    pub(crate) operations: u64,
    /// The lives of its nodes, in order.
    pub(crate) lives: SmallVec<[Life; 1]>,
    /// A launch that is waited for behind a later step.
    pub(crate) flies: bool,
    /// Launches that are waited for behind this step: their steps.
    pub(crate) lands: Vec<usize>,
}

/// After a step the leaf's slot takes the value of another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Update {
    pub(crate) leaf: SlotId,
    pub(crate) value: SlotId,
    /// The value is needed elsewhere too: it is copied, else the buffers change places.
    pub(crate) copy: bool,
}

/// A plan, compiled for one rank.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) steps: Vec<Step>,
    pub(crate) slots: Slots,
    pub(crate) leaves: BTreeMap<String, Stored>,
    pub(crate) outputs: BTreeMap<String, Stored>,
    pub(crate) updates: Vec<Update>,
    /// Slots of outputs that are no leaves: they die when the next step begins.
    pub(crate) retired: Vec<SlotId>,
}

fn bad(plan: &Plan, id: NodeId, problem: &str) -> Error {
    Error::BadPlan { node: id.0, op: plan.node(id).op.to_string(), problem: problem.to_owned() }
}

/// Compiles a plan for one rank.
pub(crate) fn compile(plan: &Plan, rank: usize, buffers: Buffers) -> Result<Compiled, Error> {
    plan.validate()?;
    let compiler = Compiler::new(plan, rank)?;
    let (slots, born) = compiler.slots()?;
    let leaves: BTreeMap<String, Stored> = plan
        .ids()
        .filter_map(|id| Some((plan.node(id).leaf_name()?.to_owned(), compiler.stored(id))))
        .collect();
    let is_leaf = |slot: SlotId| leaves.values().any(|leaf| leaf.slot == slot);
    let mut outputs = BTreeMap::new();
    let mut updates: Vec<Update> = Vec::new();
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
    // An output that is a leaf's value of before the step: it changes places with the update.
    for output in &plan.outputs {
        let slot = plan.slots[output.node.index()];
        let update = updates.iter().find(|update| update.leaf == slot);
        if let (Some(update), false) = (update, matches!(output.role, OutputRole::Update { .. })) {
            if update.copy {
                return Err(bad(
                    plan,
                    output.node,
                    "it shows a leaf whose update is another output's value too; give the output a value of its own",
                ));
            }
            if let Some(stored) = outputs.get_mut(&output.name) {
                stored.slot = update.value;
            }
        }
    }
    let mut kept: Vec<SlotId> =
        plan.outputs.iter().map(|output| plan.slots[output.node.index()]).collect();
    kept.sort_unstable();
    kept.dedup();
    let retired = kept.iter().copied().filter(|&slot| !is_leaf(slot)).collect();
    kept.extend(leaves.values().map(|leaf| leaf.slot));

    let lives: Vec<Life> =
        born.iter().zip(memory::frees(plan)).map(|(&born, frees)| Life { born, frees }).collect();
    let fuse = buffers == Buffers::Keep;
    // Several nodes at once are a launch of the plan, or elementwise ops that are fused below.
    if let Some(bucket) = plan.steps().find(|step| step.len() > 1 && !compiler.is_launch(step)) {
        let first = NodeId::from_index(bucket.start);
        return Err(bad(plan, first, "it is no collective, and cannot share a launch"));
    }
    let groups = if fuse { compiler.groups()? } else { plan.steps().collect() };
    // The group of each node, and where each slot's life begins and ends, in groups.
    let mut needs: Vec<Need> = vec![Need::Own; slots.len()];
    for (at, group) in groups.iter().enumerate() {
        for life in &lives[group.clone()] {
            if let Some(slot) = life.born.filter(|slot| !kept.contains(slot)) {
                needs[slot as usize] = Need::Between(at, usize::MAX);
            }
            for &slot in &life.frees {
                if let Need::Between(birth, _) = needs[slot as usize] {
                    let inside = birth == at && group.len() > 1 && !compiler.is_launch(group);
                    needs[slot as usize] =
                        if inside { Need::None } else { Need::Between(birth, at) };
                }
            }
        }
    }
    let descents = if fuse { compiler.descents(&groups, &mut needs)? } else { Vec::new() };
    let mut steps = Vec::with_capacity(groups.len());
    for group in &groups {
        steps.push(compiler.step(group.clone(), &lives, &needs, &descents)?);
    }
    compiler.waits(&groups, &mut steps)?;
    let slots = Slots::new(slots, &needs, fuse);
    Ok(Compiled { steps, slots, leaves, outputs, updates, retired })
}

struct Compiler<'a> {
    plan: &'a Plan,
    rank: usize,
    blocks: Vec<Block>,
    shapes: Vec<Shape>,
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
        Ok(Self { plan, rank, blocks, shapes })
    }

    fn stored(&self, id: NodeId) -> Stored {
        let node = self.plan.node(id);
        Stored {
            slot: self.slot(id),
            ty: node.ty.clone(),
            layout: self.plan.layout(id).clone(),
            block: self.blocks[id.index()].clone(),
            role: node.leaf_role(),
        }
    }

    fn slot(&self, id: NodeId) -> SlotId {
        self.plan.slots[id.index()]
    }

    /// All slots, and the slot that each node brings to life; leaves' slots are alive from the start.
    fn slots(&self) -> Result<(Vec<Slot>, Vec<Option<SlotId>>), Error> {
        let count = self.plan.slots.iter().max().map_or(0, |&slot| slot as usize + 1);
        let mut slots: Vec<Option<Slot>> = vec![None; count];
        let mut born = Vec::with_capacity(self.plan.nodes.len());
        for id in self.plan.ids() {
            let (node, len) = (self.plan.node(id), self.blocks[id.index()].len());
            let is_leaf = node.leaf_role().is_some();
            let entry = &mut slots[self.slot(id) as usize];
            match entry {
                Some(_) if is_leaf => {
                    return Err(bad(self.plan, id, "a leaf needs a slot of its own"));
                }
                Some(slot) if slot.len != len || slot.dtype != node.ty.dtype => {
                    return Err(bad(self.plan, id, "its slot holds values of other types"));
                }
                Some(_) => born.push(None),
                None => {
                    let mut slot = Slot::new(node.ty.dtype, len);
                    slot.live = is_leaf;
                    *entry = Some(slot);
                    born.push(Some(self.slot(id)).filter(|_| !is_leaf));
                }
            }
        }
        let empty = Slot::new(shardgrad_core::DType::I32, 0);
        Ok((slots.into_iter().map(|slot| slot.unwrap_or(empty)).collect(), born))
    }

    fn operands(&self, id: NodeId) -> SmallVec<[SlotId; 2]> {
        self.plan.node(id).operands.iter().map(|&o| self.slot(o)).collect()
    }

    /// Whether nothing is done at a node: a leaf, or another name of the buffer it is in.
    fn is_silent(&self, id: NodeId) -> bool {
        let op = &self.plan.node(id).op;
        matches!(op, Op::Leaf(_))
            || memory::is_alias(op) && self.operands(id).contains(&self.slot(id))
    }

    /// The kernel of a node; `None` for transitions.
    fn kernel(&self, id: NodeId) -> Result<Option<Kernel>, Error> {
        let node = self.plan.node(id);
        let operands: SmallVec<[&Block; 2]> =
            node.operands.iter().map(|o| &self.blocks[o.index()]).collect();
        let kernel = Kernel::new(&node.op, &operands, &self.blocks[id.index()]);
        let in_place = self.operands(id).contains(&self.slot(id));
        if in_place && kernel.as_ref().is_some_and(|k| !k.is_elementwise()) {
            return Err(bad(self.plan, id, "it cannot overwrite an operand"));
        }
        Ok(kernel)
    }

    /// Splits the nodes into runs that are fused; most have one node.
    fn groups(&self) -> Result<Vec<Range<usize>>, Error> {
        let mut groups: Vec<Range<usize>> = Vec::new();
        let mut group = Group::default();
        let waits: BTreeSet<usize> = self.plan.waits.values().map(|wait| wait.index()).collect();
        for step in self.plan.steps() {
            if step.len() > 1 {
                groups.push(step);
                group = Group::default();
                continue;
            }
            let (at, id) = (step.start, NodeId::from_index(step.start));
            // What is fused is one step, and ranks wait between steps.
            if at > 0 && waits.contains(&(at - 1)) {
                group = Group::default();
            }
            let candidate = self.candidate(id)?;
            let silent = self.is_silent(id) && self.plan.node(id).leaf_role().is_none();
            let joins = match &candidate {
                Some(candidate) => group.len() > 0 && group.admits(candidate),
                None => silent && group.len() > 0,
            };
            match groups.last_mut() {
                Some(last) if joins => last.end = at + 1,
                _ => {
                    groups.push(at..at + 1);
                    group = Group::default();
                }
            }
            if let Some(candidate) = candidate
                && group.admits(&candidate)
            {
                group.push(candidate);
            }
        }
        Ok(groups)
    }

    fn candidate(&self, id: NodeId) -> Result<Option<Candidate>, Error> {
        if self.is_silent(id) {
            return Ok(None);
        }
        Ok(self.kernel(id)?.map(|kernel| Candidate {
            name: self.plan.node(id).op.name(),
            kernel,
            result: self.slot(id),
            operands: self.operands(id),
            dtype: self.plan.node(id).ty.dtype,
            len: self.blocks[id.index()].len(),
        }))
    }

    fn step(
        &self,
        nodes: Range<usize>,
        lives: &[Life],
        needs: &[Need],
        descents: &[(Descent, Contraction)],
    ) -> Result<Step, Error> {
        let first = NodeId::from_index(nodes.start);
        let of = |wanted: fn(&Descent) -> NodeId| {
            descents.iter().find(|(d, _)| nodes.contains(&wanted(d).index()))
        };
        let (mut operands, mut result) = (self.operands(first), self.slot(first));
        let work = if let Some((descent, contraction)) = of(|d| d.update) {
            (operands, result) = (self.operands(descent.product), self.slot(descent.update));
            let contraction = Box::new(contraction.clone());
            Work::Descend { contraction, scalar: self.slot(descent.scalar) }
        } else if of(|d| d.product).is_some() {
            Work::Nothing
        } else if self.is_launch(&nodes) {
            self.moves(nodes.clone())?
        } else if nodes.len() > 1 {
            self.fused(nodes.clone(), needs)?
        } else {
            self.work(first)?
        };
        let late = of(|d| d.update).map(|(descent, _)| self.operations(descent.product));
        let operations =
            nodes.clone().map(|at| self.operations(NodeId::from_index(at))).sum::<u64>()
                + late.unwrap_or(0);
        let lives = &lives[nodes.clone()];
        let fills = lives
            .iter()
            .filter_map(|life| life.born)
            .filter(|&slot| needs[slot as usize] != Need::None)
            .collect();
        Ok(Step {
            nodes,
            work,
            result,
            operands,
            fills,
            operations,
            lives: lives.iter().cloned().collect(),
            flies: false,
            lands: Vec::new(),
        })
    }

    /// Products that are made in the parameter's place, each with its contraction. Their slots lose their buffers, their
    /// operands keep theirs for longer.
    fn descents(
        &self,
        groups: &[Range<usize>],
        needs: &mut [Need],
    ) -> Result<Vec<(Descent, Contraction)>, Error> {
        let lens: Vec<usize> = self.blocks.iter().map(Block::len).collect();
        let mut found = Vec::new();
        for descent in descent::find(self.plan, &lens) {
            let at = |id: NodeId| groups.iter().position(|group| group.contains(&id.index()));
            let (Some(group), Some(Kernel::Einsum(contraction))) =
                (at(descent.update), self.kernel(descent.product)?)
            else {
                continue;
            };
            let alone = groups[group]
                .clone()
                .map(NodeId::from_index)
                .all(|id| descent.is_of_update(id) || self.is_silent(id));
            let together = [descent.repeat, descent.change]
                .iter()
                .all(|id| groups[group].contains(&id.index()));
            let inner = needs[self.slot(descent.product) as usize] != Need::Own;
            if !(alone && together && inner && contraction.is_plain(DEEPEST)) {
                continue;
            }
            needs[self.slot(descent.product) as usize] = Need::None;
            for id in [descent.repeat, descent.change] {
                if needs[self.slot(id) as usize] != Need::Own {
                    needs[self.slot(id) as usize] = Need::None;
                }
            }
            for slot in self.operands(descent.product) {
                if let Need::Between(birth, death) = needs[slot as usize] {
                    needs[slot as usize] = Need::Between(birth, death.max(group));
                }
            }
            found.push((descent, *contraction));
        }
        Ok(found)
    }

    /// Multiplications and additions of a node: those of a contraction are the product of the extents of all labels.
    fn operations(&self, id: NodeId) -> u64 {
        let own = self.blocks[id.index()].len();
        let operands = self.plan.node(id).operands.iter();
        let read: usize = operands.clone().map(|o| self.blocks[o.index()].len()).sum();
        let count = match &self.plan.node(id).op {
            Op::Einsum(spec) => {
                let mut extents = BTreeMap::new();
                for (labels, o) in spec.operands().iter().zip(operands) {
                    extents.extend(labels.iter().zip(self.shapes[o.index()].iter()));
                }
                extents.values().fold(1_usize, |product, &&extent| product.saturating_mul(extent))
            }
            _ => own.saturating_add(read),
        };
        count as u64
    }

    fn fused(&self, nodes: Range<usize>, needs: &[Need]) -> Result<Work, Error> {
        let mut group = Group::default();
        for at in nodes {
            if let Some(candidate) = self.candidate(NodeId::from_index(at))? {
                group.push(candidate);
            }
        }
        let fused = group.finish(|slot| needs[slot as usize] == Need::None);
        Ok(fused.map_or(Work::Nothing, |fused| Work::Fused(Box::new(fused))))
    }

    fn work(&self, id: NodeId) -> Result<Work, Error> {
        if self.is_silent(id) {
            return Ok(Work::Nothing);
        }
        let node = self.plan.node(id);
        if let Some(kernel) = self.kernel(id)? {
            return Ok(Work::Local { name: node.op.name(), kernel });
        }
        self.moves(id.index()..id.index() + 1)
    }

    /// Notes where launches that are not waited for at once are.
    fn waits(&self, groups: &[Range<usize>], steps: &mut [Step]) -> Result<(), Error> {
        for last in self.plan.waits.keys().copied().map(NodeId) {
            let wait = self.plan.wait(last);
            let ends = |id: NodeId| groups.iter().position(|g| g.end == id.index() + 1);
            let (Some(start), Some(end)) = (ends(last), ends(wait)) else {
                return Err(bad(self.plan, last, "it is waited for where no step ends"));
            };
            if !matches!(steps[start].work, Work::Move { .. }) || end <= start {
                return Err(bad(self.plan, last, "only a launch is waited for, and later"));
            }
            let slots = |id: NodeId| {
                let operands = self.plan.node(id).operands.iter().map(|&o| self.slot(o));
                operands.chain([self.slot(id)])
            };
            let own: Vec<SlotId> =
                groups[start].clone().map(NodeId::from_index).flat_map(slots).collect();
            let mut between = (last.index() + 1..=wait.index()).map(NodeId::from_index);
            if between.any(|id| slots(id).any(|slot| own.contains(&slot))) {
                return Err(bad(self.plan, last, "a node uses its slots before it is waited for"));
            }
            steps[start].flies = true;
            steps[end].lands.push(start);
        }
        Ok(())
    }

    /// Whether nodes are collectives that are one launch.
    fn is_launch(&self, nodes: &Range<usize>) -> bool {
        let first = self.plan.transition(NodeId::from_index(nodes.start));
        nodes.len() > 1 && first.is_some_and(|t| t.transition.kind.is_collective())
    }

    /// Transitions that run as one.
    fn moves(&self, nodes: Range<usize>) -> Result<Work, Error> {
        let first = NodeId::from_index(nodes.start);
        let (mut launch, mut members) = (Vec::new(), SmallVec::<[Moved; 1]>::new());
        for id in nodes.map(NodeId::from_index) {
            let Some(t) = self.plan.transition(id) else {
                return Err(bad(self.plan, id, "it is no transition, and cannot share a launch"));
            };
            let (algorithm, mesh) = (t.transition.algorithm, &self.plan.mesh);
            let collective = Collective::by(algorithm, mesh, t.ty, t.from, t.to, self.rank)?;
            let source = self.operands(id).first().copied().filter(|&slot| slot != self.slot(id));
            if source.is_none() && !collective.can_run_in_place() {
                return Err(bad(self.plan, id, "it cannot overwrite its operand"));
            }
            let moved = Moved { source, result: self.slot(id), scalar: t.ty.rank() == 0 };
            let slots = |m: &Moved| [m.source.unwrap_or(m.result), m.result];
            let shared = |m: &Moved| slots(m).iter().any(|slot| slots(&moved).contains(slot));
            if members.iter().any(shared) {
                return Err(bad(self.plan, id, "another member of its launch uses its slots"));
            }
            launch.push(collective);
            members.push(moved);
        }
        let launch =
            Collective::together(launch).map_err(|e| bad(self.plan, first, &e.to_string()))?;
        Ok(Work::Move { launch: Box::new(launch), members })
    }
}
