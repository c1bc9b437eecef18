//! The in-process backend: one thread per rank, mailboxes between them.
//!
//! Ranks run on owned threads, so that a rank that never arrives cannot keep the caller waiting. The first rank that fails
//! leaves its cause and wakes all others; each returns it from its current or next call. A waiter spins for a moment,
//! then yields, then sleeps; a sleeper looks for deadlocks and for the time-out.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use shardgrad_core::{AxisSet, DType, TransitionKind};

use crate::board::{Board, State, Wait};
use crate::comm::{CollectiveId, Communicator, Incoming, Outgoing, Traffic};
use crate::error::Error;
use crate::mailbox::{Found, Mailbox};
use crate::tensor::Data;

/// How ranks of a world talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorldOptions {
    /// Messages that a channel holds after its sender went on: 0 (a rendezvous) or more.
    pub capacity: usize,
    /// How long a rank waits for another before it gives up.
    pub timeout: Duration,
}

impl Default for WorldOptions {
    /// Capacity 1, 60 seconds.
    fn default() -> Self {
        Self { capacity: 1, timeout: Duration::from_secs(60) }
    }
}

/// Sleeping waiters look around this often.
const LOOK: Duration = Duration::from_millis(20);
/// Looks at the box before a waiter gives up its time slice, if every rank can have a core …
const SPINS: u32 = 2_000;
/// … and how often it gives it up before it sleeps.
const YIELDS: u32 = 100;

struct Shared {
    options: WorldOptions,
    spins: u32,
    /// From rank s to rank d at `s * size + d`.
    boxes: Vec<Mailbox>,
    board: Board,
    failed: AtomicBool,
    /// The first failure and the rank it came from.
    cause: Mutex<Option<(usize, Error)>>,
}

impl Shared {
    /// Leaves the first failure for all others and wakes them.
    fn fail(&self, rank: usize, error: &Error) {
        {
            let mut cause = self.cause.lock().unwrap_or_else(PoisonError::into_inner);
            cause.get_or_insert_with(|| (rank, error.clone()));
        }
        self.failed.store(true, Ordering::Release);
        self.boxes.iter().for_each(Mailbox::ring);
    }

    /// What a rank returns because of the first failure.
    fn failure(&self) -> Option<Error> {
        if !self.failed.load(Ordering::Acquire) {
            return None;
        }
        let cause = self.cause.lock().unwrap_or_else(PoisonError::into_inner);
        cause.as_ref().map(|(rank, error)| match error {
            Error::Mismatch { .. } | Error::TimedOut { .. } | Error::PeerFailed { .. } => {
                error.clone()
            }
            other => Error::PeerFailed { rank: *rank, cause: other.to_string() },
        })
    }

    fn mailbox(&self, from: usize, to: usize, size: usize) -> &Mailbox {
        &self.boxes[from * size + to]
    }
}

/// One rank's end of an in-process world.
pub struct ThreadComm {
    rank: usize,
    size: usize,
    shared: Arc<Shared>,
    sequences: BTreeMap<AxisSet, u64>,
    traffic: Traffic,
}

impl ThreadComm {
    /// Connected communicators of all ranks, in order. Each belongs on a thread of its own.
    #[must_use]
    pub fn world(size: usize, options: WorldOptions) -> Vec<ThreadComm> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let shared = Arc::new(Shared {
            options,
            spins: if size <= cores { SPINS } else { 0 },
            boxes: (0..size * size).map(|_| Mailbox::default()).collect(),
            board: Board::new(size),
            failed: AtomicBool::new(false),
            cause: Mutex::new(None),
        });
        (0..size)
            .map(|rank| ThreadComm {
                rank,
                size,
                shared: Arc::clone(&shared),
                sequences: BTreeMap::new(),
                traffic: Traffic::default(),
            })
            .collect()
    }

    pub(crate) fn watch(&self) -> Watch {
        Watch(Arc::clone(&self.shared))
    }

    /// Runs a rank's work; its error or panic becomes every other rank's [`Error::PeerFailed`].
    ///
    /// # Errors
    /// The work's error, or its panic.
    pub fn guard<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.shared.board.set(self.rank, State::Computing);
        let result = catch_unwind(AssertUnwindSafe(|| work(self))).unwrap_or_else(|panic| {
            Err(Error::Panicked { rank: self.rank, message: message_of(panic.as_ref()) })
        });
        if let Err(error) = &result {
            self.shared.board.set(self.rank, State::Failed);
            self.shared.fail(self.rank, error);
        }
        result
    }

    /// Says that this rank takes part in nothing more: whoever waits for it gets an error.
    pub fn finish(&mut self) {
        if self.shared.board.read(self.rank).state != State::Failed {
            self.shared.board.set(self.rank, State::Finished);
            for peer in 0..self.size {
                self.shared.mailbox(self.rank, peer, self.size).ring();
                self.shared.mailbox(peer, self.rank, self.size).ring();
            }
        }
    }

    fn check_peer(&self, peer: usize) -> Result<(), Error> {
        if peer < self.size && peer != self.rank {
            Ok(())
        } else {
            Err(Error::NoSuchRank { rank: peer, me: self.rank, size: self.size })
        }
    }

    /// Waits until `poll` gives something; it is asked again whenever the box changed.
    fn wait<R>(
        &self,
        wait: Wait,
        mailbox: &Mailbox,
        mut poll: impl FnMut() -> Result<Option<R>, Error>,
    ) -> Result<R, Error> {
        let shared = &*self.shared;
        let mut version = mailbox.version();
        if let Some(found) = poll()? {
            return Ok(found);
        }
        let mut looks = 0;
        while looks < shared.spins + YIELDS {
            if shared.failed.load(Ordering::Acquire) {
                break;
            }
            let now = mailbox.version();
            if now != version {
                version = now;
                if let Some(found) = poll()? {
                    return Ok(found);
                }
            }
            if looks < shared.spins {
                std::hint::spin_loop()
            } else {
                thread::yield_now()
            }
            looks += 1;
        }
        let start = Instant::now();
        shared.board.set(self.rank, State::Asleep(wait));
        let result = loop {
            if let Some(error) = shared.failure() {
                break Err(error);
            }
            version = mailbox.version();
            let peer_finished = shared.board.read(wait.peer()).state == State::Finished;
            match poll() {
                Ok(Some(found)) => break Ok(found),
                Ok(None) => {}
                Err(error) => break Err(error),
            }
            if peer_finished {
                break Err(self.fail(Error::PeerFailed {
                    rank: wait.peer(),
                    cause: format!(
                        "it finished while rank {} waited for it in {}",
                        self.rank,
                        wait.tag()
                    ),
                }));
            }
            let waited = start.elapsed();
            if waited >= shared.options.timeout {
                break Err(self.fail(Error::TimedOut {
                    rank: self.rank,
                    peer: wait.peer(),
                    millis: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
                    last_seen: shared.board.report(),
                }));
            }
            if waited >= LOOK
                && let Some(cycle) = shared.board.deadlock(self.rank, |r, w| self.unfulfilled(r, w))
            {
                break Err(self.disagree(&cycle));
            }
            mailbox.sleep(version, LOOK.min(shared.options.timeout.saturating_sub(waited)));
        };
        shared.board.set(self.rank, State::Computing);
        result
    }

    fn unfulfilled(&self, rank: usize, wait: Wait) -> bool {
        match wait {
            Wait::Send { to, .. } => {
                self.shared.mailbox(rank, to, self.size).len() > self.shared.options.capacity
            }
            Wait::Receive { from, tag } => self.shared.mailbox(from, rank, self.size).lacks(tag),
        }
    }

    fn fail(&self, error: Error) -> Error {
        self.shared.fail(self.rank, &error);
        // Another rank may have been first; all return the same cause.
        self.shared.failure().unwrap_or(error)
    }

    /// Names two neighbours of a deadlock that are in different collectives, if there are such.
    fn disagree(&self, cycle: &[(usize, Wait)]) -> Error {
        let pairs = || cycle.iter().zip(cycle.iter().cycle().skip(1));
        let pair = pairs().find(|((_, a), (_, b))| a.tag() != b.tag()).or_else(|| pairs().next());
        pair.map_or(Error::Stopped { cause: "a deadlock".to_owned() }, |((rank, a), (peer, b))| {
            self.fail(Error::Mismatch {
                rank: *rank,
                mine: a.tag().to_string(),
                peer: *peer,
                theirs: b.tag().to_string(),
            })
        })
    }

    fn await_message(&self, incoming: Incoming) -> Result<Data, Error> {
        let Incoming { from, tag } = incoming;
        let mailbox = self.shared.mailbox(from, self.rank, self.size);
        self.wait(Wait::Receive { from, tag }, mailbox, || match mailbox.take(tag) {
            Found::Message(payload) => Ok(Some(payload)),
            Found::Nothing => Ok(None),
            Found::Other(theirs) => Err(self.fail(Error::Mismatch {
                rank: self.rank,
                mine: tag.to_string(),
                peer: from,
                theirs: theirs.to_string(),
            })),
        })
    }
}

impl Communicator for ThreadComm {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn exchange(
        &mut self,
        send: Option<Outgoing>,
        receive: Option<Incoming>,
    ) -> Result<Option<Data>, Error> {
        if let Some(error) = self.shared.failure() {
            return Err(error);
        }
        if let Some(incoming) = &receive {
            self.check_peer(incoming.from)?;
        }
        let mut sending = None;
        if let Some(Outgoing { to, tag, payload }) = send {
            self.check_peer(to)?;
            self.traffic.messages += 1;
            self.traffic.bytes += payload.bytes() as u64;
            self.shared.mailbox(self.rank, to, self.size).post(tag, payload);
            sending = Some((to, tag));
        }
        let received = receive.map(|incoming| self.await_message(incoming)).transpose()?;
        if let Some((to, tag)) = sending {
            let mailbox = self.shared.mailbox(self.rank, to, self.size);
            let capacity = self.shared.options.capacity;
            self.wait(Wait::Send { to, tag }, mailbox, || {
                Ok((mailbox.len() <= capacity).then_some(()))
            })?;
        }
        Ok(received)
    }

    fn begin(
        &mut self,
        kind: TransitionKind,
        axes: AxisSet,
        dtype: DType,
        elements: usize,
    ) -> CollectiveId {
        let count = self.sequences.entry(axes).or_default();
        let id = CollectiveId { sequence: *count, kind, axes, dtype, elements };
        *count += 1;
        self.shared.board.begin(self.rank, id);
        id
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }
}

/// A look at a world from outside its ranks.
pub(crate) struct Watch(Arc<Shared>);

impl Watch {
    /// Whether a rank failed.
    pub(crate) fn failed(&self) -> bool {
        self.0.failed.load(Ordering::Acquire)
    }

    /// What every rank did last.
    pub(crate) fn report(&self) -> String {
        self.0.board.report()
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}

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
    /// After a failure, ranks that do not return within the time-out are left behind and reported as timed out.
    pub fn run<T, F>(&self, work: F) -> Vec<Result<T, Error>>
    where
        T: Send + 'static,
        F: Fn(&mut ThreadComm) -> Result<T, Error> + Send + Sync + 'static,
    {
        let comms = ThreadComm::world(self.size, self.options);
        let Some(shared) = comms.first().map(|c| Arc::clone(&c.shared)) else {
            return Vec::new();
        };
        let work = Arc::new(work);
        let (done, results) = mpsc::channel();
        let mut threads = Vec::new();
        for mut comm in comms {
            let (work, done) = (Arc::clone(&work), done.clone());
            let rank = comm.rank;
            let spawned = thread::Builder::new().name(format!("rank {rank}")).spawn(move || {
                let result = comm.guard(|comm| work(comm));
                comm.finish();
                // The caller may have given up on this rank.
                let _ = done.send((rank, result));
            });
            match spawned {
                Ok(thread) => threads.push(thread),
                Err(error) => shared.fail(rank, &not_started(rank, &error)),
            }
        }
        drop(done);
        let outcome = collect(self.size, &shared, &results);
        // A rank left behind never ends; all others have.
        threads.into_iter().filter(thread::JoinHandle::is_finished).for_each(|t| {
            let _ = t.join();
        });
        outcome
    }
}

fn not_started(rank: usize, error: &std::io::Error) -> Error {
    Error::PeerFailed { rank, cause: format!("its thread could not be started: {error}") }
}

/// Gathers results; once the world failed, waits no longer than its time-out for the rest.
fn collect<T>(
    size: usize,
    shared: &Shared,
    results: &mpsc::Receiver<(usize, Result<T, Error>)>,
) -> Vec<Result<T, Error>> {
    let mut outcome: Vec<Option<Result<T, Error>>> = (0..size).map(|_| None).collect();
    let mut give_up: Option<Instant> = None;
    while outcome.iter().any(Option::is_none) {
        if give_up.is_none() && shared.failed.load(Ordering::Acquire) {
            give_up = Instant::now().checked_add(shared.options.timeout);
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
        .into_iter()
        .enumerate()
        .map(|(rank, result)| {
            result.unwrap_or_else(|| {
                Err(Error::NoAnswer {
                    rank,
                    millis: u64::try_from(shared.options.timeout.as_millis()).unwrap_or(u64::MAX),
                    last_seen: shared.board.report(),
                })
            })
        })
        .collect()
}
