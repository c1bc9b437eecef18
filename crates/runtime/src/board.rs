//! The board: what every rank of an in-process world does, for reports, and the search for deadlocks.
//!
//! A rank that goes to sleep in a wait says so here. A cycle of sleeping ranks, each waiting for the next, in which no
//! wait is fulfilled, cannot end: its ranks can only be freed by each other. The search reads each rank's entry, checks
//! that each wait is unfulfilled, and reads the entries again; if no rank moved in between, the deadlock is certain, with
//! no time-out involved (after Chandy, Misra and Haas 1983, who do this with messages).

use std::fmt;
use std::sync::{Mutex, PoisonError};

use crate::comm::{CollectiveId, Tag};

/// What a rank waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// That the peer takes a message.
    Send { to: usize, tag: Tag },
    /// A message.
    Receive { from: usize, tag: Tag },
}

impl Wait {
    pub(crate) fn peer(self) -> usize {
        match self {
            Wait::Send { to, .. } => to,
            Wait::Receive { from, .. } => from,
        }
    }

    pub(crate) fn tag(self) -> Tag {
        match self {
            Wait::Send { tag, .. } | Wait::Receive { tag, .. } => tag,
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

pub(crate) struct Board {
    entries: Vec<Mutex<Entry>>,
}

impl Board {
    pub(crate) fn new(size: usize) -> Self {
        Self { entries: (0..size).map(|_| Mutex::default()).collect() }
    }

    pub(crate) fn read(&self, rank: usize) -> Entry {
        *self.entries[rank].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, rank: usize, state: State) {
        let mut entry = self.entries[rank].lock().unwrap_or_else(PoisonError::into_inner);
        entry.state = state;
        entry.changes += 1;
    }

    pub(crate) fn begin(&self, rank: usize, id: CollectiveId) {
        let mut entry = self.entries[rank].lock().unwrap_or_else(PoisonError::into_inner);
        entry.collective = Some(id);
        entry.changes += 1;
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
            State::Finished => f.write_str("finished")?,
            State::Failed => f.write_str("failed")?,
        }
        match (self.state, self.collective) {
            (State::Asleep(_), _) | (_, None) => Ok(()),
            (_, Some(id)) => write!(f, ", last seen in {id}"),
        }
    }
}
