//! A place for one thing at a time, from one thread to another: commands to rank threads, and their replies.
//!
//! The taker spins for a moment before it sleeps, so that steps that follow each other closely cost no wake-up; the giver
//! wakes only a taker that sleeps, since a wake-up is a system call.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::sync::{AtomicBool, Condvar, Mutex, Ordering, lock, spin_loop};

pub(crate) struct Handoff<T> {
    full: AtomicBool,
    place: Mutex<Place<T>>,
    filled: Condvar,
    spins: u32,
}

struct Place<T> {
    thing: Option<T>,
    /// Whether the taker sleeps.
    asleep: bool,
}

impl<T> Handoff<T> {
    /// An empty place; its taker looks `spins` times before it sleeps.
    pub(crate) fn new(spins: u32) -> Self {
        Self {
            full: AtomicBool::new(false),
            place: Mutex::new(Place { thing: None, asleep: false }),
            filled: Condvar::new(),
            spins,
        }
    }

    /// Leaves something; what was left before and not taken is lost.
    pub(crate) fn put(&self, thing: T) {
        let mut place = lock(&self.place);
        place.thing = Some(thing);
        self.full.store(true, Ordering::Release);
        let asleep = place.asleep;
        drop(place);
        if asleep {
            self.filled.notify_one();
        }
    }

    /// Takes what was left, waiting up to `at_most` for it.
    pub(crate) fn take(&self, at_most: Duration) -> Option<T> {
        for _ in 0..self.spins {
            if self.full.load(Ordering::Acquire) {
                break;
            }
            spin_loop();
        }
        let mut place = lock(&self.place);
        if place.thing.is_none() {
            let until = Instant::now().checked_add(at_most);
            while place.thing.is_none() {
                let left = until.map_or(at_most, |at| at.saturating_duration_since(Instant::now()));
                if left.is_zero() {
                    break;
                }
                place.asleep = true;
                (place, _) =
                    self.filled.wait_timeout(place, left).unwrap_or_else(PoisonError::into_inner);
                place.asleep = false;
            }
        }
        self.full.store(false, Ordering::Release);
        place.thing.take()
    }
}
