//! The ranks of a trainer: commands to them, and the threads that obey.
//!
//! Rank 0 runs on the caller's thread, so that p ranks need p cores and not one more; it runs nothing but the executor,
//! whose waits all have an end. The others run on owned threads, so that one that never answers can be left behind.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use shardgrad_graph::NodeId;

use crate::error::Error;
use crate::executor::{Counted, Executor};
use crate::handoff::Handoff;
use crate::inputs::Input;
use crate::tensor::Data;
use crate::threads::{ThreadComm, Watch, cores};

pub(crate) enum Command {
    /// Overwrite leaves' blocks, run, return copies of these outputs.
    Step {
        inputs: Vec<Data>,
        outputs: Vec<String>,
    },
    /// Return a copy of a leaf's block.
    Read(String),
    /// Return a copy of what a node made in the last step, if that is recorded.
    Recorded(NodeId),
    /// Overwrite a leaf's block.
    Write(String, Data),
    Stop,
}

pub(crate) enum Reply {
    /// The inputs' old buffers, the wanted outputs, the counts.
    Stepped(Vec<Data>, Vec<Data>, Counted),
    Block(Option<Data>),
    Failed(Error),
}

pub(crate) struct Rank {
    pub(crate) comm: ThreadComm,
    pub(crate) executor: Executor,
    /// The inputs, in the order of [`Command::Step`].
    pub(crate) inputs: Arc<Vec<Input>>,
}

impl Rank {
    fn obey(&mut self, command: Command) -> Option<Reply> {
        let comm = &mut self.comm;
        obey(&mut self.executor, &self.inputs, command, |executor| {
            comm.guard(|comm| executor.step(comm))
        })
    }
}

/// One rank's answer to a command; none if it is to stop.
pub(crate) fn obey(
    executor: &mut Executor,
    inputs: &[Input],
    command: Command,
    step: impl FnOnce(&mut Executor) -> Result<Counted, Error>,
) -> Option<Reply> {
    Some(match command {
        Command::Stop => return None,
        Command::Read(name) => Reply::Block(executor.leaf(&name).cloned()),
        Command::Recorded(node) => Reply::Block(executor.recorded(node).cloned()),
        Command::Write(name, data) => {
            if let Some(block) = executor.leaf_mut(&name) {
                *block = data;
            }
            Reply::Block(None)
        }
        Command::Step { inputs: mut blocks, outputs } => {
            for (input, data) in inputs.iter().zip(&mut blocks) {
                if let Some(block) = executor.leaf_mut(&input.name) {
                    std::mem::swap(block, data);
                }
            }
            match step(executor) {
                Err(error) => Reply::Failed(error),
                Ok(counted) => {
                    let wanted = outputs.iter().filter_map(|name| executor.output(name));
                    Reply::Stepped(blocks, wanted.cloned().collect(), counted)
                }
            }
        }
    })
}

struct Line {
    commands: Handoff<Command>,
    replies: Handoff<Reply>,
}

/// Threads that answer are joined; after a failure, one that does not is left behind after this long.
const GRACE: Duration = Duration::from_secs(1);
/// How often the caller looks whether a rank that does not answer can still be expected to.
const LOOK: Duration = Duration::from_millis(20);
/// Looks of a waiting thread before it sleeps, if every rank can have a core.
const SPINS: u32 = 4_000;

/// All ranks: the first on the caller's thread, the others on threads of their own.
pub(crate) struct Ranks {
    first: Option<Box<Rank>>,
    others: Threads,
}

struct Threads {
    lines: Vec<Arc<Line>>,
    threads: Vec<JoinHandle<()>>,
    watch: Option<Watch>,
    grace: Duration,
}

impl Ranks {
    /// Starts the ranks' threads.
    pub(crate) fn start(ranks: Vec<Rank>, grace: Duration) -> Result<Self, Error> {
        let spins = if ranks.len() <= cores() { SPINS } else { 0 };
        let watch = ranks.first().map(|rank| rank.comm.watch());
        let mut all = Threads { lines: Vec::new(), threads: Vec::new(), watch, grace };
        let mut ranks = ranks.into_iter();
        let first = ranks.next().map(Box::new);
        for (i, mut rank) in (1..).zip(ranks) {
            let line =
                Arc::new(Line { commands: Handoff::new(spins), replies: Handoff::new(spins) });
            all.lines.push(Arc::clone(&line));
            let work = move || {
                loop {
                    let Some(command) = line.commands.take(Duration::MAX) else { continue };
                    match rank.obey(command) {
                        Some(reply) => line.replies.put(reply),
                        None => break,
                    }
                }
                rank.comm.finish();
            };
            match thread::Builder::new().name(format!("rank {i}")).spawn(work) {
                Ok(thread) => all.threads.push(thread),
                Err(error) => {
                    let cause = format!("its thread could not be started: {error}");
                    return Err(Error::PeerFailed { rank: i, cause });
                }
            }
        }
        Ok(Self { first, others: all })
    }

    /// Gives every rank its command and returns all replies, or the failure that says most.
    pub(crate) fn command(&mut self, commands: Vec<Command>) -> Result<Vec<Reply>, Error> {
        let mut commands = commands.into_iter();
        let first = commands.next();
        self.others.put(commands);
        let first = self.first.as_mut().zip(first).and_then(|(rank, command)| rank.obey(command));
        let mut replies: Vec<Reply> = first.into_iter().collect();
        self.others.take(&mut replies);
        let mut failures = replies.iter().filter_map(|reply| match reply {
            Reply::Failed(error) => Some(error),
            Reply::Stepped(..) | Reply::Block(_) => None,
        });
        // The rank that failed first says more than those that it stopped.
        let first = failures.clone().find(|e| !matches!(e, Error::PeerFailed { .. }));
        match first.or_else(|| failures.next()) {
            Some(error) => Err(error.clone()),
            None => Ok(replies),
        }
    }
}

impl Threads {
    fn put(&self, commands: impl Iterator<Item = Command>) {
        for (line, command) in self.lines.iter().zip(commands) {
            line.commands.put(command);
        }
    }

    /// Appends all replies.
    fn take(&self, replies: &mut Vec<Reply>) {
        let mut give_up: Option<Instant> = None;
        for (at, line) in self.lines.iter().enumerate() {
            let rank = at + 1;
            replies.push(loop {
                if let Some(reply) = line.replies.take(LOOK) {
                    break reply;
                }
                if give_up.is_none() && self.watch.as_ref().is_some_and(Watch::failed) {
                    give_up = Instant::now().checked_add(self.grace);
                }
                if self.threads.get(at).is_some_and(JoinHandle::is_finished) {
                    // It may have answered between the look and its end.
                    break line.replies.take(Duration::ZERO).unwrap_or_else(|| {
                        let cause = "its thread ended without an answer".to_owned();
                        Reply::Failed(Error::PeerFailed { rank, cause })
                    });
                }
                if give_up.is_some_and(|at| Instant::now() > at) {
                    let error = self.watch.as_ref().map(|watch| watch.no_answer(rank));
                    break Reply::Failed(error.unwrap_or_else(|| Error::Stopped {
                        cause: format!("rank {rank} gave no answer"),
                    }));
                }
            });
        }
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        if let Some(first) = &mut self.first {
            first.comm.finish();
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.lines.iter().for_each(|line| line.commands.put(Command::Stop));
        let failed = self.watch.as_ref().is_some_and(Watch::failed);
        let give_up = Instant::now() + GRACE;
        for thread in self.threads.drain(..) {
            while failed && !thread.is_finished() && Instant::now() < give_up {
                thread::sleep(Duration::from_millis(1));
            }
            if !failed || thread.is_finished() {
                let _ = thread.join();
            }
        }
    }
}
