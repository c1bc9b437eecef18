//! What the ranks of an in-process world share: mailboxes, the board, announcements, and the first failure.

use std::any::Any;
use std::time::Duration;

use crate::announce::Announcements;
use crate::board::Board;
use crate::error::Error;
use crate::mailbox::Mailbox;
use crate::sync::{AtomicBool, Mutex, Ordering, lock};
use crate::threads::WorldOptions;

/// Most ranks of a world: there is a mailbox for every pair of them, and a thread for each.
pub const MAX_RANKS: usize = 256;

pub(crate) struct Shared {
    pub(crate) options: WorldOptions,
    /// Looks of a waiter before it gives up its time slice.
    pub(crate) spins: u32,
    size: usize,
    /// From rank s to rank d at `s * size + d`.
    boxes: Vec<Mailbox>,
    pub(crate) board: Board,
    pub(crate) announcements: Announcements,
    failed: AtomicBool,
    /// The first failure and the rank it came from.
    cause: Mutex<Option<(usize, Error)>>,
}

impl Shared {
    pub(crate) fn new(size: usize, options: WorldOptions, spins: u32) -> Self {
        Self {
            options,
            spins,
            size,
            boxes: (0..size * size).map(|_| Mailbox::default()).collect(),
            board: Board::new(size),
            announcements: Announcements::default(),
            failed: AtomicBool::new(false),
            cause: Mutex::new(None),
        }
    }

    pub(crate) fn mailbox(&self, from: usize, to: usize) -> &Mailbox {
        &self.boxes[from * self.size + to]
    }

    pub(crate) fn failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Leaves the first failure for all others and wakes them.
    pub(crate) fn fail(&self, rank: usize, error: &Error) {
        lock(&self.cause).get_or_insert_with(|| (rank, error.clone()));
        self.failed.store(true, Ordering::Release);
        self.boxes.iter().for_each(Mailbox::ring);
    }

    /// What a rank returns because of the first failure.
    pub(crate) fn failure(&self) -> Option<Error> {
        if !self.failed() {
            return None;
        }
        lock(&self.cause).as_ref().map(|(rank, error)| match error {
            Error::Mismatch { .. } | Error::TimedOut { .. } | Error::PeerFailed { .. } => {
                error.clone()
            }
            other => Error::PeerFailed { rank: *rank, cause: other.to_string() },
        })
    }

    /// Wakes whoever waits for or on a rank.
    pub(crate) fn ring(&self, rank: usize) {
        for peer in 0..self.size {
            self.mailbox(rank, peer).ring();
            self.mailbox(peer, rank).ring();
            self.mailbox(peer, peer).ring();
        }
    }

    /// The error of a rank that gave no answer after a failure.
    pub(crate) fn no_answer(&self, rank: usize) -> Error {
        Error::NoAnswer { rank, millis: millis(self.options.grace), last_seen: self.board.report() }
    }
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn message_of(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}
