//! Whole worlds under random schedules: right results, right errors, and never a deadlock. Time-outs never come here, so
//! that nothing but wake-ups ends a wait.

use std::sync::Arc;

use shardgrad_core::{DType, Layout, Mesh, TensorType};
use shuttle::thread;

use crate::collective::Collective;
use crate::comm::Communicator;
use crate::error::Error;
use crate::pool::Pool;
use crate::tensor::Data;
use crate::threads::{ThreadComm, WorldOptions};

const SCHEDULES: usize = 300;

/// Runs the same work on every rank.
fn world<T: Send + 'static>(
    p: usize,
    capacity: usize,
    work: impl Fn(&mut ThreadComm) -> Result<T, Error> + Send + Sync + 'static,
) -> Vec<Result<T, Error>> {
    let work = Arc::new(work);
    let threads: Vec<_> =
        ThreadComm::world(p, WorldOptions { capacity, ..WorldOptions::default() })
            .into_iter()
            .map(|mut comm| {
                let work = Arc::clone(&work);
                thread::spawn(move || {
                    let result = comm.guard(|comm| work(comm));
                    comm.finish();
                    result
                })
            })
            .collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// P → R of `len` elements, or another transition of a vector, as the executor runs it.
fn move_one(
    comm: &mut ThreadComm,
    p: usize,
    len: usize,
    (from, to): (&str, &str),
    lend: bool,
) -> Result<Vec<f32>, Error> {
    let mesh: Mesh = format!("d={p}").parse()?;
    let layout = |text: &str| Layout::parse(&format!("d: {text}"), &mesh);
    let (from, to) = (layout(from)?, layout(to)?);
    let ty = TensorType::new([len], DType::F32);
    let rank = comm.rank();
    let own = shardgrad_core::geometry::block(&ty.shape, &from, &mesh, rank).len();
    let collective = Collective::new(&mesh, &ty, &from, &to, rank)?;
    let mut source = Data::F32(vec![rank as f32 + 1.0; own]);
    let mut result = Data::zeros(DType::F32, collective.result_len());
    let mut pool = Pool::default();
    collective.run_data(comm, Some(&mut source), &mut result, &mut pool, lend)?;
    if let Data::F32(v) = result { Ok(v) } else { Ok(Vec::new()) }
}

#[test]
fn collectives_are_right_under_random_schedules() {
    for (p, lend) in [(2, true), (2, false), (3, true), (3, false), (4, true)] {
        shuttle::check_random(
            move || {
                let results = world(p, p % 2, move |comm| {
                    // With two elements some ranks have nothing to move.
                    let reduced = move_one(comm, p, 2, ("P", "R"), lend)?;
                    // Large, in these models: one rank reduces all.
                    let jointly = move_one(comm, p, 7, ("P", "R"), lend)?;
                    let gathered = move_one(comm, p, 2, ("S(0)", "R"), lend)?;
                    let mine = move_one(comm, p, 5, ("P", "S(0)"), lend)?;
                    Ok((reduced, jointly, gathered, mine))
                });
                let sum = (p * (p + 1) / 2) as f32;
                for result in results {
                    let (reduced, jointly, gathered, mine) = result.unwrap();
                    assert_eq!(jointly, vec![sum; 7]);
                    assert_eq!((reduced, gathered), (vec![sum; 2], vec![1.0, 2.0]));
                    assert!(mine.iter().all(|&v| v == sum));
                }
            },
            SCHEDULES,
        );
    }
}

#[test]
fn failures_reach_every_rank_under_random_schedules() {
    for lend in [true, false] {
        shuttle::check_random(
            move || {
                let results = world(3, 0, move |comm| {
                    move_one(comm, 3, 4, ("P", "R"), lend)?;
                    if comm.rank() == 1 {
                        return Err(Error::MissingInput { name: "x".into(), known: "none".into() });
                    }
                    move_one(comm, 3, 4, ("P", "R"), lend)
                });
                for (rank, result) in results.into_iter().enumerate() {
                    let code = result.unwrap_err().code();
                    assert_eq!(code, if rank == 1 { "E308" } else { "E301" });
                }
            },
            SCHEDULES,
        );
    }
}

#[test]
fn disagreements_reach_every_rank_under_random_schedules() {
    for lend in [true, false] {
        shuttle::check_random(
            move || {
                let results = world(3, 0, move |comm| {
                    let len = if comm.rank() == 2 { 0 } else { 4 };
                    move_one(comm, 3, len, ("P", "R"), lend)
                });
                for result in results {
                    assert_eq!(result.unwrap_err().code(), "E302");
                }
            },
            SCHEDULES,
        );
    }
}
