//! A place for one thing at a time, from one thread to another: commands to rank threads, and their replies.
//!
//! The taker spins for a moment before it sleeps, so that steps that follow each other closely cost no wake-up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

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
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = Some(thing);
        self.full.store(true, Ordering::Release);
        self.filled.notify_one();
    }

    /// Takes what was left, waiting up to `at_most` for it.
    pub(crate) fn take(&self, at_most: Duration) -> Option<T> {
        for _ in 0..self.spins {
            if self.full.load(Ordering::Acquire) {
                break;
            }
            std::hint::spin_loop();
        }
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        if place.is_none() {
            (place, _) = self
                .filled
                .wait_timeout_while(place, at_most, |place| place.is_none())
                .unwrap_or_else(PoisonError::into_inner);
        }
        self.full.store(false, Ordering::Release);
        place.take()
    }
}
