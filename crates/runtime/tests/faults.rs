//! Training steps with faults inside them: on random ranks, at random calls of the communicator, a rank is late, returns an
//! error or panics. Late ranks change no number; after anything else every rank returns the right error; nobody hangs.
//!
//! `cargo test` makes 1,500 steps; `SHARDGRAD_FAULT_STEPS=10000` makes as many as it says.

mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Dice, leaf_values, random_plan};
use shardgrad_core::{DType, Mesh};
use shardgrad_graph::{
    Activation, LayerSpec, Loss, MlpSpec, Optimizer, Plan, Program, Value, eval,
};
use shardgrad_runtime::{
    Buffers, Call, CollectiveId, Communicator, Data, Error, Executor, Incoming, Loan, Outgoing,
    SharedMemory, Tag, ThreadComm, Traffic, World, WorldOptions,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Error,
    Panic,
}

/// A communicator that is late at some calls, and at one of them fails.
struct Faulty<'a> {
    inner: &'a mut ThreadComm,
    dice: &'a mut Dice,
    /// Calls until the fault.
    fault: Option<(usize, Fault)>,
}

impl Faulty<'_> {
    fn call(&mut self) -> Result<(), Error> {
        if self.dice.roll(40) == 0 {
            std::thread::sleep(Duration::from_micros(self.dice.roll(400) as u64));
        }
        match &mut self.fault {
            Some((0, Fault::Panic)) => panic!("injected"),
            Some((0, Fault::Error)) => {
                Err(Error::MissingInput { name: "injected".to_owned(), known: "none".to_owned() })
            }
            Some((left, _)) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Communicator for Faulty<'_> {
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
        self.call()?;
        self.inner.exchange(send, receive)
    }

    fn begin(&mut self, call: Call<'_>) -> Result<CollectiveId, Error> {
        self.call()?;
        self.inner.begin(call)
    }

    fn alive(&mut self, operations: u64) {
        self.inner.alive(operations);
    }

    fn shared_memory(&mut self) -> Option<&mut dyn SharedMemory> {
        Some(self)
    }

    fn traffic(&self) -> Traffic {
        self.inner.traffic()
    }
}

impl SharedMemory for Faulty<'_> {
    fn lend(&mut self, to: usize, tag: Tag, buffers: Arc<Loan>, bytes: u64) -> Result<(), Error> {
        self.call()?;
        self.inner.lend(to, tag, buffers, bytes)
    }

    fn borrow(&mut self, from: usize, tag: Tag) -> Result<Arc<Loan>, Error> {
        self.call()?;
        self.inner.borrow(from, tag)
    }

    fn give_back(&mut self, from: usize, tag: Tag, buffers: Arc<Loan>) {
        self.inner.give_back(from, tag, buffers);
    }

    fn reclaim(&mut self, to: usize, tag: Tag) -> Result<(), Error> {
        self.call()?;
        self.inner.reclaim(to, tag)
    }

    fn hand_over(&mut self, to: usize, tag: Tag, buffers: Loan, bytes: u64) -> Result<(), Error> {
        self.call()?;
        self.inner.hand_over(to, tag, buffers, bytes)
    }

    fn take_over(&mut self, from: usize, tag: Tag) -> Result<Loan, Error> {
        self.call()?;
        self.inner.take_over(from, tag)
    }
}

/// Two layers on small integers: exact, whatever the order of additions.
fn program() -> Program {
    let layer = |inputs, outputs, activation| LayerSpec { inputs, outputs, bias: true, activation };
    let spec = MlpSpec {
        dtype: DType::F64,
        loss: Loss::Sum,
        optimizer: Optimizer::None,
        input_gradient: true,
        layers: vec![layer(4, 6, Activation::Relu), layer(6, 3, Activation::None)],
        ..MlpSpec::new("mlp", 5)
    };
    spec.training_program().unwrap()
}

struct Outcome {
    /// Steps that at least one rank finished.
    steps: usize,
    results: Vec<Result<(), Error>>,
}

/// Steps on one world, the values of which are compared on every rank.
fn world(
    plan: &Arc<Plan>,
    leaves: &Arc<BTreeMap<String, Value>>,
    expected: &Arc<BTreeMap<String, Value>>,
    steps: usize,
    seed: u64,
    fault: Option<(usize, usize, Fault)>,
) -> Outcome {
    let buffers = if seed.is_multiple_of(2) { Buffers::Keep } else { Buffers::Free };
    let options = WorldOptions { capacity: (seed % 3 % 2) as usize, ..WorldOptions::default() };
    let finished = Arc::new(Mutex::new(0));
    let (plan, leaves, expected) = (Arc::clone(plan), Arc::clone(leaves), Arc::clone(expected));
    let done = Arc::clone(&finished);
    let results = World::new(plan.mesh.size()).with(options).run(move |comm| {
        let rank = comm.rank();
        let mut executor = Executor::new(&plan, rank, buffers)?;
        let blocks: Vec<(String, Data)> = executor
            .leaves()
            .iter()
            .map(|(name, stored)| Ok((name.clone(), Data::of_block(&leaves[name], &stored.block)?)))
            .collect::<Result<_, Error>>()?;
        for (name, data) in blocks {
            if let Some(leaf) = executor.leaf_mut(&name) {
                *leaf = data;
            }
        }
        let mut dice = Dice(seed * 31 + rank as u64 + 1);
        let fault = fault.filter(|f| f.0 == rank).map(|(_, calls, fault)| (calls, fault));
        let mut faulty = Faulty { inner: comm, dice: &mut dice, fault };
        for step in 1..=steps {
            executor.step(&mut faulty)?;
            for (name, stored) in executor.outputs() {
                let right = Data::of_block(&expected[name], &stored.block)?;
                assert_eq!(
                    executor.output(name),
                    Some(&right),
                    "wrong number: {name}, rank {rank}"
                );
            }
            let mut most = done.lock().unwrap();
            *most = step.max(*most);
        }
        Ok(())
    });
    let steps = *finished.lock().unwrap();
    Outcome { steps, results }
}

#[test]
fn faults_inside_steps_hang_nothing_and_change_no_number() {
    let wanted: usize =
        std::env::var("SHARDGRAD_FAULT_STEPS").ok().and_then(|n| n.parse().ok()).unwrap_or(1500);
    let usual = std::panic::take_hook();
    // Thousands of injected panics are not printed.
    std::panic::set_hook(Box::new(move |panic| {
        if panic.payload().downcast_ref::<&str>() != Some(&"injected") {
            usual(panic);
        }
    }));
    let program = program();
    let leaves = Arc::new(leaf_values(&program));
    let expected = Arc::new(eval::evaluate_outputs(&program, &leaves).unwrap());
    let (mut dice, mut steps, mut worlds, mut faults) = (Dice(77), 0, 0_u64, [0, 0]);
    let start = Instant::now();
    while steps < wanted {
        let mesh = ["a=2", "a=3", "a=4", "a=2,b=2", "a=5"][dice.roll(5)];
        let mesh: Mesh = mesh.parse().unwrap();
        let plan = Arc::new(random_plan(&program, &mesh, &mut dice));
        worlds += 1;
        let fault = match dice.roll(3) {
            0 => None,
            1 => Some((dice.roll(mesh.size()), dice.roll(600), Fault::Error)),
            _ => Some((dice.roll(mesh.size()), dice.roll(600), Fault::Panic)),
        };
        let started = Instant::now();
        let outcome = world(&plan, &leaves, &expected, 20, worlds, fault);
        assert!(started.elapsed() < Duration::from_secs(60), "{fault:?}: {:?}", started.elapsed());
        steps += outcome.steps;
        let Some((at, _, kind)) = fault.filter(|_| outcome.results.iter().any(Result::is_err))
        else {
            assert!(outcome.results.iter().all(Result::is_ok), "{:?}", outcome.results);
            assert_eq!(outcome.steps, 20);
            continue;
        };
        faults[usize::from(kind == Fault::Panic)] += 1;
        assert!(outcome.results[at].is_err());
        for (rank, result) in outcome.results.iter().enumerate() {
            match (kind, result) {
                // It had nothing more to do with the faulty rank.
                (_, Ok(())) => {}
                (Fault::Error, Err(Error::MissingInput { .. })) => assert_eq!(rank, at),
                (Fault::Panic, Err(Error::Panicked { rank: named, message })) => {
                    assert_eq!((rank, *named), (at, at));
                    assert!(message.contains("injected"), "{message}");
                }
                (_, Err(Error::PeerFailed { rank, cause })) => {
                    assert_eq!(*rank, at);
                    assert!(cause.contains("injected"), "{cause}");
                }
                (_, Err(other)) => panic!("{kind:?} of rank {at}: rank {rank}: {other}"),
            }
        }
    }
    println!(
        "{steps} steps on {worlds} worlds, {} errors and {} panics injected, {:.1?}",
        faults[0],
        faults[1],
        start.elapsed()
    );
    assert!(faults[0] > 3 && faults[1] > 3, "{faults:?}");
}
