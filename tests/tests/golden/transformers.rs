//! Transformers against JAX (`golden/transformer.py`): loss, every gradient, and three steps of AdamW with a warm-up and
//! clipped gradients; dense, under every preset on one axis, and on two axes. Heads and features do not
//! divide by three, and some blocks are empty.
//!
//! |a − b| ≤ 10⁻¹² times the largest magnitude of the tensor plus that of all gradients, as some gradients vanish but for
//! rounding (a shift of all keys changes nothing). Adam divides by √v + 10⁻⁸, which magnifies what rounding leaves of such a
//! gradient: after training the factor is 10⁻⁹.

use std::collections::BTreeMap;

use serde_json::Value as Json;
use shardgrad_core::DType;
use shardgrad_core::ops::Role;
use shardgrad_graph::nn::NormKind;
use shardgrad_graph::{
    Activation, Model, Optimizer, Plan, Program, Schedule, StackLayer, StackSpec, Value, eval,
};
use shardgrad_planner::Preset;
use shardgrad_tests::{checked, step, trainer};

use super::{golden, numbers};

const STEPS: u64 = 3;

fn spec(golden: &Json) -> StackSpec {
    let model = &golden["model"];
    let size = |key: &str| model[key].as_u64().unwrap() as usize;
    let norm = if model["norm"] == "layer" { NormKind::Layer } else { NormKind::Rms };
    let name = str::to_owned;
    let layers = vec![
        StackLayer::Embedding { name: name("tokens"), width: size("width"), positions: true },
        StackLayer::Block {
            name: name("block"),
            heads: size("heads"),
            kv_heads: Some(size("kv_heads")),
            hidden: Some(size("hidden")),
            activation: if model["activation"] == "gelu" {
                Activation::Gelu
            } else {
                Activation::Relu
            },
            norm,
            bias: model["bias"] == true,
            causal: true,
            dropout: 0.0,
            repeat: size("repeat"),
        },
        StackLayer::Norm { name: name("norm"), norm },
        StackLayer::Head {
            name: name("scores"),
            tied: (model["tied"] == true).then(|| name("tokens")),
        },
    ];
    StackSpec {
        dtype: DType::F64,
        label_smoothing: model["smoothing"].as_f64().unwrap(),
        masked: model["masked"] == true,
        layers,
        ..StackSpec::new("golden", size("batch"), size("sequence"), size("vocabulary"))
    }
}

/// Values of the leaves by the script's formulas.
fn leaves(program: &Program, spec: &StackSpec) -> BTreeMap<String, Value> {
    let mut values = BTreeMap::new();
    let mut ordinal = 0.0;
    for id in program.leaves() {
        let node = program.node(id);
        let name = node.leaf_name().unwrap();
        let wave = |j: usize| (0.7 * j as f64 + 1.0 + ordinal).sin();
        let value = match (name, node.leaf_role().unwrap()) {
            ("x", _) => Value::from_fn(&node.ty, |j| ((5 * j + 3) % spec.vocabulary) as f64),
            ("y", _) => Value::from_fn(&node.ty, |j| ((3 * j + 1) % spec.vocabulary) as f64),
            ("mask", _) => Value::from_fn(&node.ty, |j| f64::from(u8::from(j % 4 != 2))),
            (_, Role::Param) if name.ends_with(".scale") => {
                Value::from_fn(&node.ty, |j| 1.0 + 0.3 * wave(j))
            }
            (_, Role::Param) => Value::from_fn(&node.ty, |j| 0.5 * wave(j)),
            (_, Role::Input | Role::State | Role::Scalar) => Value::from_fn(&node.ty, |_| 0.0),
        };
        ordinal += f64::from(u8::from(node.leaf_role() == Some(Role::Param)));
        values.insert(name.to_owned(), value);
    }
    values
}

fn planned(program: &Program, mesh: &str, layout: &str) -> Plan {
    checked(program, &mesh.parse().unwrap(), &layout.parse().unwrap())
}

fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |m, v| m.max(v.abs()))
}

fn assert_close(what: &str, actual: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    for (i, (a, b)) in actual.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= tolerance, "{what}[{i}]: {a} is not {b}");
    }
}

fn check_gradients(name: &str) {
    let golden = golden(name);
    let spec = spec(&golden);
    let program = spec.training_program().unwrap();
    let values = leaves(&program, &spec);
    let expected: BTreeMap<&String, Vec<f64>> =
        golden["gradients"].as_object().unwrap().iter().map(|(n, v)| (n, numbers(v))).collect();
    let all = expected.values().map(|v| largest(v)).fold(0.0, f64::max);
    let check = |at: &str, outputs: &BTreeMap<String, Value>| {
        let loss = golden["loss"].as_f64().unwrap();
        assert_close(&format!("{at}: loss"), &outputs["loss"].to_f64s(), &[loss], 1e-12 * loss);
        for (name, expected) in &expected {
            let actual = outputs[&format!("grad({name})")].to_f64s();
            let tolerance = 1e-12 * (largest(expected) + all);
            assert_close(&format!("{at}: grad({name})"), &actual, expected, tolerance);
        }
        assert_eq!(outputs.len(), 1 + expected.len(), "{at}");
    };
    check("dense", &eval::evaluate_outputs(&program, &values).unwrap());
    let one = golden["model"]["repeat"] == 1;
    let mesh = if one { "tp=3" } else { "tp=2" };
    let presets = Preset::ALL.into_iter().filter(|p| *p != Preset::Auto);
    let mut layouts: Vec<_> = presets.map(|preset| (mesh, preset.name())).collect();
    if one {
        layouts.push(("dp=2, tp=2", "dp=data, tp=megatron"));
    }
    for (mesh, layout) in layouts {
        let plan = planned(&program, mesh, layout);
        let report = step(&mut trainer(&plan, &values), &plan, &values);
        check(&format!("{} on {}", plan.layout, plan.mesh), &report.outputs);
    }
}

#[test]
fn gradients_of_a_gpt_with_tied_weights() {
    check_gradients("transformer_gpt");
}

#[test]
fn gradients_of_two_blocks_with_groups_of_heads_mask_and_smoothing() {
    check_gradients("transformer_grouped");
}

fn check_training(name: &str) {
    let golden = golden(name);
    let optimizer =
        Optimizer::AdamW { lr: 1e-2, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01 };
    let spec = StackSpec {
        optimizer,
        schedule: Some(Schedule { warmup: 2, ..Schedule::default() }),
        clip_norm: Some(0.5),
        ..spec(&golden)
    };
    let program = spec.training_program().unwrap();
    let start = leaves(&program, &spec);
    let model = Model::from(spec);
    let losses = numbers(&golden["training"]["losses"]);
    // Every step is clipped, or the test would show nothing.
    assert!(numbers(&golden["training"]["norms"]).iter().all(|&norm| norm > 0.5));
    let layouts =
        [("tp=1", "replicated"), ("tp=3", "megatron"), ("dp=2, tp=2", "dp=fsdp, tp=megatron-sp")];
    for (mesh, layout) in layouts {
        let plan = planned(&program, mesh, layout);
        let mut values = start.clone();
        let mut trainer = trainer(&plan, &values);
        for number in 1..=STEPS + 1 {
            for (scalar, value) in model.scalars(number) {
                values.insert(scalar, Value::scalar(value, DType::F64));
            }
            if number == STEPS + 1 {
                for (name, expected) in golden["training"]["final"].as_object().unwrap() {
                    let expected = numbers(expected);
                    let actual = trainer.gather(name).unwrap().to_f64s();
                    let tolerance = 1e-9 * largest(&expected);
                    assert_close(&format!("{layout}: {name}"), &actual, &expected, tolerance);
                }
            }
            let loss = step(&mut trainer, &plan, &values).loss.unwrap();
            let expected = losses[number as usize - 1];
            assert_close(
                &format!("{layout}: loss {number}"),
                &[loss],
                &[expected],
                1e-10 * expected,
            );
        }
    }
}

#[test]
fn three_clipped_steps_of_adamw_with_a_warm_up() {
    check_training("transformer_gpt");
    check_training("transformer_grouped");
}
