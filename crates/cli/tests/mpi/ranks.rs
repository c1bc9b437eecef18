//! What a process does under `mpirun`.

use std::process::ExitCode;

use shardgrad::core::{AxisSet, DType, Layout, Mesh, Placement, TensorType};
use shardgrad::graph::{Activation, LayerSpec, Loss, MlpSpec, Optimizer, Value};
use shardgrad::mpi::{self, Collectives, MpiComm, MpiOptions, Universe};
use shardgrad::runtime::groups::{all_gather, all_reduce};
use shardgrad::runtime::{
    Collective, Communicator as _, Data, Error, Number, Pool, Reduce, Trainer, TrainerOptions,
    World,
};

use crate::{matrix, suite};

/// Runs the roles one after another.
pub(crate) fn run(roles: &[String]) -> ExitCode {
    let done = mpi::run(|universe| {
        for role in roles {
            one(universe, role)?;
            if universe.is_first() {
                println!("{role}: right on {} ranks", universe.size());
            }
        }
        Ok::<(), Error>(())
    });
    done.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}

fn one(universe: &Universe, role: &str) -> Result<(), Error> {
    match role {
        "communicator" => communicator(universe),
        "matrix" => matrix::run(universe),
        "differ" => differ(universe),
        "error" | "panic" | "killed" | "disagree" | "label" => fail(universe, role),
        _ => Err(Error::Mpi { problem: format!("there is no role {role}") }),
    }
}

/// Pieces so small that ordinary messages have many.
fn options(collectives: Collectives) -> MpiOptions {
    MpiOptions { collectives, piece: 48 << 10 }
}

/// The checks that threads pass too.
fn communicator(universe: &Universe) -> Result<(), Error> {
    let p = universe.size();
    let line: Mesh = format!("a={p}").parse()?;
    let meshes = match p {
        4 => vec![line.clone(), "a=2,b=2".parse()?],
        _ => vec![line.clone(), format!("a={p},b=1").parse()?],
    };
    for collectives in [Collectives::Own, Collectives::Native] {
        let comm = &mut universe.communicator(options(collectives));
        for mesh in &meshes {
            for shape in [&[4, 6], &[3, 2], &[7, 5]] {
                walk::<f32>(comm, mesh, shape)?;
            }
            walk::<f64>(comm, mesh, &[2, 7])?;
            walk::<i64>(comm, mesh, &[2, 7])?;
        }
        for n in [1, 1024, 100_000] {
            suite::messages_pass(comm, &line, n)?;
        }
        if p > 2 {
            suite::messages_match(comm)?;
        }
        for shape in [&[2, 4][..], &[2, 4, 3]] {
            suite::gathers_interleave(comm, &line, shape)?;
        }
    }
    // What MPI's collectives carry is in none of our messages.
    let (ty, whole) = (TensorType::new([5], DType::F32), Layout::replicated(1));
    let pending = whole.with(0, Placement::PendingSum);
    let sum = Collective::new(&line, &ty, &pending, &whole, universe.rank())?;
    for collectives in [Collectives::Own, Collectives::Native] {
        let comm = &mut universe.communicator(options(collectives));
        let mut ones = Data::F32(vec![1.0; 5]);
        sum.run_data(comm, None, &mut ones, &mut Pool::default(), false)?;
        assert_eq!(ones, Data::F32(vec![p as f32; 5]));
        assert_eq!(comm.traffic().messages > 0, collectives == Collectives::Own);
    }
    // The same bits as on threads, every time.
    let comm = &mut universe.communicator(options(Collectives::Own));
    let threads = World::new(p).run(move |comm| {
        let mesh = format!("a={p}").parse()?;
        suite::sum_of_odd_terms(comm, &mesh)
    });
    for _ in 0..20 {
        let sum = suite::sum_of_odd_terms(comm, &line)?;
        assert_eq!(Ok(sum), threads[universe.rank()]);
    }
    Ok(())
}

fn walk<T: Number>(comm: &mut MpiComm, mesh: &Mesh, shape: &[usize]) -> Result<(), Error> {
    let cases = suite::cases(mesh, shape.len());
    let blocks = suite::transitions::<T, _>(comm, mesh, shape, &cases)?;
    let mut by_rank: Vec<Vec<Vec<f64>>> = (0..mesh.size()).map(|_| Vec::new()).collect();
    for block in blocks {
        for (rank, data) in comm.gather_all(Data::F64(block))?.into_iter().enumerate() {
            if let Data::F64(block) = data {
                by_rank[rank].push(block);
            }
        }
    }
    suite::assert_value_kept(mesh, shape, &cases, &by_rank);
    Ok(())
}

pub(crate) fn spec() -> MlpSpec {
    let layer =
        |inputs, outputs| LayerSpec { inputs, outputs, bias: true, activation: Activation::Relu };
    MlpSpec {
        loss: Loss::CrossEntropy,
        optimizer: Optimizer::named("sgd").unwrap_or(Optimizer::None),
        layers: vec![layer(6, 5), layer(5, 3)],
        ..MlpSpec::new("small", 12)
    }
}

fn trainer(universe: &Universe, layout: &str, options: &TrainerOptions) -> Result<Trainer, Error> {
    let mesh: Mesh = format!("d={}", universe.size()).parse()?;
    let program = spec().training_program()?;
    let request = layout.parse().map_err(|e| Error::Mpi { problem: format!("{e}") })?;
    let planned = shardgrad::planner::plan(&program, &mesh, &request, &Default::default())
        .map_err(|e| Error::Mpi { problem: e.to_string() })?;
    Trainer::mpi(&planned.plan, options, universe.communicator(MpiOptions::default()))
}

/// All ranks find the one that differs, and go on.
fn differ(universe: &Universe) -> Result<(), Error> {
    let last = universe.rank() + 1 == universe.size();
    let options = TrainerOptions::default();
    let other = TrainerOptions { seed: u64::from(last), ..TrainerOptions::default() };
    let found = [
        trainer(universe, if last { "megatron" } else { "data" }, &options).err(),
        trainer(universe, "data", &other).err(),
    ];
    for (error, (named, theirs, first)) in
        found.into_iter().zip([("layout", "d=megatron", "d=data"), ("seed", "1", "0")])
    {
        match error {
            Some(Error::RanksDiffer { rank, what, theirs: t, first: f }) => assert_eq!(
                (rank, what, &t[..], &f[..]),
                (universe.size() - 1, named, theirs, first)
            ),
            other => panic!("{named}: {other:?}"),
        }
    }
    // The same plan again: there is nothing wrong with the world.
    let mut trainer = trainer(universe, "data", &options)?;
    assert!(trainer.gather("w0")?.to_f64s().iter().any(|v| *v != 0.0));
    Ok(())
}

/// Rank 1 fails in its way while the others wait for it.
fn fail(universe: &Universe, how: &str) -> Result<(), Error> {
    let mesh: Mesh = format!("a={}", universe.size()).parse()?;
    let comm = &mut universe.communicator(MpiOptions::default());
    let sum = |comm: &mut MpiComm, axes: AxisSet| {
        all_reduce(comm, &mesh, axes, Reduce::Sum, &mut vec![1.0_f32; 100_000])
    };
    sum(comm, mesh.all_axes())?;
    if how == "label" {
        return bad_label(universe);
    }
    if universe.rank() == 1 {
        match how {
            "error" => {
                return Err(Error::Mpi { problem: "rank one gave up".to_owned() });
            }
            "panic" => panic!("rank one gave up"),
            "killed" => {
                let me = std::process::id().to_string();
                let _ = std::process::Command::new("kill").args(["-9", &me]).status();
            }
            _ => {
                all_gather(comm, &mesh, mesh.all_axes(), &[3], 0, &[0.5_f32; 1])?;
            }
        }
    }
    sum(comm, mesh.all_axes())?;
    sum(comm, mesh.all_axes())
}

/// A label that only the rank which reads it can know to be wrong.
fn bad_label(universe: &Universe) -> Result<(), Error> {
    let mut trainer = trainer(universe, "data", &TrainerOptions::default())?;
    let report = trainer.train_blocks(|name, block| {
        let ty = |dtype| shardgrad::core::TensorType::new(block.shape(), dtype);
        Ok(match name {
            "x" => Value::from_fn(&ty(DType::F32), |i| i as f64),
            "y" => {
                Value::from_fn(&ty(DType::I32), |_| if universe.rank() == 1 { 3.0 } else { 0.0 })
            }
            _ => Value::scalar(0.1, DType::F32),
        })
    });
    // Nobody is told; the end of the world must do.
    drop(report);
    Ok(())
}
