//! Transitions on local buffers: one rank's schedule, made ready once and run over any communicator.
//!
//! The schedule is data of [`shardgrad_core::schedule`]; here its boxes become offsets and runs in the rank's source and
//! result buffers. Where ranks share no memory a message is packed, exchanged, and copied or combined, round by round, in
//! the schedule's order; where they do, peers' buffers are read where they are (`direct`), in the same order of
//! additions, so that results are the same bits on every backend and run. What is counted is what is sent; staging is what
//! the schedule's messages need.
//!
//! Several collectives of one kind over one group run as one launch ([`Collective::together`]): one announcement, and one
//! message per peer and round with the parts of all members one behind the other ([`shardgrad_core::launch`]).

use std::collections::BTreeMap;

use shardgrad_core::geometry::block;
use shardgrad_core::schedule::{
    Buffer, Combine, RankSchedule, Region, Start, exchange_axes, rank_schedule,
};
use shardgrad_core::{
    Algorithm, Block, Layout, Mesh, Placement, TensorType, Transition, TransitionKind,
};
use smallvec::{SmallVec, smallvec};

use crate::comm::{Call, Communicator, Incoming, Outgoing, Tag};
use crate::direct::{Direct, Lent, Part};
use crate::error::Error;
use crate::kernels::elementwise::zip;
use crate::native::Native;
use crate::number::{Number, checked, with_number};
use crate::pool::Pool;
use crate::region::{Local, Pair};
use crate::tensor::Data;

/// What running a transition cost one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Bytes of payload.
    pub bytes: u64,
    /// Bytes of the largest round's message out plus message in.
    pub staging: u64,
}

/// One rank's part of a launch, ready to run: of a transition, or of several collectives.
#[derive(Clone, Debug)]
pub struct Collective {
    members: SmallVec<[Member; 1]>,
    /// The ranks that take part, ascending, and this one.
    group: Vec<usize>,
    rank: usize,
    /// What all members exchange, round by round.
    rounds: Vec<Together>,
    /// The same by reading peers' buffers.
    direct: Direct,
    /// Whether it only reads sources, or is the direct all_reduce: then peers' buffers can be read in place. All ranks agree.
    lendable: bool,
    /// Bytes of the largest round.
    staging: u64,
}

/// One transition of a launch.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    transition: Transition,
    ty: TensorType,
    start: LocalStart,
    rounds: Vec<LocalRound>,
    pub(crate) part: Part,
    /// The same by the transport's own collectives.
    native: Option<Native>,
    source_len: usize,
    result_len: usize,
    /// Bytes that it sends.
    bytes: u64,
}

#[derive(Clone, Debug)]
enum LocalStart {
    CopyAll,
    Identity(Placement),
    /// A walk of (result, source).
    CopyInto {
        own: Pair,
        fill: Option<Placement>,
    },
}

#[derive(Clone, Debug)]
struct LocalRound {
    number: usize,
    send: Option<(usize, Buffer, Local)>,
    receive: Option<(usize, Local, Combine)>,
}

/// A round of a launch: the peers, and each member that has something for them, with its own round.
#[derive(Clone, Debug, Default)]
struct Together {
    to: Option<usize>,
    from: Option<usize>,
    members: SmallVec<[(usize, usize); 1]>,
}

/// The operand's buffer of a transition.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a, T> {
    /// A buffer of its own.
    Apart(&'a [T]),
    /// The result's buffer, which is overwritten.
    InPlace,
}

/// The buffers of a member of a launch, while it runs.
#[derive(Debug)]
pub(crate) struct Buffers {
    /// The operand's, unless it is overwritten.
    pub(crate) source: Option<Data>,
    pub(crate) result: Data,
}

/// A launch that was started.
#[derive(Debug)]
pub(crate) struct Flight {
    tag: Option<Tag>,
    /// What peers read, if they read it where it is.
    lent: Option<Lent>,
    buffers: SmallVec<[Buffers; 1]>,
}

/// A launch that is done: its buffers, the bytes that each member sent, and what was staged.
#[derive(Debug)]
pub(crate) struct Landed {
    pub(crate) buffers: SmallVec<[Buffers; 1]>,
    pub(crate) bytes: SmallVec<[u64; 1]>,
    pub(crate) staging: u64,
}

impl Collective {
    /// Makes the transition between two layouts ready for one rank.
    ///
    /// # Errors
    /// The layouts do not fit the mesh and the tensor, or no single transition leads from one to the other.
    pub fn new(
        mesh: &Mesh,
        ty: &TensorType,
        from: &Layout,
        to: &Layout,
        rank: usize,
    ) -> Result<Self, Error> {
        Self::by(Algorithm::Direct, mesh, ty, from, to, rank)
    }

    /// [`Collective::new`], carried out by an algorithm.
    ///
    /// # Errors
    /// As [`Collective::new`]; the algorithm is none for this transition.
    pub fn by(
        algorithm: Algorithm,
        mesh: &Mesh,
        ty: &TensorType,
        from: &Layout,
        to: &Layout,
        rank: usize,
    ) -> Result<Self, Error> {
        from.validate(mesh, ty.rank())?;
        to.validate(mesh, ty.rank())?;
        let transition = Transition::between(mesh, from, to)?.by(algorithm);
        algorithm.check(transition, mesh)?;
        let source = block(&ty.shape, from, mesh, rank);
        let result = block(&ty.shape, to, mesh, rank);
        let schedule = rank_schedule(transition, mesh, &ty.shape, from, to, rank);
        let bytes = (schedule.elements_sent() * ty.dtype.size()) as u64;
        let start = match &schedule.start {
            Start::CopyAll => LocalStart::CopyAll,
            Start::Identity(placement) => LocalStart::Identity(*placement),
            Start::CopyInto { own, fill } => {
                LocalStart::CopyInto { own: Pair::of_box(own, &result, &source), fill: *fill }
            }
        };
        let axes = match transition.kind {
            TransitionKind::AllReduce => transition.axes,
            _ => exchange_axes(mesh, from, to),
        };
        let group = mesh.group(rank, axes);
        let largest = axes.iter().any(|axis| from.on(axis) == Placement::PendingMax);
        let combine = if largest { Combine::Max } else { Combine::Sum };
        let theirs = |peer| block(&ty.shape, from, mesh, peer);
        // A reshard that reduces and then gathers sends results.
        let lendable = algorithm.is_direct() && transition.weight(from, to) < 3;
        let lent = if lendable { schedule.rounds.as_slice() } else { &[] };
        let mut part = Part::new(transition.kind, combine, lent, &result, theirs);
        if let (Part::Reduce(chunks), true) = (&mut part, lendable && group.first() == Some(&rank))
        {
            let schedule = |peer| rank_schedule(transition, mesh, &ty.shape, from, to, peer);
            chunks.lead(&group, schedule);
        }
        let members = (mesh.group(rank, transition.axes), rank);
        let native = Native::new(transition.kind, combine, ty, members, |r| {
            (block(&ty.shape, from, mesh, r), block(&ty.shape, to, mesh, r))
        });
        let rounds = local_rounds(&schedule, &source, &result);
        let (source_len, result_len) = (source.len(), result.len());
        let member = Member {
            transition,
            ty: ty.clone(),
            start,
            rounds,
            part,
            native,
            source_len,
            result_len,
            bytes,
        };
        Ok(Self::of(smallvec![member], group, rank, lendable))
    }

    fn of(members: SmallVec<[Member; 1]>, group: Vec<usize>, rank: usize, lendable: bool) -> Self {
        let mut rounds: BTreeMap<usize, Together> = BTreeMap::new();
        let mut bytes: BTreeMap<usize, u64> = BTreeMap::new();
        for (m, member) in members.iter().enumerate() {
            for (r, round) in member.rounds.iter().enumerate() {
                let together = rounds.entry(round.number).or_default();
                together.to = together.to.or(round.send.as_ref().map(|send| send.0));
                together.from = together.from.or(round.receive.as_ref().map(|receive| receive.0));
                together.members.push((m, r));
                let out = round.send.as_ref().map_or(0, |send| send.2.len());
                let into = round.receive.as_ref().map_or(0, |receive| receive.1.len());
                let size = member.ty.dtype.size();
                *bytes.entry(round.number).or_default() += ((out + into) * size) as u64;
            }
        }
        let size = members.first().map_or(0, |m| m.ty.dtype.size());
        let parts: Vec<&Part> = members.iter().map(|m| &m.part).collect();
        let direct = Direct::new(&group, rank, size, &parts);
        let staging = bytes.into_values().max().unwrap_or(0);
        let rounds = rounds.into_values().collect();
        Self { members, group, rank, rounds, direct, lendable, staging }
    }

    /// Several collectives as one launch.
    ///
    /// # Errors
    /// They are none, or differ in kind, axes, algorithm, element type or group.
    pub fn together(collectives: Vec<Collective>) -> Result<Self, Error> {
        let differ = |found: &Member, first: &Member| Error::WrongBuffer {
            what: "a launch of several collectives",
            expected: format!("{} of {} only", first.transition.kind, first.ty.dtype),
            found: format!("{} of {}", found.transition.kind, found.ty.dtype),
        };
        let mut all = collectives.into_iter();
        let Some(Self { mut members, group, rank, mut lendable, .. }) = all.next() else {
            return Err(Error::WrongBuffer {
                what: "a launch",
                expected: "a collective at least".to_owned(),
                found: "none".to_owned(),
            });
        };
        for other in all {
            for member in other.members {
                let first = &members[0];
                let shared = shardgrad_core::launch::can_be_shared(member.transition.kind)
                    && member.transition == first.transition
                    && member.ty.dtype == first.ty.dtype
                    && other.group == group;
                if !shared {
                    return Err(differ(&member, first));
                }
                members.push(member);
            }
            lendable &= other.lendable;
        }
        Ok(Self::of(members, group, rank, lendable))
    }

    /// What it does.
    #[must_use]
    pub fn transition(&self) -> Transition {
        self.members[0].transition
    }

    /// Bytes of its largest round.
    pub(crate) fn staging(&self) -> u64 {
        self.staging
    }

    /// Elements of the result's block, of all members together.
    #[must_use]
    pub fn result_len(&self) -> usize {
        self.members.iter().map(|m| m.result_len).sum()
    }

    /// Whether the result may overwrite the operand's buffer: every element starts as the same element, or anew.
    #[must_use]
    pub fn can_run_in_place(&self) -> bool {
        self.members
            .iter()
            .all(|m| matches!(m.start, LocalStart::CopyAll | LocalStart::Identity(_)))
    }

    fn single(&self) -> Result<&Member, Error> {
        match self.members.as_slice() {
            [member] => Ok(member),
            members => Err(Error::WrongBuffer {
                what: "the buffers of a launch",
                expected: format!("those of {} collectives", members.len()),
                found: "those of one".to_owned(),
            }),
        }
    }

    /// Runs a single transition. Local ones do not touch the communicator.
    ///
    /// # Errors
    /// Buffers of the wrong length, a sum of integers that overflows, and whatever the communicator reports.
    pub fn run<T: Number, C: Communicator + ?Sized>(
        &self,
        comm: &mut C,
        source: Source<'_, T>,
        result: &mut [T],
    ) -> Result<Sent, Error> {
        let member = self.single()?;
        member.check(&source, result)?;
        member.begin(&source, result);
        if !member.transition.kind.is_collective() {
            return Ok(Sent::default());
        }
        let tag = self.announce(comm)?;
        let (bytes, staging) =
            self.exchange(comm, tag, &mut [(source, result)], &mut Pool::default())?;
        Ok(Sent { bytes: bytes.iter().sum(), staging })
    }

    /// All rounds, by messages: the bytes that each member sent, and the most that was staged in a round.
    fn exchange<T: Number, C: Communicator + ?Sized>(
        &self,
        comm: &mut C,
        tag: Tag,
        buffers: &mut [(Source<'_, T>, &mut [T])],
        pool: &mut Pool,
    ) -> Result<(SmallVec<[u64; 1]>, u64), Error> {
        let size = T::DTYPE.size();
        let mut sent: SmallVec<[u64; 1]> = smallvec![0; self.members.len()];
        let mut most = 0;
        for round in &self.rounds {
            let own = |&(m, r): &(usize, usize)| (m, &self.members[m].rounds[r]);
            let mut staging = 0;
            let send = round.to.map(|to| {
                let sends = || {
                    round.members.iter().map(own).filter_map(|(m, r)| Some((m, r.send.as_ref()?)))
                };
                let len = sends().map(|(_, (_, _, local))| local.len()).sum();
                let mut message = pool.empty::<T>(len);
                for (m, (_, buffer, local)) in sends() {
                    match (buffer, &buffers[m].0) {
                        (Buffer::Source, Source::Apart(source)) => local.pack(source, &mut message),
                        (Buffer::Source, Source::InPlace) | (Buffer::Result, _) => {
                            local.pack(buffers[m].1, &mut message);
                        }
                    }
                    sent[m] += (local.len() * size) as u64;
                }
                let payload = T::into_data(message);
                staging += payload.bytes() as u64;
                Outgoing { to, tag, payload }
            });
            let receive = round.from.map(|from| Incoming { from, tag });
            if let Some(arrived) = comm.exchange(send, receive)? {
                staging += arrived.bytes() as u64;
                let receives = || {
                    let parts = round.members.iter().map(own);
                    parts.filter_map(|(m, r)| Some((m, r.receive.as_ref()?)))
                };
                let len = receives().map(|(_, (_, local, _))| local.len()).sum();
                let message = expect_message::<T>(arrived, len)?;
                let mut at = 0;
                let mut overflow = false;
                for (m, (_, local, combine)) in receives() {
                    let part = &message[at..at + local.len()];
                    at += local.len();
                    local.unpack(buffers[m].1, part, |into, new| {
                        merge(*combine, into, new, &mut overflow);
                    });
                }
                checked(overflow, self.transition().kind.name(), T::DTYPE)?;
                pool.put(T::into_data(message));
            }
            most = most.max(staging);
        }
        Ok((sent, most))
    }

    fn announce<C: Communicator + ?Sized>(&self, comm: &mut C) -> Result<Tag, Error> {
        let Transition { kind, axes, .. } = self.transition();
        let id = comm.begin(Call {
            kind,
            axes,
            group: &self.group,
            dtype: self.members[0].ty.dtype,
            elements: self.members.iter().map(|m| m.ty.elements()).sum(),
            idle: self.rounds.is_empty(),
        })?;
        Ok(Tag::Collective(id))
    }

    /// Runs a single transition on buffers of any element type, in place without a source. If the communicator has shared
    /// memory and `lend` is set, peers read this rank's buffers, and this rank theirs. Buffers that it needs for a while
    /// come from the pool. After an error source and result may be empty.
    ///
    /// # Errors
    /// As [`Collective::run`].
    pub fn run_data<C: Communicator + ?Sized>(
        &self,
        comm: &mut C,
        mut source: Option<&mut Data>,
        result: &mut Data,
        pool: &mut Pool,
        lend: bool,
    ) -> Result<Sent, Error> {
        let member = self.single()?;
        let dtype = member.ty.dtype;
        let taken = source.as_deref_mut().map(|data| std::mem::replace(data, Data::empty(dtype)));
        let buffers =
            Buffers { source: taken, result: std::mem::replace(result, Data::empty(dtype)) };
        let flight = self.start(comm, smallvec![buffers], lend)?;
        let landed = self.finish(comm, flight, pool)?;
        if let Some(buffers) = landed.buffers.into_iter().next() {
            *result = buffers.result;
            if let (Some(source), Some(data)) = (source, buffers.source) {
                *source = data;
            }
        }
        Ok(Sent { bytes: landed.bytes.iter().sum(), staging: landed.staging })
    }

    /// Announces the launch and, where ranks share memory, lends its operands; then the rank may do something else. Local
    /// transitions are done at once.
    ///
    /// # Errors
    /// As [`Collective::run`].
    pub(crate) fn start<C: Communicator + ?Sized>(
        &self,
        comm: &mut C,
        mut buffers: SmallVec<[Buffers; 1]>,
        lend: bool,
    ) -> Result<Flight, Error> {
        let communicates = self.transition().kind.is_collective();
        let native = self.is_native(comm);
        let lend = lend && self.lendable && communicates && comm.shared_memory().is_some();
        with_number!(self.members[0].ty.dtype, T => {
            self.pair::<T>(&mut buffers, |member, source, result| {
                member.check(&source, result)?;
                // All but a lent all_reduce, which reads operands where they are, start from the rank's own elements.
                if !(native || lend && self.direct.is_reduction()) {
                    member.begin(&source, result);
                }
                Ok(())
            })?;
        });
        let tag = if communicates { Some(self.announce(comm)?) } else { None };
        let mut lent = None;
        if let (true, Some(tag), Some(memory)) = (lend, tag, comm.shared_memory()) {
            lent = Some(self.direct.start(memory, tag, &mut buffers)?);
        }
        Ok(Flight { tag, lent, buffers })
    }

    /// Waits for peers, and finishes a launch that was started.
    ///
    /// # Errors
    /// As [`Collective::run`].
    pub(crate) fn finish<C: Communicator + ?Sized>(
        &self,
        comm: &mut C,
        flight: Flight,
        pool: &mut Pool,
    ) -> Result<Landed, Error> {
        let Flight { tag, lent, mut buffers } = flight;
        let Some(tag) = tag else {
            return Ok(Landed { buffers, bytes: smallvec![0; self.members.len()], staging: 0 });
        };
        let by_plan = || self.members.iter().map(|m| m.bytes).collect();
        let native = self.is_native(comm);
        with_number!(self.members[0].ty.dtype, T => {
            if let (true, Some(transport)) = (native, comm.native()) {
                for (member, Buffers { source, result }) in self.members.iter().zip(&mut buffers) {
                    if let Some(native) = &member.native {
                        native.run::<T>(transport, source.as_ref(), result, pool)?;
                    }
                }
                // The transport does not say what it sends: counted is the schedule.
                return Ok(Landed { buffers, bytes: by_plan(), staging: self.staging });
            }
            // A large sum takes its time.
            comm.alive(self.members.iter().map(|m| (m.source_len * self.group.len()) as u64).sum());
            if let (Some(lent), Some(memory)) = (lent, comm.shared_memory()) {
                let (name, parts) = (self.transition().kind.name(), self.parts());
                self.direct.finish::<T>(memory, (tag, name), &parts, lent, &mut buffers, pool)?;
                return Ok(Landed { buffers, bytes: by_plan(), staging: self.staging });
            }
            let mut slices: SmallVec<[(Source<'_, T>, &mut [T]); 1]> = SmallVec::new();
            for (member, Buffers { source, result }) in self.members.iter().zip(&mut buffers) {
                slices.push(member.slices::<T>(source.as_ref(), result)?);
            }
            let (bytes, staging) = self.exchange(comm, tag, &mut slices, pool)?;
            drop(slices);
            Ok(Landed { buffers, bytes, staging })
        })
    }

    /// Whether the transport's own collectives run it. All ranks agree.
    fn is_native<C: Communicator + ?Sized>(&self, comm: &mut C) -> bool {
        self.members.iter().all(|member| member.native.is_some()) && comm.native().is_some()
    }

    fn parts(&self) -> SmallVec<[&Part; 1]> {
        self.members.iter().map(|m| &m.part).collect()
    }

    /// Each member with its buffers.
    fn pair<T: Number>(
        &self,
        buffers: &mut [Buffers],
        mut f: impl FnMut(&Member, Source<'_, T>, &mut [T]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if buffers.len() != self.members.len() {
            self.single()?;
        }
        for (member, Buffers { source, result }) in self.members.iter().zip(buffers) {
            let (source, result) = member.slices::<T>(source.as_ref(), result)?;
            f(member, source, result)?;
        }
        Ok(())
    }
}

fn local_rounds(schedule: &RankSchedule, source: &Block, result: &Block) -> Vec<LocalRound> {
    let local = |region: &Region, block: &Block| Local::of(region, block);
    schedule
        .rounds
        .iter()
        .map(|round| LocalRound {
            number: round.number,
            send: round.send.as_ref().map(|s| {
                let block = match s.buffer {
                    Buffer::Source => source,
                    Buffer::Result => result,
                };
                (s.to, s.buffer, local(&s.region, block))
            }),
            receive: round.receive.as_ref().map(|r| (r.from, local(&r.region, result), r.combine)),
        })
        .collect()
}

impl Member {
    fn slices<'b, T: Number>(
        &self,
        source: Option<&'b Data>,
        result: &'b mut Data,
    ) -> Result<(Source<'b, T>, &'b mut [T]), Error> {
        let wrong = || Error::WrongBuffer {
            what: "the buffers of a transition",
            expected: self.ty.dtype.to_string(),
            found: "another element type".to_owned(),
        };
        let source = match source {
            Some(data) => Source::Apart(T::slice(data).ok_or_else(wrong)?),
            None => Source::InPlace,
        };
        Ok((source, T::slice_mut(result).ok_or_else(wrong)?))
    }

    fn check<T: Number>(&self, source: &Source<'_, T>, result: &[T]) -> Result<(), Error> {
        let source_len = match source {
            Source::Apart(source) => source.len(),
            Source::InPlace if !matches!(self.start, LocalStart::CopyInto { .. }) => {
                self.source_len
            }
            Source::InPlace => {
                return Err(Error::WrongBuffer {
                    what: "the result of this transition",
                    expected: "a buffer of its own".to_owned(),
                    found: format!("the operand's buffer ({})", self.transition.kind),
                });
            }
        };
        if T::DTYPE != self.ty.dtype
            || source_len != self.source_len
            || result.len() != self.result_len
        {
            return Err(Error::WrongBuffer {
                what: "the buffers of a transition",
                expected: format!(
                    "{} and {} elements of {}",
                    self.source_len, self.result_len, self.ty.dtype
                ),
                found: format!("{source_len} and {} of {}", result.len(), T::DTYPE),
            });
        }
        Ok(())
    }

    fn begin<T: Number>(&self, source: &Source<'_, T>, result: &mut [T]) {
        match (&self.start, source) {
            (LocalStart::CopyAll, Source::Apart(source)) => result.copy_from_slice(source),
            (LocalStart::CopyAll, Source::InPlace) => {}
            (LocalStart::Identity(placement), _) => result.fill(identity::<T>(*placement)),
            (LocalStart::CopyInto { own, fill }, Source::Apart(source)) => {
                if let Some(placement) = fill {
                    result.fill(identity::<T>(*placement));
                }
                own.copy(result, source);
            }
            (LocalStart::CopyInto { .. }, Source::InPlace) => {} // Refused by `check`.
        }
    }
}

/// What a term without elements of its own holds.
fn identity<T: Number>(placement: Placement) -> T {
    if placement == Placement::PendingMax { T::LOWEST } else { T::ZERO }
}

fn expect_message<T: Number>(arrived: Data, len: usize) -> Result<Vec<T>, Error> {
    let (dtype, found) = (arrived.dtype(), arrived.len());
    T::from_data(arrived).filter(|message| message.len() == len).ok_or_else(|| Error::WrongBuffer {
        what: "a message",
        expected: format!("{len} elements of {}", T::DTYPE),
        found: format!("{found} of {dtype}"),
    })
}

/// Combines two operands.
pub(crate) fn join<T: Number>(
    combine: Combine,
    into: &mut [T],
    first: &[T],
    second: &[T],
    overflow: &mut bool,
) {
    let (first, second) = (Some(first), Some(second));
    match combine {
        Combine::Max => zip(into, first, second, T::larger),
        Combine::Sum | Combine::Copy => zip(into, first, second, |x, y| x.add(y, overflow)),
    }
}

/// Copies or combines elements that arrive.
pub(crate) fn merge<T: Number>(combine: Combine, into: &mut [T], new: &[T], overflow: &mut bool) {
    match combine {
        Combine::Copy => into.copy_from_slice(new),
        Combine::Sum => into.iter_mut().zip(new).for_each(|(a, b)| *a = a.add(*b, overflow)),
        Combine::Max => into.iter_mut().zip(new).for_each(|(a, b)| *a = a.larger(*b)),
    }
}
