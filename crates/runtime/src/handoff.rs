//! A place for one thing at a time, from one thread to another: commands to rank threads, and their replies.
//!
//! The taker spins for a moment before it sleeps, so that steps that follow each other closely cost no wake-up.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::sync::{AtomicBool, Condvar, Mutex, Ordering, lock, spin_loop};

pub(crate) struct Handoff<T> {
    full: AtomicBool,
    place: Mutex<Option<T>>,
    filled: Condvar,
    spins: u32,
}

impl<T> Handoff<T> {
    /// An empty place; its taker looks `spins` times before it sleeps.
    pub(crate) fn new(spins: u32) -> Self {
        Self {
            full: AtomicBool::new(false),
            place: Mutex::new(None),
            filled: Condvar::new(),
            spins,
        }
    }

    /// Leaves something; what was left before and not taken is lost.
    pub(crate) fn put(&self, thing: T) {
        let mut place = lock(&self.place);
        *place = Some(thing);
        self.full.store(true, Ordering::Release);
        drop(place);
        self.filled.notify_one();
    }

    /// Takes what was left, waiting up to `at_most` for it.
    pub(crate) fn take(&self, at_most: Duration) -> Option<T> {
        for _ in 0..self.spins {
            if self.full.load(Ordering::Acquire) {
                break;
            }
            spin_loop();
        }
        let until = Instant::now().checked_add(at_most);
        let mut place = lock(&self.place);
        while place.is_none() {
            let left = until.map_or(at_most, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                break;
            }
            (place, _) =
                self.filled.wait_timeout(place, left).unwrap_or_else(PoisonError::into_inner);
        }
        self.full.store(false, Ordering::Release);
        place.take()
    }
}
