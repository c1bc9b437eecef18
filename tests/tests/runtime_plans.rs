//! Planned programs, executed: values are the oracle's, counts are the plan's own predictions, replicas stay equal.

use std::collections::BTreeMap;

use shardgrad_core::{DType, Mesh, TensorType};
use shardgrad_graph::{
    Activation, LayerSpec, Loss, MlpSpec, Optimizer, OutputRole, Value, eval, memory,
};
use shardgrad_planner::{Combine, Objective, Options, plan};
use shardgrad_runtime::{Buffers, Init, Trainer, TrainerOptions};

const LAYOUTS: [(&str, &str); 17] = [
    ("d=1", "replicated"),
    ("d=2", "data"),
    ("d=3", "data"),
    ("d=5", "data"),
    ("d=8", "data"),
    ("d=2", "column"),
    ("d=3", "row"),
    ("d=2", "megatron"),
    ("d=4", "megatron"),
    ("d=2", "megatron-sp"),
    ("d=3", "fsdp"),
    ("d=2", "zero1"),
    ("d=2", "auto"),
    ("d=2, t=2", "d=data, t=megatron"),
    ("d=2, t=3", "d=fsdp, t=megatron"),
    ("d=2, t=2", "d=zero1, t=row"),
    ("d=2, t=2", "d=auto, t=auto"),
];

fn spec(loss: Loss, optimizer: &str, activation: Activation) -> MlpSpec {
    let layer = |inputs, outputs, activation| LayerSpec { inputs, outputs, bias: true, activation };
    MlpSpec {
        dtype: DType::F64,
        loss,
        optimizer: Optimizer::named(optimizer).unwrap(),
        input_gradient: true,
        layers: vec![layer(5, 7, activation), layer(7, 3, Activation::None)],
        ..MlpSpec::new("mlp", 6)
    }
}

fn inputs(spec: &MlpSpec, step: u64) -> BTreeMap<String, Value> {
    let at = step as usize;
    let ramp = |n, salt: usize| {
        let ty = TensorType::new([spec.batch, n], spec.dtype);
        Value::from_fn(&ty, |i| ((i * 7 + at * 3 + salt) % 11) as f64 - 5.0)
    };
    let mut inputs = BTreeMap::from([("x".to_owned(), ramp(spec.inputs(), 1))]);
    match spec.loss {
        Loss::Sum => {}
        Loss::Mse => drop(inputs.insert("y".to_owned(), ramp(spec.outputs(), 4))),
        Loss::CrossEntropy => {
            let ty = TensorType::new([spec.batch], DType::I32);
            inputs.insert("y".to_owned(), Value::from_fn(&ty, |i| ((i + at) % 3) as f64));
        }
    }
    for (name, value) in spec.optimizer.scalars(step) {
        inputs.insert(name, Value::scalar(value, spec.dtype));
    }
    inputs
}

fn check(spec: &MlpSpec, exact: bool) {
    let program = spec.training_program().unwrap();
    let mut others = 0;
    // The fastest plan has collectives by other algorithms than the direct one, where there are enough ranks.
    let cases =
        LAYOUTS.into_iter().flat_map(|l| [Objective::Time, Objective::Volume].map(|o| (l, o)));
    for (i, ((mesh, layout), objective)) in cases.enumerate() {
        let mesh: Mesh = mesh.parse().unwrap();
        let request = layout.parse().unwrap();
        let options = Options { objective, ..Options::default() };
        let planned = plan(&program, &mesh, &request, &options).unwrap();
        let plan = planned.plan;
        others += plan.collectives().filter(|c| !c.transition.algorithm.is_direct()).count();
        let buffers = if i / 2 % 2 == 0 { Buffers::Keep } else { Buffers::Free };
        let init = BTreeMap::from([("b0".to_owned(), Init::Constant(0.25))]);
        let options = TrainerOptions { seed: 3, init, buffers, ..TrainerOptions::default() };
        let mut trainer = Trainer::with_options(&plan, options).unwrap();
        let names: Vec<String> = trainer.stored().map(|(name, _)| name.to_owned()).collect();
        if exact {
            for name in &names {
                let ty = trainer.gather(name).unwrap().ty();
                let value = Value::from_fn(&ty, |i| ((i * 5) % 7) as f64 - 3.0);
                trainer.set(name, &value).unwrap();
            }
        }
        for step in 1..=3 {
            let mut leaves = inputs(spec, step);
            let given = leaves.clone();
            for name in &names {
                leaves.insert(name.clone(), trainer.gather(name).unwrap());
            }
            let expected = eval::evaluate_outputs(&program, &leaves).unwrap();
            let report = trainer.step(&given).unwrap();
            for output in &program.outputs {
                let got = match output.role {
                    OutputRole::Update { .. } => trainer.gather(&output.name).unwrap(),
                    _ => report.outputs[&output.name].clone(),
                };
                for (g, e) in got.to_f64s().into_iter().zip(expected[&output.name].to_f64s()) {
                    // Sums of at most 42 terms in f64.
                    let near =
                        if exact { g == e } else { (g - e).abs() <= 1e-12 * e.abs().max(1.0) };
                    assert!(near, "{layout}: {} is {g}, not {e}", output.name);
                }
            }
            let (totals, peak) = (plan.totals(), memory::peak(&plan));
            let counted = &report.counted;
            assert_eq!(counted.launches, totals.launches, "{layout}");
            assert_eq!(counted.bytes_per_device, totals.bytes_per_device, "{layout}");
            assert_eq!(counted.scalar_reductions, totals.scalar_reductions, "{layout}");
            assert_eq!(counted.scalar_bytes_per_device, totals.scalar_bytes_per_device, "{layout}");
            assert_eq!(counted.peak_bytes_by_rank, peak.per_rank, "{layout}");
            if exact {
                break; // Later steps are no longer on small integers.
            }
        }
    }
    assert!(others > 5, "only {others} collectives by another algorithm");
}

#[test]
fn gradients_are_exact_on_integers() {
    check(&spec(Loss::Sum, "none", Activation::Relu), true);
}

#[test]
fn training_with_every_optimizer_is_the_oracles() {
    check(&spec(Loss::CrossEntropy, "adamw", Activation::Gelu), false);
    check(&spec(Loss::Mse, "momentum", Activation::Tanh), false);
    check(&spec(Loss::CrossEntropy, "sgd", Activation::Relu), false);
    check(&spec(Loss::Mse, "adam", Activation::Sigmoid), false);
}

/// The same values on every rank, bit for bit, however collectives are launched, on lent buffers and by messages.
#[test]
fn launching_together_changes_no_bit() {
    let spec = spec(Loss::CrossEntropy, "adam", Activation::Gelu);
    let program = spec.training_program().unwrap();
    let mut together = 0;
    for (mesh, layout) in LAYOUTS {
        let mesh: Mesh = mesh.parse().unwrap();
        let run = |combine, buffers| {
            let options = Options { combine, ..Options::default() };
            let plan = plan(&program, &mesh, &layout.parse().unwrap(), &options).unwrap().plan;
            let options = TrainerOptions { seed: 5, buffers, ..TrainerOptions::default() };
            let mut trainer = Trainer::with_options(&plan, options).unwrap();
            let mut bits = Vec::new();
            for step in 1..=2 {
                let report = trainer.step(&inputs(&spec, step)).unwrap();
                let (totals, counted) = (plan.totals(), &report.counted);
                assert_eq!(counted.launches, totals.launches, "{layout}");
                assert_eq!(counted.bytes_per_device, totals.bytes_per_device, "{layout}");
                let peak = memory::peak(&plan);
                assert_eq!(counted.peak_bytes_by_rank, peak.per_rank, "{layout}\n{plan}");
                bits.extend(report.outputs["loss"].to_f64s().into_iter().map(f64::to_bits));
            }
            let names: Vec<String> = trainer.stored().map(|(name, _)| name.to_owned()).collect();
            for name in names {
                let value = trainer.gather(&name).unwrap();
                bits.extend(value.to_f64s().into_iter().map(f64::to_bits));
            }
            (plan.launches().count(), bits)
        };
        let (most, apart) = run(Combine::Off, Buffers::Keep);
        for buffers in [Buffers::Keep, Buffers::Free] {
            let (launches, found) = run(Combine::Auto, buffers);
            assert!(found == apart, "{layout} on {mesh}, {buffers:?}");
            together += most - launches;
        }
    }
    assert!(together > 50, "only {together} collectives went along with others");
}
