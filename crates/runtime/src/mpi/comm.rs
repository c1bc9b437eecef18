//! The communicator of one process: schedules over point-to-point messages.
//!
//! A message begins with a head that names its collective (module `message`); the receiver compares it with what it
//! waits for. Sends are started, then the receive waits, then the sends end, so that a round passes whatever MPI buffers.
//! Messages between two ranks keep their order; one that comes before it is wanted (of another user's tag) is kept.
//!
//! Memory: buffers of messages are used again, so that a step allocates none once it has run.

use std::collections::{BTreeMap, VecDeque};

use mpi::datatype::Equivalence;
use mpi::point_to_point::{Destination as _, Source as _};
use mpi::request::WaitGuard;
use mpi::topology::SimpleCommunicator;
use mpi::traits::Communicator as _;
use shardgrad_core::AxisSet;
use shardgrad_core::schedule::Combine;

use super::message::{HEAD, Head, INLINE, is_inline};
use super::native::Groups;
use super::universe::Universe;
use crate::comm::{
    Call, CollectiveId, Communicator, Incoming, NativeCollectives, Outgoing, Tag, Traffic,
    check_peer,
};
use crate::error::Error;
use crate::number::{Number, with_number};
use crate::pool::Pool;
use crate::tensor::Data;

/// Which collectives run a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Collectives {
    /// The schedules that the plan names: bitwise what threads compute.
    #[default]
    Own,
    /// MPI's, where they have the same meaning (floats; one all_reduce, all_gather, reduce_scatter or all_to_all): faster
    /// on a network, equal within rounding. Everything else runs by its schedule.
    Native,
}

impl Collectives {
    /// Name as printed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Collectives::Own => "own",
            Collectives::Native => "native",
        }
    }
}

/// How ranks talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MpiOptions {
    /// Which collectives run.
    pub collectives: Collectives,
    /// Most bytes of one MPI message; longer ones go in pieces. At most 2³¹ − 1.
    pub piece: usize,
}

impl Default for MpiOptions {
    /// Own schedules, pieces of 1 GiB.
    fn default() -> Self {
        Self { collectives: Collectives::Own, piece: 1 << 30 }
    }
}

/// MPI's tags: a head, with inline elements or without, and the pieces that follow a head.
const OF_HEAD: i32 = 0;
const OF_PIECE: i32 = 1;

/// One process' end of the world.
pub struct MpiComm {
    rank: usize,
    size: usize,
    options: MpiOptions,
    sequences: BTreeMap<AxisSet, u64>,
    traffic: Traffic,
    /// The head of the message that is sent.
    head: Vec<u8>,
    inbox: Inbox,
    groups: Groups,
    comm: SimpleCommunicator,
    // Last: MPI may end when it goes.
    universe: Universe,
}

/// What arrives.
struct Inbox {
    buffer: Vec<u8>,
    /// By sender: messages that came before they were wanted.
    early: BTreeMap<usize, VecDeque<(Tag, Data)>>,
    spare: Pool,
}

/// An element type that MPI knows.
trait Wire: Number + Equivalence {}
impl<T: Number + Equivalence> Wire for T {}

impl MpiComm {
    pub(crate) fn new(universe: Universe, comm: SimpleCommunicator, options: MpiOptions) -> Self {
        let piece = options.piece.clamp(8, (1 << 31) - 8);
        Self {
            rank: universe.rank(),
            size: universe.size(),
            options: MpiOptions { piece, ..options },
            sequences: BTreeMap::new(),
            traffic: Traffic::default(),
            head: Vec::with_capacity(HEAD + INLINE),
            inbox: Inbox {
                buffer: vec![0; HEAD + INLINE],
                early: BTreeMap::new(),
                spare: Pool::default(),
            },
            groups: Groups::default(),
            comm,
            universe,
        }
    }

    /// The world that it belongs to.
    #[must_use]
    pub fn universe(&self) -> &Universe {
        &self.universe
    }

    /// How ranks talk.
    #[must_use]
    pub fn options(&self) -> MpiOptions {
        self.options
    }

    /// Everybody's buffer, by rank; they may differ in length. All ranks call it at once.
    ///
    /// # Errors
    /// As [`Communicator::exchange`].
    pub fn gather_all(&mut self, mine: Data) -> Result<Vec<Data>, Error> {
        let (p, me) = (self.size, self.rank);
        let mut all: Vec<Data> = (0..p).map(|_| Data::empty(mine.dtype())).collect();
        let tag = Tag::User(u64::MAX);
        for k in 1..p {
            let (next, previous) = ((me + k) % p, (me + p - k) % p);
            let send = Outgoing { to: next, tag, payload: mine.clone() };
            let receive = Incoming { from: previous, tag };
            all[previous] = self
                .exchange(Some(send), Some(receive))?
                .unwrap_or_else(|| Data::empty(mine.dtype()));
        }
        all[me] = mine;
        Ok(all)
    }

    /// Starts the sends, receives, and waits until the sends have ended.
    fn send_around<T: Wire>(
        &mut self,
        to: usize,
        elements: &[T],
        receive: Option<Incoming>,
    ) -> Result<Option<Data>, Error> {
        let Self { rank, comm, head, inbox, universe, options, .. } = self;
        let piece = (options.piece / size_of::<T>()).max(1);
        mpi::request::scope(|scope| {
            let to = comm.process_at_rank(mpi_rank(to));
            let _head = WaitGuard::from(to.immediate_send_with_tag(scope, &head[..], OF_HEAD));
            let _pieces: Vec<_> = elements
                .chunks(piece)
                .map(|part| WaitGuard::from(to.immediate_send_with_tag(scope, part, OF_PIECE)))
                .collect();
            match receive.map(|incoming| inbox.take(comm, *rank, incoming)).transpose() {
                Ok(received) => Ok(received),
                // The peer may never take what was sent: there is no going back.
                Err(error) => universe.abort(&error, 1),
            }
        })
    }
}

fn mpi_rank(rank: usize) -> i32 {
    i32::try_from(rank).unwrap_or(i32::MAX)
}

impl Inbox {
    /// The message with this source and tag.
    fn take(
        &mut self,
        comm: &SimpleCommunicator,
        me: usize,
        Incoming { from, tag }: Incoming,
    ) -> Result<Data, Error> {
        if let Some(early) = self.early.get_mut(&from) {
            if let Some(at) = early.iter().position(|(other, _)| *other == tag)
                && let Some((_, payload)) = early.remove(at)
            {
                return Ok(payload);
            }
            if let Some((other, _)) = early.iter().find(|(other, _)| disagree(tag, *other)) {
                return Err(mismatch(me, tag, from, *other));
            }
        }
        loop {
            let (other, payload) = self.next(comm, from)?;
            if other == tag {
                return Ok(payload);
            }
            if disagree(tag, other) {
                return Err(mismatch(me, tag, from, other));
            }
            self.early.entry(from).or_default().push_back((other, payload));
        }
    }

    /// The next message from a rank.
    fn next(&mut self, comm: &SimpleCommunicator, from: usize) -> Result<(Tag, Data), Error> {
        let source = comm.process_at_rank(mpi_rank(from));
        let status = source.receive_into_with_tag(&mut self.buffer[..], OF_HEAD);
        let bytes = usize::try_from(status.count(u8::equivalent_datatype())).unwrap_or(0);
        let message = &self.buffer[..bytes];
        let head = Head::read(message).ok_or_else(|| Error::WrongBuffer {
            what: "a message",
            expected: "a head of this version, and its elements".to_owned(),
            found: format!("{bytes} bytes from rank {from}"),
        })?;
        if head.piece == 0 {
            return Ok((head.tag, head.elements(message, &mut self.spare)));
        }
        let mut payload = self.spare.take(head.dtype, head.len);
        with_number!(head.dtype, T => {
            for part in T::slice_mut(&mut payload).into_iter().flat_map(|all| all.chunks_mut(head.piece)) {
                source.receive_into_with_tag(part, OF_PIECE);
            }
        });
        Ok((head.tag, payload))
    }
}

/// Collectives run in one order: another one from the same rank is a disagreement.
fn disagree(wanted: Tag, found: Tag) -> bool {
    matches!((wanted, found), (Tag::Collective(a), Tag::Collective(b)) if a != b)
}

fn mismatch(rank: usize, mine: Tag, peer: usize, theirs: Tag) -> Error {
    Error::Mismatch { rank, mine: mine.to_string(), peer, theirs: theirs.to_string() }
}

impl Communicator for MpiComm {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn exchange(
        &mut self,
        send: Option<Outgoing>,
        receive: Option<Incoming>,
    ) -> Result<Option<Data>, Error> {
        if let Some(incoming) = &receive {
            check_peer(self, incoming.from)?;
        }
        let Some(Outgoing { to, tag, payload }) = send else {
            return receive.map(|r| self.inbox.take(&self.comm, self.rank, r)).transpose();
        };
        check_peer(self, to)?;
        self.traffic.messages += 1;
        self.traffic.bytes += payload.bytes() as u64;
        let (dtype, len) = (payload.dtype(), payload.len());
        let inline = is_inline(&payload);
        let piece = if inline { 0 } else { (self.options.piece / dtype.size()).max(1) };
        Head { tag, dtype, len, piece }.write(&payload, &mut self.head);
        let received = if inline {
            self.send_around::<i32>(to, &[], receive)
        } else {
            with_number!(dtype, T => {
                self.send_around::<T>(to, T::slice(&payload).unwrap_or_default(), receive)
            })
        };
        self.inbox.spare.put(payload);
        received
    }

    /// Ranks compare what they run in every message, and plans as a whole at the start: a rank without a part in a
    /// collective need not wait.
    fn begin(&mut self, call: Call<'_>) -> Result<CollectiveId, Error> {
        let Call { kind, axes, dtype, elements, .. } = call;
        let count = self.sequences.entry(axes).or_default();
        let id = CollectiveId { sequence: *count, kind, axes, dtype, elements };
        *count += 1;
        Ok(id)
    }

    fn native(&mut self) -> Option<&mut dyn NativeCollectives> {
        (self.options.collectives == Collectives::Native).then_some(self as _)
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }
}

impl NativeCollectives for MpiComm {
    fn all_reduce(&mut self, group: &[usize], combine: Combine, send: &Data, receive: &mut Data) {
        self.groups.of(&self.comm, group).all_reduce(combine, send, receive);
    }

    fn reduce_scatter(
        &mut self,
        group: &[usize],
        combine: Combine,
        send: &Data,
        receive: &mut Data,
    ) {
        self.groups.of(&self.comm, group).reduce_scatter(combine, send, receive);
    }

    fn all_gather(&mut self, group: &[usize], send: &Data, counts: &[usize], receive: &mut Data) {
        self.groups.of(&self.comm, group).all_gather(send, counts, receive);
    }

    fn all_to_all(
        &mut self,
        group: &[usize],
        send: &Data,
        counts: &[usize],
        receive: &mut Data,
        received: &[usize],
    ) {
        self.groups.of(&self.comm, group).all_to_all(send, counts, receive, received);
    }
}
