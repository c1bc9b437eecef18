//! The synchronisation primitives that ranks are built on, so that models of them can be checked.
//!
//! Everything in this crate that waits or wakes takes its locks, conditions and flags from here. With `--cfg loom` they are
//! loom's, and the models in this file's tests try every interleaving of a few threads; with `--cfg shuttle` they are
//! shuttle's, and whole worlds of ranks run under random schedules. Otherwise they are the standard library's.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p shardgrad-runtime --lib --target-dir target/loom -- models
//! RUSTFLAGS="--cfg shuttle" cargo test -p shardgrad-runtime --lib --target-dir target/shuttle -- models
//! ```

#[cfg(loom)]
pub(crate) use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    sync::{Condvar, Mutex, MutexGuard},
    thread::yield_now,
};

#[cfg(all(shuttle, not(loom)))]
pub(crate) use shuttle::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    sync::{Condvar, Mutex, MutexGuard},
    thread::yield_now,
};

#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    sync::{Condvar, Mutex, MutexGuard},
    thread::yield_now,
};

/// Takes a lock. No code of this crate panics while it holds one, so that a poisoned lock still guards whole data.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(all(test, loom))]
#[path = "models_loom.rs"]
mod models;

#[cfg(all(test, shuttle, not(loom)))]
#[path = "models_shuttle.rs"]
mod models;
