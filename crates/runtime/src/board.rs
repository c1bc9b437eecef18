//! The board: what every rank of an in-process world does, for reports, and the search for deadlocks.
//!
//! A rank that goes to sleep in a wait says so here. A cycle of sleeping ranks, each waiting for the next, in which no
//! wait is fulfilled, cannot end: its ranks can only be freed by each other. The search reads each rank's entry, checks
//! that each wait is unfulfilled, and reads the entries again; if no rank moved in between, the deadlock is certain, with
//! no time-out involved (after Chandy, Misra and Haas 1983, who do this with messages).

use std::fmt;

use crate::comm::{CollectiveId, Tag};
use crate::sync::{AtomicU64, Mutex, Ordering, lock};

/// What a rank waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// That the peer takes a message.
    Send { to: usize, tag: Tag },
    /// A message.
    Receive { from: usize, tag: Tag },
    /// That the peer gives back what was lent to it.
    Return { to: usize, tag: Tag },
    /// That the peer begins a collective in which the waiting rank has nothing to do.
    Begin { peer: usize, id: CollectiveId },
}

impl Wait {
    pub(crate) fn peer(self) -> usize {
        match self {
            Wait::Send { to, .. } | Wait::Return { to, .. } => to,
            Wait::Receive { from, .. } => from,
            Wait::Begin { peer, .. } => peer,
        }
    }

    pub(crate) fn tag(self) -> Tag {
        match self {
            Wait::Send { tag, .. } | Wait::Receive { tag, .. } | Wait::Return { tag, .. } => tag,
            Wait::Begin { id, .. } => Tag::Collective(id),
        }
    }
}

/// The last known state of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    NotStarted,
    Computing,
    Asleep(Wait),
    Finished,
    Failed,
}

/// A rank's entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) state: State,
    /// The latest collective it began.
    pub(crate) collective: Option<CollectiveId>,
    /// Counts its changes of state, so that equal entries mean that nothing happened.
    changes: u64,
}

/// The rank at the end of a chain of waiting ranks, and what shows that it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Culprit {
    pub(crate) rank: usize,
    changes: u64,
    /// How often it said that it lives.
    signs: u64,
    /// Operations that it last said are before it.
    pub(crate) ahead: u64,
}

pub(crate) struct Board {
    entries: Vec<Mutex<Entry>>,
    /// How often each rank said that it lives, and with how many operations before it.
    signs: Vec<AtomicU64>,
    ahead: Vec<AtomicU64>,
}

impl Board {
    pub(crate) fn new(size: usize) -> Self {
        Self {
            entries: (0..size).map(|_| Mutex::default()).collect(),
            signs: (0..size).map(|_| AtomicU64::default()).collect(),
            ahead: (0..size).map(|_| AtomicU64::default()).collect(),
        }
    }

    /// The rank says that it lives, with so many operations to do.
    pub(crate) fn work(&self, rank: usize, operations: u64) {
        self.ahead[rank].store(operations, Ordering::Relaxed);
        // One writer: no need for more than an ordinary addition.
        let signs = self.signs[rank].load(Ordering::Relaxed);
        self.signs[rank].store(signs.wrapping_add(1), Ordering::Relaxed);
    }

    /// Whom a rank that waits for `peer` waits for in the end: the first of the chain that is not itself waiting.
    pub(crate) fn culprit(&self, peer: usize) -> Culprit {
        let mut rank = peer;
        let mut entry = self.read(rank);
        for _ in 0..self.entries.len() {
            let State::Asleep(wait) = entry.state else { break };
            rank = wait.peer();
            entry = self.read(rank);
        }
        Culprit {
            rank,
            changes: entry.changes,
            signs: self.signs[rank].load(Ordering::Relaxed),
            ahead: self.ahead[rank].load(Ordering::Relaxed),
        }
    }

    pub(crate) fn read(&self, rank: usize) -> Entry {
        *lock(&self.entries[rank])
    }

    pub(crate) fn set(&self, rank: usize, state: State) {
        let mut entry = lock(&self.entries[rank]);
        entry.state = state;
        entry.changes += 1;
    }

    pub(crate) fn begin(&self, rank: usize, id: CollectiveId) {
        let mut entry = lock(&self.entries[rank]);
        entry.collective = Some(id);
        entry.changes += 1;
        self.ahead[rank].store(0, Ordering::Relaxed);
    }

    /// The cycle of ranks that `rank`, asleep, is part of and that can never go on, if there is one.
    pub(crate) fn deadlock(
        &self,
        rank: usize,
        unfulfilled: impl Fn(usize, Wait) -> bool,
    ) -> Option<Vec<(usize, Wait)>> {
        let mut cycle: Vec<(usize, Entry, Wait)> = Vec::new();
        let mut at = rank;
        loop {
            let entry = self.read(at);
            let State::Asleep(wait) = entry.state else { return None };
            cycle.push((at, entry, wait));
            at = wait.peer();
            if at == rank {
                break;
            }
            if cycle.len() == self.entries.len() {
                return None; // It waits for a cycle that it is not part of; the cycle's ranks will tell.
            }
        }
        let stuck = cycle.iter().all(|(rank, _, wait)| unfulfilled(*rank, *wait))
            && cycle.iter().all(|(rank, entry, _)| self.read(*rank) == *entry);
        stuck.then(|| cycle.into_iter().map(|(rank, _, wait)| (rank, wait)).collect())
    }

    /// One line: what every rank did last.
    pub(crate) fn report(&self) -> String {
        let lines: Vec<String> =
            (0..self.entries.len()).map(|r| format!("rank {r} {}", self.read(r))).collect();
        lines.join("; ")
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.state {
            State::NotStarted => f.write_str("never started")?,
            State::Computing => f.write_str("computes")?,
            State::Asleep(Wait::Send { to, tag }) => {
                write!(f, "waits for rank {to} to take {tag}")?;
            }
            State::Asleep(Wait::Receive { from, tag }) => {
                write!(f, "waits for {tag} from rank {from}")?;
            }
            State::Asleep(Wait::Return { to, tag }) => {
                write!(f, "waits for rank {to} to read {tag}")?;
            }
            State::Asleep(Wait::Begin { peer, id }) => {
                write!(f, "waits for rank {peer} to begin {id}")?;
            }
            State::Finished => f.write_str("finished")?,
            State::Failed => f.write_str("failed")?,
        }
        match (self.state, self.collective) {
            (State::Asleep(_), _) | (_, None) => Ok(()),
            (_, Some(id)) => write!(f, ", last seen in {id}"),
        }
    }
}
