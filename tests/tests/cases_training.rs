//! Cases from public bug reports: what training keeps, on every layout. Kinds C (checkpoint), R (replica), O (optimizer), X
//! (runtime), D (dtype).
//!
//! Two names for one parameter (C6) do not exist here: a tied parameter is one leaf that is used twice.

mod cases_everywhere;

use cases_everywhere::{Inputs, everywhere, mesh, outputs, pinned, plan, value};
use shardgrad_core::{DType, TensorType};
use shardgrad_graph::{
    Activation, Graph, LayerSpec, Loss, MlpSpec, Optimizer, OutputRole, Program, Value, eval,
};
use shardgrad_planner::LayoutRequest;
use shardgrad_runtime::{Checkpoint, Trainer};
use shardgrad_testkit::tolerance::bounds_on;

const F: DType = DType::F64;

fn inputs<const N: usize>(values: [(&str, Value); N]) -> Inputs {
    values.into_iter().map(|(n, v)| (n.to_owned(), v)).collect()
}

fn layer(inputs: usize, outputs: usize, activation: Activation) -> LayerSpec {
    LayerSpec { inputs, outputs, bias: true, activation }
}

/// [6, 5] → [5, 3], trained with Adam.
fn spec() -> MlpSpec {
    MlpSpec {
        dtype: F,
        loss: Loss::Mse,
        optimizer: Optimizer::named("adam").unwrap(),
        layers: vec![layer(6, 5, Activation::Tanh), layer(5, 3, Activation::None)],
        ..MlpSpec::new("mlp", 4)
    }
}

fn step_inputs(spec: &MlpSpec, step: u64) -> Inputs {
    let ramp = |n: usize| {
        let ty = TensorType::new([spec.batch, n], spec.dtype);
        Value::from_fn(&ty, |i| ((i * 5 + step as usize * 3) % 13) as f64 / 13.0 - 0.4)
    };
    let mut all = inputs([("x", ramp(6)), ("y", ramp(3))]);
    for (name, number) in spec.optimizer.scalars(step) {
        all.insert(name, Value::scalar(number, spec.dtype));
    }
    all
}

fn trainer(program: &Program, mesh_text: &str, request: &LayoutRequest) -> Trainer {
    Trainer::threads(&plan(program, &mesh(mesh_text), request), 7).unwrap()
}

/// A file of a test's own.
fn path(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("shardgrad-case-{}-{name}", std::process::id()))
}

fn through_a_file(checkpoint: &Checkpoint, name: &str) -> Checkpoint {
    let path = path(name);
    checkpoint.write(&path).unwrap();
    let read = Checkpoint::read(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    read
}

#[test]
fn case_c1_what_four_devices_save_any_number_loads() {
    let spec = spec();
    let program = spec.training_program().unwrap();
    let mut four = trainer(&program, "tp=4", &"fsdp".parse().unwrap());
    for step in 1..=2 {
        four.train(&step_inputs(&spec, step)).unwrap();
    }
    let saved = through_a_file(&Checkpoint::of(&mut four, "mlp", 2).unwrap(), "c1");
    assert_eq!((saved.about.step, saved.tensors.len()), (2, 12));
    for (to, layout) in [
        ("tp=1", "replicated"),
        ("tp=2", "column"),
        ("tp=3", "fsdp"),
        ("tp=4", "megatron"),
        ("tp=6", "zero1"),
        ("dp=2, tp=2", "dp=fsdp, tp=column"),
    ] {
        let mut other = trainer(&program, to, &layout.parse().unwrap());
        saved.restore(&mut other).unwrap();
        for (name, value) in &saved.tensors {
            assert_eq!(&other.gather(name).unwrap(), value, "{name} on {to}, {layout}");
        }
    }
}

/// After loading, one step is that of the dense program from the saved tensors, moments and step count included.
#[test]
fn case_c4_moments_and_step_count_survive_a_change_of_layout() {
    let spec = spec();
    let program = spec.training_program().unwrap();
    let by_rows = pinned(&[("w0", "tp: S(0)"), ("m(w0)", "tp: S(0)"), ("v(w0)", "tp: S(0)")]);
    let mut two = trainer(&program, "tp=2", &by_rows);
    for step in 1..=3 {
        two.train(&step_inputs(&spec, step)).unwrap();
    }
    let saved = through_a_file(&Checkpoint::of(&mut two, "mlp", 3).unwrap(), "c4");
    assert!(saved.tensors["m(w0)"].to_f64s().iter().all(|&m| m != 0.0));
    let mut leaves = step_inputs(&spec, saved.about.step + 1);
    leaves.extend(saved.tensors.clone());
    let dense = eval::evaluate_outputs(&program, &leaves).unwrap();
    let bounds = bounds_on(&program, &leaves, 4).unwrap();
    for (to, layout) in [("tp=4", "column"), ("tp=1", "replicated"), ("tp=2", "fsdp")] {
        let mut other = trainer(&program, to, &layout.parse().unwrap());
        saved.restore(&mut other).unwrap();
        other.train(&step_inputs(&spec, 4)).unwrap();
        for output in &program.outputs {
            if matches!(output.role, OutputRole::Update { .. }) {
                let now = other.gather(&output.name).unwrap();
                let deviation = bounds.compare(output.node, &dense[&output.name], &now);
                assert!(deviation.is_within(), "{} on {to}, {layout}: {deviation}", output.name);
            }
        }
    }
    // A checkpoint without the moments is refused by name.
    let mut without = saved.clone();
    without.tensors.remove("v(w0)");
    let error = without.restore(&mut two).unwrap_err().to_string();
    assert!(error.contains("v(w0)"), "{error}");
}

/// y = x·E·Eᵀ, loss Σ y², Adam.
fn tied() -> Program {
    let g = Graph::new("tied", F);
    let (x, e) = (g.input("x", [3, 2]).unwrap(), g.param("e", [2, 4]).unwrap());
    let y = x.matmul(e).unwrap().einsum("bo,io->bi", e).unwrap();
    let loss = y.square().unwrap().sum_all().unwrap();
    g.output("loss", loss, OutputRole::Loss).unwrap();
    let gradient = g.grad(loss, &[e]).unwrap()[0];
    Optimizer::named("adam").unwrap().step(&g, &[(e, gradient)]).unwrap();
    g.finish()
}

#[test]
fn case_c6_a_tied_parameter_is_stored_once_and_stays_tied() {
    let program = tied();
    let step = |number| {
        let x = TensorType::new([3, 2], F);
        let mut all = inputs([("x", Value::from_fn(&x, |i| i as f64 / 4.0 - 0.6))]);
        for (name, scalar) in Optimizer::named("adam").unwrap().scalars(number) {
            all.insert(name, Value::scalar(scalar, F));
        }
        all
    };
    let mut two = trainer(&program, "tp=2", &pinned(&[("e", "tp: S(1)")]));
    two.train(&step(1)).unwrap();
    let saved = through_a_file(&Checkpoint::of(&mut two, "tied", 1).unwrap(), "c6");
    assert_eq!(saved.tensors.keys().collect::<Vec<_>>(), ["e", "m(e)", "v(e)"]);
    let mut again = trainer(&program, "tp=2", &pinned(&[("e", "tp: S(1)")]));
    saved.restore(&mut again).unwrap();
    two.train(&step(2)).unwrap();
    again.train(&step(2)).unwrap();
    assert_eq!(again.gather("e").unwrap(), two.gather("e").unwrap());
    assert_ne!(again.gather("e").unwrap(), saved.tensors["e"]);
}

#[test]
fn case_c7_a_save_that_fails_leaves_the_old_checkpoint_whole() {
    let program = tied();
    let mut one = trainer(&program, "tp=1", &LayoutRequest::default());
    let saved = Checkpoint::of(&mut one, "a", 1).unwrap();
    let path = path("c7");
    saved.write(&path).unwrap();
    // No file can be made beside one whose name is as long as names may be.
    let long = path.with_file_name("c7-".repeat(80));
    std::fs::copy(&path, &long).unwrap();
    let next = Checkpoint::of(&mut one, "b", 2).unwrap();
    next.write(&long).unwrap_err();
    assert_eq!(Checkpoint::read(&long).unwrap(), saved);
    std::fs::remove_file(long).unwrap();
    // A file that was cut off anywhere is taken for none.
    let bytes = std::fs::read(&path).unwrap();
    for length in 0..bytes.len() {
        assert!(Checkpoint::parse(&path, &bytes[..length]).is_err(), "{length} bytes");
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn case_c10_fused_rows_keep_their_global_order() {
    let g = Graph::new("c10", F);
    let (x, w) = (g.input("x", [2, 8]).unwrap(), g.param("w", [8, 1]).unwrap());
    g.output("y", x.matmul(w).unwrap(), OutputRole::Value).unwrap();
    let program = g.finish();
    // Rows g0 … g3, u0 … u3.
    let rows = value([8, 1], F, &[10., 11., 12., 13., 20., 21., 22., 23.]);
    let mut four = trainer(&program, "tp=4", &pinned(&[("w", "tp: S(0)")]));
    four.set("w", &rows).unwrap();
    let saved = through_a_file(&Checkpoint::of(&mut four, "fused", 0).unwrap(), "c10");
    for to in ["tp=1", "tp=2", "tp=3"] {
        let mut other = trainer(&program, to, &pinned(&[("w", "tp: S(0)")]));
        saved.restore(&mut other).unwrap();
        assert_eq!(other.gather("w").unwrap(), rows, "{to}");
    }
}

#[test]
fn case_r1_initial_values_do_not_depend_on_mesh_or_layout() {
    let g = Graph::new("r1", F);
    let (x, w) = (g.input("x", [1, 4]).unwrap(), g.param("w", [4, 4]).unwrap());
    g.output("y", x.matmul(w).unwrap(), OutputRole::Value).unwrap();
    let program = g.finish();
    let start = |mesh: &str, pin: &str| {
        trainer(&program, mesh, &pinned(&[("w", pin)])).gather("w").unwrap()
    };
    let first = start("dp=1", "dp: R");
    let distinct: std::collections::BTreeSet<u64> =
        first.to_f64s().into_iter().map(f64::to_bits).collect();
    assert_eq!(distinct.len(), 16, "equal blocks would hide a seed that is used on every rank");
    for mesh in ["dp=2", "dp=4", "dp=3"] {
        for pin in ["dp: R", "dp: S(0)", "dp: S(1)"] {
            assert_eq!(start(mesh, pin), first, "{mesh}, {pin}");
        }
    }
    for pin in ["tp: S(0)", "dp: S(0)", "dp: S(0), tp: S(1)", "dp: S(0), tp: S(0)"] {
        assert_eq!(start("dp=2, tp=2", pin), first, "{pin}");
    }
}

#[test]
fn case_o1_the_norm_of_all_gradients_is_one_number() {
    let g = Graph::new("o1", F);
    let (a, b) = (g.input("a", [2]).unwrap(), g.input("b", [1]).unwrap());
    let squares =
        a.square().unwrap().sum_all().unwrap().add(b.square().unwrap().sum_all().unwrap());
    let norm = squares.unwrap().sqrt().unwrap();
    // max(norm, 6.5)
    let most = norm.add_const(-6.5).unwrap().relu().unwrap().add_const(6.5).unwrap();
    let factor = most.reciprocal().unwrap().scale(6.5).unwrap();
    g.output("norm", norm, OutputRole::Value).unwrap();
    for (name, v, n) in [("clipped a", a, 2), ("clipped b", b, 1)] {
        let clipped = v.mul(factor.broadcast(&[], &[n]).unwrap()).unwrap();
        g.output(name, clipped, OutputRole::Value).unwrap();
    }
    let data = inputs([("a", value([2], F, &[3., 4.])), ("b", value([1], F, &[12.]))]);
    let answers: [(&str, &[f64]); 3] =
        [("norm", &[13.]), ("clipped a", &[1.5, 2.]), ("clipped b", &[6.])];
    everywhere(&g.finish(), &["tp=2", "tp=3", "dp=2, tp=2"], &data, &answers);
}

#[test]
fn case_o3_a_tied_parameter_takes_one_step_with_the_summed_gradient() {
    let g = Graph::new("o3", F);
    let e = g.param("e", [2]).unwrap();
    let (first, second) = (g.input("first", [2]).unwrap(), g.input("second", [2]).unwrap());
    let uses =
        e.mul(first).unwrap().sum_all().unwrap().add(e.mul(second).unwrap().sum_all().unwrap());
    let loss = uses.unwrap();
    g.output("loss", loss, OutputRole::Loss).unwrap();
    let gradient = g.grad(loss, &[e]).unwrap()[0];
    let adam = Optimizer::Adam { lr: 0.1, beta1: 0.9, beta2: 0.999, eps: 1e-12, weight_decay: 0.0 };
    adam.step(&g, &[(e, gradient)]).unwrap();
    let mut data = inputs([
        ("e", value([2], F, &[1., 2.])),
        ("m(e)", value([2], F, &[0.; 2])),
        ("v(e)", value([2], F, &[0.; 2])),
        ("first", value([2], F, &[1., 0.])),
        ("second", value([2], F, &[0.5, 0.5])),
    ]);
    for (name, scalar) in adam.scalars(1) {
        data.insert(name, Value::scalar(scalar, F));
    }
    // Two steps would make [0.8, 1.9]. m is a tenth of the summed gradient.
    let answers: [(&str, &[f64]); 2] = [("e", &[0.9, 1.9]), ("m(e)", &[0.15, 0.05])];
    everywhere(&g.finish(), &["tp=2"], &data, &answers);
}

#[test]
fn case_o5_micro_batches_reduce_once_per_step() {
    let spec = |micro_batches| MlpSpec {
        dtype: F,
        loss: Loss::Sum,
        layers: vec![layer(3, 2, Activation::Relu), layer(2, 2, Activation::None)],
        micro_batches,
        ..MlpSpec::new("micro", 8)
    };
    let (whole, parts) = (spec(1).training_program().unwrap(), spec(4).training_program().unwrap());
    for (text, layout) in [("dp=2", "data"), ("dp=3", "data"), ("dp=2", "zero1")] {
        let request: LayoutRequest = layout.parse().unwrap();
        let count = |program: &Program| {
            let planned = plan(program, &mesh(text), &request);
            let gradients = planned.collectives().filter(|c| c.ty.elements() > 1).count();
            (gradients, planned.totals().bytes_per_device)
        };
        assert_eq!(count(&parts), count(&whole), "{layout} on {text}");
        assert!(count(&parts).0 > 0);
    }
    // The result is that of the single batch, bit for bit: whole numbers, sums only.
    let number = |i: usize| ((i * 7 + 3) % 11) as f64 - 5.0;
    let mut data = Inputs::new();
    for id in whole.leaves() {
        let node = whole.node(id);
        data.insert(node.leaf_name().unwrap().to_owned(), Value::from_fn(&node.ty, number));
    }
    let mut cut = data.clone();
    let x = cut.remove("x").unwrap();
    for part in 0..4 {
        cut.insert(format!("x.{part}"), x.rows(2 * part..2 * part + 2));
    }
    let single = eval::evaluate_outputs(&whole, &data).unwrap();
    let summed = eval::evaluate_outputs(&parts, &cut).unwrap();
    for name in ["loss", "grad(w0)", "grad(b0)", "grad(w1)", "grad(b1)"] {
        assert_eq!(single[name], summed[name], "{name}");
    }
}

#[test]
fn case_x7_parameters_that_are_not_used_and_rows_that_are_not_there() {
    // An unused parameter; a use that a mask of zeros removes.
    let g = Graph::new("x7", F);
    let (x, w) = (g.input("x", [1, 2]).unwrap(), g.param("w", [2, 2]).unwrap());
    let (mask, u) = (g.input("mask", [1, 2]).unwrap(), g.param("u", [3]).unwrap());
    let y = x.matmul(w).unwrap();
    let loss = y.mul(mask).unwrap().sum_all().unwrap();
    outputs(&g, loss, &[("w", w), ("u", u)]);
    let program = g.finish();
    let with = |mask: &[f64]| {
        inputs([
            ("x", value([1, 2], F, &[3., -2.])),
            ("w", value([2, 2], F, &[1., 2., 3., 4.])),
            ("u", value([3], F, &[1., 2., 3.])),
            ("mask", value([1, 2], F, mask)),
        ])
    };
    // On two and more devices the second has no row.
    let zero: &[f64] = &[0.; 3];
    let used: [(&str, &[f64]); 2] = [("grad(w)", &[3., 0., -2., 0.]), ("grad(u)", zero)];
    everywhere(&program, &["tp=2", "tp=3"], &with(&[1., 0.]), &used);
    let none: [(&str, &[f64]); 2] = [("grad(w)", &[0.; 4]), ("grad(u)", zero)];
    everywhere(&program, &["tp=2"], &with(&[0., 0.]), &none);
    let planned = plan(&program, &mesh("tp=2"), &pinned(&[("x", "tp: S(0)")]));
    assert!(planned.collectives().all(|c| c.ty.shape.as_slice() != [3]), "{planned}");
}

/// There are no 16-bit types; sums in f32 are held to their bound against f64, and small terms are not lost where the sum
/// has bits for them.
#[test]
fn case_d1_small_terms_are_not_lost_in_a_sum() {
    for (terms, sum) in [
        ([256., 1., 1., 1., 1., 1., 1., 1.], 263.),
        ([2048., 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5], 2051.5),
    ] {
        let g = Graph::new("d1", DType::F32);
        let x = g.input("x", [8]).unwrap();
        g.output("sum", x.sum_all().unwrap(), OutputRole::Value).unwrap();
        let program = g.finish();
        let data = inputs([("x", value([8], DType::F32, &terms))]);
        let dense = eval::evaluate_outputs(&program, &data).unwrap();
        assert_eq!(dense["sum"].item(), Some(sum));
        everywhere(&program, &["tp=8", "tp=3", "dp=2, tp=4"], &data, &[("sum", &[sum])]);
    }
}
