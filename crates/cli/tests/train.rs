//! `train`: it learns, it proves that it equals the dense run, and it says the same each time.

mod support;

use support::{file, model, succeed};

/// The last row of the table of epochs, as numbers.
fn last_epoch(said: &str) -> (f64, f64) {
    let row = said.lines().rfind(|l| l.trim_end().ends_with('%')).expect("a row of the table");
    let fields: Vec<&str> = row.split_whitespace().collect();
    (fields[1].parse().expect("loss"), fields[2].parse().expect("accuracy"))
}

#[test]
fn the_digits_are_learnt_on_four_devices() {
    let said = succeed("train --epochs 12");
    let (loss, accuracy) = last_epoch(&said);
    assert!(loss < 0.3, "{said}");
    assert!(accuracy > 90.0, "{said}");
    assert!(said.contains("counted = predicted in all 264 steps"), "{said}");
    assert!(said.contains("sharded = dense in step 1"), "{said}");
}

#[test]
fn every_step_can_be_verified_on_an_uneven_mesh() {
    let net = model(
        "verify.toml",
        96,
        &[64, 17, 10],
        "activation = \"tanh\"",
        "loss = \"cross_entropy\"\noptimizer = { name = \"momentum\", lr = 0.05 }",
        "",
    );
    let arguments = format!("train {net} --mesh tp=3 --layout megatron --epochs 1 --verify");
    let said = succeed(&arguments);
    assert!(said.contains("sharded = dense in steps 1 to 14"), "{said}");
    assert!(said.contains("run freely side by side"), "{said}");
    assert_eq!(said, succeed(&arguments), "the same each time");
}

#[test]
fn a_regression_is_learnt_from_a_file() {
    let mut csv = "a,b,sum,difference\n".to_owned();
    for i in 0..50_i32 {
        let (a, b) = (f64::from(i % 7 - 3) / 4.0, f64::from(i % 5 - 2) / 2.0);
        csv.push_str(&format!("{a},{b},{},{}\n", a + b, a - b));
    }
    let data = file("regression.csv", &csv);
    let net = model(
        "regression.toml",
        8,
        &[2, 2],
        "",
        "dtype = \"f64\"\noptimizer = { name = \"sgd\", lr = 0.2 }",
        "",
    );
    let said =
        succeed(&format!("train {net} --data {data} --mesh dp=2 --layout data --epochs 100"));
    let row = said.lines().find(|l| l.trim_start().starts_with("100 ")).expect("the last epoch");
    let held_out: f64 = row.split_whitespace().last().and_then(|f| f.parse().ok()).expect("mse");
    assert!(held_out < 1e-3, "{said}");
}

#[test]
fn micro_batches_are_trained_on_and_equal_the_dense_step() {
    let net = model(
        "micro.toml",
        64,
        &[64, 12, 10],
        "activation = \"relu\"",
        "loss = \"cross_entropy\"\noptimizer = \"adam\"\nmicro_batches = 2",
        "",
    );
    let said = succeed(&format!("train {net} --mesh tp=2 --layout data --epochs 1 --verify"));
    assert!(said.starts_with("micro: batch 64,"), "{said}");
    assert!(said.contains("counted = predicted in all 22 steps"), "{said}");
    assert!(said.contains("sharded = dense in steps 1 to 22"), "{said}");
}
