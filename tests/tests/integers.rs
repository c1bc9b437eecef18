//! On integer-valued data sums are exact in any order: every preset equals the dense evaluation with `==`.

use std::collections::BTreeMap;

use shardgrad_core::{DType, TensorType};
use shardgrad_graph::{Activation, LayerSpec, Loss, MlpSpec, Optimizer, Program, Value, eval};
use shardgrad_tests::{plans_of_all_presets, step, trainer};

/// Small integers of both signs that tell rows and columns apart.
fn integers(program: &Program) -> BTreeMap<String, Value> {
    let of = |ty: &TensorType, k: usize| {
        Value::from_fn(ty, |j| ((j * 7 + j / 3 + 5 * k) % 9) as f64 - 4.0)
    };
    program
        .leaves()
        .enumerate()
        .map(|(k, id)| {
            let node = program.node(id);
            (node.leaf_name().unwrap().to_owned(), of(&node.ty, k))
        })
        .collect()
}

fn spec(dtype: DType, optimizer: Optimizer) -> MlpSpec {
    let layer = |inputs, outputs, activation| LayerSpec { inputs, outputs, bias: true, activation };
    MlpSpec {
        dtype,
        loss: Loss::Sum,
        input_gradient: true,
        optimizer,
        layers: vec![
            layer(5, 7, Activation::Relu),
            layer(7, 6, Activation::Relu),
            layer(6, 3, Activation::None),
        ],
        ..MlpSpec::new("integers", 4)
    }
}

#[test]
fn gradients_of_a_relu_network_are_exact_under_every_preset() {
    for dtype in [DType::F32, DType::F64] {
        let program = spec(dtype, Optimizer::None).training_program().unwrap();
        let values = integers(&program);
        let dense = eval::evaluate_outputs(&program, &values).unwrap();
        assert!(dense["grad(w0)"].to_f64s().iter().any(|&g| g != 0.0));
        for plan in plans_of_all_presets(&program) {
            let report = step(&mut trainer(&plan, &values), &plan, &values);
            assert_eq!(report.outputs, dense, "{} on {}", plan.layout, plan.mesh);
        }
    }
}

#[test]
fn an_update_is_exact_under_every_preset() {
    let sgd: Optimizer = serde_json::from_str(r#""sgd""#).unwrap();
    let program = spec(DType::F64, sgd).training_program().unwrap();
    let mut values = integers(&program);
    values.insert("lr".to_owned(), Value::scalar(0.5, DType::F64));
    let dense = eval::evaluate_outputs(&program, &values).unwrap();
    for plan in plans_of_all_presets(&program) {
        let mut trainer = trainer(&plan, &values);
        step(&mut trainer, &plan, &values);
        for name in ["w0", "b0", "w1", "b1", "w2", "b2"] {
            let updated = trainer.gather(name).unwrap();
            assert_eq!(updated, dense[name], "{name}, {} on {}", plan.layout, plan.mesh);
        }
    }
}
