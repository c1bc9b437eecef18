//! Losses, gradients and training histories against values from an independent framework: dense, and under every preset
//! on every mesh, sizes that do not divide included. |a − b| ≤ 1e-12 · max|b| per tensor, in f64.

mod transformers;

use std::collections::BTreeMap;

use serde_json::Value as Json;
use shardgrad_core::{DType, TensorType};
use shardgrad_graph::{Activation, LayerSpec, Loss, MlpSpec, Optimizer, Program, Value, eval};
use shardgrad_tests::{plans_of_all_presets, step, trainer};

fn golden(name: &str) -> Json {
    let path = format!("{}/golden/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn numbers(json: &Json) -> Vec<f64> {
    json.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

fn spec(golden: &Json, optimizer: Optimizer) -> MlpSpec {
    let sizes: Vec<usize> = numbers(&golden["sizes"]).into_iter().map(|n| n as usize).collect();
    let activation = match golden["activation"].as_str().unwrap() {
        "relu" => Activation::Relu,
        "tanh" => Activation::Tanh,
        "gelu_tanh" => Activation::Gelu,
        other => panic!("{other}"),
    };
    let last = sizes.len() - 2;
    let layers = sizes.windows(2).enumerate().map(|(i, pair)| LayerSpec {
        inputs: pair[0],
        outputs: pair[1],
        bias: true,
        activation: if i == last { Activation::None } else { activation },
    });
    MlpSpec {
        dtype: DType::F64,
        layers: layers.collect(),
        loss: if golden["loss"] == "mse" { Loss::Mse } else { Loss::CrossEntropy },
        optimizer,
        input_gradient: true,
        ..MlpSpec::new("golden", golden["batch"].as_u64().unwrap() as usize)
    }
}

/// Values of the leaves by the formulas in the files.
fn leaves(program: &Program, classes: usize) -> BTreeMap<String, Value> {
    let wave = |ty: &TensorType, phase: f64, scale: f64| {
        Value::from_fn(ty, |j| (0.7 * j as f64 + phase).sin() * scale)
    };
    let mut values = BTreeMap::new();
    for id in program.leaves() {
        let (name, ty) = (program.node(id).leaf_name().unwrap(), &program.node(id).ty);
        let index = name[1..].parse().unwrap_or(0.0);
        let value = match name.chars().next().unwrap() {
            'w' => wave(ty, 1.0 + index, 0.5),
            'b' if !name.starts_with("bias") => wave(ty, 11.0 + index, 0.3),
            'x' => wave(ty, 21.0, 1.0),
            'y' if ty.dtype == DType::I32 => Value::from_fn(ty, |row| ((7 * row) % classes) as f64),
            'y' => wave(ty, 31.0, 1.0),
            // Optimizer state; scalars are set each step.
            _ => Value::from_fn(ty, |_| 0.0),
        };
        values.insert(name.to_owned(), value);
    }
    values
}

/// |a − b| ≤ 1e-12 · max|b| over the tensor.
fn assert_close(what: &str, actual: &[f64], expected: &[f64]) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
    for (i, (a, b)) in actual.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= 1e-12 * largest, "{what}[{i}]: {a} is not {b}");
    }
}

fn check_gradients(name: &str) {
    let golden = golden(name);
    let spec = spec(&golden, Optimizer::None);
    let program = spec.training_program().unwrap();
    let values = leaves(&program, spec.outputs());
    assert_gradients("dense", &golden, &spec, &eval::evaluate_outputs(&program, &values).unwrap());
    for plan in plans_of_all_presets(&program) {
        let report = step(&mut trainer(&plan, &values), &plan, &values);
        let where_ = format!("{} on {}", plan.layout, plan.mesh);
        assert_gradients(&where_, &golden, &spec, &report.outputs);
    }
}

fn assert_gradients(at: &str, golden: &Json, spec: &MlpSpec, outputs: &BTreeMap<String, Value>) {
    let assert_close = |what: &str, actual: &[f64], expected: &[f64]| {
        assert_close(&format!("{at}: {what}"), actual, expected);
    };
    assert_close("loss", &outputs["loss"].to_f64s(), &[golden["loss_value"].as_f64().unwrap()]);
    assert_close("dx", &outputs["grad(x)"].to_f64s(), &numbers(&golden["dx"]));
    for i in 0..spec.layers.len() {
        for leaf in ["w", "b"] {
            let actual = outputs[&format!("grad({leaf}{i})")].to_f64s();
            assert_close(&format!("d{leaf}{i}"), &actual, &numbers(&golden[format!("d{leaf}{i}")]));
        }
    }
    assert_eq!(outputs.len(), 2 + 2 * spec.layers.len());
}

#[test]
fn gradients_of_a_linear_layer() {
    check_gradients("linear_mse");
}

#[test]
fn gradients_of_two_relu_layers() {
    check_gradients("mlp2_relu_mse");
    check_gradients("mlp2_relu_mse_adam");
}

#[test]
fn gradients_of_two_tanh_layers_with_cross_entropy() {
    check_gradients("mlp2_tanh_ce_sgd");
}

#[test]
fn gradients_of_three_gelu_layers_with_cross_entropy() {
    check_gradients("mlp3_gelu_ce");
}

/// What a training run leaves: losses before every step and after the last, and the weights at the end.
struct History {
    losses: Vec<f64>,
    weights: Vec<Vec<f64>>,
}

fn assert_history(at: &str, golden: &Json, history: &History) {
    assert_close(&format!("{at}: losses"), &history.losses, &numbers(&golden["loss_history"]));
    for (i, actual) in history.weights.iter().enumerate() {
        let expected = numbers(&golden[format!("w{i}_final")]);
        assert_close(&format!("{at}: w{i}"), actual, &expected);
    }
}

fn check_training(name: &str) {
    let golden = golden(name);
    let optimizer: Optimizer = {
        let mut table = golden["optimizer"].clone();
        table.as_object_mut().unwrap().remove("steps");
        serde_json::from_value(table).unwrap()
    };
    let steps = golden["optimizer"]["steps"].as_u64().unwrap();
    let spec = spec(&golden, optimizer);
    let program = spec.training_program().unwrap();
    let start = leaves(&program, spec.outputs());
    let at_step = |values: &mut BTreeMap<String, Value>, step: u64| {
        for (scalar, value) in optimizer.scalars(step) {
            values.insert(scalar, Value::scalar(value, DType::F64));
        }
    };

    let mut values = start.clone();
    let mut dense = History { losses: Vec::new(), weights: Vec::new() };
    for number in 1..=steps + 1 {
        at_step(&mut values, number);
        let outputs = eval::evaluate_outputs(&program, &values).unwrap();
        dense.losses.extend(outputs["loss"].item());
        if number <= steps {
            values.extend(outputs.into_iter().filter(|(name, _)| !name.starts_with("grad")));
        }
    }
    let weight = |i: usize| format!("w{i}");
    dense.weights = (0..spec.layers.len()).map(|i| values[&weight(i)].to_f64s()).collect();
    assert_history("dense", &golden, &dense);

    for plan in plans_of_all_presets(&program) {
        let mut values = start.clone();
        let mut trainer = trainer(&plan, &values);
        let mut history = History { losses: Vec::new(), weights: Vec::new() };
        for number in 1..=steps + 1 {
            at_step(&mut values, number);
            if number == steps + 1 {
                history.weights = (0..spec.layers.len())
                    .map(|i| trainer.gather(&weight(i)).unwrap().to_f64s())
                    .collect();
            }
            history.losses.extend(step(&mut trainer, &plan, &values).loss);
        }
        assert_history(&format!("{} on {}", plan.layout, plan.mesh), &golden, &history);
    }
}

#[test]
fn five_steps_of_adam() {
    check_training("mlp2_relu_mse_adam");
}

#[test]
fn five_steps_of_sgd() {
    check_training("mlp2_tanh_ce_sgd");
}
