//! Worlds: the same work on every rank, each on a thread of its own.
//!
//! Ranks run on owned threads, so that a rank that never arrives cannot keep the caller waiting. It is left behind and
//! reported; it ends when it next touches its communicator. All others are joined before the caller goes on.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crate::error::Error;
use crate::shared::{MAX_RANKS, Shared};
use crate::threads::{LOOK, ThreadComm, WorldOptions};

/// A set of in-process ranks.
///
/// ```
/// use shardgrad_runtime::{Communicator, Data, Tag, World};
/// // Every rank sends its number to the next one.
/// let got = World::new(3).run(|comm| {
///     let (next, previous) = ((comm.rank() + 1) % 3, (comm.rank() + 2) % 3);
///     let mine = Data::I32(vec![i32::try_from(comm.rank()).unwrap_or(0)]);
///     let send = shardgrad_runtime::Outgoing { to: next, tag: Tag::User(0), payload: mine };
///     let receive = shardgrad_runtime::Incoming { from: previous, tag: Tag::User(0) };
///     comm.exchange(Some(send), Some(receive))
/// });
/// assert_eq!(got[0], Ok(Some(Data::I32(vec![2]))));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct World {
    size: usize,
    options: WorldOptions,
}

impl World {
    /// A world of `size` ranks.
    #[must_use]
    pub fn new(size: usize) -> Self {
        Self { size, options: WorldOptions::default() }
    }

    /// The same world with other options.
    #[must_use]
    pub fn with(self, options: WorldOptions) -> Self {
        Self { options, ..self }
    }

    /// Runs the same work on every rank and returns all results, by rank.
    ///
    /// After a failure, ranks that do not return within the grace of the options are left behind and reported. A world of
    /// more than [`MAX_RANKS`] is refused on every rank.
    pub fn run<T, F>(&self, work: F) -> Vec<Result<T, Error>>
    where
        T: Send + 'static,
        F: Fn(&mut ThreadComm) -> Result<T, Error> + Send + Sync + 'static,
    {
        if self.size > MAX_RANKS {
            return (0..self.size).map(|_| Err(too_many(self.size))).collect();
        }
        let comms = ThreadComm::world(self.size, self.options);
        let Some(shared) = comms.first().map(|c| Arc::clone(&c.shared)) else {
            return Vec::new();
        };
        let work = Arc::new(work);
        let (done, results) = mpsc::channel();
        let mut threads: Vec<Option<JoinHandle<()>>> = Vec::new();
        for (rank, mut comm) in comms.into_iter().enumerate() {
            let (work, done) = (Arc::clone(&work), done.clone());
            let spawned = thread::Builder::new().name(format!("rank {rank}")).spawn(move || {
                let result = comm.guard(|comm| work(comm));
                comm.finish();
                drop(work);
                // The caller may have given up on this rank.
                let _ = done.send((rank, result));
            });
            if let Err(error) = &spawned {
                shared.fail(rank, &not_started(rank, error));
            }
            threads.push(spawned.ok());
        }
        drop(done);
        let outcome = collect(self.size, &shared, &results);
        let answers = threads.into_iter().zip(&outcome);
        // To send its result was the last thing that a rank did.
        for thread in answers.filter(|(_, answer)| answer.is_some()).filter_map(|(t, _)| t) {
            let _ = thread.join();
        }
        let answer = |(rank, answer): (usize, Option<_>)| {
            answer.unwrap_or_else(|| Err(shared.no_answer(rank)))
        };
        outcome.into_iter().enumerate().map(answer).collect()
    }
}

/// The error of a world that is too large for one process.
pub(crate) fn too_many(ranks: usize) -> Error {
    Error::TooManyRanks { ranks, most: MAX_RANKS }
}

fn not_started(rank: usize, error: &std::io::Error) -> Error {
    Error::PeerFailed { rank, cause: format!("its thread could not be started: {error}") }
}

/// Gathers results; once the world failed, waits no longer than its grace for the rest.
fn collect<T>(
    size: usize,
    shared: &Shared,
    results: &mpsc::Receiver<(usize, Result<T, Error>)>,
) -> Vec<Option<Result<T, Error>>> {
    let mut outcome: Vec<Option<Result<T, Error>>> = (0..size).map(|_| None).collect();
    let mut give_up: Option<Instant> = None;
    while outcome.iter().any(Option::is_none) {
        if give_up.is_none() && shared.failed() {
            give_up = Instant::now().checked_add(shared.options.grace);
        }
        if give_up.is_some_and(|at| Instant::now() > at) {
            break;
        }
        match results.recv_timeout(LOOK) {
            Ok((rank, result)) => outcome[rank] = Some(result),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    outcome
}
