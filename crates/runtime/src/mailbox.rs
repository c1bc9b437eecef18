//! A mailbox: messages from one rank to another, in process.
//!
//! A message is *given*, and the receiver takes it, or *lent*: the receiver reads the sender's buffer where it is and gives
//! it back; or buffers are *handed over*, and are the receiver's from then on. The sender of a given message waits until no
//! more than `capacity` of them lie in the box (with capacity 0 both meet: a rendezvous); the sender of a lent one waits
//! until it is back; who hands over waits for nothing. The version counts changes, so that a waiter can watch it without
//! taking the lock.
//!
//! Invariants: messages of one tag are received in the order in which they were posted. Whoever changes the box while
//! another sleeps on it wakes it.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::comm::{CollectiveId, Loan, Tag};
use crate::sync::{AtomicU64, Condvar, Mutex, MutexGuard, Ordering, lock};
use crate::tensor::Data;

/// What a look into a box for a tag finds.
#[derive(Debug)]
pub(crate) enum Found<M> {
    /// The message.
    Message(M),
    /// The message, in another form than was expected: given, lent, or handed over.
    OtherForm,
    /// Messages of other collectives only.
    Other,
    /// Nothing yet.
    Nothing,
}

enum Body {
    Given(Data),
    Lent(Arc<Loan>),
    /// The receiver reads it.
    Read,
    HandedOver(Loan),
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
    messages: Vec<(Tag, Body)>,
    /// Threads that sleep on the box.
    sleepers: usize,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// Counts the changes of the box.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn give(&self, tag: Tag, payload: Data) {
        self.post(tag, Body::Given(payload));
    }

    pub(crate) fn lend(&self, tag: Tag, payload: Arc<Loan>) {
        self.post(tag, Body::Lent(payload));
    }

    fn post(&self, tag: Tag, body: Body) {
        let mut inner = self.lock();
        inner.messages.push((tag, body));
        self.touch(inner);
    }

    pub(crate) fn hand_over(&self, tag: Tag, buffers: Loan) {
        self.post(tag, Body::HandedOver(buffers));
    }

    /// Takes the oldest message with the tag.
    pub(crate) fn take(&self, tag: Tag) -> Found<Data> {
        self.remove(tag, |body| match body {
            Body::Given(payload) => Ok(payload),
            other => Err(other),
        })
    }

    /// Takes the buffers that were handed over with the tag.
    pub(crate) fn take_over(&self, tag: Tag) -> Found<Loan> {
        self.remove(tag, |body| match body {
            Body::HandedOver(buffers) => Ok(buffers),
            other => Err(other),
        })
    }

    /// Removes the oldest message with the tag, if `open` finds the form that it wants.
    fn remove<M>(&self, tag: Tag, open: impl FnOnce(Body) -> Result<M, Body>) -> Found<M> {
        let mut inner = self.lock();
        let Some(at) = inner.messages.iter().position(|(t, _)| *t == tag) else {
            return Self::other(&inner, tag);
        };
        let (_, body) = inner.messages.remove(at);
        match open(body) {
            Ok(message) => {
                self.touch(inner);
                Found::Message(message)
            }
            Err(body) => {
                inner.messages.insert(at, (tag, body));
                Found::OtherForm
            }
        }
    }

    /// Borrows the oldest message with the tag, which stays in the box until it is given back.
    pub(crate) fn borrow(&self, tag: Tag) -> Found<Arc<Loan>> {
        let mut inner = self.lock();
        let Some(at) = inner.messages.iter().position(|(t, _)| *t == tag) else {
            return Self::other(&inner, tag);
        };
        match std::mem::replace(&mut inner.messages[at].1, Body::Read) {
            Body::Lent(payload) => Found::Message(payload),
            body => {
                inner.messages[at].1 = body;
                Found::OtherForm
            }
        }
    }

    /// Gives a borrowed message back; nobody but its owner holds it then.
    pub(crate) fn give_back(&self, tag: Tag, payload: Arc<Loan>) {
        drop(payload);
        let mut inner = self.lock();
        inner.messages.retain(|(t, body)| *t != tag || !matches!(body, Body::Read));
        self.touch(inner);
    }

    /// Whether a message with the tag is lent and not back.
    pub(crate) fn is_lent(&self, tag: Tag) -> bool {
        let lent = |body: &Body| matches!(body, Body::Lent(_) | Body::Read);
        self.lock().messages.iter().any(|(t, body)| *t == tag && lent(body))
    }

    /// Whether the tag's message has not come.
    pub(crate) fn lacks(&self, tag: Tag) -> bool {
        !self.lock().messages.iter().any(|(t, _)| *t == tag)
    }

    /// Collectives start in one order: what lies there of another one belongs to a launch that is in flight on both ranks, or
    /// the ranks disagree.
    fn other<M>(inner: &Inner, wanted: Tag) -> Found<M> {
        let Tag::Collective(_) = wanted else { return Found::Nothing };
        let is_collective = |(tag, _): &(Tag, Body)| matches!(tag, Tag::Collective(_));
        if inner.messages.iter().any(is_collective) { Found::Other } else { Found::Nothing }
    }

    /// The oldest message of a collective that is not one of these.
    pub(crate) fn stranger(&self, known: impl Fn(&CollectiveId) -> bool) -> Option<Tag> {
        let inner = self.lock();
        let of_others = |tag: &Tag| match tag {
            Tag::User(_) => false,
            Tag::Collective(id) => !known(id),
        };
        inner.messages.iter().map(|(tag, _)| *tag).find(of_others)
    }

    /// Number of given messages that lie in the box.
    pub(crate) fn len(&self) -> usize {
        self.lock().messages.iter().filter(|(_, body)| matches!(body, Body::Given(_))).count()
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
