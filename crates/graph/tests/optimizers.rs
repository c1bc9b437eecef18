//! Updates against the published algorithms written as scalar loops, and the text forms.

use std::collections::BTreeMap;

use shardgrad_core::{DType, TensorType};
use shardgrad_graph::{Error, Graph, Optimizer, OutputRole, Value, eval};

const STEPS: u64 = 4;

/// The gradient of each step: mixed signs, growing and shrinking.
fn gradient(step: u64, i: usize) -> f64 {
    (step as f64 * 1.7 + i as f64 * 0.9).sin() * (1.0 + i as f64)
}

fn start(i: usize) -> f64 {
    0.8 - 0.5 * i as f64
}

/// Trains one parameter of three elements with given gradients, through the program.
fn run(optimizer: Optimizer) -> Vec<f64> {
    let ty = TensorType::new([3], DType::F64);
    let g = Graph::new("step", DType::F64);
    let (w, dw) = (g.param("w0", [3]).unwrap(), g.input("dw", [3]).unwrap());
    optimizer.step(&g, &[(w, dw)]).unwrap();
    let program = g.finish();
    let mut values: BTreeMap<String, Value> = program
        .leaves()
        .map(|id| (program.node(id).leaf_name().unwrap().to_owned(), id))
        .map(|(name, id)| (name, Value::from_fn(&program.node(id).ty, |_| 0.0)))
        .collect();
    values.insert("w0".to_owned(), Value::from_fn(&ty, start));
    for step in 1..=STEPS {
        values.insert("dw".to_owned(), Value::from_fn(&ty, |i| gradient(step, i)));
        for (name, value) in optimizer.scalars(step) {
            values.insert(name, Value::scalar(value, DType::F64));
        }
        values.extend(eval::evaluate_outputs(&program, &values).unwrap());
    }
    values["w0"].to_f64s()
}

/// Runs `step(p, g, t, state)` on each element.
fn reference(mut step: impl FnMut(&mut f64, f64, i32, &mut [f64; 2])) -> Vec<f64> {
    (0..3)
        .map(|i| {
            let (mut p, mut state) = (start(i), [0.0; 2]);
            for t in 1..=STEPS {
                step(&mut p, gradient(t, i), t as i32, &mut state);
            }
            p
        })
        .collect()
}

/// Four steps of a dozen roundings each, on values below 4.
fn assert_same(actual: &[f64], expected: &[f64]) {
    for (a, e) in actual.iter().zip(expected) {
        assert!((a - e).abs() <= 4.0 * 12.0 * 4.0 * f64::EPSILON, "{actual:?} is not {expected:?}");
    }
}

#[test]
fn sgd_with_weight_decay() {
    let actual = run(Optimizer::Sgd { lr: 0.1, weight_decay: 0.25 });
    let expected = reference(|p, g, _, _| *p -= 0.1 * (g + 0.25 * *p));
    assert_same(&actual, &expected);
}

#[test]
fn momentum_starts_with_the_gradient() {
    let actual = run(Optimizer::Momentum { lr: 0.1, momentum: 0.8, weight_decay: 0.25 });
    let expected = reference(|p, g, t, state| {
        let g = g + 0.25 * *p;
        state[0] = if t == 1 { g } else { 0.8 * state[0] + g };
        *p -= 0.1 * state[0];
    });
    assert_same(&actual, &expected);
}

fn adam_step(p: &mut f64, g: f64, t: i32, state: &mut [f64; 2]) {
    let (lr, beta1, beta2, eps) = (0.1, 0.8, 0.95, 0.01);
    state[0] = beta1 * state[0] + (1.0 - beta1) * g;
    state[1] = beta2 * state[1] + (1.0 - beta2) * g * g;
    let correction1 = 1.0 - f64::powi(beta1, t);
    let correction2 = 1.0 - f64::powi(beta2, t);
    // eps is added to the corrected root, outside it.
    let denominator = state[1].sqrt() / correction2.sqrt() + eps;
    *p -= lr / correction1 * state[0] / denominator;
}

#[test]
fn adam_adds_decay_to_the_gradient() {
    let (beta1, beta2, eps) = (0.8, 0.95, 0.01);
    let actual = run(Optimizer::Adam { lr: 0.1, beta1, beta2, eps, weight_decay: 0.25 });
    let expected = reference(|p, g, t, state| {
        let g = g + 0.25 * *p;
        adam_step(p, g, t, state);
    });
    assert_same(&actual, &expected);
}

#[test]
fn adamw_decays_the_parameter_itself() {
    let (beta1, beta2, eps) = (0.8, 0.95, 0.01);
    let actual = run(Optimizer::AdamW { lr: 0.1, beta1, beta2, eps, weight_decay: 0.25 });
    let expected = reference(|p, g, t, state| {
        *p *= 1.0 - 0.1 * 0.25;
        adam_step(p, g, t, state);
    });
    assert_same(&actual, &expected);
    // Without decay the two are one.
    let adam = run(Optimizer::Adam { lr: 0.1, beta1, beta2, eps, weight_decay: 0.0 });
    assert_eq!(run(Optimizer::AdamW { lr: 0.1, beta1, beta2, eps, weight_decay: 0.0 }), adam);
}

#[test]
fn scalars_count_steps_from_one() {
    let adam = Optimizer::named("adam").unwrap();
    let scalars: BTreeMap<String, f64> = adam.scalars(1).into_iter().collect();
    assert_eq!(scalars["lr"], 1e-3);
    assert!((scalars["bias1"] - 10.0).abs() < 1e-12, "{scalars:?}");
    assert!((scalars["bias2"] - 1000.0).abs() < 1e-9, "{scalars:?}");
    let late: BTreeMap<String, f64> = adam.scalars(1 << 40).into_iter().collect();
    assert_eq!((late["bias1"], late["bias2"]), (1.0, 1.0));
    assert!(Optimizer::None.scalars(1).is_empty());
}

#[test]
fn text_forms() {
    let parse = |text: &str| -> Result<Optimizer, String> {
        let table: toml::Table = toml::from_str(text).unwrap();
        table["optimizer"].clone().try_into().map_err(|e: toml::de::Error| e.to_string())
    };
    for name in Optimizer::NAMES {
        let optimizer = parse(&format!("optimizer = '{name}'")).unwrap();
        assert_eq!(optimizer, Optimizer::named(name).unwrap());
        assert_eq!(optimizer.name(), name);
        assert_eq!(parse(&format!("[optimizer]\nname = '{name}'")).unwrap(), optimizer);
        let json = serde_json::to_string(&optimizer).unwrap();
        assert_eq!(serde_json::from_str::<Optimizer>(&json).unwrap(), optimizer);
    }
    assert_eq!(
        parse("[optimizer]\nname = 'momentum'\nlr = 0.5\nmomentum = 0.25\nweight_decay = 0.125"),
        Ok(Optimizer::Momentum { lr: 0.5, momentum: 0.25, weight_decay: 0.125 })
    );
    assert_eq!(
        parse("[optimizer]\nname = 'adam'\nbeta1 = 0.5\nbeta2 = 0.25\neps = 0.125"),
        Ok(Optimizer::Adam { lr: 1e-3, beta1: 0.5, beta2: 0.25, eps: 0.125, weight_decay: 0.0 })
    );
    for (text, part) in [
        ("optimizer = 'adamax'", "must be one of none, sgd, momentum, adam, adamw"),
        ("optimizer = 3", "a table with a name"),
        ("[optimizer]\nlr = 0.5", "name"),
        ("[optimizer]\nname = 'sgd'\nrate = 0.5", "rate"),
        ("[optimizer]\nname = 'sgd'\nbeta1 = 0.5", "sgd takes only lr, weight_decay"),
        ("[optimizer]\nname = 'none'\nlr = 0.5", "none takes only nothing"),
        ("[optimizer]\nname = 'sgd'\nlr = -1.0", "`optimizer.lr` is -1"),
        ("[optimizer]\nname = 'adam'\nbeta2 = 1.0", "`optimizer.beta2` is 1"),
        ("[optimizer]\nname = 'adam'\neps = inf", "`optimizer.eps` is inf"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn what_cannot_be_updated_is_refused() {
    let g = Graph::new("refused", DType::F64);
    let (w, dw) = (g.param("w0", [3]).unwrap(), g.input("dw", [3]).unwrap());
    let sgd = Optimizer::named("sgd").unwrap();
    let error = sgd.step(&g, &[(w.square().unwrap(), dw)]).unwrap_err();
    assert!(matches!(error, Error::Bad { op: "sgd", .. }), "{error}");
    let g = Graph::new("taken", DType::F64);
    let (w, dw) = (g.param("w0", [3]).unwrap(), g.input("dw", [3]).unwrap());
    g.output("w0", dw, OutputRole::Value).unwrap();
    assert_eq!(sgd.step(&g, &[(w, dw)]).unwrap_err().code(), "E101");
    let g = Graph::new("shape", DType::F64);
    let (w, dw) = (g.param("w0", [3]).unwrap(), g.input("dw", [4]).unwrap());
    assert_eq!(sgd.step(&g, &[(w, dw)]).unwrap_err().code(), "E013");
}
