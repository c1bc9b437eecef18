//! A mesh on paper: all ranks of a plan in one thread, each op by the dense oracle's loops on local blocks, each
//! transition by its schedule, messages in queues.
//!
//! It follows the plan to the letter — slots, order, the transitions' kinds and axes — and believes nothing that the plan
//! does not make it do. A plan that is wrong computes something wrong here, or cannot run; that is how the mutation
//! harness finds out what a mutant does. It shares no code with the runtime, so the two also check each other.

use std::collections::{BTreeMap, VecDeque};

use shardgrad_core::schedule::{Buffer, Combine, Region, Round, Start, rank_schedule};
use shardgrad_core::{Block, DType, Layout, Op, Placement, TensorType, Transition, geometry};
use shardgrad_graph::{NodeId, Plan, Value, blocks, eval, memory};

use crate::error::Error;

/// What a simulated step made and what it took.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulation {
    /// Blocks of every output, by name, in rank order.
    pub blocks: BTreeMap<String, Vec<Value>>,
    /// Sum over collectives of the largest count of bytes sent, scalars excepted.
    pub bytes_per_device: u64,
    /// Launches, those of scalars alone excepted.
    pub launches: u64,
    /// Collectives of scalars.
    pub scalar_reductions: u64,
    /// Bytes of the largest rank's live slots and staging.
    pub peak_bytes: u64,
}

impl Simulation {
    /// The global value of an output.
    ///
    /// # Errors
    /// Blocks do not fit, or copies differ.
    pub fn gather(&self, plan: &Plan, output: &str) -> Result<Value, Error> {
        let node = plan.outputs.iter().find(|o| o.name == output).map(|o| o.node);
        let (Some(node), Some(held)) = (node, self.blocks.get(output)) else {
            return Err(Error::UnknownName {
                name: output.to_owned(),
                known: self.blocks.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
            });
        };
        Ok(blocks::gather(held, &plan.node(node).ty, plan.layout(node), &plan.mesh)?)
    }
}

/// Runs a plan on global inputs.
///
/// # Errors
/// A leaf has no value; the plan cannot run: an op's blocks do not fit each other, a slot is empty or holds another shape, a
/// schedule does not end.
pub fn simulate(plan: &Plan, inputs: &BTreeMap<String, Value>) -> Result<Simulation, Error> {
    let ranks = plan.mesh.size();
    let mut machine = Machine {
        plan,
        slots: vec![BTreeMap::new(); ranks],
        bytes: Counts::default(),
        flights: Vec::new(),
    };
    for id in plan.ids() {
        let node = plan.node(id);
        let Some(name) = node.leaf_name() else { continue };
        let value =
            inputs.get(name).filter(|v| v.ty() == node.ty).ok_or_else(|| Error::WrongInput {
                name: name.to_owned(),
                expected: node.ty.to_string(),
                found: inputs.get(name).map_or("nothing".to_owned(), |v| v.ty().to_string()),
            })?;
        for (rank, block) in
            blocks::scatter(value, plan.layout(id), &plan.mesh).into_iter().enumerate()
        {
            machine.slots[rank].insert(plan.slots[id.index()], block);
        }
    }
    let frees = memory::frees(plan);
    for step in plan.steps() {
        let ids: Vec<NodeId> = step.map(NodeId::from_index).collect();
        let staging = match ids.as_slice() {
            [id] => machine.step(*id)?,
            bucket => machine.launch(bucket)?,
        };
        machine.count(&staging);
        machine.land(&ids)?;
        for slot in ids.iter().flat_map(|id| &frees[id.index()]) {
            for rank in &mut machine.slots {
                rank.remove(slot);
            }
        }
    }
    let mut held = BTreeMap::new();
    for output in &plan.outputs {
        let of_ranks: Result<Vec<Value>, Error> =
            (0..plan.mesh.size()).map(|rank| machine.read(output.node, rank)).collect();
        held.insert(output.name.clone(), of_ranks?);
    }
    let counts = machine.bytes;
    Ok(Simulation {
        blocks: held,
        bytes_per_device: counts.sent,
        launches: counts.launches,
        scalar_reductions: counts.scalars,
        peak_bytes: counts.peak,
    })
}

#[derive(Default)]
struct Counts {
    sent: u64,
    launches: u64,
    scalars: u64,
    peak: u64,
}

struct Machine<'p> {
    plan: &'p Plan,
    slots: Vec<BTreeMap<u32, Value>>,
    bytes: Counts,
    flights: Vec<Flight>,
}

/// A launch between its start and its wait.
struct Flight {
    wait: NodeId,
    /// Members with their operands' values at the start, and their results.
    members: Vec<(NodeId, Vec<Value>, Vec<Value>)>,
    /// Of each rank.
    staging: Vec<u64>,
}

/// A value that nothing was computed from: whoever reads it has read too early.
fn nothing(like: &Value) -> Value {
    Value::from_fn(&like.ty(), |_| if like.ty().dtype.is_float() { f64::NAN } else { -77.0 })
}

fn stuck(id: NodeId, problem: impl Into<String>) -> Error {
    Error::CannotRun { node: id.to_string(), problem: problem.into() }
}

impl Machine<'_> {
    fn local(&self, id: NodeId, rank: usize) -> (TensorType, Block) {
        let ty = &self.plan.node(id).ty;
        let block = geometry::block(&ty.shape, self.plan.layout(id), &self.plan.mesh, rank);
        (TensorType { shape: block.shape(), dtype: ty.dtype }, block)
    }

    /// What is in a node's slot, in the node's local shape.
    fn read(&self, id: NodeId, rank: usize) -> Result<Value, Error> {
        let (ty, _) = self.local(id, rank);
        let slot = self.plan.slots[id.index()];
        let value = self.slots[rank]
            .get(&slot)
            .ok_or_else(|| stuck(id, format!("slot {slot} of rank {rank} is empty")))?;
        let found = value.ty();
        if found == ty {
            return Ok(value.clone());
        }
        if found.dtype != ty.dtype || found.elements() != ty.elements() {
            return Err(stuck(id, format!("slot {slot} of rank {rank} holds {found}, not {ty}")));
        }
        let elements = value.to_f64s();
        Ok(Value::from_fn(&ty, |i| elements[i]))
    }

    /// Runs a node; returns each rank's staging.
    fn step(&mut self, id: NodeId) -> Result<Vec<u64>, Error> {
        let plan = self.plan;
        let node = plan.node(id);
        let ranks = plan.mesh.size();
        let results = match &node.op {
            Op::Leaf(_) => return Ok(vec![0; ranks]),
            Op::Transition(_) => return self.launch(&[id]),
            op => {
                let mut results = Vec::with_capacity(ranks);
                for rank in 0..ranks {
                    let operands: Result<Vec<Value>, Error> =
                        node.operands.iter().map(|&o| self.read(o, rank)).collect();
                    let operands = operands?;
                    let (ty, block) = self.local(id, rank);
                    let of: Vec<Block> =
                        node.operands.iter().map(|&o| self.local(o, rank).1).collect();
                    let places = eval::Places { operands: &of, result: &block };
                    let result =
                        eval::apply(op, &operands.iter().collect::<Vec<_>>(), &ty, &places)?;
                    if result.ty() != ty {
                        return Err(stuck(
                            id,
                            format!("rank {rank} made {}, not {ty}", result.ty()),
                        ));
                    }
                    results.push(result);
                }
                results
            }
        };
        self.write(id, results);
        Ok(vec![0; ranks])
    }

    /// Runs transitions as one: all operands are read before a result is written, and in each round of a number every rank
    /// sends to one peer and receives from one. Returns each rank's staging.
    fn launch(&mut self, members: &[NodeId]) -> Result<Vec<u64>, Error> {
        let plan = self.plan;
        let ranks = plan.mesh.size();
        let mut moves = Vec::with_capacity(members.len());
        let mut counts = false;
        for &id in members {
            let node = plan.node(id);
            let Op::Transition(transition) = node.op else {
                return Err(stuck(id, "it is no transition, and shares a launch"));
            };
            let operand = *node.operands.first().ok_or_else(|| stuck(id, "no operand"))?;
            let sources: Result<Vec<Value>, Error> =
                (0..ranks).map(|rank| self.read(operand, rank)).collect();
            let (from, to) = (plan.layout(operand), plan.layout(id));
            let sources = sources?;
            let moved = exchange(plan, id, transition, from, to, &sources)?;
            if transition.kind.is_collective() {
                let largest = moved.sent.iter().max().copied().unwrap_or(0);
                if node.ty.rank() == 0 {
                    self.bytes.scalars += 1;
                } else {
                    counts = true;
                    self.bytes.sent += largest;
                }
            }
            moves.push((id, sources, moved));
        }
        self.bytes.launches += u64::from(counts);
        let mut staging = vec![0; ranks];
        for (rank, most) in staging.iter_mut().enumerate() {
            // By number of the round: to whom, from whom, and how much.
            let mut rounds: BTreeMap<usize, (Option<usize>, Option<usize>, u64)> = BTreeMap::new();
            for (id, _, moved) in &moves {
                for round in &moved.rounds[rank] {
                    let together = rounds.entry(round.number).or_default();
                    for (known, peer) in
                        [(&mut together.0, round.to), (&mut together.1, round.from)]
                    {
                        let Some(peer) = peer else { continue };
                        if *known.get_or_insert(peer) != peer {
                            return Err(stuck(
                                *id,
                                format!("rank {rank} has two peers in a round"),
                            ));
                        }
                    }
                    together.2 += round.bytes;
                }
            }
            *most = rounds.values().map(|r| r.2).max().unwrap_or(0);
        }
        let dtype = plan.node(members[0]).ty.dtype;
        if let Some(id) = members.iter().find(|id| plan.node(**id).ty.dtype != dtype) {
            return Err(stuck(*id, format!("its launch moves {dtype}")));
        }
        let last = members[members.len() - 1];
        let wait = plan.wait(last);
        let in_flight = wait > last;
        let mut flight = Flight { wait, members: Vec::new(), staging: staging.clone() };
        for (id, sources, moved) in moves {
            if in_flight {
                // Until the wait its slot holds nothing that anybody could use.
                self.write(id, moved.results.iter().map(nothing).collect());
                flight.members.push((id, sources, moved.results));
            } else {
                self.write(id, moved.results);
            }
        }
        if in_flight {
            self.flights.push(flight);
            return Ok(vec![0; ranks]); // Counted with what is in flight.
        }
        Ok(staging)
    }

    /// Finishes launches that are waited for behind one of these nodes. Who changed their operands in between has spoilt
    /// their results.
    fn land(&mut self, ids: &[NodeId]) -> Result<(), Error> {
        let plan = self.plan;
        let (landed, flying) =
            std::mem::take(&mut self.flights).into_iter().partition(|f| ids.contains(&f.wait));
        self.flights = flying;
        let landed: Vec<Flight> = landed;
        for (id, sources, results) in landed.into_iter().flat_map(|flight| flight.members) {
            let operand = plan.node(id).operands[0];
            let mut spoilt = false;
            if plan.slots[operand.index()] != plan.slots[id.index()] {
                for (rank, source) in sources.iter().enumerate() {
                    let bits =
                        |v: &Value| v.to_f64s().into_iter().map(f64::to_bits).collect::<Vec<_>>();
                    spoilt |= bits(&self.read(operand, rank)?) != bits(source);
                }
            }
            let results = if spoilt { results.iter().map(nothing).collect() } else { results };
            self.write(id, results);
        }
        Ok(())
    }

    fn write(&mut self, id: NodeId, results: Vec<Value>) {
        for (slots, result) in self.slots.iter_mut().zip(results) {
            slots.insert(self.plan.slots[id.index()], result);
        }
    }

    fn count(&mut self, staging: &[u64]) {
        for (rank, (slots, staging)) in self.slots.iter().zip(staging).enumerate() {
            let live: u64 = slots.values().map(|v| v.ty().bytes() as u64).sum();
            let flying: u64 = self.flights.iter().map(|flight| flight.staging[rank]).sum();
            self.bytes.peak = self.bytes.peak.max(live + flying + staging);
        }
    }
}

struct Moved {
    results: Vec<Value>,
    sent: Vec<u64>,
    /// Of each rank.
    rounds: Vec<Vec<RoundOf>>,
}

/// What a rank does in a round.
struct RoundOf {
    number: usize,
    to: Option<usize>,
    from: Option<usize>,
    bytes: u64,
}

/// Row-major positions, within a block, of a region.
fn positions(id: NodeId, within: &Block, region: &Region) -> Result<Vec<usize>, Error> {
    match region {
        Region::Flat(range) if range.end <= within.len() => Ok(range.clone().collect()),
        Region::Flat(_) => Err(stuck(id, "a message is longer than the block")),
        Region::Box(inner) => {
            if inner.is_empty() {
                return Ok(Vec::new());
            }
            if within.intersect(inner) != *inner {
                return Err(stuck(id, "a message reaches beyond the block"));
            }
            let offset = within.offset_of(inner);
            let (shape, outer) = (inner.shape(), within.shape());
            let mut places = vec![0];
            for d in 0..shape.len() {
                places = places
                    .into_iter()
                    .flat_map(|base| {
                        let (start, n, extent) = (offset[d], outer[d], shape[d]);
                        (0..extent).map(move |i| base * n + start + i)
                    })
                    .collect();
            }
            Ok(places)
        }
    }
}

/// Adds in the element type.
#[allow(clippy::cast_possible_truncation)]
fn add(dtype: DType, a: f64, b: f64) -> f64 {
    if dtype == DType::F32 { f64::from(a as f32 + b as f32) } else { a + b }
}

fn exchange(
    plan: &Plan,
    id: NodeId,
    transition: Transition,
    from: &Layout,
    to: &Layout,
    sources: &[Value],
) -> Result<Moved, Error> {
    let mesh = &plan.mesh;
    let ty = &plan.node(id).ty;
    let ranks = mesh.size();
    let block_of = |layout: &Layout, rank| geometry::block(&ty.shape, layout, mesh, rank);
    let source: Vec<Vec<f64>> = sources.iter().map(Value::to_f64s).collect();
    let mut result: Vec<Vec<f64>> = Vec::with_capacity(ranks);
    let mut schedules = Vec::with_capacity(ranks);
    for (rank, values) in source.iter().enumerate() {
        let schedule = rank_schedule(transition, mesh, &ty.shape, from, to, rank);
        let (held, target) = (block_of(from, rank), block_of(to, rank));
        let identity =
            |p: Placement| if p == Placement::PendingMax { f64::NEG_INFINITY } else { 0.0 };
        result.push(match &schedule.start {
            Start::CopyAll => {
                if held.len() != target.len() {
                    return Err(stuck(
                        id,
                        format!("rank {rank} copies a block into one of another size"),
                    ));
                }
                values.clone()
            }
            Start::Identity(pending) => vec![identity(*pending); target.len()],
            Start::CopyInto { own, fill } => {
                let mut start = vec![fill.map_or(f64::NAN, identity); target.len()];
                // A reduction starts from the rank's own term, and from nothing elsewhere.
                let region = Region::Box(own.clone());
                let (from, into) =
                    (positions(id, &held, &region)?, positions(id, &target, &region)?);
                for (f, i) in from.into_iter().zip(into) {
                    start[i] = values[f];
                }
                start
            }
        });
        schedules.push(schedule);
    }
    let size = ty.dtype.size() as u64;
    let mut sent = vec![0; ranks];
    let mut channels: BTreeMap<(usize, usize), VecDeque<Vec<f64>>> = BTreeMap::new();
    let (mut at, mut has_sent) = (vec![0; ranks], vec![false; ranks]);
    loop {
        let mut progress = false;
        for rank in 0..ranks {
            while let Some(round) = schedules[rank].rounds.get(at[rank]) {
                if let Some(send) = round.send.as_ref().filter(|_| !has_sent[rank]) {
                    let (buffer, block) = match send.buffer {
                        Buffer::Source => (&source[rank], block_of(from, rank)),
                        Buffer::Result => (&result[rank], block_of(to, rank)),
                    };
                    let message: Vec<f64> = positions(id, &block, &send.region)?
                        .into_iter()
                        .map(|i| buffer[i])
                        .collect();
                    sent[rank] += message.len() as u64 * size;
                    channels.entry((rank, send.to)).or_default().push_back(message);
                    progress = true;
                }
                has_sent[rank] = true;
                if let Some(receive) = &round.receive {
                    let Some(message) =
                        channels.get_mut(&(receive.from, rank)).and_then(VecDeque::pop_front)
                    else {
                        break;
                    };
                    let places = positions(id, &block_of(to, rank), &receive.region)?;
                    if places.len() != message.len() {
                        return Err(stuck(id, "a message is not of the length that is awaited"));
                    }
                    for (i, m) in places.into_iter().zip(message) {
                        let old = result[rank][i];
                        result[rank][i] = match receive.combine {
                            Combine::Copy => m,
                            Combine::Sum => add(ty.dtype, old, m),
                            Combine::Max => old.max(m),
                        };
                    }
                }
                at[rank] += 1;
                has_sent[rank] = false;
                progress = true;
            }
        }
        if (0..ranks).all(|r| at[r] == schedules[r].rounds.len()) {
            break;
        }
        if !progress {
            return Err(stuck(id, "ranks wait for messages that nobody sends"));
        }
    }
    let results = (0..ranks)
        .map(|rank| {
            let local = TensorType { shape: block_of(to, rank).shape(), dtype: ty.dtype };
            Value::from_fn(&local, |i| result[rank][i])
        })
        .collect();
    let round_of = |round: &Round| {
        let out = round.send.as_ref().map_or(0, |send| send.region.len());
        let into = round.receive.as_ref().map_or(0, |receive| receive.region.len());
        RoundOf {
            number: round.number,
            to: round.send.as_ref().map(|send| send.to),
            from: round.receive.as_ref().map(|receive| receive.from),
            bytes: (out + into) as u64 * size,
        }
    };
    let rounds = schedules.iter().map(|s| s.rounds.iter().map(round_of).collect()).collect();
    Ok(Moved { results, sent, rounds })
}
