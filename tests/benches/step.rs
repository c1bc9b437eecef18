//! Training steps against the time of their matrix products alone, measured in turn in the same run.
//!
//! `cargo bench -p shardgrad-tests --bench step`. The floor is the library's `general_mat_mul` on matrices of the sizes
//! and orientations that each rank's step multiplies, on as many threads as there are ranks, nothing else. Ratios are of
//! the fastest samples.
//! Names after `--` pick models: `cargo bench -p shardgrad-tests --bench step -- a b`.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use ndarray::Array2;
use ndarray::linalg::general_mat_mul;
use shardgrad_core::{DType, Mesh, TensorType};
use shardgrad_graph::{Activation, LayerSpec, Loss, MlpSpec, Optimizer, Plan, Value};
use shardgrad_planner::{Options, plan};
use shardgrad_runtime::Trainer;

/// Samples of each measurement. The fastest is reported: what disturbs a sample only makes it slower.
const SAMPLES: usize = 25;

fn fastest(times: &[Duration]) -> f64 {
    times.iter().min().map_or(0.0, Duration::as_secs_f64)
}

fn model(name: &str, batch: usize, sizes: &[usize]) -> MlpSpec {
    let layer = |i: usize, pair: &[usize]| LayerSpec {
        inputs: pair[0],
        outputs: pair[1],
        bias: true,
        activation: if i + 2 < sizes.len() { Activation::Relu } else { Activation::None },
    };
    MlpSpec {
        dtype: DType::F32,
        loss: Loss::Mse,
        optimizer: Optimizer::named("sgd").expect("sgd is an optimizer"),
        layers: sizes.windows(2).enumerate().map(|(i, pair)| layer(i, pair)).collect(),
        ..MlpSpec::new(name, batch)
    }
}

fn planned(spec: &MlpSpec, mesh: &str, layout: &str) -> Plan {
    let program = spec.training_program().expect("a sound model");
    let mesh: Mesh = mesh.parse().expect("a mesh");
    let request = layout.parse().expect("a layout");
    plan(&program, &mesh, &request, &Options::default()).expect("a plan").plan
}

fn inputs(spec: &MlpSpec) -> BTreeMap<String, Value> {
    let ty = |n| TensorType::new([spec.batch, n], DType::F32);
    let ramp = |n: usize| Value::from_fn(&ty(n), |i| ((i * 37) % 101) as f64 / 101.0 - 0.5);
    let scalars = spec.optimizer.scalars(1).into_iter();
    let scalars = scalars.map(|(name, v)| (name, Value::scalar(v, DType::F32)));
    [("x".to_owned(), ramp(spec.inputs())), ("y".to_owned(), ramp(spec.outputs()))]
        .into_iter()
        .chain(scalars)
        .collect()
}

/// One matrix product: factors, each with whether it is read transposed, and the result.
type Product = (Array2<f32>, bool, Array2<f32>, bool, Array2<f32>);

/// How the ranks share the work of a layer's products.
#[derive(Clone, Copy)]
enum Share {
    Nothing,
    /// The outputs of even layers, the inputs of odd ones, between two.
    Features,
    /// The rows, between two.
    Batch,
}

/// The matrix products of one rank's step.
struct Floor {
    products: Vec<Product>,
}

impl Floor {
    fn new(spec: &MlpSpec, share: Share) -> Self {
        let matrix = |rows: usize, columns: usize| Array2::from_elem((rows, columns), 0.5_f32);
        let mut products = Vec::new();
        for (i, layer) in spec.layers.iter().enumerate() {
            let (batch, n, m) = (spec.batch, layer.inputs, layer.outputs);
            let (batch, n, m) = match share {
                Share::Nothing => (batch, n, m),
                Share::Features if i % 2 == 0 => (batch, n, m / 2),
                Share::Features => (batch, n / 2, m),
                Share::Batch => (batch / 2, n, m),
            };
            products.push((matrix(batch, n), false, matrix(n, m), false, matrix(batch, m)));
            products.push((matrix(batch, n), true, matrix(batch, m), false, matrix(n, m)));
            if i > 0 {
                products.push((matrix(batch, m), false, matrix(n, m), true, matrix(batch, n)));
            }
        }
        Self { products }
    }

    fn run(&mut self) {
        for (a, ta, b, tb, c) in &mut self.products {
            let a = if *ta { a.t() } else { a.view() };
            let b = if *tb { b.t() } else { b.view() };
            general_mat_mul(1.0, &a, &b, 0.0, c);
        }
    }
}

/// One rank's products each on a thread of its own, at once: the slowest.
fn floor_of(floors: &mut [Floor], reps: usize) -> Duration {
    let all_there = Barrier::new(floors.len());
    let work = |floor: &mut Floor| {
        floor.run(); // Once without the clock, so that all run at full speed together.
        all_there.wait();
        timed(reps, || floor.run())
    };
    let work = &work;
    thread::scope(|scope| {
        let ranks: Vec<_> = floors.iter_mut().map(|f| scope.spawn(move || work(f))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("products")).max().unwrap_or_default()
    })
}

fn timed(reps: usize, mut work: impl FnMut()) -> Duration {
    let start = Instant::now();
    (0..reps).for_each(|_| work());
    start.elapsed() / u32::try_from(reps).unwrap_or(1)
}

fn steps() {
    println!("{:28} {:>12} {:>12} {:>8}", "step", "time", "GEMM floor", "ratio");
    for (name, batch, sizes, reps) in [
        ("a 64-128-64-10", 32, &[64, 128, 64, 10][..], 20),
        ("b 784-512-512-10", 128, &[784, 512, 512, 10], 1),
        ("c 1024-4096-1024", 256, &[1024, 4096, 1024], 1),
    ] {
        if !wanted(&name[..1]) {
            continue;
        }
        let spec = model(name, batch, sizes);
        let inputs = inputs(&spec);
        let variants = [
            ("one rank", "d=1", "replicated", Share::Nothing),
            ("megatron", "d=2", "megatron", Share::Features),
            ("data", "d=2", "data", Share::Batch),
        ];
        let mut trainers: Vec<Trainer> = variants
            .iter()
            .map(|(_, mesh, layout, _)| {
                Trainer::threads(&planned(&spec, mesh, layout), 0).expect("threads")
            })
            .collect();
        let mut floors: Vec<Vec<Floor>> = variants
            .iter()
            .map(|&(_, mesh, _, share)| {
                let ranks = if mesh == "d=1" { 1 } else { 2 };
                (0..ranks).map(|_| Floor::new(&spec, share)).collect()
            })
            .collect();
        let mut bounds: Vec<Vec<Duration>> = vec![Vec::new(); trainers.len()];
        let mut times: Vec<Vec<Duration>> = vec![Vec::new(); trainers.len()];
        for _ in 0..SAMPLES {
            for (i, trainer) in trainers.iter_mut().enumerate() {
                bounds[i].push(floor_of(&mut floors[i], reps));
                times[i].push(timed(reps, || drop(trainer.train(&inputs).expect("a step"))));
            }
        }
        let times: Vec<f64> = times.iter().map(|t| fastest(t)).collect();
        let bounds: Vec<f64> = bounds.iter().map(|t| fastest(t)).collect();
        for ((&(variant, ..), &time), &floor) in variants.iter().zip(&times).zip(&bounds) {
            print!(
                "{:28} {:>9.1} µs {:>9.1} µs {:>8.2}",
                format!("{name} {variant}"),
                time * 1e6,
                floor * 1e6,
                time / floor
            );
            println!("   {:.2}x of one rank, {:+.1} µs", times[0] / time, (time - times[0]) * 1e6);
        }
    }
}

fn main() {
    println!("load of the last minute: {}", load());
    steps();
    println!("load of the last minute: {}", load());
}

/// Whether the command line names a model, or none.
fn wanted(name: &str) -> bool {
    let mut names = std::env::args().skip(1).filter(|a| !a.starts_with('-')).peekable();
    names.peek().is_none() || names.any(|n| n == name)
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("unknown").to_owned()
}
