//! Trainers: the same network on every layout, replicas that stay equal, refusals by name, failures that stop.

mod common;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use common::{Dice, random_plan};
use shardgrad_core::{Block, DType, Mesh, TensorType};
use shardgrad_graph::{
    Activation, Graph, LayerSpec, Loss, MlpSpec, Optimizer, OutputRole, Plan, Program, Value,
};
use shardgrad_runtime::{Data, Error, Init, Trainer, TrainerOptions, WorldOptions};

fn spec(dtype: DType) -> MlpSpec {
    let layer = |inputs, outputs, activation| LayerSpec { inputs, outputs, bias: true, activation };
    MlpSpec {
        dtype,
        loss: Loss::CrossEntropy,
        optimizer: Optimizer::named("adam").unwrap(),
        layers: vec![layer(4, 7, Activation::Relu), layer(7, 3, Activation::None)],
        ..MlpSpec::new("mlp", 5)
    }
}

fn plan(program: &Program, mesh: &str, seed: u64) -> Plan {
    random_plan(program, &mesh.parse::<Mesh>().unwrap(), &mut Dice(seed))
}

fn batch(spec: &MlpSpec, step: u64) -> BTreeMap<String, Value> {
    let x = TensorType::new([spec.batch, 4], spec.dtype);
    let y = TensorType::new([spec.batch], DType::I32);
    let at = step as usize;
    let mut inputs = BTreeMap::from([
        ("x".to_owned(), Value::from_fn(&x, |i| ((i * 5 + at * 3) % 13) as f64 / 13.0 - 0.4)),
        ("y".to_owned(), Value::from_fn(&y, |i| ((i + at) % 3) as f64)),
    ]);
    for (name, value) in spec.optimizer.scalars(step) {
        inputs.insert(name, Value::scalar(value, spec.dtype));
    }
    inputs
}

/// Initial parameters are bitwise the same on every mesh and layout; after ten steps they differ by rounding only, and
/// the loss went down.
#[test]
fn every_layout_trains_the_same_network() {
    let spec = spec(DType::F64);
    let program = spec.training_program().unwrap();
    let mut reference: Option<Vec<Value>> = None;
    let mut trained: Option<Vec<Value>> = None;
    for (mesh, seeds) in [("a=1", 1), ("a=2", 4), ("a=3", 4), ("a=4", 3), ("a=2,b=2", 4)] {
        for seed in 1..=seeds {
            let plan = plan(&program, mesh, seed);
            let mut trainer = Trainer::threads(&plan, 7).unwrap();
            let names: Vec<String> = trainer.stored().map(|(n, _)| n.to_owned()).collect();
            let all = |trainer: &mut Trainer| -> Vec<Value> {
                names.iter().map(|n| trainer.gather(n).unwrap()).collect()
            };
            let start = all(&mut trainer);
            assert_eq!(reference.get_or_insert(start.clone()), &start, "{mesh}");
            let losses: Vec<f64> = (1..=10)
                .map(|step| trainer.train(&batch(&spec, step)).unwrap().loss.unwrap())
                .collect();
            assert!(losses[9] < losses[0] && losses.iter().all(|l| l.is_finite()), "{losses:?}");
            let end = all(&mut trainer);
            let expected = trained.get_or_insert(end.clone());
            for (got, expected) in end.iter().zip(expected) {
                for (g, e) in got.to_f64s().into_iter().zip(expected.to_f64s()) {
                    assert!((g - e).abs() <= 1e-9 * e.abs().max(1.0), "{mesh} {seed}: {g} {e}");
                }
            }
        }
    }
}

/// Inputs that are read block by block train the same; what is wrong with a block is named as in the whole.
#[test]
fn inputs_may_come_in_blocks() {
    let spec = spec(DType::F64);
    let program = spec.training_program().unwrap();
    for (mesh, seed) in [("a=1", 1), ("a=3", 2), ("a=2,b=2", 3)] {
        let plan = plan(&program, mesh, seed);
        let start = || Trainer::threads(&plan, 7).unwrap();
        let (mut whole, mut blocks) = (start(), start());
        for step in 1..=3 {
            let values = batch(&spec, step);
            let mut asked = 0;
            let read = |name: &str, block: &Block| {
                asked += block.len();
                Data::of_block(&values[name], block)?.to_value(&block.shape())
            };
            let report = blocks.train_blocks(read).unwrap();
            assert_eq!(report.loss, whole.train(&values).unwrap().loss, "{mesh}");
            assert!(asked > 0);
        }
        let mut copy = start();
        copy.copy_stored(&mut blocks).unwrap();
        for name in ["w0", "b1", "m(w1)"] {
            assert_eq!(copy.gather(name).unwrap(), whole.gather(name).unwrap(), "{mesh} {name}");
        }
    }
    let plan = plan(&program, "a=3", 2);
    let mut values = batch(&spec, 1);
    values.insert("y".to_owned(), Value::from_fn(&values["y"].ty(), |i| [0.0, 3.0][i / 4]));
    let read =
        |name: &str, block: &Block| Data::of_block(&values[name], block)?.to_value(&block.shape());
    let error = Trainer::threads(&plan, 7).unwrap().train_blocks(read).unwrap_err();
    assert!(error.to_string().contains("row 4"), "{error}");
    let narrow = |_: &str, _: &Block| Ok(Value::scalar(0.0, DType::F64));
    let error = Trainer::threads(&plan, 7).unwrap().train_blocks(narrow).unwrap_err();
    assert_eq!(error.code(), "E310", "{error}");
}

/// `gather` compares replicas bitwise, so that it fails if copies drift apart.
#[test]
fn replicas_stay_equal_for_two_hundred_steps() {
    let spec = spec(DType::F32);
    let program = spec.training_program().unwrap();
    for (mesh, seed) in [("a=4", 3), ("a=2,b=2", 5)] {
        let mut trainer = Trainer::threads(&plan(&program, mesh, seed), 7).unwrap();
        let names: Vec<String> = trainer.stored().map(|(n, _)| n.to_owned()).collect();
        for step in 1..=200 {
            trainer.train(&batch(&spec, step)).unwrap();
            if step % 50 == 0 {
                names.iter().for_each(|name| drop(trainer.gather(name).unwrap()));
            }
        }
    }
}

/// The same plan gives the same bits in every run.
#[test]
fn runs_repeat_to_the_last_bit() {
    let spec = spec(DType::F32);
    let program = spec.training_program().unwrap();
    let run = || {
        let mut trainer = Trainer::threads(&plan(&program, "a=3", 11), 7).unwrap();
        let losses: Vec<Option<f64>> =
            (1..=20).map(|step| trainer.train(&batch(&spec, step)).unwrap().loss).collect();
        (losses, trainer.gather("w0").unwrap())
    };
    let first = run();
    for _ in 0..5 {
        assert_eq!(run(), first);
    }
}

/// The loss reads the same through every way of reading, on any number of devices.
#[test]
fn a_scalar_loss_is_the_reduced_value() {
    let g = Graph::new("sum", DType::F32);
    let x = g.input("x", [8]).unwrap();
    g.output("loss", x.sum_all().unwrap(), OutputRole::Loss).unwrap();
    let program = g.finish();
    let ones = Value::from_fn(&TensorType::new([8], DType::F32), |_| 1.0);
    let inputs = BTreeMap::from([("x".to_owned(), ones)]);
    for (mesh, seeds) in [("a=2", 8), ("a=4", 8)] {
        for seed in 1..=seeds {
            let mut trainer = Trainer::threads(&plan(&program, mesh, seed), 0).unwrap();
            let report = trainer.step(&inputs).unwrap();
            assert_eq!(report.loss, Some(8.0));
            assert_eq!(report.outputs["loss"].item(), Some(8.0));
        }
    }
}

#[test]
fn wrong_inputs_are_refused_by_name_and_the_trainer_goes_on() {
    let spec = spec(DType::F32);
    let program = spec.training_program().unwrap();
    let mut trainer = Trainer::threads(&plan(&program, "a=2", 2), 7).unwrap();
    let good = batch(&spec, 1);
    let refuse = |trainer: &mut Trainer, inputs: &BTreeMap<String, Value>, wanted: &[&str]| {
        let text = trainer.step(inputs).unwrap_err().to_string();
        assert!(wanted.iter().all(|w| text.contains(w)), "{text}");
    };
    let mut labels = good.clone();
    let y = TensorType::new([5], DType::I32);
    labels.insert("y".to_owned(), Value::from_fn(&y, |i| if i == 3 { 3.0 } else { 1.0 }));
    refuse(&mut trainer, &labels, &["label 3 in row 3 of `y`", "0..3"]);
    labels.insert("y".to_owned(), Value::from_fn(&y, |i| if i == 4 { -1.0 } else { 1.0 }));
    refuse(&mut trainer, &labels, &["label -1 in row 4"]);
    let mut missing = good.clone();
    missing.remove("lr");
    refuse(&mut trainer, &missing, &["`lr`", "`x`"]);
    let mut more = good.clone();
    more.insert("z".to_owned(), Value::scalar(1.0, DType::F32));
    refuse(&mut trainer, &more, &["`z`"]);
    let mut narrow = good.clone();
    narrow.insert("x".to_owned(), Value::from_fn(&TensorType::new([5, 3], DType::F32), |_| 0.0));
    refuse(&mut trainer, &narrow, &["`x` must be f32[5, 4]", "f32[5, 3]"]);
    assert_eq!(trainer.gather("w9").unwrap_err().code(), "E309");
    assert_eq!(trainer.set("w0", &good["y"]).unwrap_err().code(), "E310");
    trainer.step(&good).unwrap();
}

#[test]
fn parameters_can_be_set_and_started_otherwise() {
    let spec = spec(DType::F32);
    let program = spec.training_program().unwrap();
    let init = BTreeMap::from([("b0".to_owned(), Init::Constant(0.5))]);
    let options = TrainerOptions { init, ..TrainerOptions::default() };
    let mut trainer = Trainer::with_options(&plan(&program, "a=3", 4), options).unwrap();
    let b0 = trainer.gather("b0").unwrap();
    assert!(b0.to_f64s().iter().all(|&b| b == 0.5));
    let w0 = Value::from_fn(&trainer.gather("w0").unwrap().ty(), |i| i as f64);
    trainer.set("w0", &w0).unwrap();
    assert_eq!(trainer.gather("w0").unwrap(), w0);
    let init = BTreeMap::from([("x".to_owned(), Init::Constant(0.5))]);
    let options = TrainerOptions { init, ..TrainerOptions::default() };
    let refused = Trainer::with_options(&plan(&program, "a=3", 4), options).err().unwrap();
    assert_eq!(refused.code(), "E309");
}

/// An integer overflow on the ranks that hold large values: every step after it is refused, nothing hangs.
#[test]
fn a_failed_rank_fails_the_step_and_stops_the_trainer() {
    let g = Graph::new("count", DType::F32);
    let x = g.labels("x", [8]).unwrap();
    g.output("n", x.sum_all().unwrap(), OutputRole::Value).unwrap();
    let program = g.finish();
    let ty = TensorType::new([8], DType::I32);
    let large = Value::from_fn(&ty, |i| if i == 7 { f64::from(1 << 30) * 1.5 } else { 1e9 });
    let small = Value::from_fn(&ty, |i| i as f64);
    for mesh in ["a=1", "a=2", "a=3", "a=4"] {
        let start = Instant::now();
        let plan = plan(&program, mesh, 1);
        let world = WorldOptions { timeout: Duration::from_secs(30), ..WorldOptions::default() };
        let options = TrainerOptions { world, ..TrainerOptions::default() };
        let mut trainer = Trainer::with_options(&plan, options).unwrap();
        let step = |trainer: &mut Trainer, x: &Value| {
            trainer.step(&BTreeMap::from([("x".to_owned(), x.clone())]))
        };
        assert_eq!(step(&mut trainer, &small).unwrap().outputs["n"].item(), Some(28.0));
        let error = step(&mut trainer, &large).unwrap_err();
        assert!(matches!(error, Error::Overflow { .. }), "{error}");
        let error = step(&mut trainer, &small).unwrap_err();
        assert_eq!(error.code(), "E312");
        assert!(error.to_string().contains("overflows i32"), "{error}");
        drop(trainer);
        assert!(start.elapsed() < Duration::from_secs(5));
        let mut next = Trainer::threads(&plan, 0).unwrap();
        step(&mut next, &small).unwrap();
    }
}
