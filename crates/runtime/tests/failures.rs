//! A rank that fails, panics, disagrees or never arrives: every rank returns a typed error in time, and the next world
//! works. Large messages pass at capacity 0.

#[path = "common/suite.rs"]
mod suite;

use std::sync::Arc;
use std::time::{Duration, Instant};

use shardgrad_core::{AxisSet, Mesh};
use shardgrad_runtime::groups::{all_gather, all_reduce};
use shardgrad_runtime::{Communicator, Data, Error, Reduce, Tag, ThreadComm, World, WorldOptions};

const SOON: Duration = Duration::from_secs(5);

fn world(p: usize, millis: u64) -> World {
    World::new(p).with(WorldOptions {
        capacity: 0,
        timeout: Duration::from_millis(millis),
        ..WorldOptions::default()
    })
}

fn mesh(text: &str) -> Arc<Mesh> {
    Arc::new(text.parse().unwrap())
}

fn sum(comm: &mut ThreadComm, mesh: &Mesh, axes: AxisSet) -> Result<f32, Error> {
    let mut buffer = vec![comm.rank() as f32 + 1.0; 3];
    all_reduce(comm, mesh, axes, Reduce::Sum, &mut buffer)?;
    Ok(buffer[0])
}

fn works(p: usize) {
    let mesh = mesh(&format!("a={p}"));
    let results = world(p, 5000).run(move |comm| sum(comm, &mesh, mesh.all_axes()));
    for result in results {
        assert_eq!(result.unwrap(), (p * (p + 1) / 2) as f32);
    }
}

#[test]
fn a_failing_rank_stops_all_with_its_cause() {
    let mesh = mesh("a=4");
    for steps_before in [0, 2] {
        for panics in [false, true] {
            let start = Instant::now();
            let mesh = Arc::clone(&mesh);
            let results = world(4, 30_000).run(move |comm| {
                for step in 0..5 {
                    if comm.rank() == 2 && step == steps_before {
                        assert!(!panics, "rank two gave up");
                        return Err(Error::MissingInput {
                            name: "x".to_owned(),
                            known: "none".to_owned(),
                        });
                    }
                    sum(comm, &mesh, mesh.all_axes())?;
                }
                Ok(())
            });
            assert!(start.elapsed() < SOON);
            for (rank, result) in results.into_iter().enumerate() {
                match result.unwrap_err() {
                    Error::PeerFailed { rank: 2, cause } if rank != 2 => {
                        let wanted = if panics { "rank two gave up" } else { "a value for `x`" };
                        assert!(cause.contains(wanted), "{cause}");
                    }
                    Error::Panicked { rank: 2, message } if panics && rank == 2 => {
                        assert!(message.contains("rank two gave up"), "{message}");
                    }
                    Error::MissingInput { .. } if !panics && rank == 2 => {}
                    other => panic!("rank {rank}: {other}"),
                }
            }
        }
    }
    works(4);
}

#[test]
fn a_rank_that_never_arrives_is_reported_with_what_each_did_last() {
    let mesh = mesh("a=3");
    let start = Instant::now();
    let results = world(3, 150).run(move |comm| {
        sum(comm, &mesh, mesh.all_axes())?;
        if comm.rank() == 1 {
            std::thread::sleep(Duration::from_secs(600));
        }
        sum(comm, &mesh, mesh.all_axes())
    });
    assert!(start.elapsed() < SOON);
    for (rank, result) in results.into_iter().enumerate() {
        let error = result.unwrap_err();
        // Rank 1 gives no answer; the others waited for it.
        assert_eq!(error.code(), if rank == 1 { "E317" } else { "E303" });
        let text = error.to_string();
        assert!(text.contains("rank 1 computes, last seen in all_reduce #0"), "{text}");
    }
    works(3);
}

#[test]
fn a_rank_that_leaves_early_is_named() {
    let mesh = mesh("a=3");
    let results = world(3, 30_000).run(move |comm| {
        if comm.rank() == 1 { Ok(0.0) } else { sum(comm, &mesh, mesh.all_axes()) }
    });
    assert_eq!(results[1], Ok(0.0));
    for rank in [0, 2] {
        let error = results[rank].clone().unwrap_err();
        assert!(matches!(error, Error::PeerFailed { rank: 1, .. }), "{error}");
        assert!(error.to_string().contains("finished while"), "{error}");
    }
}

/// Kind, element type, length, number and axes: whoever disagrees is told both sides, without waiting for a time-out.
#[test]
fn ranks_that_disagree_are_told_both_sides() {
    type Odd = fn(&mut ThreadComm, &Mesh) -> Result<(), Error>;
    let odd: [(Odd, &str); 4] = [
        (
            |comm, mesh| {
                all_gather(
                    comm,
                    mesh,
                    AxisSet::single(1),
                    &[3],
                    0,
                    &[0.5_f32; 2][..2 - comm.rank() % 2],
                )
                .map(|_| ())
            },
            "all_gather #0 over mesh axis 1 of 3 f32 elements",
        ),
        (
            |comm, mesh| all_reduce(comm, mesh, AxisSet::single(1), Reduce::Sum, &mut [1.0_f32; 4]),
            "all_reduce #0 over mesh axis 1 of 4 f32 elements",
        ),
        (
            |comm, mesh| all_reduce(comm, mesh, AxisSet::single(1), Reduce::Sum, &mut [1_i32; 3]),
            "all_reduce #0 over mesh axis 1 of 3 i32 elements",
        ),
        (
            |comm, mesh| all_reduce(comm, mesh, mesh.all_axes(), Reduce::Sum, &mut [1.0_f32; 3]),
            "all_reduce #0 over mesh axis 0, 1 of 3 f32 elements",
        ),
    ];
    for (run, named) in odd {
        for odd_rank in 0..4 {
            let mesh = mesh("a=2,b=2");
            let start = Instant::now();
            let results = world(4, 30_000).run(move |comm| {
                if comm.rank() == odd_rank {
                    run(comm, &mesh)?;
                } else {
                    all_reduce(comm, &mesh, AxisSet::single(1), Reduce::Sum, &mut [1.0_f32; 3])?;
                }
                sum(comm, &mesh, mesh.all_axes())
            });
            assert!(start.elapsed() < SOON, "{named}");
            for result in results {
                let error = result.unwrap_err();
                assert_eq!(error.code(), "E302", "{error}");
                let text = error.to_string();
                assert!(text.contains(named) || text.contains("mesh axis 0, 1 of 3"), "{text}");
                assert!(text.contains("all_reduce #0 over mesh axis 1 of 3 f32"), "{text}");
            }
        }
    }
    works(4);
}

/// Two ranks that both wait to receive can never go on: found without a time-out.
#[test]
fn deadlocks_are_found() {
    let start = Instant::now();
    let results = world(3, 600_000).run(|comm| {
        let previous = (comm.rank() + 2) % 3;
        comm.recv(previous, Tag::User(7)).map(|_| ())
    });
    assert!(start.elapsed() < SOON);
    for result in results {
        let error = result.unwrap_err();
        assert!(error.to_string().contains("a message with tag 7"), "{error}");
    }
}

#[test]
fn messages_match_on_source_and_tag() {
    let options =
        WorldOptions { capacity: 1, timeout: Duration::from_secs(10), ..WorldOptions::default() };
    let results = World::new(3).with(options).run(suite::messages_match);
    assert!(results.iter().all(Result::is_ok), "{results:?}");
}

#[test]
fn peers_that_do_not_exist_are_refused() {
    let results = world(2, 5000).run(|comm| comm.send(2, Tag::User(0), Data::I32(vec![])));
    for result in results {
        let text = result.unwrap_err().to_string();
        assert!(text.contains("there is no rank 2"), "{text}");
    }
}

/// Ring shift and collectives at every size, channels that hold nothing.
#[test]
fn large_messages_pass() {
    for p in [2, 3, 4] {
        for n in [1, 1024, 1_000_000] {
            let mesh = mesh(&format!("a={p}"));
            let results = world(p, 60_000).run(move |comm| suite::messages_pass(comm, &mesh, n));
            assert!(results.iter().all(Result::is_ok), "{results:?}");
        }
    }
    let mesh = mesh("a=4");
    let results = world(4, 60_000).run(move |comm| {
        let mut buffer = vec![comm.rank() as f32; 16_000_000];
        all_reduce(comm, &mesh, mesh.all_axes(), Reduce::Sum, &mut buffer)?;
        Ok(buffer.iter().all(|&v| v == 6.0))
    });
    assert!(results.iter().all(|r| r == &Ok(true)));
}

/// Reductions over rows and columns in a different order on every rank. Either all results are right, or all ranks get
/// the same typed error; nobody hangs.
#[test]
fn groups_in_different_orders_never_hang() {
    let mesh = mesh("a=2,b=2");
    let mut right = 0;
    for seed in 0..300_u64 {
        let m = Arc::clone(&mesh);
        let results = world(4, 30_000).run(move |comm| {
            let mut bits = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (8 * comm.rank() as u64);
            let mut sums = [0.0; 2];
            let mut left = vec![0, 1];
            while !left.is_empty() {
                let axis = left.remove((bits % left.len() as u64) as usize);
                bits >>= 1;
                sums[axis] = sum(comm, &m, AxisSet::single(axis))?;
            }
            Ok(sums)
        });
        if results.iter().all(Result::is_ok) {
            right += 1;
            let expected = [[4.0, 3.0], [6.0, 3.0], [4.0, 7.0], [6.0, 7.0]];
            assert!(results.iter().zip(expected).all(|(r, e)| r == &Ok(e)), "{results:?}");
        } else {
            let error = results[0].clone().unwrap_err();
            assert_eq!(error.code(), "E302", "{error}");
            assert!(results.iter().all(|r| r == &Err(error.clone())), "{results:?}");
        }
    }
    assert!(right > 0 && right < 300, "{right} of 300 orders agree");
}
