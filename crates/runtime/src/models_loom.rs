//! Every interleaving of two threads on each primitive. A wake-up that is lost is a deadlock, which loom reports: its
//! time-outs never come.

use std::sync::Arc as Plain;
use std::time::Duration;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use shardgrad_core::{AxisSet, DType, TransitionKind};

use crate::announce::{Announcements, Heard};
use crate::comm::{CollectiveId, Loan, Tag};
use crate::handoff::Handoff;
use crate::mailbox::{Found, Mailbox};
use crate::tensor::Data;

const NEVER: Duration = Duration::from_secs(3600);

fn tag(n: u64) -> Tag {
    Tag::User(n)
}

fn data(n: i32) -> Data {
    Data::I32(vec![n])
}

/// As a waiting rank does: look at the version, look into the box, sleep if it has not changed.
fn until<R>(mailbox: &Mailbox, mut poll: impl FnMut() -> Option<R>) -> R {
    loop {
        let version = mailbox.version();
        if let Some(found) = poll() {
            return found;
        }
        mailbox.sleep(version, NEVER);
    }
}

fn take(mailbox: &Mailbox, wanted: Tag) -> Data {
    until(mailbox, || match mailbox.take(wanted) {
        Found::Message(payload) => Some(payload),
        Found::Nothing => None,
        other => panic!("{other:?}"),
    })
}

/// Two messages at capacity 0: each arrives once, in order, and the sender goes on when it is taken.
#[test]
fn given_messages_meet_their_receiver() {
    loom::model(|| {
        let mailbox = Arc::new(Mailbox::default());
        let sender = Arc::clone(&mailbox);
        let thread = thread::spawn(move || {
            for n in [1, 2] {
                sender.give(tag(7), data(n));
                until(&sender, || (sender.len() == 0).then_some(()));
            }
        });
        assert_eq!(take(&mailbox, tag(7)), data(1));
        assert_eq!(take(&mailbox, tag(7)), data(2));
        thread.join().unwrap();
        assert_eq!(mailbox.len(), 0);
    });
}

/// A lent buffer is its owner's alone again when the owner goes on.
#[test]
fn lent_buffers_come_back() {
    loom::model(|| {
        let mailbox = Arc::new(Mailbox::default());
        let owner = Arc::clone(&mailbox);
        let thread = thread::spawn(move || {
            let own = Plain::new(Loan::from_elem(data(5), 1));
            owner.lend(tag(1), Plain::clone(&own));
            until(&owner, || (!owner.is_lent(tag(1))).then_some(()));
            assert_eq!(Plain::try_unwrap(own), Ok(Loan::from_elem(data(5), 1)));
        });
        let read = until(&mailbox, || match mailbox.borrow(tag(1)) {
            Found::Message(payload) => Some(payload),
            Found::Nothing => None,
            other => panic!("{other:?}"),
        });
        assert_eq!(read[0], data(5));
        mailbox.give_back(tag(1), read);
        thread.join().unwrap();
    });
}

/// Buffers that are handed over come back changed, by a box for each direction.
#[test]
fn buffers_are_handed_over_and_back() {
    loom::model(|| {
        let boxes = Arc::new((Mailbox::default(), Mailbox::default()));
        let other = Arc::clone(&boxes);
        let take_over = |mailbox: &Mailbox| {
            until(mailbox, || match mailbox.take_over(tag(3)) {
                Found::Message(buffers) => Some(buffers),
                Found::Nothing => None,
                found => panic!("{found:?}"),
            })
        };
        let thread = thread::spawn(move || {
            other.0.hand_over(tag(3), Loan::from_elem(data(5), 1));
            assert_eq!(take_over(&other.1), Loan::from_elem(data(6), 1));
        });
        assert_eq!(take_over(&boxes.0), Loan::from_elem(data(5), 1));
        boxes.1.hand_over(tag(3), Loan::from_elem(data(6), 1));
        thread.join().unwrap();
    });
}

/// A failure that is set before the boxes are rung reaches a rank that is about to sleep.
#[test]
fn a_ring_wakes_whoever_sleeps_or_is_about_to() {
    loom::model(|| {
        let shared = Arc::new((Mailbox::default(), AtomicBool::new(false)));
        let failing = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            failing.1.store(true, Ordering::Release);
            failing.0.ring();
        });
        until(&shared.0, || shared.1.load(Ordering::Acquire).then_some(()));
        thread.join().unwrap();
    });
}

/// A command and its reply, twice.
#[test]
fn handoffs_lose_nothing() {
    loom::model(|| {
        let line = Arc::new((Handoff::new(0), Handoff::new(0)));
        let other = Arc::clone(&line);
        let thread = thread::spawn(move || {
            for _ in 0..2 {
                let n: i32 = other.0.take(NEVER).unwrap();
                other.1.put(n + 1);
            }
        });
        for n in [10, 20] {
            line.0.put(n);
            assert_eq!(line.1.take(NEVER), Some(n + 1));
        }
        thread.join().unwrap();
    });
}

fn id(elements: usize) -> CollectiveId {
    let axes = AxisSet::single(0);
    CollectiveId { sequence: 0, kind: TransitionKind::AllReduce, axes, dtype: DType::F32, elements }
}

/// Of two ranks that disagree exactly one finds out, whoever comes first; of two that agree the second closes the entry.
#[test]
fn exactly_one_rank_notices_a_disagreement() {
    for (theirs, agree) in [(4, true), (5, false)] {
        loom::model(move || {
            let told = Arc::new(Announcements::default());
            let other = Arc::clone(&told);
            let thread = thread::spawn(move || other.announce(1, &[0, 1], id(theirs), false).0);
            let mine = told.announce(0, &[0, 1], id(4), false).0;
            let both = [mine, thread.join().unwrap()];
            let count = |wanted: &dyn Fn(&Heard) -> bool| both.iter().filter(|h| wanted(h)).count();
            assert_eq!(count(&|h| matches!(h, Heard::Missing(_))), 1);
            assert_eq!(count(&|h| matches!(h, Heard::All)), usize::from(agree));
            assert_eq!(count(&|h| matches!(h, Heard::Disagrees(..))), usize::from(!agree));
        });
    }
}

/// An idle rank sleeps until the other has announced, however both interleave.
#[test]
fn idle_ranks_are_woken() {
    loom::model(|| {
        let shared = Arc::new((Announcements::default(), Mailbox::default()));
        let other = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let (_, waiting) = other.0.announce(1, &[0, 1], id(0), false);
            waiting.iter().for_each(|_| other.1.ring());
        });
        let _ = shared.0.announce(0, &[0, 1], id(0), true);
        until(&shared.1, || (!shared.0.lacks(1, id(0))).then_some(()));
        thread.join().unwrap();
    });
}
