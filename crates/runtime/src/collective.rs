//! Transitions on local buffers: one rank's schedule, made ready once and run over any communicator.
//!
//! The schedule is data of [`shardgrad_core::schedule`]; here its boxes become offsets and runs in the rank's source and
//! result buffers. Where ranks share no memory a message is packed, exchanged, and copied or combined, round by round, in
//! the schedule's order; where they do, peers' buffers are read where they are (`direct`), in the same order of
//! additions, so that results are the same bits on every backend and run. What is counted is what is sent; staging is what
//! the schedule's messages need.

use shardgrad_core::geometry::block;
use shardgrad_core::schedule::{Buffer, Combine, Region, Start, exchange_axes, rank_schedule};
use shardgrad_core::{
    Algorithm, Block, Layout, Mesh, Placement, TensorType, Transition, TransitionKind,
};

use crate::comm::{Call, Communicator, Incoming, Outgoing, Tag};
use crate::direct::Direct;
use crate::error::Error;
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

/// One rank's part of a transition, ready to run.
#[derive(Clone, Debug)]
pub struct Collective {
    transition: Transition,
    ty: TensorType,
    /// The ranks that take part, ascending.
    group: Vec<usize>,
    start: LocalStart,
    rounds: Vec<LocalRound>,
    /// The same by reading peers' buffers.
    direct: Direct,
    /// Whether it only reads sources, or is the direct all_reduce: then peers' buffers can be read in place. All ranks agree.
    lendable: bool,
    source_len: usize,
    result_len: usize,
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
    send: Option<(usize, Buffer, Local)>,
    receive: Option<(usize, Local, Combine)>,
}

/// The operand's buffer of a transition.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a, T> {
    /// A buffer of its own.
    Apart(&'a [T]),
    /// The result's buffer, which is overwritten.
    InPlace,
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
        let start = match schedule.start {
            Start::CopyAll => LocalStart::CopyAll,
            Start::Identity(placement) => LocalStart::Identity(placement),
            Start::CopyInto { own, fill } => {
                LocalStart::CopyInto { own: Pair::of_box(&own, &result, &source), fill }
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
        let kind = transition.kind;
        let rounds = if lendable { schedule.rounds.as_slice() } else { &[] };
        let direct = Direct::new(kind, group.len(), combine, rounds, &result, theirs);
        let local = |region: &Region, block: &Block| Local::of(region, block);
        let rounds = schedule
            .rounds
            .iter()
            .map(|round| LocalRound {
                send: round.send.as_ref().map(|s| {
                    let block = match s.buffer {
                        Buffer::Source => &source,
                        Buffer::Result => &result,
                    };
                    (s.to, s.buffer, local(&s.region, block))
                }),
                receive: round
                    .receive
                    .as_ref()
                    .map(|r| (r.from, local(&r.region, &result), r.combine)),
            })
            .collect();
        let (source_len, result_len) = (source.len(), result.len());
        Ok(Self {
            transition,
            ty: ty.clone(),
            group,
            start,
            rounds,
            direct,
            lendable,
            source_len,
            result_len,
        })
    }

    /// What it does.
    #[must_use]
    pub fn transition(&self) -> Transition {
        self.transition
    }

    /// Elements of the result's block.
    #[must_use]
    pub fn result_len(&self) -> usize {
        self.result_len
    }

    /// Whether the result may overwrite the operand's buffer: every element starts as the same element, or anew.
    #[must_use]
    pub fn can_run_in_place(&self) -> bool {
        matches!(self.start, LocalStart::CopyAll | LocalStart::Identity(_))
    }

    /// Runs it. Local transitions do not touch the communicator.
    ///
    /// # Errors
    /// Buffers of the wrong length, a sum of integers that overflows, and whatever the communicator reports.
    pub fn run<T: Number, C: Communicator + ?Sized>(
        &self,
        comm: &mut C,
        source: Source<'_, T>,
        result: &mut [T],
    ) -> Result<Sent, Error> {
        self.run_with(comm, source, result, &mut Pool::default())
    }

    fn run_with<T: Number, C: Communicator + ?Sized>(
        &self,
        comm: &mut C,
        source: Source<'_, T>,
        result: &mut [T],
        pool: &mut Pool,
    ) -> Result<Sent, Error> {
        self.check(&source, result)?;
        self.begin(&source, result);
        let mut sent = Sent::default();
        if !self.transition.kind.is_collective() {
            return Ok(sent);
        }
        let kind = self.transition.kind;
        let tag = self.announce(comm)?;
        for round in &self.rounds {
            let mut staging = 0;
            let send = round.send.as_ref().map(|(to, buffer, local)| {
                let mut message = pool.empty::<T>(local.len());
                match (buffer, &source) {
                    (Buffer::Source, Source::Apart(source)) => local.pack(source, &mut message),
                    (Buffer::Source, Source::InPlace) | (Buffer::Result, _) => {
                        local.pack(result, &mut message);
                    }
                }
                let payload = T::into_data(message);
                sent.bytes += payload.bytes() as u64;
                staging += payload.bytes() as u64;
                Outgoing { to: *to, tag, payload }
            });
            let receive = round.receive.as_ref().map(|(from, ..)| Incoming { from: *from, tag });
            let arrived = comm.exchange(send, receive)?;
            if let (Some((_, local, combine)), Some(arrived)) = (&round.receive, arrived) {
                staging += arrived.bytes() as u64;
                let message = expect_message::<T>(arrived, local.len())?;
                combine_into(local, *combine, result, &message, kind.name())?;
                pool.put(T::into_data(message));
            }
            sent.staging = sent.staging.max(staging);
        }
        Ok(sent)
    }

    fn announce<C: Communicator + ?Sized>(&self, comm: &mut C) -> Result<Tag, Error> {
        let id = comm.begin(Call {
            kind: self.transition.kind,
            axes: self.transition.axes,
            group: &self.group,
            dtype: self.ty.dtype,
            elements: self.ty.elements(),
            idle: self.rounds.is_empty(),
        })?;
        Ok(Tag::Collective(id))
    }

    /// Runs it on buffers of any element type, in place without a source. If the communicator has shared memory and `lend`
    /// is set, peers read this rank's buffers, and this rank theirs. Buffers that it needs for a while come from the pool.
    /// After an error the source may be empty.
    ///
    /// # Errors
    /// As [`Collective::run`].
    pub fn run_data<C: Communicator + ?Sized>(
        &self,
        comm: &mut C,
        source: Option<&mut Data>,
        result: &mut Data,
        pool: &mut Pool,
        lend: bool,
    ) -> Result<Sent, Error> {
        let lend = lend
            && self.lendable
            && self.transition.kind.is_collective()
            && comm.shared_memory().is_some();
        with_number!(self.ty.dtype, T => {
            if lend {
                return self.run_direct::<T, C>(comm, source, result, pool);
            }
            let wrong = || self.wrong_type();
            let source = match &source {
                Some(data) => Source::Apart(T::slice(data).ok_or_else(wrong)?),
                None => Source::InPlace,
            };
            let result = T::slice_mut(result).ok_or_else(wrong)?;
            self.run_with::<T, C>(comm, source, result, pool)
        })
    }

    fn run_direct<T: Number, C: Communicator + ?Sized>(
        &self,
        comm: &mut C,
        source: Option<&mut Data>,
        result: &mut Data,
        pool: &mut Pool,
    ) -> Result<Sent, Error> {
        {
            let wrong = || self.wrong_type();
            let target = T::slice_mut(result).ok_or_else(wrong)?;
            let from = match &source {
                Some(data) => Source::Apart(T::slice(data).ok_or_else(wrong)?),
                None => Source::InPlace,
            };
            self.check(&from, target)?;
            if matches!(self.direct, Direct::Exchange { .. }) {
                self.begin(&from, target);
            }
        }
        let tag = self.announce(comm)?;
        if let Some(memory) = comm.shared_memory() {
            let name = self.transition.kind.name();
            self.direct.run::<T>(memory, tag, name, source, result, pool)?;
        }
        let size = self.ty.dtype.size();
        let bytes = |n: usize| (n * size) as u64;
        Ok(self.rounds.iter().fold(Sent::default(), |sent, round| {
            let out = round.send.as_ref().map_or(0, |(_, _, local)| bytes(local.len()));
            let into = round.receive.as_ref().map_or(0, |(_, local, _)| bytes(local.len()));
            Sent { bytes: sent.bytes + out, staging: sent.staging.max(out + into) }
        }))
    }

    fn wrong_type(&self) -> Error {
        Error::WrongBuffer {
            what: "the buffers of a transition",
            expected: self.ty.dtype.to_string(),
            found: "another element type".to_owned(),
        }
    }

    fn check<T: Number>(&self, source: &Source<'_, T>, result: &[T]) -> Result<(), Error> {
        let source_len = match source {
            Source::Apart(source) => source.len(),
            Source::InPlace if self.can_run_in_place() => self.source_len,
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

fn combine_into<T: Number>(
    local: &Local,
    combine: Combine,
    result: &mut [T],
    message: &[T],
    op: &'static str,
) -> Result<(), Error> {
    let mut overflow = false;
    local.unpack(result, message, |into, new| merge(combine, into, new, &mut overflow));
    checked(overflow, op, T::DTYPE)
}

/// Copies or combines elements that arrive.
pub(crate) fn merge<T: Number>(combine: Combine, into: &mut [T], new: &[T], overflow: &mut bool) {
    match combine {
        Combine::Copy => into.copy_from_slice(new),
        Combine::Sum => into.iter_mut().zip(new).for_each(|(a, b)| *a = a.add(*b, overflow)),
        Combine::Max => into.iter_mut().zip(new).for_each(|(a, b)| *a = a.larger(*b)),
    }
}
