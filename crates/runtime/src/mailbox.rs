//! A mailbox: messages from one rank to another, in process.
//!
//! The sender posts and waits until no more than `capacity` messages lie in the box; the receiver takes the first message
//! with its tag. With capacity 0 both meet: a rendezvous. The version counts changes, so that a waiter can watch it
//! without taking the lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::comm::Tag;
use crate::tensor::Data;

/// What a look into a box for a tag finds.
pub(crate) enum Found {
    /// The message.
    Message(Data),
    /// The next message belongs to another collective: the ranks disagree.
    Other(Tag),
    /// Nothing yet.
    Nothing,
}

#[derive(Default)]
pub(crate) struct Mailbox {
    version: AtomicU64,
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    /// Posted messages, oldest first. Rarely more than one: a scan is as good as a map.
    messages: Vec<(Tag, Data)>,
    /// Threads that sleep on the box.
    sleepers: usize,
}

impl Mailbox {
    /// No code panics while it holds the lock, so a poisoned lock still guards whole data.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the changes of the box.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn post(&self, tag: Tag, payload: Data) {
        let mut inner = self.lock();
        inner.messages.push((tag, payload));
        self.touch(inner);
    }

    /// Takes the oldest message with the tag.
    pub(crate) fn take(&self, tag: Tag) -> Found {
        let mut inner = self.lock();
        let Some(at) = inner.messages.iter().position(|(t, _)| *t == tag) else {
            return Self::other(&inner, tag);
        };
        let (_, payload) = inner.messages.remove(at);
        self.touch(inner);
        Found::Message(payload)
    }

    /// Whether the tag's message has not come.
    pub(crate) fn lacks(&self, tag: Tag) -> bool {
        !self.lock().messages.iter().any(|(t, _)| *t == tag)
    }

    /// Collectives run in one order: if the oldest collective message is of another one, the ranks disagree.
    fn other(inner: &Inner, wanted: Tag) -> Found {
        let Tag::Collective(_) = wanted else { return Found::Nothing };
        inner
            .messages
            .iter()
            .find(|(tag, _)| matches!(tag, Tag::Collective(_)))
            .map_or(Found::Nothing, |(tag, _)| Found::Other(*tag))
    }

    /// Number of messages that lie in the box.
    pub(crate) fn len(&self) -> usize {
        self.lock().messages.len()
    }

    fn touch(&self, inner: MutexGuard<'_, Inner>) {
        self.version.fetch_add(1, Ordering::Release);
        let asleep = inner.sleepers > 0;
        drop(inner);
        if asleep {
            self.changed.notify_all();
        }
    }

    /// Sleeps until the box changes from `version`, it is rung, or the time is over.
    pub(crate) fn sleep(&self, version: u64, at_most: Duration) {
        let mut inner = self.lock();
        if self.version() != version {
            return;
        }
        inner.sleepers += 1;
        let (mut inner, _) =
            self.changed.wait_timeout(inner, at_most).unwrap_or_else(PoisonError::into_inner);
        inner.sleepers -= 1;
    }

    /// Wakes whoever sleeps on the box.
    pub(crate) fn ring(&self) {
        self.touch(self.lock());
    }
}
