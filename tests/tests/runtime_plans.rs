//! Planned programs, executed: values are the oracle's, counts are the plan's own predictions, replicas stay equal.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use shardgrad_core::{DType, Mesh, TensorType};
use shardgrad_graph::{
    Activation, Graph, LayerSpec, Loss, MlpSpec, Optimizer, OutputRole, Value, eval, memory,
};
use shardgrad_planner::{Combine, LayoutRequest, Objective, Options, plan};
use shardgrad_runtime::{
    Buffers, Call, CollectiveId, Communicator, Data, Error, Executor, Incoming, Init, Outgoing,
    SharedMemory, ThreadComm, Traffic, Trainer, TrainerOptions, WorldOptions,
};

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

/// The same values on every rank, bit for bit, however collectives are launched and waited for, on lent buffers and by
/// messages.
#[test]
fn launching_together_and_waiting_late_change_no_bit() {
    let spec = spec(Loss::CrossEntropy, "adam", Activation::Gelu);
    let program = spec.training_program().unwrap();
    let (mut together, mut beside) = (0, 0);
    for (mesh, layout) in LAYOUTS {
        let mesh: Mesh = mesh.parse().unwrap();
        let run = |combine, blocking: bool, buffers| {
            // Room for whatever can be in flight.
            let memory_limit = (!blocking && combine == Combine::Off).then_some(1 << 30);
            let options = Options { combine, blocking, memory_limit, ..Options::default() };
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
            (plan.launches().count(), plan.waits.len(), bits)
        };
        let (most, _, apart) = run(Combine::Off, true, Buffers::Keep);
        for buffers in [Buffers::Keep, Buffers::Free] {
            for combine in [Combine::Auto, Combine::Off] {
                let (launches, waits, found) = run(combine, false, buffers);
                assert!(found == apart, "{layout} on {mesh}, {buffers:?}, {combine:?}");
                together += most - launches;
                beside += waits;
            }
        }
    }
    assert!(together > 50, "only {together} collectives went along with others");
    assert!(beside > 50, "only {beside} launches ran beside something");
}

/// Notes on rank 0 that something is computed behind the start of a launch, and holds rank 1 back from its own start until
/// then.
struct Watched<'a> {
    inner: &'a mut ThreadComm,
    started: bool,
    computed: &'a AtomicBool,
}

impl Communicator for Watched<'_> {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn exchange(
        &mut self,
        send: Option<Outgoing>,
        receive: Option<Incoming>,
    ) -> Result<Option<Data>, Error> {
        self.inner.exchange(send, receive)
    }

    fn begin(&mut self, call: Call<'_>) -> Result<CollectiveId, Error> {
        // Were rank 0 to wait for rank 1 where it starts, neither would go on: the time-out ends that.
        let patience = Instant::now() + Duration::from_secs(5);
        while self.rank() == 1 && !self.computed.load(Ordering::SeqCst) {
            if Instant::now() > patience {
                let cause = "rank 0 computes nothing behind its start".to_owned();
                return Err(Error::Stopped { cause });
            }
            std::thread::yield_now();
        }
        self.started = true;
        self.inner.begin(call)
    }

    fn alive(&mut self, operations: u64) {
        // The executor says so before every op.
        if self.started && operations > 0 {
            self.computed.store(true, Ordering::SeqCst);
        }
        self.inner.alive(operations);
    }

    fn shared_memory(&mut self) -> Option<&mut dyn SharedMemory> {
        self.inner.shared_memory()
    }

    fn traffic(&self) -> Traffic {
        self.inner.traffic()
    }
}

/// A rank that has started a launch computes before its peer has come to it.
#[test]
fn a_launch_in_flight_runs_beside_computing() {
    let g = Graph::new("two products", DType::F32);
    let x = g.input("x", [8, 16]).unwrap();
    let y = g.input("y", [8, 16]).unwrap();
    let w = g.param("w", [16, 8]).unwrap();
    g.output("p", x.matmul(w).unwrap(), OutputRole::Value).unwrap();
    g.output("q", y.matmul(w).unwrap(), OutputRole::Value).unwrap();
    let mut request = LayoutRequest::default().pin("w", "a: S(0)".parse().unwrap());
    for (name, pin) in [("x", "a: S(1)"), ("y", "a: S(1)"), ("p", "a: R"), ("q", "a: R")] {
        request = request.pin(name, pin.parse().unwrap());
    }
    let mesh: Mesh = "a=2".parse().unwrap();
    let options = Options { combine: Combine::Off, ..Options::default() };
    let plan = plan(&g.finish(), &mesh, &request, &options).unwrap().plan;
    assert_eq!(plan.waits.len(), 1, "{plan}");
    for buffers in [Buffers::Keep, Buffers::Free] {
        let computed = AtomicBool::new(false);
        let world = ThreadComm::world(2, WorldOptions::default());
        let results: Vec<Result<Vec<f64>, Error>> = std::thread::scope(|scope| {
            let (plan, computed) = (&plan, &computed);
            let run = move |mut comm: ThreadComm| {
                comm.guard(|comm| {
                    let mut executor = Executor::new(plan, comm.rank(), buffers)?;
                    for name in ["x", "y", "w"] {
                        if let Some(Data::F32(block)) = executor.leaf_mut(name) {
                            let ramp = block.iter_mut().enumerate();
                            ramp.for_each(|(i, v)| *v = (i % 7) as f32 - 2.0);
                        }
                    }
                    executor.step(&mut Watched { inner: comm, started: false, computed })?;
                    let made = ["p", "q"].map(|name| executor.output(name).cloned());
                    let made = made.into_iter().flatten().map(|data| match data {
                        Data::F32(block) => block.into_iter().map(f64::from).collect(),
                        _ => Vec::new(),
                    });
                    Ok(made.collect::<Vec<Vec<f64>>>().concat())
                })
            };
            let threads: Vec<_> =
                world.into_iter().map(|comm| scope.spawn(move || run(comm))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let [a, b] = [0, 1].map(|rank| results[rank].as_ref().unwrap());
        assert!(a == b && a.len() == 128 && a.iter().any(|v| *v != 0.0));
    }
}
