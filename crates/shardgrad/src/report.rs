//! The stable, versioned report of `shardgrad compare --format json`.
//!
//! Collectives with one `launch` number run as one; `launches` counts these, `by_kind` collectives.
//! Reductions of scalars (the loss) are listed with `scalar: true` and counted in `scalar_reductions` and
//! `scalar_bytes_per_device` only. `elements` is the size of the whole tensor; `bytes_per_device` the largest count over
//! ranks of what a device sends, exact for uneven blocks; a plan's is the sum over its collectives.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shardgrad_core::ops::Role;
use shardgrad_core::{DType, Machine, Mesh};
use shardgrad_graph::{OutputRole, Phase, Plan, Program, check, memory};

use crate::formula::formula;
pub use crate::pareto::{ParetoPoint, ParetoReport};
use crate::predict::predict;
use crate::symbols::Symbols;

/// Version of the report. It grows when a key changes its meaning or goes away.
pub const SCHEMA: u32 = 1;

/// Plans for one model on one mesh.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The mesh.
    pub mesh: Mesh,
    /// The model.
    pub model: ModelReport,
    /// Its plans, in the order asked for.
    pub plans: Vec<PlanReport>,
    /// Layouts that were asked for, but for which the search is too wide.
    #[serde(default)]
    pub not_planned: Vec<NotPlanned>,
    /// The plans that trade the objective for memory, if they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pareto: Option<ParetoReport>,
}

/// What a device holds, by what it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryReport {
    /// The limit that was planned for.
    pub limit: Option<u64>,
    /// No plan of the space holds less on a device; 0 where memory was not asked for.
    pub least_bytes: u64,
    /// On the device that holds most, where it does.
    pub at_peak: memory::Categories,
    /// What a device would store if every value were replicated.
    pub replicated: memory::Stored,
}

/// A layout without a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotPlanned {
    /// The layout asked for.
    pub layout: String,
    /// Why there is no plan, and what to do.
    pub reason: String,
}

/// What the plans are for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelReport {
    /// Its name.
    pub name: String,
    /// Rows of a step.
    pub batch: usize,
    /// Its float type.
    pub dtype: DType,
}

/// What a planner says of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What was minimised.
    pub objective: String,
    /// Whether nothing better exists in the plan space.
    pub optimal: bool,
    /// No plan of the space sends less than this, scalars not counted.
    pub lower_bound_bytes: u64,
    /// What became of its certificate.
    pub certificate: CertificateReport,
    /// The memory limit that was planned for.
    pub memory_limit: Option<u64>,
    /// No plan of the space holds less on a device; 0 where memory was not asked for.
    pub least_memory: u64,
}

/// What the checker says of a plan's certificate of optimality.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateReport {
    /// Whether it proves that no plan of the space is better.
    pub proves_optimal: bool,
    /// How far the plan may be from the best, as far as it proves: bytes under `volume`, femtoseconds under `time`;
    /// nothing if it proves nothing.
    pub gap: Option<u64>,
    /// The same in words, or why there is no proof.
    pub says: String,
}

impl CertificateReport {
    /// The report of a verdict.
    #[must_use]
    pub fn new(verdict: &check::optimality::Verdict) -> Self {
        let (proves_optimal, gap) = match verdict {
            check::optimality::Verdict::Proven(proof) => (proof.optimal, Some(proof.gap())),
            check::optimality::Verdict::Unproven(_) | check::optimality::Verdict::Refuted(_) => {
                (false, None)
            }
        };
        Self { proves_optimal, gap, says: verdict.to_string() }
    }
}

/// One plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanReport {
    /// The layout asked for.
    pub layout: String,
    /// What was minimised.
    pub objective: String,
    /// Whether nothing better exists in the plan space.
    pub optimal: bool,
    /// No plan of the space sends less than this, scalars not counted.
    pub lower_bound_bytes: u64,
    /// What the checker, which knows nothing of the planner, says of that.
    pub certificate: CertificateReport,
    /// What a device holds.
    pub memory: MemoryReport,
    /// Layouts of inputs, parameters, optimizer state and outputs. Counts are comparable only where they agree.
    pub boundary: BTreeMap<String, String>,
    /// Everything that communicates, in order.
    pub collectives: Vec<CollectiveReport>,
    /// Sums.
    pub totals: TotalsReport,
}

/// One collective.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectiveReport {
    /// Phase of its first use.
    pub phase: Phase,
    /// `all_gather`, `all_reduce`, `reduce_scatter`, `all_to_all` or `reshard`.
    pub kind: String,
    /// Number of its launch, from 0; collectives of one number are launched together.
    #[serde(default)]
    pub launch: u64,
    /// Mesh axes whose placement changes.
    pub axes: Vec<String>,
    /// The value that moves.
    pub tensor: String,
    /// Whether it is a scalar, counted apart.
    pub scalar: bool,
    /// Layout before.
    pub from: String,
    /// Layout after.
    pub to: String,
    /// Elements of the whole tensor.
    pub elements: u64,
    /// Bytes that a device sends, largest over ranks.
    pub bytes_per_device: u64,
    /// Elements that a device sends, for even blocks.
    pub formula: String,
    /// Why it is needed, and what would remove it.
    pub why: String,
}

impl PlanReport {
    /// The numbers, from 1, of the collectives that share the launch of the one at this index.
    #[must_use]
    pub fn launched_with(&self, index: usize) -> Vec<usize> {
        let launch = self.collectives.get(index).map(|c| c.launch);
        let others = self.collectives.iter().enumerate();
        let same = others.filter(|(other, c)| *other != index && Some(c.launch) == launch);
        same.map(|(other, _)| other + 1).collect()
    }
}

impl TotalsReport {
    /// Collectives, scalars not counted: `3 all_reduce, 1 all_gather`, and in how many launches, if these are fewer.
    #[must_use]
    pub fn kinds(&self) -> String {
        let kinds: Vec<String> = self.by_kind.iter().map(|(k, n)| format!("{n} {k}")).collect();
        let launches = match self.launches {
            n if n == self.by_kind.values().sum::<u64>() => String::new(),
            1 => " in 1 launch".to_owned(),
            n => format!(" in {n} launches"),
        };
        kinds.join(", ") + &launches
    }
}

impl CollectiveReport {
    /// What moves: `forward all_reduce over tp of h0·w1`.
    pub(crate) fn movement(&self) -> String {
        format!("{} {} over {} of {}", self.phase, self.kind, self.axes.join(", "), self.tensor)
    }
}

/// Sums over a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TotalsReport {
    /// Launches, those of scalars alone not counted.
    pub launches: u64,
    /// Collectives of each kind, however they are launched, scalars not counted.
    pub by_kind: BTreeMap<String, u64>,
    /// Bytes that a device sends, scalars not counted.
    pub bytes_per_device: u64,
    /// Collectives of scalars.
    pub scalar_reductions: u64,
    /// Their bytes.
    pub scalar_bytes_per_device: u64,
    /// Floating-point operations of a device.
    pub flops_per_device: u64,
    /// Most bytes that a device holds at once.
    pub peak_bytes_per_device: u64,
    /// Seconds of a step by the machine model.
    pub predicted_seconds: f64,
}

impl PlanReport {
    /// The report of a plan of a program.
    #[must_use]
    pub fn new(program: &Program, plan: &Plan, machine: &Machine, verdict: Verdict) -> Self {
        let symbols = Symbols::new(program);
        let totals = plan.totals();
        let prediction = predict(plan, machine);
        let peak = memory::peak(plan);
        Self {
            layout: plan.layout.clone(),
            objective: verdict.objective,
            optimal: verdict.optimal,
            lower_bound_bytes: verdict.lower_bound_bytes,
            certificate: verdict.certificate,
            memory: MemoryReport {
                limit: verdict.memory_limit,
                least_bytes: verdict.least_memory,
                at_peak: peak.by_category,
                replicated: replicated(program),
            },
            boundary: boundary(plan),
            collectives: collectives(plan, &symbols),
            totals: TotalsReport {
                launches: totals.launches,
                by_kind: totals.by_kind,
                bytes_per_device: totals.bytes_per_device,
                scalar_reductions: totals.scalar_reductions,
                scalar_bytes_per_device: totals.scalar_bytes_per_device,
                flops_per_device: prediction.flops,
                peak_bytes_per_device: peak.bytes as u64,
                predicted_seconds: prediction.seconds,
            },
        }
    }
}

/// What a device would store if every value were replicated.
fn replicated(program: &Program) -> memory::Stored {
    let mut stored = memory::Stored::default();
    for node in program.leaves().map(|id| program.node(id)) {
        let bytes = node.ty.bytes() as u64;
        match node.leaf_role() {
            Some(Role::Param) => stored.parameters += bytes,
            Some(Role::State) => stored.state += bytes,
            Some(Role::Input | Role::Scalar) => stored.inputs += bytes,
            None => {}
        }
    }
    stored
}

/// Layouts of everything that enters or leaves a step, scalars excepted (they are always replicated).
fn boundary(plan: &Plan) -> BTreeMap<String, String> {
    let mut boundary = BTreeMap::new();
    let show = |id| plan.layout(id).display(&plan.mesh).to_string();
    for id in plan.ids() {
        let node = plan.node(id);
        if let (Some(name), Some(Role::Input | Role::Param | Role::State)) =
            (node.leaf_name(), node.leaf_role())
        {
            boundary.entry(name.to_owned()).or_insert_with(|| show(id));
        }
    }
    for output in &plan.outputs {
        // An update has the name and the layout of what it replaces.
        if !matches!(output.role, OutputRole::Update { .. }) {
            boundary.insert(output.name.clone(), show(output.node));
        }
    }
    boundary
}

fn collectives(plan: &Plan, symbols: &Symbols<'_>) -> Vec<CollectiveReport> {
    let mesh = &plan.mesh;
    let first_use = first_uses(plan);
    let launches = plan.launches().enumerate();
    launches
        .flat_map(|(launch, members)| members.into_iter().map(move |c| (launch as u64, c)))
        .map(|(launch, c)| {
            let origin = plan.origins[c.id.index()];
            let why = plan.reasons.get(&c.id.0).map_or(String::new(), |r| r.why.clone());
            CollectiveReport {
                phase: first_use[c.id.index()],
                kind: c.transition.kind.name().to_owned(),
                launch,
                axes: c.transition.axes.iter().map(|a| mesh.axes()[a].name.clone()).collect(),
                tensor: symbols.name(origin),
                scalar: c.is_scalar(),
                from: c.from.display(mesh).to_string(),
                to: c.to.display(mesh).to_string(),
                elements: c.ty.elements() as u64,
                bytes_per_device: c.bytes_sent(mesh),
                formula: formula(mesh, &c, &symbols.size(origin)),
                why,
            }
        })
        .collect()
}

/// The phase of every node's first use; that of the node itself if nothing uses it. Transitions pass on their user's.
fn first_uses(plan: &Plan) -> Vec<Phase> {
    let mut phases: Vec<Phase> = plan.nodes.iter().map(|n| n.phase).collect();
    let mut used: Vec<Option<Phase>> = vec![None; plan.nodes.len()];
    for id in plan.ids().rev() {
        let node = plan.node(id);
        let transition = matches!(node.op, shardgrad_core::Op::Transition(_));
        if transition {
            phases[id.index()] = used[id.index()].unwrap_or(node.phase);
        }
        for operand in &node.operands {
            let phase = phases[id.index()];
            let known = &mut used[operand.index()];
            *known = Some(known.map_or(phase, |k| k.min(phase)));
        }
    }
    phases
}
