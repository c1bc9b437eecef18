//! The ranks of a trainer: commands to them, and the threads that obey.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::executor::{Counted, Executor};
use crate::handoff::Handoff;
use crate::inputs::Input;
use crate::tensor::Data;
use crate::threads::{ThreadComm, Watch};

pub(crate) enum Command {
    /// Overwrite leaves' blocks, run, return copies of these outputs.
    Step {
        inputs: Vec<Data>,
        outputs: Vec<String>,
    },
    /// Return a copy of a leaf's block.
    Read(String),
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
        Some(match command {
            Command::Stop => return None,
            Command::Read(name) => Reply::Block(self.executor.leaf(&name).cloned()),
            Command::Write(name, data) => {
                if let Some(block) = self.executor.leaf_mut(&name) {
                    *block = data;
                }
                Reply::Block(None)
            }
            Command::Step { mut inputs, outputs } => {
                for (input, data) in self.inputs.iter().zip(&mut inputs) {
                    if let Some(block) = self.executor.leaf_mut(&input.name) {
                        std::mem::swap(block, data);
                    }
                }
                let executor = &mut self.executor;
                match self.comm.guard(|comm| executor.step(comm)) {
                    Err(error) => Reply::Failed(error),
                    Ok(counted) => {
                        let wanted = outputs.iter().filter_map(|name| executor.output(name));
                        Reply::Stepped(inputs, wanted.cloned().collect(), counted)
                    }
                }
            }
        })
    }
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

/// All ranks: one on the caller's thread, several on threads of their own.
pub(crate) enum Ranks {
    Here(Box<Rank>),
    Threads(Threads),
}

pub(crate) struct Threads {
    lines: Vec<Arc<Line>>,
    threads: Vec<JoinHandle<()>>,
    watch: Option<Watch>,
    grace: Duration,
}

impl Ranks {
    /// Starts the ranks' threads.
    pub(crate) fn start(mut ranks: Vec<Rank>, grace: Duration) -> Result<Self, Error> {
        if ranks.len() == 1
            && let Some(rank) = ranks.pop()
        {
            return Ok(Ranks::Here(Box::new(rank)));
        }
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let spins = if ranks.len() <= cores { SPINS } else { 0 };
        let watch = ranks.first().map(|rank| rank.comm.watch());
        let mut all = Threads { lines: Vec::new(), threads: Vec::new(), watch, grace };
        for (i, mut rank) in ranks.into_iter().enumerate() {
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
        Ok(Ranks::Threads(all))
    }

    /// Gives every rank its command and returns all replies, or the failure that says most.
    pub(crate) fn command(&mut self, commands: Vec<Command>) -> Result<Vec<Reply>, Error> {
        let replies: Vec<Reply> = match self {
            Ranks::Here(rank) => {
                commands.into_iter().filter_map(|command| rank.obey(command)).collect()
            }
            Ranks::Threads(threads) => threads.command(commands),
        };
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
    fn command(&self, commands: Vec<Command>) -> Vec<Reply> {
        for (line, command) in self.lines.iter().zip(commands) {
            line.commands.put(command);
        }
        let mut give_up: Option<Instant> = None;
        let mut replies = Vec::with_capacity(self.lines.len());
        for (rank, line) in self.lines.iter().enumerate() {
            replies.push(loop {
                if let Some(reply) = line.replies.take(LOOK) {
                    break reply;
                }
                if give_up.is_none() && self.watch.as_ref().is_some_and(Watch::failed) {
                    give_up = Instant::now().checked_add(self.grace);
                }
                if self.threads.get(rank).is_some_and(JoinHandle::is_finished) {
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
        replies
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
