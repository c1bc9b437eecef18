//! What ranks say to each other: the [`Communicator`] trait, message tags and counters.
//!
//! A communicator belongs to one rank. `send` and `recv` match on source *and* tag; `exchange` does one of each
//! concurrently, so that every schedule passes at channel capacity 0. Whatever goes wrong on one rank makes every other
//! rank's next or current call return an error at once.

use std::fmt;
use std::sync::Arc;

use shardgrad_core::schedule::Combine;
use shardgrad_core::{AxisSet, DType, TransitionKind};
use smallvec::SmallVec;

use crate::error::Error;
use crate::tensor::Data;

/// What a collective says about itself in every message, so that ranks which disagree find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CollectiveId {
    /// How many collectives the rank ran over the same axes before.
    pub sequence: u64,
    /// Its kind.
    pub kind: TransitionKind,
    /// The axes it runs over.
    pub axes: AxisSet,
    /// Element type.
    pub dtype: DType,
    /// Elements of the global tensor, or of all tensors of the launch.
    pub elements: usize,
}

impl fmt::Display for CollectiveId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} #{} over ", self.kind, self.sequence)?;
        for (i, axis) in self.axes.iter().enumerate() {
            write!(f, "{}{axis}", if i == 0 { "mesh axis " } else { ", " })?;
        }
        write!(f, " of {} {} elements", self.elements, self.dtype)
    }
}

/// What tells messages of one source apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tag {
    /// A message of the user's.
    User(u64),
    /// A message of a collective; those of one pair of ranks arrive in order.
    Collective(CollectiveId),
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tag::User(tag) => write!(f, "a message with tag {tag}"),
            Tag::Collective(id) => id.fmt(f),
        }
    }
}

/// A message to send.
#[derive(Debug)]
pub struct Outgoing {
    /// The receiver.
    pub to: usize,
    /// Its tag.
    pub tag: Tag,
    /// Its elements.
    pub payload: Data,
}

/// A message to receive.
#[derive(Clone, Copy, Debug)]
pub struct Incoming {
    /// The sender.
    pub from: usize,
    /// Its tag.
    pub tag: Tag,
}

/// Payload that a rank sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages.
    pub messages: u64,
    /// Bytes of their elements.
    pub bytes: u64,
}

/// A collective that a rank begins.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Its kind.
    pub kind: TransitionKind,
    /// The axes it runs over.
    pub axes: AxisSet,
    /// The ranks that take part, ascending.
    pub group: &'a [usize],
    /// Element type.
    pub dtype: DType,
    /// Elements of the global tensor, or of all tensors of the launch.
    pub elements: usize,
    /// Whether this rank sends and receives nothing.
    pub idle: bool,
}

/// Buffers that are lent together: one for each collective of a launch.
pub type Loan = SmallVec<[Data; 1]>;

/// Buffers that peers use where they are. A rank lends, reads what others lent it, gives that back, and waits for its own to
/// come back, in this order; nothing of it blocks but waiting for peers. Buffers that are handed over are the peer's, to
/// change as well, until it hands them back.
pub trait SharedMemory {
    /// Lets a peer read buffers, of which it will read so many bytes.
    ///
    /// # Errors
    /// As [`Communicator::exchange`].
    fn lend(&mut self, to: usize, tag: Tag, buffers: Arc<Loan>, bytes: u64) -> Result<(), Error>;

    /// Waits for the buffers that a peer lends.
    ///
    /// # Errors
    /// As [`Communicator::exchange`].
    fn borrow(&mut self, from: usize, tag: Tag) -> Result<Arc<Loan>, Error>;

    /// Gives borrowed buffers back.
    fn give_back(&mut self, from: usize, tag: Tag, buffers: Arc<Loan>);

    /// Waits until a peer has given back all that was lent to it under a tag.
    ///
    /// # Errors
    /// As [`Communicator::exchange`].
    fn reclaim(&mut self, to: usize, tag: Tag) -> Result<(), Error>;

    /// Makes buffers a peer's, which counts as so many bytes sent.
    ///
    /// # Errors
    /// As [`Communicator::exchange`].
    fn hand_over(&mut self, to: usize, tag: Tag, buffers: Loan, bytes: u64) -> Result<(), Error>;

    /// Waits for the buffers that a peer hands over, asleep at once: whoever has them can use this rank's core.
    ///
    /// # Errors
    /// As [`Communicator::exchange`].
    fn take_over(&mut self, from: usize, tag: Tag) -> Result<Loan, Error>;
}

/// Collectives that a transport offers by itself. Buffers fit each other, and all ranks of the group, ascending, call the
/// same one at once. The order in which terms are combined is the transport's.
pub trait NativeCollectives {
    /// Combines buffers of one length.
    fn all_reduce(&mut self, group: &[usize], combine: Combine, send: &Data, receive: &mut Data);

    /// Combines buffers that hold a part for every member, all of one length; each member receives its own.
    fn reduce_scatter(
        &mut self,
        group: &[usize],
        combine: Combine,
        send: &Data,
        receive: &mut Data,
    );

    /// Puts the members' buffers, of these lengths, in a row.
    fn all_gather(&mut self, group: &[usize], send: &Data, counts: &[usize], receive: &mut Data);

    /// Sends each member its part of `send`, of these lengths; what comes is in a row, of those.
    fn all_to_all(
        &mut self,
        group: &[usize],
        send: &Data,
        counts: &[usize],
        receive: &mut Data,
        received: &[usize],
    );
}

/// One rank's end of a world.
pub trait Communicator {
    /// This rank.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// Sends and receives concurrently: the round of a schedule.
    ///
    /// # Errors
    /// Another rank failed, disagrees, or did not come in time; a peer that does not exist.
    fn exchange(
        &mut self,
        send: Option<Outgoing>,
        receive: Option<Incoming>,
    ) -> Result<Option<Data>, Error>;

    /// Begins the next collective over these axes with the other ranks of `group`, this one included: numbers it, notes it
    /// for reports, and finds out whether a rank that came before says otherwise. A rank without a part in it (`idle`)
    /// waits until all of the group have begun, so that it cannot leave before a disagreement is found.
    ///
    /// # Errors
    /// As [`Communicator::exchange`].
    fn begin(&mut self, call: Call<'_>) -> Result<CollectiveId, Error>;

    /// Says that this rank is at work, with about so many multiplications and additions before its next message, so that
    /// the others' patience lasts. Ranks that only communicate need not call it.
    fn alive(&mut self, operations: u64) {
        let _ = operations;
    }

    /// How ranks read each other's buffers where they are, if they share memory.
    fn shared_memory(&mut self) -> Option<&mut dyn SharedMemory> {
        None
    }

    /// The transport's own collectives, if they are to be used where they have the same meaning. All ranks agree.
    fn native(&mut self) -> Option<&mut dyn NativeCollectives> {
        None
    }

    /// What this rank sent so far.
    fn traffic(&self) -> Traffic;

    /// Sends a message; returns when it is taken, or when it fits the channel.
    ///
    /// # Errors
    /// As [`Communicator::exchange`].
    fn send(&mut self, to: usize, tag: Tag, payload: Data) -> Result<(), Error> {
        self.exchange(Some(Outgoing { to, tag, payload }), None).map(|_| ())
    }

    /// Receives the message with this source and tag.
    ///
    /// # Errors
    /// As [`Communicator::exchange`].
    fn recv(&mut self, from: usize, tag: Tag) -> Result<Data, Error> {
        self.exchange(None, Some(Incoming { from, tag }))?.ok_or(Error::WrongBuffer {
            what: "a received message",
            expected: "a payload".to_owned(),
            found: "none".to_owned(),
        })
    }
}

/// Whether a rank can send to a peer and receive from it.
pub(crate) fn check_peer(comm: &impl Communicator, peer: usize) -> Result<(), Error> {
    let (me, size) = (comm.rank(), comm.size());
    if peer < size && peer != me {
        return Ok(());
    }
    Err(Error::NoSuchRank { rank: peer, me, size })
}
