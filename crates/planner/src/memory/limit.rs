//! The search for plans that fit.

use shardgrad_core::geometry::largest_block;
use shardgrad_core::price::Fields;
use shardgrad_core::{Mesh, Prices};
use shardgrad_graph::{NodeId, Plan, Program, memory};

use super::{order, regather};
use crate::build;
use crate::certify;
use crate::demands::Demands;
use crate::error::Error;
use crate::options::{Objective, Options};
use crate::planner::{Planned, cost_of};
use crate::problem::{self, Problem, Weighing};
use crate::search::{BUCKET_LIMIT, Walk, eliminated};

/// Nodes of plans that a walk may look at, all plans together.
const WALK_NODES: usize = 1 << 19;
/// Powers of two by which memory may weigh more than the objective, or less.
const POWERS: i32 = 24;

/// A plan, and what matters of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The plan.
    pub plan: Plan,
    /// Its cost under the objective.
    pub cost: Fields,
    /// The most bytes that a device holds.
    pub peak: u64,
}

/// Plans of which none is better than another in both the objective and memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Front {
    /// The plans: the objective rises, the peak falls.
    pub points: Vec<Point>,
    /// Whether there is no other such plan in the plan space.
    pub exact: bool,
    /// No plan's peak is below this.
    pub least_memory: u64,
}

struct Search<'a> {
    program: &'a Program,
    mesh: &'a Mesh,
    demands: &'a Demands,
    options: &'a Options,
    prices: Prices<'a>,
}

impl Search<'_> {
    fn problem(&self, weighing: Weighing) -> Result<Problem, Error> {
        problem::Builder::new(self.program, self.mesh, self.demands, self.options)
            .weighing(weighing)
            .build()
    }

    fn point(&self, plan: Plan) -> Point {
        Point { cost: plan.cost(&self.prices), peak: memory::peak(&plan).bytes as u64, plan }
    }

    /// The plan of an assignment, updates early.
    fn plan(&self, problem: &Problem, assignment: &[u32]) -> Result<Plan, Error> {
        let mut plan = build::build(self.program, self.mesh, self.demands, problem, assignment)?;
        plan.choose_algorithms(&self.prices);
        Ok(order::updates_early(&plan))
    }

    /// The best plan under a weighing, and the leading field that no plan goes below.
    fn weighed(&self, weighing: Weighing) -> Result<(Plan, u64), Error> {
        let mut problem = self.problem(weighing)?;
        let Self { program, mesh, demands, options, .. } = self;
        let solution = problem::solve(program, mesh, demands, options, &mut problem)?;
        let plan = self.plan(&problem, &solution.assignment)?;
        Ok((plan, problem.scale.leading(solution.lower)))
    }

    /// No plan stores less.
    fn least_stored(&self) -> Result<u64, Error> {
        Ok(self.weighed(Weighing { objective: 0, stored: 1, made: 0 })?.1)
    }
}

/// Weights for a power of two.
fn weighing(power: i32, made: u32) -> Weighing {
    let up = |power: i32| 1_u64 << power.clamp(0, POWERS);
    let stored = up(power);
    Weighing {
        objective: up(-power),
        stored,
        made: if made == 0 { 0 } else { (stored / u64::from(made)).max(1) },
    }
}

/// Plans under the options' memory limit, or for least memory.
///
/// # Errors
/// As [`crate::plan`]; no plan was found that fits.
pub fn plan(
    program: &Program,
    mesh: &Mesh,
    demands: &Demands,
    options: &Options,
    mut free: Planned,
) -> Result<Planned, Error> {
    let search = Search { program, mesh, demands, options, prices: options.prices(mesh) };
    let limit = options.memory_limit.unwrap_or(u64::MAX);
    let early = search.point(order::updates_early(&free.plan));
    if options.objective != Objective::Memory && early.peak <= limit {
        free.plan = early.plan;
        return Ok(free);
    }
    let least_memory = search.least_stored()?;
    let mut best = Best {
        limit,
        memory: options.objective == Objective::Memory,
        point: None,
        least_peak: None,
    };
    best.offer(&search, &early.plan);
    let mut bound = free.bound_under(&search.prices);
    if least_memory <= limit {
        for made in [0, 1, 16] {
            // The lightest weight of memory with which the plan fits, by bisection; the best of all on the way is kept.
            let (mut low, mut high) = (-POWERS, POWERS);
            while low <= high {
                let power = i32::midpoint(low, high);
                let weights = weighing(power, made);
                let (plan, least) = search.weighed(weights)?;
                if made == 0 && limit < u64::MAX {
                    let over = u128::from(least)
                        .saturating_sub(u128::from(weights.stored) * u128::from(limit));
                    let over = over.div_ceil(u128::from(weights.objective));
                    bound = bound.max(u64::try_from(over).unwrap_or(u64::MAX));
                }
                let (fits, _) = best.offer(&search, &plan);
                if fits && !best.memory { high = power - 1 } else { low = power + 1 }
            }
        }
    } else {
        // Nothing fits; what needs least is worth knowing.
        for made in [0, 1, 16] {
            best.offer(&search, &search.weighed(weighing(POWERS, made))?.0);
        }
    }
    let exact = if least_memory <= limit { search.walk(&mut best, &mut bound)? } else { false };
    let Some(point) = best.point else {
        let least = best.least_peak.unwrap_or(early);
        return Err(over_limit(&least, limit, least_memory));
    };
    let cost = cost_of(&point.plan);
    let totals = point.plan.totals();
    let lower_bound_bytes = match options.objective {
        Objective::Volume if exact => totals.bytes_per_device,
        Objective::Volume => bound.saturating_sub(totals.scalar_bytes_per_device),
        Objective::Time | Objective::Memory => 0,
    };
    let certificate = certify::of_limited(free.certificate, point.cost, options.objective);
    Ok(Planned {
        plan: point.plan,
        cost,
        optimal: exact,
        lower_bound_bytes,
        certificate,
        least_memory,
    })
}

fn over_limit(least: &Point, limit: u64, bound: u64) -> Error {
    let peak = memory::peak(&least.plan);
    let found = peak.by_category;
    Error::OverLimit {
        limit,
        bound,
        least: least.peak,
        parameters: found.parameters,
        state: found.state,
        rest: found.inputs + found.activations + found.gradients + found.staging,
    }
}

/// The best plan so far.
struct Best {
    limit: u64,
    /// Whether the peak comes first.
    memory: bool,
    point: Option<Point>,
    /// The plan of least peak, whether it fits or not.
    least_peak: Option<Point>,
}

impl Best {
    /// Takes a plan in if it fits, or can be made to, and is better: whether it fits, and whether every set of its gaps
    /// was in question.
    fn offer(&mut self, search: &Search<'_>, plan: &Plan) -> (bool, bool) {
        let gaps = regather::gaps(plan, &search.prices);
        let closed = || search.point(regather::close(plan, &gaps));
        if self.memory {
            if !gaps.is_empty() {
                self.take(closed());
            }
            return (self.take(search.point(plan.clone())), gaps.is_empty());
        }
        match regather::fit(plan, &search.prices, self.limit) {
            (Some(fitting), all) => (self.take(search.point(fitting)), all),
            (None, all) => (self.take(closed()), all),
        }
    }

    fn take(&mut self, point: Point) -> bool {
        if self.least_peak.as_ref().is_none_or(|least| point.peak < least.peak) {
            self.least_peak = Some(point.clone());
        }
        let fits = point.peak <= self.limit;
        let key = |p: &Point| if self.memory { (p.peak, p.cost) } else { (0, p.cost) };
        if fits && self.point.as_ref().is_none_or(|best| key(&point) < key(best)) {
            self.point = Some(point);
        }
        fits
    }
}

impl Search<'_> {
    /// All plans in order; whether the best is then known to be the best. `bound` rises to what the walk came to.
    fn walk(&self, best: &mut Best, bound: &mut u64) -> Result<bool, Error> {
        let weighing = if best.memory {
            Weighing { objective: 0, stored: 1, made: 0 }
        } else {
            Weighing::default()
        };
        let mut problem = self.problem(weighing)?;
        let Ok(eliminated) = eliminated(&mut problem.network, BUCKET_LIMIT) else {
            return Ok(false);
        };
        let stored = Stored::of(self.program, self.mesh, &problem);
        let mut walk = Walk::new(&problem.network, &eliminated);
        let limit = best.limit;
        let mut looked_at = 0;
        let mut all_sets_tried = true;
        loop {
            let done = match (walk.least_to_come(), &best.point) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(least), Some(point)) if best.memory => {
                    problem.scale.leading(least) > point.peak
                }
                (Some(least), Some(point)) => {
                    if let Some(least) = walk.least_to_come() {
                        *bound = (*bound).max(problem.scale.leading(least).min(point.cost[0]));
                    }
                    least >= problem.scale.pack(point.cost)
                }
            };
            if done || walk.dropped || looked_at > WALK_NODES {
                // In order of stored bytes, equal peaks beyond the first are not all compared.
                return Ok(done && !walk.dropped && all_sets_tried && problem.scale.is_exact());
            }
            let Some((_, assignment)) =
                walk.next(&mut |var, assignment| stored.least(var, assignment) > limit)
            else {
                continue;
            };
            let plan = self.plan(&problem, &assignment)?;
            looked_at += plan.nodes.len();
            all_sets_tried &= best.offer(self, &plan).1;
        }
    }
}

/// Bytes that leaves store, by choice.
struct Stored {
    /// By variable: bytes by value, for leaves.
    bytes: Vec<Option<Vec<u64>>>,
    /// Of all leaves together, at least.
    least: u64,
    /// By variable: at least.
    own_least: Vec<u64>,
}

impl Stored {
    fn of(program: &Program, mesh: &Mesh, problem: &Problem) -> Self {
        let bytes: Vec<Option<Vec<u64>>> = program
            .ids()
            .map(|id: NodeId| {
                let ty = &program.node(id).ty;
                let table = problem.graphs[id.index()].layouts();
                let choices = problem.spaces[id.index()].choices.iter();
                let size = |layout| largest_block(&ty.shape, table.layout(layout), mesh);
                program.node(id).leaf_role()?;
                Some(choices.map(|c| (size(c.result) * ty.dtype.size()) as u64).collect())
            })
            .collect();
        let own_least: Vec<u64> =
            bytes.iter().map(|b| b.iter().flatten().min().copied().unwrap_or(0)).collect();
        Self { least: own_least.iter().sum(), bytes, own_least }
    }

    /// What is stored at least when a leaf has the value that it is assigned.
    fn least(&self, var: usize, assignment: &[u32]) -> u64 {
        match self.bytes.get(var) {
            Some(Some(bytes)) => self.least - self.own_least[var] + bytes[assignment[var] as usize],
            Some(None) | None => 0,
        }
    }
}

/// The front of the objective against memory.
///
/// # Errors
/// As [`crate::plan`].
pub fn front(
    program: &Program,
    mesh: &Mesh,
    demands: &Demands,
    options: &Options,
) -> Result<Front, Error> {
    let search = Search { program, mesh, demands, options, prices: options.prices(mesh) };
    let mut points: Vec<Point> = Vec::new();
    let mut add = |plan: &Plan| {
        let gaps = regather::gaps(plan, &search.prices);
        let sets = if gaps.len() <= 6 { 1_usize << gaps.len() } else { 1 };
        for set in 0..sets {
            let chosen: Vec<_> = gaps
                .iter()
                .enumerate()
                .filter(|(i, _)| set >> i & 1 == 1)
                .map(|(_, g)| *g)
                .collect();
            keep(&mut points, search.point(regather::close(plan, &chosen)));
        }
        if sets == 1 {
            keep(&mut points, search.point(regather::close(plan, &gaps)));
        }
        gaps.len() <= 6
    };
    let least_memory = search.least_stored()?;
    let mut problem = search.problem(Weighing::default())?;
    let mut exact = false;
    if let Ok(eliminated) = eliminated(&mut problem.network, BUCKET_LIMIT) {
        let mut walk = Walk::new(&problem.network, &eliminated);
        let mut looked_at = 0;
        let mut all = true;
        while looked_at <= WALK_NODES && !walk.dropped {
            let Some((_, assignment)) = walk.next(&mut |_, _| false) else {
                exact = all;
                break;
            };
            let plan = search.plan(&problem, &assignment)?;
            looked_at += plan.nodes.len();
            all &= add(&plan);
        }
    }
    if !exact {
        for made in [0, 1, 16] {
            for power in (-POWERS..=POWERS).step_by(4) {
                add(&search.weighed(weighing(power, made))?.0);
            }
        }
    }
    Ok(Front { points, exact, least_memory })
}

/// Adds a point unless another is as good in both; those that it beats go.
fn keep(points: &mut Vec<Point>, point: Point) {
    let beats = |a: &Point, b: &Point| a.cost[0] <= b.cost[0] && a.peak <= b.peak;
    if points.iter().any(|known| beats(known, &point)) {
        return;
    }
    points.retain(|known| !beats(&point, known));
    let at = points.partition_point(|known| known.cost[0] < point.cost[0]);
    points.insert(at, point);
}
