//! Transitions on local buffers: one rank's schedule, made ready once and run over any communicator.
//!
//! The schedule is data of [`shardgrad_core::schedule`]; here its boxes become offsets and runs in the rank's source and
//! result buffers. A message is packed, exchanged, and copied or combined, round by round, in the schedule's order, so
//! that results are the same bits on every backend and run. What is counted is what is sent.

use shardgrad_core::geometry::block;
use shardgrad_core::schedule::{Buffer, Combine, Region, Start, rank_schedule};
use shardgrad_core::{Block, Layout, Mesh, Placement, TensorType, Transition};

use crate::comm::{Communicator, Incoming, Outgoing, Tag};
use crate::error::Error;
use crate::number::{Number, checked, with_number};
use crate::region::Local;
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
    start: LocalStart,
    rounds: Vec<LocalRound>,
    source_len: usize,
    result_len: usize,
}

#[derive(Clone, Debug)]
enum LocalStart {
    CopyAll,
    Identity(Placement),
    CopyInto { source: Local, result: Local, fill: Option<Placement> },
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
        from.validate(mesh, ty.rank())?;
        to.validate(mesh, ty.rank())?;
        let transition = Transition::between(mesh, from, to)?;
        let source = block(&ty.shape, from, mesh, rank);
        let result = block(&ty.shape, to, mesh, rank);
        let schedule = rank_schedule(transition, mesh, &ty.shape, from, to, rank);
        let start = match schedule.start {
            Start::CopyAll => LocalStart::CopyAll,
            Start::Identity(placement) => LocalStart::Identity(placement),
            Start::CopyInto { own, fill } => LocalStart::CopyInto {
                source: Local::of_box(&own, &source),
                result: Local::of_box(&own, &result),
                fill,
            },
        };
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
        Ok(Self { transition, ty: ty.clone(), start, rounds, source_len, result_len })
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
        self.check(&source, result)?;
        self.begin(&source, result);
        let mut sent = Sent::default();
        if !self.transition.kind.is_collective() {
            return Ok(sent);
        }
        let (kind, axes) = (self.transition.kind, self.transition.axes);
        let tag = Tag::Collective(comm.begin(kind, axes, T::DTYPE, self.ty.elements()));
        let mut spare: Vec<T> = Vec::new();
        for round in &self.rounds {
            let mut staging = 0;
            let send = round.send.as_ref().map(|(to, buffer, local)| {
                let mut message = std::mem::take(&mut spare);
                message.clear();
                message.reserve_exact(local.len());
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
                spare = message;
            }
            sent.staging = sent.staging.max(staging);
        }
        Ok(sent)
    }

    /// [`Collective::run`] on buffers of any element type; `None` runs in place.
    ///
    /// # Errors
    /// As [`Collective::run`].
    pub fn run_data<C: Communicator + ?Sized>(
        &self,
        comm: &mut C,
        source: Option<&Data>,
        result: &mut Data,
    ) -> Result<Sent, Error> {
        with_number!(self.ty.dtype, T => {
            let wrong = || Error::WrongBuffer {
                what: "the buffers of a transition",
                expected: self.ty.dtype.to_string(),
                found: "another element type".to_owned(),
            };
            let source = match source {
                Some(data) => Source::Apart(T::slice(data).ok_or_else(wrong)?),
                None => Source::InPlace,
            };
            let result = T::slice_mut(result).ok_or_else(wrong)?;
            self.run::<T, C>(comm, source, result)
        })
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
            (LocalStart::CopyInto { source: from, result: into, fill }, Source::Apart(source)) => {
                if let Some(placement) = fill {
                    result.fill(identity::<T>(*placement));
                }
                Local::copy(from, source, into, result);
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
    match combine {
        Combine::Copy => local.unpack(result, message, |into, new| into.copy_from_slice(new)),
        Combine::Sum => local.unpack(result, message, |into, new| {
            for (a, b) in into.iter_mut().zip(new) {
                *a = a.add(*b, &mut overflow);
            }
        }),
        Combine::Max => local.unpack(result, message, |into, new| {
            for (a, b) in into.iter_mut().zip(new) {
                *a = a.larger(*b);
            }
        }),
    }
    checked(overflow, op, T::DTYPE)
}
