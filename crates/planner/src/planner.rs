//! The planner's one entry: [`plan`].

use shardgrad_core::{Mesh, Prices};
use shardgrad_graph::{Certificate, Plan, Program};

use crate::build;
use crate::certify::{self, Found};
use crate::combine::combined;
use crate::cost::Cost;
use crate::demands::Demands;
use crate::error::Error;
use crate::memory::{self, Front};
use crate::options::{Objective, Options};
use crate::overlap::overlapped;
use crate::problem;
use crate::request::LayoutRequest;

/// A plan, what it costs, and how good it is proven to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// Its cost.
    pub cost: Cost,
    /// Whether no plan of the plan space costs less.
    pub optimal: bool,
    /// Bytes per device, scalars not counted, that no plan of the plan space goes below; 0 under an objective that bounds
    /// none.
    pub lower_bound_bytes: u64,
    /// What proves it, for the checker ([`shardgrad_graph::check::optimality`]) to verify.
    pub certificate: Certificate,
    /// No plan of the plan space holds less on a device; 0 where memory was not asked for.
    pub least_memory: u64,
}

impl Planned {
    /// The leading field of a bound on the objective, which the plan attains if it is optimal.
    pub(crate) fn bound_under(&self, prices: &Prices<'_>) -> u64 {
        match &self.certificate {
            Certificate::Bound(bound) => bound.lower[0] << bound.scale.dropped[0],
            Certificate::None { .. } if self.optimal => self.plan.cost(prices)[0],
            Certificate::None { .. } => 0,
        }
    }
}

/// Plans a program on a mesh.
///
/// ```
/// use shardgrad_core::{DType, Mesh};
/// use shardgrad_graph::{Graph, OutputRole};
/// use shardgrad_planner::{LayoutRequest, Options, plan};
/// let g = Graph::new("product", DType::F32);
/// let x = g.input("x", [4, 6])?;
/// let w = g.param("w", [6, 8])?;
/// g.output("y", x.matmul(w)?, OutputRole::Value)?;
/// let mesh = Mesh::new([("tp", 2)])?;
/// let request = LayoutRequest::default()
///     .pin("x", "tp: S(1)".parse()?)
///     .pin("w", "tp: S(0)".parse()?);
/// let planned = plan(&g.finish(), &mesh, &request, &Options::default())?;
/// // The product is a sum of terms, which one reduce_scatter turns into blocks.
/// assert_eq!(planned.plan.totals().by_kind["reduce_scatter"], 1);
/// assert_eq!(planned.cost.bytes, 4 * 8 * 4 / 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// A request that does not fit the program or the mesh; demands that contradict each other; a search too wide.
pub fn plan(
    program: &Program,
    mesh: &Mesh,
    request: &LayoutRequest,
    options: &Options,
) -> Result<Planned, Error> {
    let demands = Demands::resolve(program, mesh, request)?;
    let mut planned = plan_free(program, mesh, &demands, options)?;
    if options.objective == Objective::Memory || options.memory_limit.is_some() {
        planned = memory::plan(program, mesh, &demands, options, planned)?;
    }
    planned.plan = combined(planned.plan, options);
    if !options.blocking {
        planned.plan = overlapped(planned.plan, options);
    }
    Ok(planned)
}

/// The plans of which none is better than another in both the objective and memory.
///
/// # Errors
/// As [`plan`].
pub fn pareto(
    program: &Program,
    mesh: &Mesh,
    request: &LayoutRequest,
    options: &Options,
) -> Result<Front, Error> {
    memory::front(program, mesh, &Demands::resolve(program, mesh, request)?, options)
}

/// The best plan whatever it holds in memory.
fn plan_free(
    program: &Program,
    mesh: &Mesh,
    demands: &Demands,
    options: &Options,
) -> Result<Planned, Error> {
    let mut problem = problem::Builder::new(program, mesh, demands, options).build()?;
    let solution = problem::solve(program, mesh, demands, options, &mut problem)?;
    let mut plan = build::build(program, mesh, demands, &problem, &solution.assignment)?;
    plan.choose_algorithms(&options.prices(mesh));
    let cost = cost_of(&plan);
    let priced = plan.cost(&options.prices(mesh));
    debug_assert!(
        !problem.scale.is_exact() || problem.scale.pack(priced) == solution.cost,
        "the plan costs what the search found"
    );
    let counted = !priced.contains(&u64::MAX);
    let optimal = counted && solution.lower == solution.cost && problem.scale.leads_exactly();
    let totals = plan.totals();
    // The bound is on all bytes. Those of scalars are the plan's own, at most.
    let lower_bound_bytes = match options.objective {
        Objective::Volume if problem.scale.leading(solution.lower) >= cost.bytes => {
            totals.bytes_per_device
        }
        Objective::Volume => {
            problem.scale.leading(solution.lower).saturating_sub(totals.scalar_bytes_per_device)
        }
        // A bound on time is none on bytes.
        Objective::Time | Objective::Memory => 0,
    };
    let found = Found {
        proof: &solution.proof,
        lower: solution.traced,
        scale: problem.scale.weights(),
        cost: priced,
        sets: &problem.by_sets,
    };
    let certificate = certify::certificate(mesh, demands, options, &found);
    Ok(Planned { plan, cost, optimal, lower_bound_bytes, certificate, least_memory: 0 })
}

/// What a plan costs, counted from its nodes.
#[must_use]
pub fn cost_of(plan: &Plan) -> Cost {
    let options = Options::default();
    let [bytes, collectives, flops, copies] = plan.cost(&options.prices(&plan.mesh));
    Cost { bytes, collectives, flops, copies }
}
