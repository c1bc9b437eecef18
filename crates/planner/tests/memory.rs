//! Plans under memory limits: against all plans of small programs, and against figures of large ones.

mod support;

use shardgrad_core::price::Fields;
use shardgrad_core::{DType, Mesh, Prices};
use shardgrad_graph::check::check;
use shardgrad_graph::{
    Activation, Graph, LayerSpec, Loss, MlpSpec, Optimizer, OutputRole, Plan, Program, memory,
};
use shardgrad_planner::cost::Packed;
use shardgrad_planner::demands::Demands;
use shardgrad_planner::memory::{order::updates_early, regather};
use shardgrad_planner::problem::{Builder, Problem, Weighing};
use shardgrad_planner::search::Factor;
use shardgrad_planner::{
    Combine, Error, Free, LayoutRequest, Objective, Options, Planned, Redundant, build, pareto,
    plan,
};

fn mesh(text: &str) -> Mesh {
    text.parse().unwrap()
}

/// A step that reads its weight twice and updates it.
fn step(extents: [usize; 3]) -> Program {
    let [b, i, o] = extents;
    let g = Graph::new("step", DType::F32);
    let x = g.input("x", [b, i]).unwrap();
    let w = g.param("w", [i, o]).unwrap();
    let y = x.einsum("bi,io->bo", w).unwrap();
    let dx = y.einsum("bo,io->bi", w).unwrap();
    let dw = x.einsum("bi,bo->io", y).unwrap();
    g.output("dx", dx, OutputRole::Value).unwrap();
    g.output("w", w.sub(dw).unwrap(), OutputRole::Update { of: w.id() }).unwrap();
    g.finish()
}

/// Cost and peak of every plan of a program: all assignments, each with every set of its gaps closed. Values are carried to
/// their readers as is cheapest under the objective; for least memory, as makes the fewest bytes too.
fn all_plans(
    program: &Program,
    mesh: &Mesh,
    request: &LayoutRequest,
    options: &Options,
) -> Vec<(Fields, u64)> {
    let demands = Demands::resolve(program, mesh, request).unwrap();
    let mut problems = vec![Builder::new(program, mesh, &demands, options).build().unwrap()];
    if options.objective == Objective::Memory {
        let made = Weighing { objective: 0, stored: 1, made: 1 };
        let builder = Builder::new(program, mesh, &demands, options).weighing(made);
        problems.push(builder.build().unwrap());
    }
    problems
        .iter()
        .flat_map(|problem| all_plans_of(program, mesh, &demands, problem, options))
        .collect()
}

fn all_plans_of(
    program: &Program,
    mesh: &Mesh,
    demands: &Demands,
    problem: &Problem,
    options: &Options,
) -> Vec<(Fields, u64)> {
    let prices: Prices<'_> = options.prices(mesh);
    let domains = &problem.network.domains;
    let total: usize = domains.iter().map(|&d| d as usize).product();
    assert!(total < 200_000, "{total}");
    let mut found = Vec::new();
    for mut code in 0..total {
        let mut assignment = Vec::new();
        for &domain in domains {
            assignment.push(u32::try_from(code % domain as usize).unwrap());
            code /= domain as usize;
        }
        if problem.network.cost(&assignment) >= shardgrad_planner::cost::INFINITE {
            continue;
        }
        let plan = build::build(program, mesh, demands, problem, &assignment).unwrap();
        for plan in with_gaps_closed(plan, &prices) {
            assert!(check(&plan, program).is_right());
            found.push((plan.cost(&prices), memory::peak(&plan).bytes as u64));
        }
    }
    found
}

/// The plan, its algorithms chosen and its updates early, with each set of its gaps closed.
fn with_gaps_closed(mut plan: Plan, prices: &Prices<'_>) -> Vec<Plan> {
    plan.choose_algorithms(prices);
    let plan = updates_early(&plan);
    let gaps = regather::gaps(&plan, prices);
    let close = |set: usize| {
        let chosen: Vec<_> =
            (0..gaps.len()).filter(|i| set >> i & 1 == 1).map(|i| gaps[i]).collect();
        regather::close(&plan, &chosen)
    };
    (0..1_usize << gaps.len()).map(close).collect()
}

#[test]
fn limits_give_the_best_of_all_plans_that_fit() {
    let mut tight = 0;
    for (extents, m) in [([8, 4, 4], "x=2"), ([4, 12, 9], "x=3"), ([5, 7, 3], "x=2")] {
        let (program, m) = (step(extents), mesh(m));
        for request in [
            LayoutRequest::auto(),
            LayoutRequest::auto()
                .pin("w", "x: S(0)".parse().unwrap())
                .pin("x", "x: S(0)".parse().unwrap()),
        ] {
            for objective in [Objective::Volume, Objective::Time] {
                let mut options = Options { objective, ..Options::default() };
                let plans = all_plans(&program, &m, &request, &options);
                let mut peaks: Vec<u64> = plans.iter().map(|p| p.1).collect();
                peaks.sort_unstable();
                peaks.dedup();
                for limit in peaks.iter().step_by(1 + peaks.len() / 8).flat_map(|&p| [p - 1, p]) {
                    options.memory_limit = Some(limit);
                    let best = plans.iter().filter(|p| p.1 <= limit).map(|p| p.0).min();
                    match (plan(&program, &m, &request, &options), best) {
                        (Ok(found), Some(best)) => {
                            let cost = found.plan.cost(&options.prices(&m));
                            assert!(memory::peak(&found.plan).bytes as u64 <= limit);
                            assert!(check(&found.plan, &program).is_right());
                            assert!(found.optimal, "{limit}");
                            assert_eq!(cost, best, "{limit}");
                            let proof = support::proven(&found, &program);
                            assert!(proof.least <= cost[0]);
                            tight += usize::from(proof.least < cost[0]);
                        }
                        (Err(Error::OverLimit { least, bound, .. }), None) => {
                            assert!(bound <= peaks[0] && peaks[0] <= least);
                        }
                        (found, best) => panic!("{limit}: {found:?}, but {best:?}"),
                    }
                }
            }
        }
    }
    assert!(tight > 10, "limits that cost something: {tight}");
}

/// Small programs of which all plans can be made, on one axis and on two.
fn small() -> Vec<(Program, Mesh, LayoutRequest)> {
    let stored = LayoutRequest::auto()
        .pin("w", "x: S(0)".parse().unwrap())
        .pin("x", "x: S(0)".parse().unwrap());
    let mut all = Vec::new();
    for (extents, m) in [([8, 4, 4], "x=2"), ([4, 12, 9], "x=3")] {
        for request in [&LayoutRequest::auto(), &stored] {
            all.push((step(extents), mesh(m), request.clone()));
        }
    }
    for request in ["a=megatron, b=fsdp", "a=fsdp, b=fsdp", "a=data, b=column"] {
        let program = two_layers(false, Activation::None);
        all.push((program, mesh("a=2, b=2"), request.parse().unwrap()));
    }
    all
}

#[test]
fn least_memory_is_that_of_all_plans() {
    for (program, m, request) in small() {
        let options = Options { objective: Objective::Memory, ..Options::default() };
        let plans = all_plans(&program, &m, &request, &options);
        let found = plan(&program, &m, &request, &options).unwrap();
        let peak = memory::peak(&found.plan).bytes as u64;
        let least = plans.iter().map(|p| (p.1, p.0)).min().unwrap();
        assert!(found.least_memory <= least.0);
        if found.optimal {
            assert_eq!((peak, found.plan.cost(&options.prices(&m))), least);
        }
        assert_eq!(peak, least.0);
    }
}

#[test]
fn the_front_is_that_of_all_plans() {
    let mut most = 0;
    for (program, m, request) in small() {
        for objective in [Objective::Volume, Objective::Time] {
            let options = Options { objective, ..Options::default() };
            let plans = all_plans(&program, &m, &request, &options);
            let front = pareto(&program, &m, &request, &options).unwrap();
            assert!(front.exact);
            let beats = |a: &(u64, u64), b: &(u64, u64)| a != b && a.0 <= b.0 && a.1 <= b.1;
            let all: Vec<(u64, u64)> = plans.iter().map(|p| (p.0[0], p.1)).collect();
            let mut expected: Vec<(u64, u64)> =
                all.iter().filter(|p| !all.iter().any(|q| beats(q, p))).copied().collect();
            expected.sort_unstable();
            expected.dedup();
            let found: Vec<(u64, u64)> = front.points.iter().map(|p| (p.cost[0], p.peak)).collect();
            assert_eq!(found, expected);
            most = most.max(found.len());
            assert!(front.points.iter().all(|p| p.peak >= front.least_memory));
        }
    }
    assert!(most > 1);
}

/// Forty layers of 50,000 × 50,000 in f32: 400 GB of parameters.
fn large(optimizer: &str) -> Program {
    let layer =
        LayerSpec { inputs: 50_000, outputs: 50_000, bias: false, activation: Activation::Relu };
    let optimizer = Optimizer::named(optimizer).unwrap();
    let spec = MlpSpec { layers: vec![layer; 40], optimizer, ..MlpSpec::new("large", 64) };
    spec.training_program().unwrap()
}

fn limited(program: &Program, devices: usize, limit: u64) -> Result<Planned, Error> {
    let options = Options { memory_limit: Some(limit), ..Options::default() };
    let planned = plan(program, &mesh(&format!("x={devices}")), &LayoutRequest::auto(), &options)?;
    let peak = memory::peak(&planned.plan);
    assert!(peak.bytes as u64 <= limit);
    let report = check(&planned.plan, program);
    assert!(report.is_right(), "{report}");
    support::proven(&planned, program);
    // The parameters are a device's share of 400 GB.
    let share = 400_000_000_000 / devices as u64;
    let parameters = peak.by_category.parameters;
    assert!((share..share + share / 20).contains(&parameters), "{parameters} of {share}");
    Ok(planned)
}

const GB: u64 = 1_000_000_000;

#[test]
fn four_hundred_gigabytes_fit_on_devices_of_eighty() {
    let sgd = large("sgd");
    for devices in [8, 16, 64] {
        limited(&sgd, devices, 80 * GB).unwrap();
    }
    let adam = large("adam");
    // Parameters and two moments are 150 GB a device of eight, 75 GB of sixteen. New moments get slots of their own, since
    // the op that makes them reads the old ones scaled.
    for (devices, stored, most) in [(8, 150, 260), (16, 75, 130)] {
        let Err(Error::OverLimit { limit, least, bound, .. }) = limited(&adam, devices, 80 * GB)
        else {
            panic!("fits");
        };
        assert_eq!(limit, 80 * GB);
        assert!((stored * GB..stored * GB + GB).contains(&bound), "{bound}");
        assert!((bound..most * GB).contains(&least), "{least}");
        limited(&adam, devices, least).unwrap();
    }
    limited(&adam, 64, 80 * GB).unwrap();
}

/// Every collective by itself, and waited for at once: the plans that peaks are compared of.
fn apart() -> Options {
    Options { combine: Combine::Off, blocking: true, ..Options::default() }
}

#[test]
fn memory_decides_whether_gathered_parameters_are_kept() {
    let layer =
        |inputs, outputs| LayerSpec { inputs, outputs, bias: true, activation: Activation::Relu };
    let layers = vec![layer(64, 64), layer(64, 64), layer(64, 64), layer(64, 64)];
    let spec =
        MlpSpec { layers, optimizer: Optimizer::named("sgd").unwrap(), ..MlpSpec::new("fsdp", 8) };
    let program = spec.training_program().unwrap();
    let (m, request) = (mesh("x=4"), "fsdp".parse::<LayoutRequest>().unwrap());
    let of = |memory_limit| {
        let options = Options { memory_limit, ..apart() };
        plan(&program, &m, &request, &options)
    };
    let kept = of(None).unwrap();
    let gathers = |planned: &Planned| planned.plan.totals().by_kind["all_gather"];
    // Every parameter is gathered once.
    assert_eq!(gathers(&kept), 8);
    let peak = memory::peak(&updates_early(&kept.plan)).bytes as u64;
    let again = of(Some(peak - 1)).unwrap();
    assert!(gathers(&again) > 8);
    assert!(again.cost.bytes > kept.cost.bytes);
    let report = check(&again.plan, &program);
    assert!(report.is_right() && report.lints.is_empty(), "{report}");
    // At the least, weights are gathered again: not the first, whose input needs no gradient, nor the last, which the
    // backward pass reads right after the forward pass.
    let Err(Error::OverLimit { least, .. }) = of(Some(1)) else { panic!("fits") };
    let tight = of(Some(least)).unwrap();
    assert_eq!(gathers(&tight), 8 + 2);
    assert_eq!(tight.plan.totals().by_kind["reduce_scatter"], 8);
}

/// Two layers on any mesh, with a sum as loss.
fn two_layers(bias: bool, activation: Activation) -> Program {
    let layer = |inputs, outputs, activation| LayerSpec { inputs, outputs, bias, activation };
    let layers = vec![layer(6, 5, activation), layer(5, 4, Activation::None)];
    MlpSpec { loss: Loss::Sum, layers, ..MlpSpec::new("two", 7) }.training_program().unwrap()
}

/// All assignments that cost less, by depth-first search in the order of variables; how many there are. What is not yet
/// assigned costs at least the least entry of each table.
fn cheaper(problem: &Problem, than: Packed, visit: &mut impl FnMut(&[u32])) -> usize {
    let network = &problem.network;
    let count = network.domains.len();
    let mut closed: Vec<Vec<&Factor>> = vec![Vec::new(); count];
    let mut fixed = 0;
    let mut rest = vec![0; count + 1];
    for factor in &network.factors {
        let least = *network.tables.get(factor.table).iter().min().unwrap();
        match factor.scope.last() {
            Some(&last) => {
                closed[last as usize].push(factor);
                rest[last as usize] += least;
            }
            None => fixed += least,
        }
    }
    (0..count).rev().for_each(|var| rest[var] += rest[var + 1]);
    let (mut found, mut assignment) = (0, vec![0; count]);
    let mut costs = vec![fixed; count + 1];
    let mut at = 0;
    loop {
        let closing = closed[at].iter().map(|factor| network.entry(factor, &assignment));
        costs[at + 1] = closing.fold(costs[at], |sum, entry| sum + entry);
        let fits = costs[at + 1] + rest[at + 1] < than;
        if fits && at + 1 < count {
            at += 1;
            assignment[at] = 0;
            continue;
        }
        if fits {
            visit(&assignment);
            found += 1;
        }
        while assignment[at] + 1 == network.domains[at] {
            if at == 0 {
                return found;
            }
            at -= 1;
        }
        assignment[at] += 1;
    }
}

/// Every plan that is cheaper than this one, with each set of its gaps closed, needs more than the limit; how many.
fn nothing_cheaper_fits(
    program: &Program,
    m: &Mesh,
    request: &LayoutRequest,
    options: &Options,
    found: &Planned,
) -> usize {
    let demands = Demands::resolve(program, m, request).unwrap();
    let problem = Builder::new(program, m, &demands, options).build().unwrap();
    let (prices, limit) = (options.prices(m), options.memory_limit.unwrap());
    let cost = found.plan.cost(&prices);
    cheaper(&problem, problem.scale.pack(cost), &mut |assignment| {
        let plan = build::build(program, m, &demands, &problem, assignment).unwrap();
        for plan in with_gaps_closed(plan, &prices) {
            let fits = memory::peak(&plan).bytes as u64 <= limit;
            assert!(!fits || plan.cost(&prices) >= cost, "{request} {limit}: {plan:?}");
        }
    })
}

#[test]
fn limits_on_two_axes_give_the_best_of_all_plans_that_fit() {
    let m = mesh("a=2, b=2");
    let request = |text: &str| text.parse::<LayoutRequest>().unwrap();
    let fsdp = request("a=fsdp, b=fsdp");
    let mixed = request("a=megatron, b=fsdp");
    let column = request("a=data, b=column");
    let pinned = request("a=data, b=megatron").pin("h0", "a: S(0), b: R".parse().unwrap());
    let free = request("a=megatron, b=data").free(Free::Splits);
    let mut tight = 0;
    // How many limits each front has that are quick to judge: there are more plans with more ops.
    for (bias, activation, cases) in [
        (
            false,
            Activation::None,
            vec![
                (&mixed, Objective::Time, 2),
                (&column, Objective::Time, 1),
                (&fsdp, Objective::Volume, 1),
                (&fsdp, Objective::Time, 2),
                (&pinned, Objective::Time, 2),
                (&free, Objective::Time, 4),
            ],
        ),
        (
            false,
            Activation::Relu,
            vec![
                (&column, Objective::Volume, 1),
                (&fsdp, Objective::Volume, 1),
                (&fsdp, Objective::Time, 1),
                (&free, Objective::Time, 1),
            ],
        ),
        (
            true,
            Activation::None,
            vec![
                (&mixed, Objective::Volume, 3),
                (&column, Objective::Time, 1),
                (&fsdp, Objective::Volume, 1),
                (&pinned, Objective::Volume, 1),
            ],
        ),
        (
            true,
            Activation::Relu,
            vec![(&mixed, Objective::Volume, 1), (&pinned, Objective::Time, 1)],
        ),
    ] {
        let program = two_layers(bias, activation);
        for (request, objective, limits) in cases {
            // Free work alone can be repeated.
            let redundant = match request.free {
                Free::Splits => Redundant::Allow,
                Free::Nothing | Free::All => Redundant::Never,
            };
            let mut options = Options { objective, redundant, ..apart() };
            let mut peak = memory::peak(&plan(&program, &m, request, &options).unwrap().plan).bytes;
            // Down the front, each limit just below the last plan's peak.
            for _ in 0..limits {
                options.memory_limit = Some(peak as u64 - 1);
                let found = plan(&program, &m, request, &options).unwrap();
                assert!(memory::peak(&found.plan).bytes < peak && found.optimal);
                peak = memory::peak(&found.plan).bytes;
                tight += nothing_cheaper_fits(&program, &m, request, &options, &found);
            }
        }
    }
    assert!(tight > 1000, "{tight} cheaper plans that do not fit");
}
