//! Faults at random: a rank is late, returns an error, panics, or never arrives, before a random collective. Late ranks
//! change nothing; any other fault reaches every rank as a typed error that names its cause, in bounded time.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::Dice;
use shardgrad_core::{AxisSet, Mesh};
use shardgrad_runtime::groups::{all_gather, all_reduce, all_to_all, reduce_scatter};
use shardgrad_runtime::{Communicator, Error, Reduce, ThreadComm, World, WorldOptions};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Late,
    Error,
    Panic,
    Absent,
}

const COLLECTIVES: usize = 8;

/// A collective of a kind and axes that depend on its number alone; returns a sum of what it made.
fn collective(comm: &mut ThreadComm, mesh: &Mesh, number: usize) -> Result<f64, Error> {
    let me = comm.rank() as f64;
    let axis = number % mesh.rank();
    let axes = if number % 5 == 4 { mesh.all_axes() } else { AxisSet::single(axis) };
    let shape = [5, 3];
    let n = mesh.group_size(axes);
    let own = |dim: usize, axes: AxisSet| {
        let parts = mesh.group_size(axes);
        let index = mesh.index_in_group(comm.rank(), axes);
        let len = shardgrad_core::geometry::split(shape[dim], parts, index).len();
        vec![me + 1.0; len * shape[1 - dim]]
    };
    let made = match number % 4 {
        0 => {
            let mut buffer = vec![me; 7];
            all_reduce(comm, mesh, axes, Reduce::Sum, &mut buffer)?;
            buffer
        }
        1 if axes.len() == 1 => {
            let block = own(0, axes);
            all_gather(comm, mesh, axes, &shape, 0, &block)?
        }
        2 if axes.len() == 1 => {
            reduce_scatter(comm, mesh, axes, Reduce::Sum, &shape, 1, &[me + n as f64; 15])?
        }
        _ => {
            let block = own(0, AxisSet::single(axis));
            all_to_all(comm, mesh, axis, &shape, 0, 1, &block)?
        }
    };
    Ok(made.iter().sum())
}

fn run(
    mesh: &Arc<Mesh>,
    fault: Option<(usize, usize, Fault)>,
    capacity: usize,
) -> Vec<Result<f64, Error>> {
    let timeout = Duration::from_millis(if fault.is_some_and(|f| f.2 == Fault::Absent) {
        120
    } else {
        20_000
    });
    let mesh = Arc::clone(mesh);
    World::new(mesh.size()).with(WorldOptions { capacity, timeout, ..WorldOptions::default() }).run(
        move |comm| {
            let mut sum = 0.0;
            for number in 0..COLLECTIVES {
                if let Some((rank, at, fault)) = fault
                    && (comm.rank(), number) == (rank, at)
                {
                    match fault {
                        Fault::Late => std::thread::sleep(Duration::from_millis(30)),
                        Fault::Error => {
                            return Err(Error::MissingInput {
                                name: "injected".to_owned(),
                                known: "none".to_owned(),
                            });
                        }
                        Fault::Panic => panic!("injected"),
                        Fault::Absent => std::thread::sleep(Duration::from_secs(3600)),
                    }
                }
                sum += collective(comm, &mesh, number)?;
            }
            Ok(sum)
        },
    )
}

#[test]
fn every_fault_reaches_every_rank_and_late_ranks_change_nothing() {
    let mut dice = Dice(2024);
    let faults = [Fault::Late, Fault::Error, Fault::Panic, Fault::Absent];
    for text in ["a=2", "a=3", "a=2,b=2", "a=5"] {
        let mesh: Arc<Mesh> = Arc::new(text.parse().unwrap());
        let right = run(&mesh, None, 0);
        assert!(right.iter().all(Result::is_ok), "{right:?}");
        for trial in 0..24 {
            let fault = faults[trial % faults.len()];
            let (rank, at) = (dice.roll(mesh.size()), dice.roll(COLLECTIVES));
            let start = Instant::now();
            let results = run(&mesh, Some((rank, at, fault)), trial % 2);
            assert!(start.elapsed() < Duration::from_secs(10), "{fault:?} of rank {rank} at {at}");
            if fault == Fault::Late {
                assert_eq!(results, right);
                continue;
            }
            for (other, result) in results.iter().enumerate() {
                // A rank that had no more to do with the faulty one may have finished before.
                let Err(error) = result else { continue };
                match (fault, error) {
                    (Fault::Error, Error::MissingInput { .. }) => assert_eq!(other, rank),
                    (Fault::Panic, Error::Panicked { rank: at, .. }) => assert_eq!(*at, rank),
                    (Fault::Error | Fault::Panic, Error::PeerFailed { rank: at, cause }) => {
                        assert_eq!(*at, rank);
                        assert!(cause.contains("injected"), "{cause}");
                    }
                    (
                        Fault::Absent,
                        Error::TimedOut { last_seen, .. } | Error::NoAnswer { last_seen, .. },
                    ) => {
                        assert!(
                            last_seen.contains(&format!("rank {rank} computes")),
                            "{last_seen}"
                        );
                    }
                    (_, other) => panic!("{fault:?}: {other}"),
                }
            }
            assert!(results[rank].is_err());
            assert!(results.iter().filter(|r| r.is_err()).count() >= 2, "{results:?}");
        }
        assert_eq!(run(&mesh, None, 1), right, "the next world works");
    }
}
