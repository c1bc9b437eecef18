//! What the page knows: for every number of devices and every preset the plan's steps with each rank's numbers, right and
//! with each fault, with what the checker and the doctor say.

use std::collections::BTreeMap;

use serde::Serialize;
use shardgrad::core::schedule::rank_schedule;
use shardgrad::core::{Layout, Machine, Mesh, Op, Transition};
use shardgrad::graph::{Activation, NodeId, Phase, Plan, Program, Value, blocks, check, eval};
use shardgrad::graph::{LayerSpec, Loss, MlpSpec};
use shardgrad::planner::{Combine, Options, Preset};
use shardgrad::{Error, Planned, Training};
use shardgrad_testkit::diagnose::{Context, diagnose, diagnose_ranks};

use super::faults::Fault;
use super::linear_map::Maps;
use super::trace::trace;

/// The page's data.
#[derive(Debug, Serialize)]
pub(super) struct Lab {
    model: String,
    meshes: Vec<OnMesh>,
    map: Maps,
}

#[derive(Debug, Serialize)]
struct OnMesh {
    devices: usize,
    layouts: Vec<Scene>,
}

#[derive(Debug, Serialize)]
struct Scene {
    layout: &'static str,
    variants: Vec<Variant>,
}

/// A plan, right or with one fault.
#[derive(Debug, Serialize)]
struct Variant {
    title: &'static str,
    /// Why there is no such plan.
    missing: Option<&'static str>,
    /// The step at which the fault is.
    at: Option<usize>,
    steps: Vec<Step>,
    /// What the checker finds.
    check: Vec<String>,
    values: Vec<Compared>,
    /// Why the values could not be computed.
    stopped: Option<String>,
}

#[derive(Debug, Serialize)]
struct Step {
    phase: Phase,
    name: String,
    op: String,
    operands: Vec<usize>,
    layout: String,
    pending: bool,
    ranks: Vec<Local>,
    /// Of a pending value, the sum of the terms.
    whole: Option<Local>,
    moves: Option<Moves>,
}

#[derive(Debug, Serialize)]
struct Local {
    shape: Vec<usize>,
    v: Vec<f64>,
}

#[derive(Debug, Serialize)]
struct Moves {
    bytes: Vec<usize>,
    /// From, to, elements.
    messages: Vec<(usize, usize, usize)>,
    why: String,
}

/// A value beside the dense one.
#[derive(Debug, Serialize)]
struct Compared {
    name: String,
    layout: String,
    expected: Local,
    found: Vec<Local>,
    diagnosis: String,
    equal: bool,
}

impl Local {
    /// To a thousandth; the page's numbers are small multiples of a quarter, if nothing is wrong.
    fn of(value: &Value) -> Self {
        let v = value.to_f64s().iter().map(|x| (x * 1000.0).round() / 1000.0).collect();
        Self { shape: value.ty().shape.to_vec(), v }
    }
}

const DEVICES: [usize; 3] = [2, 3, 4];

impl Lab {
    pub(super) fn new() -> Result<Self, Error> {
        let layer =
            |inputs, outputs, activation| LayerSpec { inputs, outputs, bias: true, activation };
        let spec = MlpSpec {
            layers: vec![layer(3, 6, Activation::Relu), layer(6, 2, Activation::None)],
            loss: Loss::Mse,
            input_gradient: true,
            ..MlpSpec::new("two layers", 4)
        };
        // One collective after the other, as the page shows them; a fault is planted in one.
        let step_by_step = Options { combine: Combine::Off, blocking: true, ..Options::default() };
        let training = Training::of(spec).options(step_by_step);
        let program = training.program()?;
        let leaves = leaves(&program);
        let dense = eval::evaluate(&program, &leaves)?;
        let meshes = DEVICES
            .into_iter()
            .map(|devices| {
                let mesh = Mesh::new([("tp", devices)])?;
                let layouts = Preset::ALL
                    .into_iter()
                    .map(|preset| {
                        let planned = training
                            .clone()
                            .layout(preset.name())?
                            .plan(&mesh, &Machine::default())?;
                        Ok(Scene {
                            layout: preset.name(),
                            variants: variants(&planned, &leaves, &dense)?,
                        })
                    })
                    .collect::<Result<_, Error>>()?;
                Ok(OnMesh { devices, layouts })
            })
            .collect::<Result<_, Error>>()?;
        let model = "Y = relu(x·w0 + b0)·w1 + b1, x [4,3], w0 [3,6], w1 [6,2], loss mse".to_owned();
        Ok(Self { model, meshes, map: Maps::new()? })
    }
}

/// Ramps of small whole numbers with both signs.
fn leaves(program: &Program) -> BTreeMap<String, Value> {
    program
        .leaves()
        .filter_map(|id| {
            let node = program.node(id);
            let name = node.leaf_name()?.to_owned();
            let (start, step, period) = match name.as_str() {
                "x" => (-2, 1, 5),
                "y" => (-1, 1, 4),
                "w0" => (-2, 2, 5),
                "b0" => (-1, 1, 3),
                "w1" => (-1, 1, 3),
                _ => (1, 1, 4),
            };
            let number =
                |i: usize| f64::from(start + (step * i32::try_from(i).unwrap_or(0)) % period);
            Some((name, Value::from_fn(&node.ty, number)))
        })
        .collect()
}

fn variants(
    planned: &Planned,
    leaves: &BTreeMap<String, Value>,
    dense: &[Value],
) -> Result<Vec<Variant>, Error> {
    let right = variant("no fault", planned.plan(), None, false, planned.program(), leaves, dense)?;
    let mut all = vec![right];
    for fault in Fault::ALL {
        let out_of_order = fault == Fault::Order;
        let planted = fault.plant(planned.plan());
        let made = match &planted {
            Some((plan, at)) => {
                let at = Some(at.index()).filter(|_| !out_of_order);
                let made = variant(
                    fault.title(),
                    plan,
                    at,
                    out_of_order,
                    planned.program(),
                    leaves,
                    dense,
                )?;
                // A fault that changes nothing is none: there was no place for it.
                Some(made).filter(|m| m.stopped.is_some() || m.values.iter().any(|v| !v.equal))
            }
            None => None,
        };
        all.push(made.unwrap_or_else(|| Variant {
            title: fault.title(),
            missing: Some(fault.impossible()),
            at: None,
            steps: Vec::new(),
            check: Vec::new(),
            values: Vec::new(),
            stopped: None,
        }));
    }
    Ok(all)
}

fn variant(
    title: &'static str,
    plan: &Plan,
    at: Option<usize>,
    out_of_order: bool,
    program: &Program,
    leaves: &BTreeMap<String, Value>,
    dense: &[Value],
) -> Result<Variant, Error> {
    let mut laid = plan.clone();
    shardgrad::graph::memory::assign_slots(&mut laid);
    let check = check::check(&laid, program).violations.iter().map(ToString::to_string).collect();
    let (held, stopped) = match trace(plan, leaves) {
        Ok(held) => (held, None),
        Err(error) if at.is_some() => (Vec::new(), Some(error.to_string())),
        Err(error) => return Err(error),
    };
    let shown = held.iter().enumerate();
    let steps = shown.map(|(i, ranks)| step(plan, program, NodeId::from_index(i), ranks)).collect();
    let values = match stopped {
        Some(_) => Vec::new(),
        None => compared(plan, program, &held, dense, out_of_order),
    };
    Ok(Variant { title, missing: None, at, steps, check, values, stopped })
}

/// Names of a node's value, or its number.
fn name(plan: &Plan, program: &Program, id: NodeId) -> String {
    let names = program.names_of(plan.origins[id.index()]);
    if names.is_empty() { id.to_string() } else { names.join(", ") }
}

fn step(plan: &Plan, program: &Program, id: NodeId, ranks: &[Value]) -> Step {
    let (node, layout) = (plan.node(id), plan.layout(id));
    let pending = layout.is_pending();
    let whole = blocks::gather(ranks, &node.ty, layout, &plan.mesh).ok().filter(|_| pending);
    let moves = match (&node.op, node.operands.first()) {
        (Op::Transition(transition), Some(&from)) if transition.kind.is_collective() => {
            Some(moves(plan, *transition, id, plan.layout(from)))
        }
        _ => None,
    };
    let op = match (&node.op, node.leaf_role()) {
        (_, Some(role)) => role.to_string(),
        (Op::Constrain, _) => "taken for".to_owned(),
        (op, None) => op.to_string(),
    };
    Step {
        phase: node.phase,
        name: name(plan, program, id),
        op,
        operands: node.operands.iter().map(|o| o.index()).collect(),
        layout: layout.on(0).to_string(),
        pending,
        ranks: ranks.iter().map(Local::of).collect(),
        whole: whole.as_ref().map(Local::of),
        moves,
    }
}

fn moves(plan: &Plan, transition: Transition, id: NodeId, from: &Layout) -> Moves {
    let (mesh, ty, to) = (&plan.mesh, &plan.node(id).ty, plan.layout(id));
    let mut bytes = Vec::new();
    let mut messages: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    for rank in 0..mesh.size() {
        let schedule = rank_schedule(transition, mesh, &ty.shape, from, to, rank);
        bytes.push(schedule.elements_sent() * ty.dtype.size());
        for send in schedule.rounds.iter().filter_map(|r| r.send.as_ref()) {
            *messages.entry((rank, send.to)).or_default() += send.region.len();
        }
    }
    let why = plan.reasons.get(&id.0).map_or(String::new(), |r| r.why.clone());
    let messages = messages.into_iter().map(|((from, to), n)| (from, to, n)).collect();
    Moves { bytes, messages, why }
}

/// The last output and the gradients beside the dense run's.
fn compared(
    plan: &Plan,
    program: &Program,
    held: &[Vec<Value>],
    dense: &[Value],
    out_of_order: bool,
) -> Vec<Compared> {
    let out = program.named("out").and_then(|origin| {
        plan.ids().rev().find(|id| plan.origins[id.index()] == origin).map(|id| ("out", id, origin))
    });
    let gradients = plan.outputs.iter().zip(&program.outputs);
    let gradients = gradients.map(|(o, of)| (o.name.as_str(), o.node, of.node));
    out.into_iter()
        .chain(gradients)
        .map(|(name, id, origin)| {
            let (expected, layout, mesh) = (&dense[origin.index()], plan.layout(id), &plan.mesh);
            let mut ranks = held[id.index()].clone();
            let blocks = matches!(layout.on(0), shardgrad::core::Placement::Shard(_));
            let swap = out_of_order && blocks && ranks[0].ty() == ranks[1].ty();
            if swap {
                ranks.swap(0, 1);
            }
            let found = match blocks::gather(&ranks, &expected.ty(), layout, mesh) {
                Ok(gathered) if swap => {
                    let context =
                        Context { mesh: Some(mesh), layout: Some(layout), ..Context::default() };
                    diagnose(expected, &gathered, &context)
                }
                _ => diagnose_ranks(expected, &ranks, mesh, layout),
            };
            Compared {
                name: name.to_owned(),
                layout: layout.on(0).to_string(),
                expected: Local::of(expected),
                found: ranks.iter().map(Local::of).collect(),
                equal: found.is_equal(),
                diagnosis: found.to_string(),
            }
        })
        .collect()
}
