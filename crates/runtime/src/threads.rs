//! The in-process backend: one thread per rank, mailboxes between them.
//!
//! The first rank that fails leaves its cause and wakes all others; each returns it from its current or next call. A waiter
//! spins for a moment, then yields, then sleeps; a sleeper looks for deadlocks and for the time-out.
//!
//! The time-out runs while the rank that is waited for in the end shows no sign of life: it neither begins a collective
//! nor sends, nor says that it is at work ([`Communicator::alive`]; the executor does before every op). A rank that says how
//! much work it has is given time for it at [`SLOWEST`], so that a large product on a busy machine is no failure.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use shardgrad_core::AxisSet;

use crate::announce::Heard;
use crate::board::{State, Wait};
use crate::comm::{
    Call, CollectiveId, Communicator, Incoming, Loan, Outgoing, SharedMemory, Tag, Traffic,
    check_peer,
};
use crate::error::Error;
use crate::mailbox::{Found, Mailbox};
use crate::shared::{Shared, message_of, millis};
use crate::sync::{spin_loop, yield_now};
use crate::tensor::Data;

/// How ranks of a world talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorldOptions {
    /// Messages that a channel holds after its sender went on: 0 (a rendezvous) or more.
    pub capacity: usize,
    /// How long a rank waits for another that shows no sign of life before it gives up.
    pub timeout: Duration,
    /// How long ranks have to return after a failure, before they are left behind and reported.
    pub grace: Duration,
}

impl Default for WorldOptions {
    /// Capacity 1, 1 second and 0.25 seconds: a rank that stops is reported on all within 2 seconds, also on a busy
    /// machine.
    fn default() -> Self {
        Self {
            capacity: 1,
            timeout: Duration::from_millis(1000),
            grace: Duration::from_millis(250),
        }
    }
}

/// Sleeping waiters look around this often.
pub(crate) const LOOK: Duration = Duration::from_millis(20);
/// Looks at the box before a waiter gives up its time slice, if every rank can have a core …
const SPINS: u32 = if cfg!(any(loom, shuttle)) { 2 } else { 2_000 };
/// … and how often it gives it up before it sleeps.
const YIELDS: u32 = if cfg!(any(loom, shuttle)) { 2 } else { 8 };
/// Operations a second that any machine can be expected to do.
pub const SLOWEST: u64 = 20_000_000;

/// One rank's end of an in-process world.
pub struct ThreadComm {
    rank: usize,
    size: usize,
    pub(crate) shared: Arc<Shared>,
    sequences: BTreeMap<AxisSet, u64>,
    traffic: Traffic,
}

impl ThreadComm {
    /// Connected communicators of all ranks, in order. Each belongs on a thread of its own.
    #[must_use]
    pub fn world(size: usize, options: WorldOptions) -> Vec<ThreadComm> {
        let spins = if size <= cores() { SPINS } else { 0 };
        let shared = Arc::new(Shared::new(size, options, spins));
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
            self.shared.ring(self.rank);
        }
    }

    fn refuse_if_failed(&self) -> Result<(), Error> {
        self.shared.failure().map_or(Ok(()), Err)
    }

    /// Waits until `poll` gives something; it is asked again whenever the box changed.
    fn wait<R>(
        &self,
        wait: Wait,
        mailbox: &Mailbox,
        spins: u32,
        mut poll: impl FnMut() -> Result<Option<R>, Error>,
    ) -> Result<R, Error> {
        let mut version = mailbox.version();
        if let Some(found) = poll()? {
            return Ok(found);
        }
        // With fewer cores than ranks a sleep is the quickest way to let the others run.
        let looks = if spins > 0 { spins + YIELDS } else { 0 };
        for look in 0..looks {
            if self.shared.failed() {
                break;
            }
            let now = mailbox.version();
            if now != version {
                version = now;
                if let Some(found) = poll()? {
                    return Ok(found);
                }
            }
            if look < spins { spin_loop() } else { yield_now() }
        }
        self.shared.board.set(self.rank, State::Asleep(wait));
        let result = self.sleep(wait, mailbox, poll);
        self.shared.board.set(self.rank, State::Computing);
        result
    }

    fn sleep<R>(
        &self,
        wait: Wait,
        mailbox: &Mailbox,
        mut poll: impl FnMut() -> Result<Option<R>, Error>,
    ) -> Result<R, Error> {
        let (shared, start) = (&*self.shared, Instant::now());
        let mut blamed = shared.board.culprit(wait.peer());
        let mut since = start;
        loop {
            self.refuse_if_failed()?;
            let version = mailbox.version();
            let peer_finished = shared.board.read(wait.peer()).state == State::Finished;
            if let Some(found) = poll()? {
                return Ok(found);
            }
            if peer_finished {
                let (me, tag) = (self.rank, wait.tag());
                let cause = format!("it finished while rank {me} waited for it in {tag}");
                return Err(self.fail(Error::PeerFailed { rank: wait.peer(), cause }));
            }
            let culprit = shared.board.culprit(wait.peer());
            if culprit != blamed {
                (blamed, since) = (culprit, Instant::now());
            }
            let work = Duration::from_millis(culprit.ahead / (SLOWEST / 1000));
            let patience = shared.options.timeout.saturating_add(work);
            if since.elapsed() >= patience {
                return Err(self.fail(Error::TimedOut {
                    rank: self.rank,
                    peer: culprit.rank,
                    millis: millis(start.elapsed()),
                    last_seen: shared.board.report(),
                }));
            }
            if start.elapsed() >= LOOK
                && let Some(cycle) = shared.board.deadlock(self.rank, |r, w| self.unfulfilled(r, w))
            {
                return Err(self.disagree(&cycle));
            }
            mailbox.sleep(version, LOOK.min(patience.saturating_sub(since.elapsed())));
        }
    }

    fn unfulfilled(&self, rank: usize, wait: Wait) -> bool {
        let shared = &self.shared;
        match wait {
            Wait::Send { to, .. } => shared.mailbox(rank, to).len() > shared.options.capacity,
            Wait::Receive { from, tag } => shared.mailbox(from, rank).lacks(tag),
            Wait::Return { to, tag } => shared.mailbox(rank, to).is_lent(tag),
            Wait::Begin { peer, id } => shared.announcements.lacks(peer, id),
        }
    }

    fn fail(&self, error: Error) -> Error {
        self.shared.fail(self.rank, &error);
        // Another rank may have been first; all return the same cause.
        self.shared.failure().unwrap_or(error)
    }

    fn mismatch(&self, mine: Tag, peer: usize, theirs: Tag) -> Error {
        let (mine, theirs) = (mine.to_string(), theirs.to_string());
        self.fail(Error::Mismatch { rank: self.rank, mine, peer, theirs })
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

    /// Waits for a message, however it is found.
    fn await_message<M>(
        &self,
        from: usize,
        tag: Tag,
        spins: u32,
        find: impl Fn(&Mailbox) -> Found<M>,
    ) -> Result<M, Error> {
        let mailbox = self.shared.mailbox(from, self.rank);
        self.wait(Wait::Receive { from, tag }, mailbox, spins, || match find(mailbox) {
            Found::Message(message) => Ok(Some(message)),
            Found::Nothing => Ok(None),
            // What lies there may belong to a launch that this rank has started, too, and not finished.
            Found::Other => match mailbox.stranger(|id| self.has_begun(id)) {
                Some(theirs) => Err(self.mismatch(tag, from, theirs)),
                None => Ok(None),
            },
            Found::OtherForm => Err(self.fail(Error::WrongBuffer {
                what: "a message",
                expected: "the form that all ranks use (given, lent or handed over)".to_owned(),
                found: format!("another one, from rank {from} in {tag}"),
            })),
        })
    }

    /// Whether this rank has come to the collective of this number.
    fn has_begun(&self, id: &CollectiveId) -> bool {
        self.sequences.get(&id.axes).is_some_and(|&next| id.sequence < next)
    }

    fn count(&mut self, bytes: u64) {
        self.traffic.messages += 1;
        self.traffic.bytes += bytes;
    }
}

pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
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
        self.refuse_if_failed()?;
        if let Some(incoming) = &receive {
            check_peer(self, incoming.from)?;
        }
        let mut sending = None;
        if let Some(Outgoing { to, tag, payload }) = send {
            check_peer(self, to)?;
            self.count(payload.bytes() as u64);
            self.shared.mailbox(self.rank, to).give(tag, payload);
            sending = Some((to, tag));
        }
        let received = receive
            .map(|Incoming { from, tag }| {
                self.await_message(from, tag, self.shared.spins, |m| m.take(tag))
            })
            .transpose()?;
        if let Some((to, tag)) = sending {
            let mailbox = self.shared.mailbox(self.rank, to);
            let capacity = self.shared.options.capacity;
            self.wait(Wait::Send { to, tag }, mailbox, self.shared.spins, || {
                Ok((mailbox.len() <= capacity).then_some(()))
            })?;
        }
        Ok(received)
    }

    fn begin(&mut self, call: Call<'_>) -> Result<CollectiveId, Error> {
        self.refuse_if_failed()?;
        let Call { kind, axes, group, dtype, elements, idle } = call;
        let count = self.sequences.entry(axes).or_default();
        let id = CollectiveId { sequence: *count, kind, axes, dtype, elements };
        *count += 1;
        self.shared.board.begin(self.rank, id);
        let shared = &*self.shared;
        let (heard, waiting) = shared.announcements.announce(self.rank, group, id, idle);
        if let Heard::Disagrees(peer, theirs) = heard {
            return Err(self.mismatch(Tag::Collective(id), peer, Tag::Collective(theirs)));
        }
        // Idle ranks sleep on boxes that nobody posts to.
        waiting.iter().for_each(|&rank| shared.mailbox(rank, rank).ring());
        while idle && let Some(peer) = shared.announcements.missing(group, id) {
            let mailbox = shared.mailbox(self.rank, self.rank);
            self.wait(Wait::Begin { peer, id }, mailbox, shared.spins, || {
                Ok((!shared.announcements.lacks(peer, id)).then_some(()))
            })?;
        }
        Ok(id)
    }

    fn alive(&mut self, operations: u64) {
        self.shared.board.work(self.rank, operations);
    }

    fn shared_memory(&mut self) -> Option<&mut dyn SharedMemory> {
        Some(self)
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }
}

impl SharedMemory for ThreadComm {
    fn lend(&mut self, to: usize, tag: Tag, buffers: Arc<Loan>, bytes: u64) -> Result<(), Error> {
        self.refuse_if_failed()?;
        check_peer(self, to)?;
        self.count(bytes);
        self.shared.mailbox(self.rank, to).lend(tag, buffers);
        Ok(())
    }

    fn borrow(&mut self, from: usize, tag: Tag) -> Result<Arc<Loan>, Error> {
        check_peer(self, from)?;
        self.await_message(from, tag, self.shared.spins, |mailbox| mailbox.borrow(tag))
    }

    fn give_back(&mut self, from: usize, tag: Tag, buffers: Arc<Loan>) {
        self.shared.mailbox(from, self.rank).give_back(tag, buffers);
    }

    fn reclaim(&mut self, to: usize, tag: Tag) -> Result<(), Error> {
        let mailbox = self.shared.mailbox(self.rank, to);
        let back = || Ok((!mailbox.is_lent(tag)).then_some(()));
        self.wait(Wait::Return { to, tag }, mailbox, self.shared.spins, back)
    }

    fn hand_over(&mut self, to: usize, tag: Tag, buffers: Loan, bytes: u64) -> Result<(), Error> {
        self.refuse_if_failed()?;
        check_peer(self, to)?;
        self.count(bytes);
        self.shared.mailbox(self.rank, to).hand_over(tag, buffers);
        Ok(())
    }

    fn take_over(&mut self, from: usize, tag: Tag) -> Result<Loan, Error> {
        check_peer(self, from)?;
        self.await_message(from, tag, 0, |mailbox| mailbox.take_over(tag))
    }
}

/// A look at a world from outside its ranks.
pub(crate) struct Watch(Arc<Shared>);

impl Watch {
    /// Whether a rank failed.
    pub(crate) fn failed(&self) -> bool {
        self.0.failed()
    }

    /// The error of a rank that gave no answer after a failure.
    pub(crate) fn no_answer(&self, rank: usize) -> Error {
        self.0.no_answer(rank)
    }
}
