//! What the planner finds when layouts or splits are free, against published optima.

mod support;

use std::collections::BTreeMap;

use shardgrad_core::{Algorithm, Machine, Mesh, Op, TransitionKind};
use shardgrad_graph::check::check;
use shardgrad_graph::plan::PlannedTransition;
use shardgrad_graph::{Activation, MlpSpec, Optimizer, Plan, Program};
use shardgrad_planner::{Free, LayoutRequest, Objective, Options, Planned, cost_of, plan};
use support::layers;

fn mesh(text: &str) -> Mesh {
    text.parse().unwrap()
}

fn mlp(batch: usize, widths: &[usize], bias: bool, activation: Activation) -> MlpSpec {
    let layers = layers(widths, bias, activation);
    MlpSpec { layers, ..MlpSpec::new("mlp", batch) }
}

fn planned(program: &Program, mesh: &Mesh, request: &LayoutRequest) -> Planned {
    let planned = plan(program, mesh, request, &Options::default()).unwrap();
    assert_eq!(planned.cost, cost_of(&planned.plan));
    support::proven_optimal(&planned, program);
    let report = check(&planned.plan, program);
    assert!(report.is_right() && report.lints.is_empty(), "{report}");
    planned
}

fn kinds(plan: &Plan) -> BTreeMap<String, u64> {
    plan.totals().by_kind
}

fn all_reduces(count: u64) -> BTreeMap<String, u64> {
    [("all_reduce".to_owned(), count)].into()
}

/// Shapes of the tensors that collectives carry, scalars left out.
fn shapes(plan: &Plan) -> Vec<Vec<usize>> {
    plan.collectives().filter(|c| !c.is_scalar()).map(|c| c.ty.shape.to_vec()).collect()
}

#[test]
fn deep_linear_models_reduce_activations_or_weights_whichever_are_smaller() {
    for (layers, batch, width, count) in
        [(2, 128, 1024, 1), (2, 1024, 128, 2), (12, 128, 1024, 11), (12, 1024, 128, 12)]
    {
        let spec = mlp(batch, &vec![width; layers + 1], false, Activation::None);
        let program = spec.training_program().unwrap();
        let plan = planned(&program, &mesh("x=4"), &LayoutRequest::auto()).plan;
        assert_eq!(kinds(&plan), all_reduces(count), "{layers} layers, {batch} by {width}");
        let carried = if batch < width { [batch, width] } else { [width, width] };
        assert!(shapes(&plan).iter().all(|s| s.as_slice() == carried));
        let bytes = count * 2 * 3 / 4 * (carried[0] * carried[1] * 4) as u64;
        let exact = count * 2 * 3 * (carried[0] * carried[1]) as u64;
        assert_eq!(plan.totals().bytes_per_device, exact, "{bytes}");
    }
}

#[test]
fn a_realistic_model_finds_tensor_or_data_parallelism() {
    let model = |batch, width: usize| MlpSpec {
        optimizer: Optimizer::named("adam").unwrap(),
        ..mlp(batch, &[width; 7], true, Activation::Relu)
    };
    let x = mesh("x=4");
    let plan =
        planned(&model(32, 256).training_program().unwrap(), &x, &LayoutRequest::auto()).plan;
    assert_eq!(kinds(&plan), all_reduces(5));
    assert!(shapes(&plan).iter().all(|s| s.as_slice() == [32, 256]));
    let weights: Vec<String> = (0..6)
        .map(|i| {
            let leaf = plan.ids().find(|&id| plan.node(id).leaf_name() == Some(&format!("w{i}")));
            plan.layout(leaf.unwrap()).display(&x).to_string()
        })
        .collect();
    let (column, row) = ("[x: S(1)]", "[x: S(0)]");
    assert_eq!(weights, [column, row, column, row, column, row]);

    let plan =
        planned(&model(256, 32).training_program().unwrap(), &x, &LayoutRequest::auto()).plan;
    let parameters = 6 * (32 * 32 + 32);
    assert_eq!(plan.totals().bytes_per_device, 2 * 3 * parameters);
}

#[test]
fn column_all_to_all_data_beats_every_preset() {
    let (batch, width, p) = (256, 128, 8);
    let program = mlp(batch, &[width; 3], false, Activation::None).training_program().unwrap();
    let x = mesh(&format!("x={p}"));
    let free = LayoutRequest::auto().pin("x", "x: R".parse().unwrap());
    for request in [LayoutRequest::auto(), free] {
        let plan = planned(&program, &x, &request).plan;
        assert_eq!(plan.totals().bytes_per_device, 35_840 * 4);
        let expected = [("all_reduce", 1), ("all_to_all", 2)];
        assert_eq!(kinds(&plan), expected.map(|(k, n)| (k.to_owned(), n)).into());
    }
    for preset in ["megatron", "data"] {
        let planned = planned(&program, &x, &preset.parse().unwrap());
        assert_eq!(planned.plan.totals().bytes_per_device, 57_344 * 4, "{preset}");
    }
}

/// Rows of the comparison with XLA's partitioner: sizes 64, 96, 256, 32 on four devices.
#[test]
fn free_splits_send_no_more_than_is_possible() {
    let (b, d, h, o) = (64, 96, 256, 32);
    let one = mlp(b, &[d, h], true, Activation::None);
    let two = mlp(b, &[d, h, o], true, Activation::Relu);
    let with_x = |spec: &MlpSpec, wanted: bool| {
        MlpSpec { input_gradient: wanted, ..spec.clone() }.training_program().unwrap()
    };
    let stored = |layouts: &[(&str, &str)]| {
        let request = LayoutRequest::default().free(Free::Splits);
        layouts.iter().fold(request, |r, (name, placement)| {
            r.pin(name, format!("x: {placement}").parse().unwrap())
        })
    };
    let column = [("x", "R"), ("w0", "S(1)"), ("b0", "S(0)"), ("y", "S(1)")];
    let megatron =
        [("x", "R"), ("w0", "S(1)"), ("b0", "S(0)"), ("w1", "S(0)"), ("b1", "R"), ("y", "R")];
    let columns =
        [("x", "R"), ("w0", "S(1)"), ("b0", "S(0)"), ("w1", "S(1)"), ("b1", "S(0)"), ("y", "S(1)")];
    let fsdp = [
        ("x", "S(0)"),
        ("w0", "S(0)"),
        ("b0", "S(0)"),
        ("w1", "S(0)"),
        ("b1", "S(0)"),
        ("y", "S(0)"),
    ];
    for (program, layouts, most) in [
        (with_x(&one, true), &column[..], 36_864),
        (with_x(&two, true), &megatron, 49_152),
        (with_x(&two, false), &megatron, 12_288),
        (with_x(&two, true), &columns, 61_440),
        (with_x(&two, false), &fsdp, 67_584),
    ] {
        let planned = planned(&program, &mesh("x=4"), &stored(layouts));
        let bytes = planned.plan.totals().bytes_per_device;
        assert!(bytes <= most, "{bytes} > {most} for {layouts:?}");
    }
}

#[test]
fn three_axes_are_planned_within_proven_bounds() {
    let spec = mlp(16, &[8, 8], true, Activation::None);
    let program = spec.training_program().unwrap();
    let cube = mesh("a=2, b=2, c=2");
    let found = planned(&program, &cube, &LayoutRequest::auto());
    let line = planned(&program, &mesh("x=8"), &LayoutRequest::auto());
    assert!(found.cost.bytes <= line.cost.bytes);
}

#[test]
fn more_freedom_never_costs_more() {
    let spec = MlpSpec {
        optimizer: Optimizer::named("momentum").unwrap(),
        input_gradient: true,
        ..mlp(10, &[6, 9, 5], true, Activation::Relu)
    };
    let program = spec.training_program().unwrap();
    for m in ["x=2", "x=3", "a=2, b=2"] {
        let m = mesh(m);
        for preset in ["data", "column", "row", "megatron", "megatron-sp", "fsdp", "zero1"] {
            let by_axis = m.axes().iter().map(|a| format!("{}={preset}", a.name));
            let request: LayoutRequest = by_axis.collect::<Vec<_>>().join(",").parse().unwrap();
            let fixed = planned(&program, &m, &request).cost;
            let splits = planned(&program, &m, &request.clone().free(Free::Splits)).cost;
            let all = planned(&program, &m, &request.free(Free::All)).cost;
            assert!(splits.bytes <= fixed.bytes, "{preset} on {m}");
            assert!(all.bytes <= splits.bytes, "{preset} on {m}");
        }
    }
}

/// A machine on which nothing but this takes time.
fn machine(latency: f64, bandwidth: f64) -> Machine {
    let mut machine = Machine { flops: 1e30, memory_bandwidth: 1e30, ..Machine::default() };
    (machine.link.latency, machine.link.bandwidth) = (latency, bandwidth);
    machine
}

#[test]
fn time_is_volume_without_latency_and_rounds_without_volume() {
    let spec = MlpSpec { input_gradient: true, ..mlp(24, &[8, 24, 8], true, Activation::Relu) };
    let program = spec.training_program().unwrap();
    let x = mesh("x=4");
    let best = |machine: Machine, request: &LayoutRequest| {
        let options = Options { objective: Objective::Time, machine, ..Options::default() };
        let planned = plan(&program, &x, request, &options).unwrap();
        assert!(planned.optimal && check(&planned.plan, &program).is_right());
        // Halving sends less than the direct schedule where p does not divide, as it does not a scalar.
        let mut direct = planned.plan.clone();
        for node in &mut direct.nodes {
            if let Op::Transition(transition) = &mut node.op {
                *transition = transition.by(Algorithm::Direct);
            }
        }
        assert!(
            planned.cost.bytes <= cost_of(&direct).bytes || options.machine.link("x").latency > 0.0
        );
        cost_of(&direct)
    };
    for request in ["megatron", "fsdp", "megatron-sp", "auto"] {
        let request: LayoutRequest = request.parse().unwrap();
        let volume = planned(&program, &x, &request).cost;
        assert_eq!(best(machine(0.0, 1e6), &request).bytes, volume.bytes, "{request}");
        // An all_reduce takes as many rounds as a reduce_scatter and an all_gather: rounds, not launches, are least.
        let rounds = |cost: &dyn Fn(&Plan) -> u64, objective| {
            let machine = machine(1e-6, 1e30);
            let options = Options { objective, machine, ..Options::default() };
            cost(&plan(&program, &x, &request, &options).unwrap().plan)
        };
        let count = |plan: &Plan| {
            let passes = |c: PlannedTransition<'_>| match c.transition.kind {
                TransitionKind::AllReduce => 2,
                _ => 1,
            };
            plan.collectives().map(passes).sum::<u64>()
        };
        assert!(rounds(&count, Objective::Time) <= rounds(&count, Objective::Volume), "{request}");
    }
    // Where only rounds take time, bytes are spent to save collectives.
    let data: LayoutRequest = "fsdp".parse::<LayoutRequest>().unwrap().free(Free::Splits);
    let few = best(machine(1.0, 1e30), &data);
    let cheap = planned(&program, &x, &data).cost;
    assert!(few.collectives <= cheap.collectives && few.bytes >= cheap.bytes);
}
