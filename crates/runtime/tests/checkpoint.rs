//! Save on one layout, go on on another: training is what it would have been.

mod common;

use std::collections::BTreeMap;

use common::{Dice, random_plan};
use shardgrad_core::{DType, Mesh, TensorType};
use shardgrad_graph::{Activation, LayerSpec, Loss, MlpSpec, Optimizer, Program, Value};
use shardgrad_runtime::{Checkpoint, Trainer};

fn spec(optimizer: &str) -> MlpSpec {
    let layer = |inputs, outputs, activation| LayerSpec { inputs, outputs, bias: true, activation };
    MlpSpec {
        dtype: DType::F64,
        loss: Loss::Mse,
        optimizer: Optimizer::named(optimizer).unwrap(),
        layers: vec![layer(6, 5, Activation::Tanh), layer(5, 3, Activation::None)],
        ..MlpSpec::new("mlp", 4)
    }
}

fn trainer(program: &Program, mesh: &str, seed: u64) -> Trainer {
    let mesh: Mesh = mesh.parse().unwrap();
    Trainer::threads(&random_plan(program, &mesh, &mut Dice(seed)), 7).unwrap()
}

fn train(trainer: &mut Trainer, spec: &MlpSpec, steps: std::ops::RangeInclusive<u64>) {
    for step in steps {
        let ramp = |n| {
            let ty = TensorType::new([spec.batch, n], spec.dtype);
            Value::from_fn(&ty, |i| ((i * 5 + step as usize * 3) % 13) as f64 / 13.0 - 0.4)
        };
        let mut inputs = BTreeMap::from([("x".to_owned(), ramp(6)), ("y".to_owned(), ramp(3))]);
        for (name, value) in spec.optimizer.scalars(step) {
            inputs.insert(name, Value::scalar(value, spec.dtype));
        }
        trainer.train(&inputs).unwrap();
    }
}

/// Adam, moments included: three steps on each mesh, saved to a file, three more on every other, against six in a row.
#[test]
fn training_goes_on_on_any_mesh() {
    let spec = spec("adam");
    let program = spec.training_program().unwrap();
    let meshes = ["a=1", "a=2", "a=3", "a=4", "a=6", "a=2,b=2"];
    let mut whole = trainer(&program, "a=1", 1);
    train(&mut whole, &spec, 1..=6);
    let expected = Checkpoint::of(&mut whole, "mlp", 6).unwrap();
    let directory = std::env::temp_dir().join(format!("checkpoint-meshes-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    for (i, from) in meshes.into_iter().enumerate() {
        let path = directory.join(format!("{i}.safetensors"));
        let mut first = trainer(&program, from, i as u64 + 2);
        train(&mut first, &spec, 1..=3);
        let saved = Checkpoint::of(&mut first, "mlp", 3).unwrap();
        saved.write(&path).unwrap();
        let read = Checkpoint::read(&path).unwrap();
        assert_eq!(read, saved);
        // Block by block it is the same file.
        let blocks = directory.join(format!("{i}-blocks.safetensors"));
        first.save(&blocks, "mlp", 3).unwrap();
        assert!(std::fs::read(&blocks).unwrap() == std::fs::read(&path).unwrap(), "{from}");
        assert_eq!(
            (read.about.step, read.about.seed, read.about.mesh.as_str()),
            (3, 7, &*from.replace(',', ", "))
        );
        for to in meshes {
            let mut second = trainer(&program, to, i as u64 + 20);
            if to == from {
                read.restore(&mut second).unwrap();
            } else {
                assert_eq!(second.load(&blocks).unwrap(), read.about);
            }
            // Nothing is rounded on the way.
            assert_eq!(Checkpoint::of(&mut second, "mlp", 3).unwrap().tensors, saved.tensors);
            train(&mut second, &spec, 4..=6);
            let end = Checkpoint::of(&mut second, "mlp", 6).unwrap();
            for (name, value) in &expected.tensors {
                for (g, e) in end.tensors[name].to_f64s().into_iter().zip(value.to_f64s()) {
                    assert!((g - e).abs() <= 1e-9 * e.abs().max(1.0), "{from} to {to}: {name}");
                }
            }
        }
    }
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn what_does_not_fit_is_refused_by_name_and_nothing_changes() {
    let program = spec("adam").training_program().unwrap();
    let mut adam = trainer(&program, "a=2", 3);
    let good = Checkpoint::of(&mut adam, "mlp", 0).unwrap();
    let mut refuse = |checkpoint: &Checkpoint, name: &str| {
        let error = checkpoint.restore(&mut adam).unwrap_err();
        assert_eq!(error.code(), "E316");
        assert!(error.to_string().contains(&format!("`{name}`")), "{error}");
        assert_eq!(Checkpoint::of(&mut adam, "mlp", 0).unwrap(), good);
    };
    let changed = |change: &dyn Fn(&mut BTreeMap<String, Value>)| {
        let mut checkpoint = good.clone();
        checkpoint.tensors.values_mut().for_each(|v| *v = Value::from_fn(&v.ty(), |i| i as f64));
        change(&mut checkpoint.tensors);
        checkpoint
    };
    refuse(&changed(&|t| drop(t.remove("m(w1)"))), "m(w1)");
    refuse(&changed(&|t| drop(t.insert("w9".to_owned(), Value::scalar(1.0, DType::F64)))), "w9");
    refuse(&changed(&|t| drop(t.insert("w0".to_owned(), t["w0"].cast(DType::F32)))), "w0");
    refuse(&changed(&|t| drop(t.insert("w0".to_owned(), t["w1"].clone()))), "w0");
    // A file that is read block by block is refused likewise, and so is one that was cut or is none.
    let path = std::env::temp_dir().join(format!("checkpoint-refused-{}", std::process::id()));
    changed(&|t| drop(t.remove("m(w1)"))).write(&path).unwrap();
    assert!(adam.load(&path).unwrap_err().to_string().contains("`m(w1)`"));
    good.write(&path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    for damaged in [&bytes[..4], &bytes[..40], &bytes[..bytes.len() - 1], &[255; 64], &[0; 8]] {
        std::fs::write(&path, damaged).unwrap();
        assert_eq!(adam.load(&path).unwrap_err().code(), "E315", "{} bytes", damaged.len());
    }
    std::fs::remove_file(&path).unwrap();
    assert_eq!(adam.load(&path).unwrap_err().code(), "E314");
    assert_eq!(adam.save(&path.join("a"), "mlp", 0).unwrap_err().code(), "E314");
    assert_eq!(Checkpoint::of(&mut adam, "mlp", 0).unwrap(), good);
    // Moments of another optimizer are one too many.
    let mut sgd = trainer(&spec("sgd").training_program().unwrap(), "a=2", 3);
    assert_eq!(good.restore(&mut sgd).unwrap_err().code(), "E316");
}

/// A file that Python's `safetensors.numpy.save_file` wrote, without metadata of ours: w0[i, j] = (5i + j)/32 − 1/2, b0[j] =
/// j/4, w1[i, j] = (3i + j)/16 − 1/2, b1[j] = −j/2, all f64. Moments start anew; what does not fit is refused by name.
#[test]
fn files_of_other_programs_load_by_name() {
    let path =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/python.safetensors");
    let file = Checkpoint::read(&path).unwrap();
    assert_eq!((file.about.format, file.about.step), (0, 0));
    let spec = spec("adam");
    let mut trainer = trainer(&spec.training_program().unwrap(), "a=2,b=2", 3);
    train(&mut trainer, &spec, 1..=2);
    file.restore(&mut trainer).unwrap();
    let at = |v: usize, step: f64, start: f64| v as f64 * step + start;
    for (name, step, start) in
        [("w0", 0.03125, -0.5), ("b0", 0.25, 0.0), ("w1", 0.0625, -0.5), ("b1", -0.5, 0.0)]
    {
        let value = trainer.gather(name).unwrap();
        let expected = Value::from_fn(&value.ty(), |i| at(i, step, start));
        assert_eq!(value, expected, "{name}");
        for moment in ["m", "v"] {
            let moment = trainer.gather(&format!("{moment}({name})")).unwrap();
            assert!(moment.to_f64s().iter().all(|&v| v == 0.0), "{name}");
        }
    }
    let mut lacking = file.clone();
    lacking.tensors.remove("b1");
    let refused = lacking.restore(&mut trainer).unwrap_err().to_string();
    assert!(refused.contains("`b1`"), "{refused}");
    let mut more = file.clone();
    more.tensors.insert("m(w0)".to_owned(), file.tensors["w0"].clone());
    // Some state, but not all of it.
    let refused = more.restore(&mut trainer).unwrap_err().to_string();
    assert!(refused.contains("`m(b0)`"), "{refused}");
}
