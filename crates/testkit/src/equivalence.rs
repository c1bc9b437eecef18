//! Sharded equals dense: values and gradients, exactly where data and ops allow, else within the derived bound; and what
//! the plan predicted is what the run took.
//!
//! One comparison plans the program for a mesh and a layout, has the independent checker judge the plan, runs it, gathers
//! every output, and compares it with the dense oracle ([`shardgrad_graph::eval`]) under the bounds of
//! [`crate::tolerance`]. Where the bound is 0 that is `==`. Bytes sent, launches, reductions of scalars and peak bytes that
//! the run counted must equal the plan's.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use shardgrad_core::ops::Role;
use shardgrad_core::{LayoutSpec, Mesh};
use shardgrad_graph::{OutputRole, Plan, Program, Value, check, eval, memory};
use shardgrad_planner::{LayoutRequest, Options as PlannerOptions};
use shardgrad_runtime::{Trainer, TrainerOptions, WorldOptions};

use crate::data::{self, Style};
use crate::diagnose::{Context, Diagnosis, diagnose};
use crate::error::Error;
use crate::simulate::simulate;
use crate::tolerance::{Bounds, Deviation, bounds_on};

/// Who runs the plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// The runtime, one thread for each rank.
    #[default]
    Threads,
    /// The mesh on paper ([`crate::simulate`]), one thread in all.
    Paper,
}

/// How to compare.
#[derive(Clone, Debug)]
pub struct Options {
    /// Values of leaves; leaves that are missing are drawn.
    pub inputs: BTreeMap<String, Value>,
    /// Seed of drawn values.
    pub seed: u64,
    /// Style of drawn values.
    pub style: Style,
    /// Who runs the plan.
    pub backend: Backend,
    /// Options of the planner.
    pub planner: PlannerOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            inputs: BTreeMap::new(),
            seed: 0,
            style: Style::Ramp,
            backend: Backend::Threads,
            planner: PlannerOptions::default(),
        }
    }
}

/// Layouts to compare under: one request, several, or their text forms.
pub trait Layouts {
    /// The requests.
    ///
    /// # Errors
    /// A text that is no request.
    fn requests(&self) -> Result<Vec<LayoutRequest>, Error>;
}

impl Layouts for str {
    fn requests(&self) -> Result<Vec<LayoutRequest>, Error> {
        Ok(vec![self.parse()?])
    }
}

impl Layouts for &str {
    fn requests(&self) -> Result<Vec<LayoutRequest>, Error> {
        (**self).requests()
    }
}

impl Layouts for LayoutRequest {
    fn requests(&self) -> Result<Vec<LayoutRequest>, Error> {
        Ok(vec![self.clone()])
    }
}

impl<T: Layouts> Layouts for [T] {
    fn requests(&self) -> Result<Vec<LayoutRequest>, Error> {
        self.iter().map(Layouts::requests).collect::<Result<Vec<_>, _>>().map(|r| r.concat())
    }
}

impl<T: Layouts, const N: usize> Layouts for [T; N] {
    fn requests(&self) -> Result<Vec<LayoutRequest>, Error> {
        self.as_slice().requests()
    }
}

impl<T: Layouts> Layouts for Vec<T> {
    fn requests(&self) -> Result<Vec<LayoutRequest>, Error> {
        self.as_slice().requests()
    }
}

/// A number that was predicted and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// What is counted.
    pub what: &'static str,
    /// What the plan says.
    pub predicted: u64,
    /// What the run took.
    pub counted: u64,
}

/// The outcome of one comparison.
#[derive(Clone, Debug)]
pub struct Equivalence {
    /// The plan.
    pub plan: Plan,
    /// What the checker found wrong with it; one line each.
    pub violations: Vec<String>,
    /// Outputs by name: how far sharded is from dense.
    pub outputs: BTreeMap<String, Deviation>,
    /// What is wrong with outputs that are too far.
    pub diagnoses: BTreeMap<String, Diagnosis>,
    /// Predicted against counted.
    pub counts: Vec<Count>,
}

impl Equivalence {
    /// Whether the plan is right, every output is within its bound and says something, and every prediction held.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.violations.is_empty()
            && self.outputs.values().all(Deviation::is_within)
            && self.counts.iter().all(|c| c.predicted == c.counted)
    }

    /// Whether every output was compared with `==`.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.outputs.values().all(|d| d.exact)
    }
}

impl fmt::Display for Equivalence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "mesh {}, layout {}", self.plan.mesh, self.plan.layout)?;
        for violation in &self.violations {
            writeln!(f, "  the checker rejects the plan: {violation}")?;
        }
        for (name, deviation) in &self.outputs {
            let verdict = if deviation.is_within() { "ok   " } else { "WRONG" };
            writeln!(f, "  {verdict} {name}: {deviation}")?;
            if let Some(diagnosis) = self.diagnoses.get(name) {
                writeln!(f, "        {}", diagnosis.to_string().replace('\n', "\n        "))?;
            }
        }
        for count in &self.counts {
            if count.predicted != count.counted {
                writeln!(
                    f,
                    "  WRONG {}: predicted {}, counted {}",
                    count.what, count.predicted, count.counted
                )?;
            }
        }
        Ok(())
    }
}

/// A program with inputs, its dense values and their bounds: what plans are compared with. Made once, used for many
/// layouts.
#[derive(Debug)]
pub struct Reference<'p> {
    program: &'p Program,
    inputs: BTreeMap<String, Value>,
    dense: Vec<Value>,
    bounds: Bounds,
}

impl<'p> Reference<'p> {
    /// Evaluates the program densely.
    ///
    /// # Errors
    /// Inputs that do not fit the program.
    pub fn new(program: &'p Program, ranks: usize, options: &Options) -> Result<Self, Error> {
        let mut inputs = data::inputs(program, options.style, options.seed);
        inputs.extend(options.inputs.clone());
        let dense = eval::evaluate(program, &inputs)?;
        let bounds = bounds_on(program, &inputs, ranks)?;
        Ok(Self { program, inputs, dense, bounds })
    }

    /// The dense value of an output.
    #[must_use]
    pub fn output(&self, name: &str) -> Option<&Value> {
        let output = self.program.outputs.iter().find(|o| o.name == name)?;
        Some(&self.dense[output.node.index()])
    }

    /// The values of all leaves.
    #[must_use]
    pub fn inputs(&self) -> &BTreeMap<String, Value> {
        &self.inputs
    }

    /// Checks and runs a plan of the program and compares.
    ///
    /// # Errors
    /// The run failed.
    pub fn compare(&self, plan: &Plan, backend: Backend) -> Result<Equivalence, Error> {
        let report = check::check(plan, self.program);
        let (outputs, counts) = match backend {
            Backend::Threads => on_threads(plan, &self.inputs)?,
            Backend::Paper => on_paper(plan, &self.inputs)?,
        };
        let mut deviations = BTreeMap::new();
        let mut diagnoses = BTreeMap::new();
        for (output, planned) in self.program.outputs.iter().zip(&plan.outputs) {
            let Some(actual) = outputs.get(&output.name) else { continue };
            let expected = &self.dense[output.node.index()];
            let deviation = self.bounds.compare(output.node, expected, actual);
            if !deviation.is_within() {
                let bound: Vec<f64> = self.bounds.of(output.node).iter().copied().collect();
                let context = Context {
                    mesh: Some(&plan.mesh),
                    layout: Some(plan.layout(planned.node)),
                    bound: Some(&bound),
                    tolerance: None,
                };
                diagnoses.insert(output.name.clone(), diagnose(expected, actual, &context));
            }
            deviations.insert(output.name.clone(), deviation);
        }
        Ok(Equivalence {
            plan: plan.clone(),
            violations: report.violations.iter().map(ToString::to_string).collect(),
            outputs: deviations,
            diagnoses,
            counts,
        })
    }
}

type Ran = (BTreeMap<String, Value>, Vec<Count>);

fn counts(plan: &Plan, counted: [u64; 4]) -> Vec<Count> {
    let totals = plan.totals();
    [
        ("bytes sent per device", totals.bytes_per_device),
        ("launches", totals.launches),
        ("reductions of scalars", totals.scalar_reductions),
        ("peak bytes", memory::peak(plan).bytes),
    ]
    .into_iter()
    .zip(counted)
    .map(|((what, predicted), counted)| Count { what, predicted, counted })
    .collect()
}

fn on_paper(plan: &Plan, inputs: &BTreeMap<String, Value>) -> Result<Ran, Error> {
    let run = simulate(plan, inputs)?;
    let outputs: Result<BTreeMap<String, Value>, Error> =
        plan.outputs.iter().map(|o| Ok((o.name.clone(), run.gather(plan, &o.name)?))).collect();
    let counted = [run.bytes_per_device, run.launches, run.scalar_reductions, run.peak_bytes];
    Ok((outputs?, counts(plan, counted)))
}

fn on_threads(plan: &Plan, inputs: &BTreeMap<String, Value>) -> Result<Ran, Error> {
    // What is asked here is the numbers: on a busy machine a rank may get no core for a second and more.
    let world = WorldOptions { timeout: Duration::from_secs(60), ..WorldOptions::default() };
    let options = TrainerOptions { world, ..TrainerOptions::default() };
    let mut trainer = Trainer::with_options(plan, options)?;
    let mut step = BTreeMap::new();
    for id in plan.ids() {
        let node = plan.node(id);
        let (Some(name), Some(role)) = (node.leaf_name(), node.leaf_role()) else { continue };
        let Some(value) = inputs.get(name) else { continue };
        match role {
            Role::Param | Role::State => trainer.set(name, value)?,
            Role::Input | Role::Scalar => {
                step.insert(name.to_owned(), value.clone());
            }
        }
    }
    let report = trainer.step(&step)?;
    let mut outputs = report.outputs;
    for output in &plan.outputs {
        if let OutputRole::Update { of } = output.role
            && let Some(leaf) = plan.node(of).leaf_name()
        {
            outputs.insert(output.name.clone(), trainer.gather(leaf)?);
        }
    }
    let counted = &report.counted;
    let counted =
        [counted.bytes_per_device, counted.launches, counted.scalar_reductions, counted.peak_bytes];
    Ok((outputs, counts(plan, counted)))
}

/// Compares a program with its sharded runs, one for each layout.
///
/// # Errors
/// A layout that cannot be planned, inputs that do not fit, a run that fails.
pub fn equivalences(
    program: &Program,
    mesh: &Mesh,
    layouts: &(impl Layouts + ?Sized),
    options: &Options,
) -> Result<Vec<Equivalence>, Error> {
    let reference = Reference::new(program, mesh.size(), options)?;
    layouts
        .requests()?
        .iter()
        .map(|request| {
            let planned = shardgrad_planner::plan(program, mesh, request, &options.planner)?;
            reference.compare(&planned.plan, options.backend)
        })
        .collect()
}

/// Asserts that a program's outputs — values, gradients, updates — are the same sharded as dense, under each layout.
///
/// Data is drawn (a ramp with mixed signs) unless `options` gives it.
///
/// ```
/// use shardgrad_core::{DType, Mesh};
/// use shardgrad_graph::{Graph, OutputRole};
/// use shardgrad_testkit::{Options, assert_gradients_equivalent};
/// let g = Graph::new("tanh", DType::F64);
/// let (x, w) = (g.input("x", [5, 3])?, g.param("w", [3, 4])?);
/// let loss = x.matmul(w)?.tanh()?.sum_all()?;
/// g.output("loss", loss, OutputRole::Loss)?;
/// g.output("grad(w)", g.grad(loss, &[w])?[0], OutputRole::Gradient { of: w.id() })?;
/// let mesh = Mesh::new([("dp", 2), ("tp", 2)])?;
/// assert_gradients_equivalent(&g.finish(), &mesh, &["dp=auto, tp=replicated", "dp=auto, tp=auto"], &Options::default());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// They are not the same, a plan is not right, a prediction did not hold, or the comparison could not be made; the message
/// says which, and holds the program as text that can be pasted into a test.
#[track_caller]
pub fn assert_gradients_equivalent(
    program: &Program,
    mesh: &Mesh,
    layouts: &(impl Layouts + ?Sized),
    options: &Options,
) -> Vec<Equivalence> {
    match equivalences(program, mesh, layouts, options) {
        Err(error) => {
            panic!("the comparison could not be made: {error} [{}]\n{program}", error.code())
        }
        Ok(found) => {
            for equivalence in &found {
                assert!(equivalence.holds(), "sharded is not dense\n{equivalence}\n{program}");
                let mute = equivalence.outputs.iter().find(|(_, d)| d.unbounded * 2 > d.elements);
                if let Some((name, deviation)) = mute {
                    panic!("nothing can be said about most of {name}: {deviation}\n{program}");
                }
            }
            found
        }
    }
}

/// Every way to pin a value of this many dims on a mesh, as text; without pending placements.
#[must_use]
pub fn all_pins(mesh: &Mesh, tensor_rank: usize) -> Vec<LayoutSpec> {
    shardgrad_core::transition::all_layouts(mesh, tensor_rank, false)
        .iter()
        .map(|layout| LayoutSpec::from((layout, mesh)))
        .collect()
}
