//! Plans under memory limits: against all plans of small programs, and against figures of large ones.

mod support;

use shardgrad_core::price::Fields;
use shardgrad_core::{DType, Mesh, Prices};
use shardgrad_graph::check::check;
use shardgrad_graph::{Graph, LayerSpec, MlpSpec, Optimizer, OutputRole, Program, memory};
use shardgrad_planner::demands::Demands;
use shardgrad_planner::memory::{order::updates_early, regather};
use shardgrad_planner::problem::Builder;
use shardgrad_planner::{Error, LayoutRequest, Objective, Options, Planned, build, pareto, plan};

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

/// Cost and peak of every plan of a program: all assignments, each with every set of its gaps closed.
fn all_plans(
    program: &Program,
    mesh: &Mesh,
    request: &LayoutRequest,
    options: &Options,
) -> Vec<(Fields, u64)> {
    let demands = Demands::resolve(program, mesh, request).unwrap();
    let problem = Builder::new(program, mesh, &demands, options).build().unwrap();
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
        let plan = build::build(program, mesh, &demands, &problem, &assignment).unwrap();
        let plan = updates_early(&plan);
        let gaps = regather::gaps(&plan, &prices);
        for set in 0..1_usize << gaps.len() {
            let chosen: Vec<_> =
                (0..gaps.len()).filter(|i| set >> i & 1 == 1).map(|i| gaps[i]).collect();
            let plan = regather::close(&plan, &chosen);
            assert!(check(&plan, program).is_right());
            found.push((plan.cost(&prices), memory::peak(&plan).bytes as u64));
        }
    }
    found
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

#[test]
fn least_memory_is_that_of_all_plans() {
    for (extents, m) in [([8, 4, 4], "x=2"), ([4, 12, 9], "x=3")] {
        let (program, m) = (step(extents), mesh(m));
        let options = Options { objective: Objective::Memory, ..Options::default() };
        let plans = all_plans(&program, &m, &LayoutRequest::auto(), &options);
        let found = plan(&program, &m, &LayoutRequest::auto(), &options).unwrap();
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
    let stored: LayoutRequest = LayoutRequest::auto()
        .pin("w", "x: S(0)".parse().unwrap())
        .pin("x", "x: S(0)".parse().unwrap());
    let mut most = 0;
    for (extents, m) in [([8, 4, 4], "x=2"), ([4, 12, 9], "x=3")] {
        for request in [&LayoutRequest::auto(), &stored] {
            let (program, m) = (step(extents), mesh(m));
            let options = Options::default();
            let plans = all_plans(&program, &m, request, &options);
            let front = pareto(&program, &m, request, &options).unwrap();
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
    let layer = LayerSpec {
        inputs: 50_000,
        outputs: 50_000,
        bias: false,
        activation: shardgrad_graph::Activation::Relu,
    };
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

#[test]
fn memory_decides_whether_gathered_parameters_are_kept() {
    let layer = |inputs, outputs| LayerSpec {
        inputs,
        outputs,
        bias: true,
        activation: shardgrad_graph::Activation::Relu,
    };
    let layers = vec![layer(64, 64), layer(64, 64), layer(64, 64), layer(64, 64)];
    let spec =
        MlpSpec { layers, optimizer: Optimizer::named("sgd").unwrap(), ..MlpSpec::new("fsdp", 8) };
    let program = spec.training_program().unwrap();
    let (m, request) = (mesh("x=4"), "fsdp".parse::<LayoutRequest>().unwrap());
    let of = |memory_limit| {
        let options = Options { memory_limit, ..Options::default() };
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
