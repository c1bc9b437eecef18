//! The communication of the textbook layouts of an MLP, against published counts: kinds, numbers, bytes.

#[path = "../support/mod.rs"]
mod support;
mod transformer;

use std::collections::BTreeMap;

use shardgrad_core::{DType, Mesh};
use shardgrad_graph::check::check;
use shardgrad_graph::plan::{PlannedTransition, Totals};
use shardgrad_graph::{Activation, Loss, MlpSpec, Optimizer, Plan, Program, memory};
use shardgrad_planner::memory::order::updates_early;
use shardgrad_planner::{Combine, LayoutRequest, Options, Planned, cost_of, plan};
use support::layers;

fn mesh(text: &str) -> Mesh {
    text.parse().unwrap()
}

fn request(text: &str) -> LayoutRequest {
    text.parse().unwrap()
}

/// An MLP with these widths, ReLU between layers, mse loss.
fn mlp(batch: usize, widths: &[usize], bias: bool) -> MlpSpec {
    let layers = layers(widths, bias, Activation::Relu);
    MlpSpec { layers, ..MlpSpec::new("mlp", batch) }
}

/// An optimizer by name, with its defaults.
fn optimizer(name: &str) -> Optimizer {
    serde_json::from_value(serde_json::json!(name)).unwrap()
}

fn planned(program: &Program, mesh: &Mesh, request: &LayoutRequest) -> Planned {
    let planned = plan(program, mesh, request, &Options::default()).unwrap();
    assert_eq!(planned.cost, cost_of(&planned.plan));
    support::proven_optimal(&planned, program);
    let report = check(&planned.plan, program);
    // A pin may lead a value away from a layout that a reader wants: then the way back is no waste.
    assert!(report.is_right() && report.lints.is_empty(), "{report}");
    assert_eq!(planned.lower_bound_bytes, planned.plan.totals().bytes_per_device);
    planned
}

/// Kinds and numbers of collectives, scalars left out.
fn kinds(plan: &Plan) -> BTreeMap<String, u64> {
    plan.totals().by_kind
}

fn expect(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
    pairs.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect()
}

/// Bytes that one rank of an even ring sends: `times`·(p−1)/p of a tensor of f32.
fn ring(times: u64, p: u64, elements: u64) -> u64 {
    assert_eq!(elements % p, 0);
    times * (p - 1) * elements / p * 4
}

#[test]
fn column_parallel_layer_reduces_only_the_input_gradient() {
    // Loss: the sum of the output against a target that lies as the output does.
    let spec = MlpSpec { input_gradient: true, ..mlp(12, &[24, 48], false) };
    let program = spec.training_program().unwrap();
    for p in [2, 3, 4] {
        let tp = mesh(&format!("tp={p}"));
        let request = request("column").pin("y", "tp: S(1)".parse().unwrap());
        let plan = planned(&program, &tp, &request).plan;
        assert_eq!(kinds(&plan), expect(&[("all_reduce", 1)]), "p = {p}");
        assert_eq!(plan.totals().bytes_per_device, ring(2, p, 12 * 24));

        let scattered = request.pin("grad(x)", "tp: S(0)".parse().unwrap());
        let plan = planned(&program, &tp, &scattered).plan;
        assert_eq!(kinds(&plan), expect(&[("reduce_scatter", 1)]));
        assert_eq!(plan.totals().bytes_per_device, ring(1, p, 12 * 24));
    }
    let quiet = mlp(12, &[24, 48], false).training_program().unwrap();
    let request = request("column").pin("y", "tp: S(1)".parse().unwrap());
    let plan = planned(&quiet, &mesh("tp=4"), &request).plan;
    assert_eq!(kinds(&plan), expect(&[]));
}

#[test]
fn row_parallel_layer_reduces_only_the_output() {
    let spec = MlpSpec { input_gradient: true, ..mlp(12, &[24, 48], false) };
    let program = spec.training_program().unwrap();
    for p in [2, 3, 4] {
        let request = request("row").pin("x", "tp: S(1)".parse().unwrap());
        let plan = planned(&program, &mesh(&format!("tp={p}")), &request).plan;
        assert_eq!(kinds(&plan), expect(&[("all_reduce", 1)]));
        assert_eq!(plan.totals().bytes_per_device, ring(2, p, 12 * 48));
    }
}

#[test]
fn column_and_row_come_from_one_model() {
    let program = mlp(8, &[16, 32], true).forward_program(8).unwrap();
    let tp = mesh("tp=4");
    let column = planned(&program, &tp, &request("column")).plan;
    assert_eq!(kinds(&column), expect(&[]));
    let out = column.outputs[0].node;
    assert_eq!(column.layout(out).display(&tp).to_string(), "[tp: S(1)]");
    let row = request("row").pin("out", "tp: R".parse().unwrap());
    let row = planned(&program, &tp, &row).plan;
    assert_eq!(kinds(&row), expect(&[("all_reduce", 1)]));
    assert_eq!(row.totals().bytes_per_device, ring(2, 4, 8 * 32));
}

#[test]
fn megatron_pair_takes_one_all_reduce_and_two_with_the_input_gradient() {
    for bias in [false, true] {
        for p in [2, 4] {
            let tp = mesh(&format!("tp={p}"));
            let spec = mlp(16, &[8, 32, 8], bias);
            let plan = planned(&spec.training_program().unwrap(), &tp, &request("megatron")).plan;
            assert_eq!(kinds(&plan), expect(&[("all_reduce", 1)]));
            assert_eq!(plan.totals().bytes_per_device, ring(2, p, 16 * 8));
            let spec = MlpSpec { input_gradient: true, ..spec };
            let plan = planned(&spec.training_program().unwrap(), &tp, &request("megatron")).plan;
            assert_eq!(kinds(&plan), expect(&[("all_reduce", 2)]));
            assert_eq!(plan.totals().bytes_per_device, ring(4, p, 16 * 8));
        }
    }
}

#[test]
fn sequence_parallel_pair_gathers_and_scatters() {
    let spec = mlp(16, &[8, 32, 8], false);
    let tp = mesh("tp=4");
    let plan = planned(&spec.training_program().unwrap(), &tp, &request("megatron-sp")).plan;
    assert_eq!(kinds(&plan), expect(&[("all_gather", 2), ("reduce_scatter", 1)]));
    assert_eq!(plan.totals().bytes_per_device, ring(3, 4, 16 * 8));
    let spec = MlpSpec { input_gradient: true, ..spec };
    let plan = planned(&spec.training_program().unwrap(), &tp, &request("megatron-sp")).plan;
    assert_eq!(kinds(&plan), expect(&[("all_gather", 2), ("reduce_scatter", 2)]));
    // What two all_reduces send.
    assert_eq!(plan.totals().bytes_per_device, ring(4, 4, 16 * 8));
}

#[test]
fn deep_megatron_takes_one_all_reduce_less_than_layers() {
    for layers in [2_usize, 4, 6, 8] {
        let spec = mlp(16, &vec![16; layers + 1], true);
        let plan =
            planned(&spec.training_program().unwrap(), &mesh("tp=4"), &request("megatron")).plan;
        assert_eq!(kinds(&plan), expect(&[("all_reduce", layers as u64 - 1)]));
    }
}

#[test]
fn data_parallel_reduces_each_gradient_once() {
    for (batch, p) in [(16, 2), (16, 4), (9, 3)] {
        let spec = mlp(batch, &[12, 24, 12], true);
        let plan =
            planned(&spec.training_program().unwrap(), &mesh(&format!("dp={p}")), &request("data"))
                .plan;
        assert_eq!(kinds(&plan), expect(&[("all_reduce", 4)]));
        let parameters = 2 * 12 * 24 + 24 + 12;
        assert_eq!(plan.totals().bytes_per_device, ring(2, p, parameters));
        assert_eq!(plan.totals().scalar_reductions, 1);
        // All gradients go together; the loss is reduced long before.
        assert_eq!((plan.totals().launches, plan.launches().count()), (1, 2), "{plan}");
    }
}

#[test]
fn combining_changes_launches_and_nothing_else() {
    let spec = MlpSpec { optimizer: optimizer("adam"), ..mlp(16, &[12, 24, 12], true) };
    let program = spec.training_program().unwrap();
    for (layout, apart, together) in
        [("data", 4, 1), ("zero1", 8, 2), ("fsdp", 8, 2), ("megatron", 1, 1)]
    {
        let with = |combine, memory_limit| {
            let blocking = combine == Combine::Off;
            let options = Options { combine, memory_limit, blocking, ..Options::default() };
            let planned = plan(&program, &mesh("dp=4"), &request(layout), &options).unwrap();
            let report = check(&planned.plan, &program);
            assert!(report.is_right() && report.lints.is_empty(), "{report}");
            support::proven_optimal(&planned, &program);
            planned.plan
        };
        let (off, auto) = (with(Combine::Off, None), with(Combine::Auto, None));
        assert_eq!((off.totals().launches, auto.totals().launches), (apart, together), "{auto}");
        let counted = |plan: &Plan| Totals { launches: 0, ..plan.totals() };
        assert_eq!(counted(&off), counted(&auto));
        // Weights alone are as large as this.
        let some = with(Combine::UpTo(2 * 12 * 24 * 4), None);
        let sent = |launch: &Vec<PlannedTransition<'_>>| -> u64 {
            launch.iter().map(|c| c.bytes_sent(&some.mesh)).sum()
        };
        let most: Vec<u64> =
            some.launches().filter(|l| l.len() > 1).map(|launch| sent(&launch)).collect();
        assert!(most.iter().all(|&bytes| bytes <= 2 * 12 * 24 * 4), "{some}");
        assert!(!most.is_empty() || layout == "megatron", "{some}");
        // A limit that the plan just fits leaves no room for messages of many.
        let limit = memory::peak(&updates_early(&off)).bytes;
        let fits = with(Combine::Auto, Some(limit)); // Nor for many in flight.
        assert!(memory::peak(&fits).bytes <= limit, "{layout}\n{fits}");
    }
}

#[test]
fn fsdp_gathers_and_scatters_each_parameter_once_when_copies_are_kept() {
    for name in ["none", "sgd", "adam"] {
        let optimizer = optimizer(name);
        let spec = MlpSpec { optimizer, ..mlp(16, &[12, 24, 12], true) };
        let plan = planned(&spec.training_program().unwrap(), &mesh("dp=4"), &request("fsdp")).plan;
        assert_eq!(kinds(&plan), expect(&[("all_gather", 4), ("reduce_scatter", 4)]), "{name}");
        assert_eq!(plan.totals().bytes_per_device, ring(2, 4, 2 * 12 * 24 + 24 + 12));
    }
}

#[test]
fn zero1_scatters_gradients_and_gathers_parameters() {
    let adam = MlpSpec { optimizer: optimizer("adam"), ..mlp(16, &[12, 24, 12], true) };
    let program = adam.training_program().unwrap();
    let dp = mesh("dp=4");
    let plan = planned(&program, &dp, &request("zero1")).plan;
    assert_eq!(kinds(&plan), expect(&[("all_gather", 4), ("reduce_scatter", 4)]));
    assert_eq!(plan.totals().bytes_per_device, ring(2, 4, 2 * 12 * 24 + 24 + 12));
    // With gradients held replicated: 3Ψ.
    let mut held = request("zero1");
    for name in ["grad(w0)", "grad(b0)", "grad(w1)", "grad(b1)"] {
        held = held.pin(name, "dp: R".parse().unwrap());
    }
    let plan = planned(&program, &dp, &held).plan;
    assert_eq!(kinds(&plan), expect(&[("all_gather", 4), ("all_reduce", 4)]));
    assert_eq!(plan.totals().bytes_per_device, ring(3, 4, 2 * 12 * 24 + 24 + 12));
    // Without state it is data parallel.
    let sgd = MlpSpec { optimizer: optimizer("sgd"), ..adam };
    let program = sgd.training_program().unwrap();
    let zero = planned(&program, &dp, &request("zero1")).plan;
    let data = planned(&program, &dp, &request("data")).plan;
    assert_eq!(zero.nodes, data.nodes);
}

#[test]
fn data_times_megatron_reduces_gradients_over_data_and_activations_over_tensor() {
    let spec = MlpSpec { input_gradient: true, ..mlp(16, &[8, 32, 8], true) };
    let plan = planned(
        &spec.training_program().unwrap(),
        &mesh("dp=2, tp=2"),
        &request("dp=data, tp=megatron"),
    )
    .plan;
    let count = |axis: usize| {
        plan.collectives().filter(|c| c.transition.axes.contains(axis) && !c.is_scalar()).count()
    };
    assert_eq!((count(0), count(1)), (4, 2));
    // Gradients of local parameters over dp: 2·8·16 weights, 16 + 8 biases; activations [8, 8] over tp, twice.
    let bytes = ring(2, 2, 2 * 8 * 16 + 16 + 8) + 2 * ring(2, 2, 8 * 8);
    assert_eq!(plan.totals().bytes_per_device, bytes);
}

#[test]
fn one_device_sends_nothing() {
    let spec = MlpSpec {
        input_gradient: true,
        loss: Loss::CrossEntropy,
        optimizer: optimizer("adamw"),
        dtype: DType::F64,
        ..mlp(5, &[3, 7, 4], true)
    };
    let program = spec.training_program().unwrap();
    for preset in shardgrad_planner::Preset::ALL {
        let plan = planned(&program, &mesh("tp=1"), &LayoutRequest::alone(preset)).plan;
        assert_eq!(plan.collectives().count(), 0, "{preset}");
    }
}

#[test]
fn plans_are_the_same_from_run_to_run_and_for_any_order_of_pins() {
    let spec = MlpSpec {
        input_gradient: true,
        loss: Loss::CrossEntropy,
        optimizer: optimizer("adam"),
        ..mlp(10, &[7, 9, 5], true)
    };
    let program = spec.training_program().unwrap();
    let pins = [("h0", "tp: S(0)"), ("grad(x)", "tp: S(1)"), ("grad(w1)", "dp: R, tp: R")];
    let text = |order: &[usize]| {
        let mut request = request("tp=megatron, dp=zero1");
        for &i in order {
            request = request.pin(pins[i].0, pins[i].1.parse().unwrap());
        }
        let planned = planned(&program, &mesh("dp=2, tp=3"), &request);
        serde_json::to_string(&planned.plan).unwrap()
    };
    let first = text(&[0, 1, 2]);
    assert_eq!(first, text(&[0, 1, 2]));
    assert_eq!(first, text(&[2, 0, 1]));
}
