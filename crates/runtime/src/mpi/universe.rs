//! Start and end of the processes' world.

use std::cell::RefCell;
use std::fmt;
use std::io::Write;
use std::rc::Rc;

use mpi::environment::{self, Threading};
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator as _, CommunicatorCollectives as _, Root as _};

use super::comm::{MpiComm, MpiOptions};
use crate::error::Error;

/// The exit code after a failure.
const FAILED: i32 = 1;

/// All processes that `mpirun` started. MPI ends when the last clone and the last communicator are gone, or at once
/// after a failure.
#[derive(Clone)]
pub struct Universe(Rc<Shared>);

struct Shared {
    failure: RefCell<Option<String>>,
    world: SimpleCommunicator,
    build: String,
    // Last: MPI ends when it goes.
    _mpi: environment::Universe,
}

impl Universe {
    /// Starts MPI, once in a process. Without `mpirun` the world has one rank. A program has other threads (of its runtime,
    /// of signals), but this one alone calls MPI.
    ///
    /// # Errors
    /// MPI was started before; the library allows no other threads.
    pub fn start() -> Result<Self, Error> {
        let wanted = Threading::Funneled;
        let (mpi, provided) =
            environment::initialize_with_threading(wanted).ok_or_else(|| Error::Mpi {
                problem: "it was started before in this process; start it once, and pass it on"
                    .to_owned(),
            })?;
        if provided < wanted {
            let problem = format!(
                "the library allows threads as {provided:?} only, {wanted:?} is needed; use a library that was built with threads"
            );
            return Err(Error::Mpi { problem });
        }
        let (failure, world) = (RefCell::new(None), mpi.world());
        let build = super::agree::build();
        Ok(Self(Rc::new(Shared { failure, world, build, _mpi: mpi })))
    }

    /// This process.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.0.rank()
    }

    /// Number of processes.
    #[must_use]
    pub fn size(&self) -> usize {
        usize::try_from(self.0.world.size()).unwrap_or(1)
    }

    /// Whether this is the first process: the one that prints.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.rank() == 0
    }

    /// A communicator of its own: its messages are apart from those of others. All ranks make it at once.
    #[must_use]
    pub fn communicator(&self, options: MpiOptions) -> MpiComm {
        MpiComm::new(self.clone(), self.0.world.duplicate(), options)
    }

    /// Waits until all ranks are here.
    pub fn barrier(&self) {
        self.0.world.barrier();
    }

    /// Whether any rank says so. All ranks ask at once.
    #[must_use]
    pub fn any(&self, mine: bool) -> bool {
        self.all(i32::from(mine)).contains(&1)
    }

    /// A number of every rank, by rank. All ranks ask at once.
    #[must_use]
    pub fn all(&self, mine: i32) -> Vec<i32> {
        let mut all = vec![0; self.size()];
        self.0.world.all_gather_into(&mine, &mut all[..]);
        all
    }

    /// The first rank's number. All ranks ask at once.
    #[must_use]
    pub fn of_first(&self, mine: f64) -> f64 {
        let mut number = mine;
        self.0.world.process_at_rank(0).broadcast_into(&mut number);
        number
    }

    /// Compares statements over all ranks; all ranks make the same ones at once.
    ///
    /// # Errors
    /// The first statement in which a rank differs from rank 0, on every rank.
    pub fn agree(&self, statements: &[(&'static str, String)]) -> Result<(), Error> {
        super::agree::agree(&self.0.world, statements)
    }

    pub(crate) fn build(&self) -> &str {
        &self.0.build
    }

    /// Notes a failure of this rank: when the universe goes away, all processes end.
    pub fn fail(&self, cause: &dyn fmt::Display) {
        self.0.failure.borrow_mut().get_or_insert_with(|| cause.to_string());
    }

    /// Says the cause on standard error and ends all processes with an exit code.
    pub fn abort(&self, cause: &dyn fmt::Display, code: i32) -> ! {
        self.0.abort(&cause.to_string(), code)
    }
}

impl Shared {
    fn rank(&self) -> usize {
        usize::try_from(self.world.rank()).unwrap_or(0)
    }

    fn abort(&self, cause: &str, code: i32) -> ! {
        let host = environment::processor_name().unwrap_or_else(|_| "an unknown host".to_owned());
        let line = format!("shardgrad: rank {} on {host}: {cause}\n", self.rank());
        // One write, so that lines of ranks do not mix. There is nobody to tell that it failed.
        let mut stderr = std::io::stderr().lock();
        let _ = stderr.write_all(line.as_bytes()).and_then(|()| stderr.flush());
        self.world.abort(code)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let failure = self.failure.borrow().clone();
        match failure {
            Some(cause) => self.abort(&cause, FAILED),
            None if std::thread::panicking() => self.abort("a panic", FAILED),
            None => {}
        }
    }
}

/// Starts MPI and runs a program's work. If it fails on any rank, its cause is said there, and all processes end with exit
/// code 1.
///
/// ```no_run
/// use shardgrad_runtime::mpi;
/// fn main() -> Result<(), shardgrad_runtime::Error> {
///     mpi::run(|universe| {
///         println!("rank {} of {}", universe.rank(), universe.size());
///         Ok::<(), shardgrad_runtime::Error>(())
///     })
/// }
/// ```
///
/// # Errors
/// As [`Universe::start`].
pub fn run<E: fmt::Display>(work: impl FnOnce(&Universe) -> Result<(), E>) -> Result<(), Error> {
    let universe = Universe::start()?;
    if let Err(error) = work(&universe) {
        universe.abort(&error, FAILED);
    }
    Ok(())
}
