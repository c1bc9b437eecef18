//! A program with its plan, and what is said about both.

use std::collections::BTreeMap;

use shardgrad_core::ops::Role;
use shardgrad_core::{Machine, Mesh};
use shardgrad_graph::plan_file::PlanFile;
use shardgrad_graph::{Certificate, Model, Optimizer, Plan, Program, Start, check, export, text};
use shardgrad_planner::{LayoutRequest, Options, Remedies, remedies};

use crate::error::Error;
use crate::explain::explain;
use crate::report::{CertificateReport, ModelReport, PlanReport, Verdict};
use crate::symbols::Symbols;

/// A program, its plan on a mesh, and the machine it was planned for.
///
/// A program of one's own, planned with pins:
///
/// ```
/// use shardgrad::prelude::*;
/// let g = Graph::new("attention scores", DType::F32);
/// let q = g.input("q", [8, 16, 4])?;
/// let k = g.input("k", [8, 16, 4])?;
/// g.output("scores", q.einsum("hqd,hkd->hqk", k)?, OutputRole::Value)?;
///
/// let mesh = Mesh::new([("tp", 4)])?;
/// let request = LayoutRequest::auto()
///     .pin("q", "tp: S(0)".parse()?)
///     .pin("k", "tp: S(0)".parse()?);
/// let plan = Planned::new(g.finish(), &mesh, &request, &Machine::default(), &Options::default())?;
/// // Heads are independent: nothing is sent.
/// assert_eq!(plan.report().totals.bytes_per_device, 0);
/// # Ok::<(), shardgrad::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Planned {
    program: Program,
    plan: Plan,
    machine: Machine,
    request: LayoutRequest,
    options: Options,
    optimal: bool,
    lower_bound_bytes: u64,
    certificate: Certificate,
    least_memory: u64,
    optimizer: Optimizer,
    seed: u64,
    spec: Option<Model>,
    starts: BTreeMap<String, Start>,
}

impl Planned {
    /// The best plan of a program on a mesh.
    ///
    /// # Errors
    /// The request does not fit the program or the mesh.
    pub fn new(
        program: Program,
        mesh: &Mesh,
        request: &LayoutRequest,
        machine: &Machine,
        options: &Options,
    ) -> Result<Self, Error> {
        let planned = shardgrad_planner::plan(&program, mesh, request, options)?;
        Ok(Self {
            program,
            plan: planned.plan,
            machine: machine.clone(),
            request: request.clone(),
            options: options.clone(),
            optimal: planned.optimal,
            lower_bound_bytes: planned.lower_bound_bytes,
            certificate: planned.certificate,
            least_memory: planned.least_memory,
            optimizer: Optimizer::None,
            seed: 0,
            spec: None,
            starts: BTreeMap::new(),
        })
    }

    /// With the optimizer whose scalars (`lr`, bias corrections) a trainer sets each step.
    #[must_use]
    pub fn with_optimizer(mut self, optimizer: Optimizer) -> Self {
        self.optimizer = optimizer;
        self
    }

    /// With the seed of initial parameters.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// With the description that the program was made from, and with its optimizer and seed. A trainer then takes the
    /// data of a whole step, `x` and `y`, and cuts it where the program wants micro-batches.
    #[must_use]
    pub fn with_spec(mut self, spec: impl Into<Model>) -> Self {
        let spec = spec.into();
        self.optimizer = *spec.optimizer();
        self.seed = *spec.seed();
        // A description that made a program is fine.
        self.starts = spec.starts().unwrap_or_default();
        self.spec = Some(spec);
        self
    }

    /// With initial values of parameters: what [`shardgrad_graph::Graph::starts`] says.
    #[must_use]
    pub fn with_starts(mut self, starts: BTreeMap<String, Start>) -> Self {
        self.starts = starts;
        self
    }

    /// Initial values of parameters that want others than usual.
    #[must_use]
    pub fn starts(&self) -> &BTreeMap<String, Start> {
        &self.starts
    }

    /// The description of the model whose training step this is, if it is one.
    #[must_use]
    pub fn spec(&self) -> Option<&Model> {
        self.spec.as_ref()
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The mesh.
    #[must_use]
    pub fn mesh(&self) -> &Mesh {
        &self.plan.mesh
    }

    /// The optimizer.
    #[must_use]
    pub fn optimizer(&self) -> Optimizer {
        self.optimizer
    }

    /// The seed of initial parameters.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// What the independent checker says of the plan.
    #[must_use]
    pub fn check(&self) -> check::Report {
        check::check(&self.plan, &self.program)
    }

    /// What the planner says of the plan's cost, for the checker to verify.
    #[must_use]
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// What the independent checker says of the certificate.
    #[must_use]
    pub fn proof(&self) -> check::optimality::Verdict {
        check::optimality::verify(&self.plan, &self.program, &self.certificate)
    }

    /// The plan in numbers. The certificate is verified for it.
    #[must_use]
    pub fn report(&self) -> PlanReport {
        let verdict = Verdict {
            objective: self.options.objective.name().to_owned(),
            optimal: self.optimal,
            lower_bound_bytes: self.lower_bound_bytes,
            certificate: CertificateReport::new(&self.proof()),
            memory_limit: self.options.memory_limit,
            least_memory: self.least_memory,
        };
        PlanReport::new(&self.program, &self.plan, &self.machine, verdict)
    }

    /// The model in numbers: its batch is the description's, or the first extent of the first input.
    #[must_use]
    pub fn model_report(&self) -> ModelReport {
        let leaves = || self.program.leaves().map(|id| self.program.node(id));
        let input = leaves().find(|n| n.leaf_role() == Some(Role::Input));
        let float = leaves().map(|n| n.ty.dtype).find(|d| d.is_float());
        ModelReport {
            name: self.program.name.clone(),
            batch: match &self.spec {
                Some(spec) => *spec.batch(),
                None => input.and_then(|n| n.ty.shape.first().copied()).unwrap_or(1),
            },
            dtype: float.unwrap_or(shardgrad_core::DType::F32),
        }
    }

    /// The plan in words: totals, why every collective is there, and what would spare it.
    #[must_use]
    pub fn explain(&self) -> String {
        let legend = Symbols::new(&self.program).legend();
        explain(&self.report(), &self.plan, &legend, &self.remedies())
    }

    /// What would spare each collective: changes of the request after which less is sent, each of them planned.
    #[must_use]
    pub fn remedies(&self) -> Remedies {
        remedies(&self.program, &self.request, &self.options, &self.plan)
    }

    /// The plan node by node.
    #[must_use]
    pub fn listing(&self) -> String {
        text::display_plan(&self.plan, &self.program).to_string()
    }

    /// The plan as a runnable NumPy script that simulates every rank and compares the outputs with the dense program's.
    #[must_use]
    pub fn to_numpy(&self) -> String {
        export::numpy(&self.plan, &self.program)
    }

    /// The plan as a graph in Graphviz' DOT language, collectives set off.
    #[must_use]
    pub fn to_dot(&self) -> String {
        export::dot(&self.plan, &self.program)
    }

    /// The plan file: program, plan and certificate as JSON, which `shardgrad check` reads.
    ///
    /// # Errors
    /// None in practice: every part has a JSON form.
    pub fn to_json(&self) -> Result<String, Error> {
        let mut file = PlanFile::new(self.program.clone(), self.plan.clone());
        file.certificate = Some(self.certificate.clone());
        Ok(file.to_json()?)
    }
}
