//! With the options that everyone has, whatever a rank does wrong is reported on every rank within two seconds, whether
//! messages are packed or peers' buffers are read; nothing keeps running, and the next world works.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use shardgrad_core::{DType, Layout, Mesh, TensorType};
use shardgrad_runtime::{
    Collective, Communicator, Data, Error, Incoming, MAX_RANKS, Outgoing, Pool, Tag, ThreadComm,
    World, WorldOptions,
};

const DEADLINE: Duration = Duration::from_secs(2);

/// A transition of a vector along the one axis of all ranks; every element of rank r is r + 1.
fn run(
    comm: &mut ThreadComm,
    (from, to): (&str, &str),
    dtype: DType,
    len: usize,
    lend: bool,
) -> Result<Data, Error> {
    let mesh = Mesh::new([("d", comm.size())])?;
    let layout = |text: &str| Layout::parse(&format!("d: {text}"), &mesh);
    let (from, to) = (layout(from)?, layout(to)?);
    let ty = TensorType::new([len], dtype);
    let collective = Collective::new(&mesh, &ty, &from, &to, comm.rank())?;
    let own = shardgrad_core::geometry::block(&ty.shape, &from, &mesh, comm.rank()).len();
    let one = comm.rank() + 1;
    let mut source = match dtype {
        DType::F32 => Data::F32(vec![one as f32; own]),
        DType::F64 => Data::F64(vec![one as f64; own]),
        DType::I32 => Data::I32(vec![one as i32; own]),
        DType::I64 => Data::I64(vec![one as i64; own]),
    };
    let mut result = Data::zeros(dtype, collective.result_len());
    collective.run_data(comm, Some(&mut source), &mut result, &mut Pool::default(), lend)?;
    Ok(result)
}

fn sum(comm: &mut ThreadComm, len: usize, lend: bool) -> Result<Data, Error> {
    run(comm, ("P", "R"), DType::F32, len, lend)
}

fn works(p: usize) {
    for lend in [false, true] {
        let expected = Data::F32(vec![(p * (p + 1) / 2) as f32; 5]);
        for result in World::new(p).run(move |comm| sum(comm, 5, lend)) {
            assert_eq!(result.as_ref(), Ok(&expected));
        }
    }
}

/// Every odd rank of worlds of 2 and 3, packed and lent. `check` sees every rank's result.
fn everywhere(
    odd: fn(&mut ThreadComm, bool) -> Result<Data, Error>,
    check: impl Fn(usize, usize, Result<Data, Error>),
) {
    for p in [2, 3] {
        for odd_rank in 0..p {
            for lend in [false, true] {
                let start = Instant::now();
                let results = World::new(p).run(move |comm| {
                    sum(comm, 3, lend)?;
                    if comm.rank() == odd_rank {
                        odd(comm, lend)
                    } else {
                        sum(comm, 4, lend)?;
                        sum(comm, 5, lend)
                    }
                });
                assert!(start.elapsed() < DEADLINE, "{:?}, {p} ranks", start.elapsed());
                for (rank, result) in results.into_iter().enumerate() {
                    check(rank, odd_rank, result);
                }
            }
        }
        works(p);
    }
}

fn expect_mismatch(mine: &str) -> impl Fn(usize, usize, Result<Data, Error>) {
    move |_, odd, result| {
        let error = result.unwrap_err();
        assert_eq!(error.code(), "E302", "{error}");
        let text = error.to_string();
        assert!(text.contains(&format!("rank {odd} runs {mine}")), "{text}");
        assert!(text.contains("all_reduce #1 over mesh axis 0 of 4 f32 elements"), "{text}");
    }
}

#[test]
fn another_kind() {
    everywhere(
        |comm, lend| run(comm, ("S(0)", "R"), DType::F32, 4, lend),
        expect_mismatch("all_gather #1 over mesh axis 0 of 4 f32 elements"),
    );
}

#[test]
fn another_length() {
    everywhere(
        |comm, lend| sum(comm, 9, lend),
        expect_mismatch("all_reduce #1 over mesh axis 0 of 9 f32 elements"),
    );
}

/// A rank that believes there is nothing to send does not slip away.
#[test]
fn no_elements_where_others_have_some() {
    everywhere(
        |comm, lend| sum(comm, 0, lend),
        expect_mismatch("all_reduce #1 over mesh axis 0 of 0 f32 elements"),
    );
}

#[test]
fn another_element_type() {
    everywhere(
        |comm, lend| run(comm, ("P", "R"), DType::I32, 4, lend),
        expect_mismatch("all_reduce #1 over mesh axis 0 of 4 i32 elements"),
    );
}

#[test]
fn another_order() {
    everywhere(
        |comm, lend| {
            sum(comm, 5, lend)?;
            sum(comm, 4, lend)
        },
        expect_mismatch("all_reduce #1 over mesh axis 0 of 5 f32 elements"),
    );
}

#[test]
fn a_missing_rank() {
    everywhere(
        |_, _| Ok(Data::F32(vec![])),
        |rank, odd, result| match result {
            Ok(_) => assert_eq!(rank, odd),
            Err(Error::PeerFailed { rank: named, cause }) => {
                assert_eq!(named, odd);
                assert!(cause.contains("finished while") && cause.contains("#1"), "{cause}");
            }
            Err(other) => panic!("{other}"),
        },
    );
}

#[test]
fn a_rank_with_an_error() {
    everywhere(
        |_, _| Err(Error::MissingInput { name: "x".to_owned(), known: "none".to_owned() }),
        |rank, odd, result| match result.unwrap_err() {
            Error::MissingInput { .. } => assert_eq!(rank, odd),
            Error::PeerFailed { rank, cause } => {
                assert_eq!(rank, odd);
                assert!(cause.contains("needs a value for `x`"), "{cause}");
            }
            other => panic!("{other}"),
        },
    );
}

#[test]
fn a_rank_that_panics() {
    // Printing where it happened can take longer than the time-out on a busy machine.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.payload().downcast_ref::<&str>() != Some(&"gave up") {
            usual(panic);
        }
    }));
    everywhere(
        |_, _| panic!("gave up"),
        |rank, odd, result| match result.unwrap_err() {
            Error::Panicked { rank: named, .. } => assert_eq!((named, rank), (odd, odd)),
            Error::PeerFailed { rank, cause } => {
                assert_eq!(rank, odd);
                assert!(cause.contains("gave up"), "{cause}");
            }
            other => panic!("{other}"),
        },
    );
}

/// The rank that stops is named by all, with what each did last, also by those who wait for it through others.
#[test]
fn a_rank_that_stops() {
    for (p, lend) in [(2, true), (3, false)] {
        let (release, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (held, counted) = (Arc::clone(&release), Arc::clone(&ended));
        let stopped = Arc::new(Mutex::new(Instant::now()));
        let last = Arc::clone(&stopped);
        let results = World::new(p).run(move |comm| {
            struct Count(Arc<AtomicUsize>);
            impl Drop for Count {
                fn drop(&mut self) {
                    self.0.fetch_add(1, Ordering::SeqCst);
                }
            }
            let _count = Count(Arc::clone(&counted));
            sum(comm, 3, lend)?;
            *last.lock().unwrap() = Instant::now();
            while comm.rank() == 1 && !held.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(5));
            }
            sum(comm, 4, lend)
        });
        let waited = stopped.lock().unwrap().elapsed();
        assert!(waited < DEADLINE, "{waited:?}");
        for (rank, result) in results.into_iter().enumerate() {
            let error = result.unwrap_err();
            let text = error.to_string();
            assert!(text.contains("rank 1 computes, last seen in all_reduce #0"), "{text}");
            match error {
                Error::NoAnswer { rank: named, .. } => assert_eq!((named, rank), (1, 1)),
                Error::TimedOut { peer, .. } => assert_eq!(peer, 1),
                other => panic!("{other}"),
            }
        }
        // All others have ended; the one left behind ends when it next speaks to the rest.
        assert_eq!(ended.load(Ordering::SeqCst), p - 1);
        release.store(true, Ordering::SeqCst);
        let start = Instant::now();
        while ended.load(Ordering::SeqCst) < p && start.elapsed() < DEADLINE {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(ended.load(Ordering::SeqCst), p);
        works(p);
    }
}

/// A rank that says it is at work is waited for, for as long as the work can take; one that only says it lives, too.
#[test]
fn signs_of_life_are_heard() {
    let options = WorldOptions { timeout: Duration::from_millis(500), ..WorldOptions::default() };
    for steps in [1, 8] {
        let results = World::new(2).with(options).run(move |comm| {
            for _ in 0..steps * comm.rank() {
                let work = if steps == 1 { 20_000_000 } else { 0 };
                comm.alive(work);
                std::thread::sleep(Duration::from_millis(if steps == 1 { 1000 } else { 125 }));
            }
            sum(comm, 4, true)
        });
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }
}

#[test]
fn absurd_worlds_are_refused() {
    let results = World::new(MAX_RANKS + 1).run(|_| Ok(()));
    assert_eq!(results.len(), MAX_RANKS + 1);
    for result in results {
        let error = result.unwrap_err();
        assert_eq!(error.code(), "E318");
        assert!(error.to_string().contains("257 ranks are too many"), "{error}");
    }
}

/// From one element to 256 MB, channels that hold nothing, packed and lent.
#[test]
fn messages_of_every_size_pass_at_capacity_0() {
    let options = WorldOptions { capacity: 0, ..WorldOptions::default() };
    for lend in [false, true] {
        for elements in [1, 2, 3, 255, 1 << 10, (1 << 16) + 1, 1 << 20, 1 << 24] {
            let results = World::new(2).with(options).run(move |comm| sum(comm, elements, lend));
            for result in results {
                assert_eq!(result, Ok(Data::F32(vec![3.0; elements])), "{elements} elements");
            }
        }
    }
    const LARGEST: usize = 1 << 26; // 256 MB of f32
    let results = World::new(2).with(options).run(|comm| {
        let (peer, tag) = (1 - comm.rank(), Tag::User(9));
        let mut mine = vec![0.0_f32; LARGEST];
        for at in [0, 1, LARGEST / 2, LARGEST - 1] {
            mine[at] = (comm.rank() + 1 + at % 100) as f32;
        }
        let send = Outgoing { to: peer, tag, payload: Data::F32(mine) };
        let Some(Data::F32(theirs)) =
            comm.exchange(Some(send), Some(Incoming { from: peer, tag }))?
        else {
            return Ok(false);
        };
        let right = |at: usize| theirs[at] == (peer + 1 + at % 100) as f32;
        Ok(theirs.len() == LARGEST && [0, 1, LARGEST / 2, LARGEST - 1].into_iter().all(right))
    });
    assert!(results.iter().all(|result| result == &Ok(true)), "{results:?}");
}
