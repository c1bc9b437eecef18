//! Where the devices of a plan are: on threads, or in the processes that `mpirun` started.
//!
//! Of several processes the first prints, and all make the same calls in the same order. A failure that all of them know ends
//! each with its exit code, and one of them says it; any other ends all of them at once.

use shardgrad::runtime::Buffers;
use shardgrad::{Planned, Trainer};

use crate::args::{BackendArg, BackendArgs, CollectivesArg};
use crate::failure::Failure;
#[cfg(feature = "mpi")]
use crate::failure::Known;
use crate::{interrupt, output};

/// What is compared, and what this process says.
pub(crate) type Statements = Vec<(&'static str, String)>;

pub(crate) enum Backend {
    Threads,
    #[cfg(feature = "mpi")]
    Mpi {
        universe: shardgrad::mpi::Universe,
        options: shardgrad::mpi::MpiOptions,
    },
}

impl Backend {
    /// Starts what was asked for.
    pub(crate) fn start(args: BackendArgs) -> Result<Self, Failure> {
        match args.backend {
            BackendArg::Threads if args.collectives == CollectivesArg::Native => {
                Err(Failure::input(
                    "--collectives native: threads have no collectives of their own; add --backend mpi",
                ))
            }
            BackendArg::Threads => Ok(Backend::Threads),
            BackendArg::Mpi => Self::mpi(args),
        }
    }

    #[cfg(not(feature = "mpi"))]
    fn mpi(_: BackendArgs) -> Result<Self, Failure> {
        Err(Failure::input(
            "--backend mpi: this build has no MPI; build with `cargo build --release --features mpi`",
        ))
    }

    #[cfg(feature = "mpi")]
    fn mpi(args: BackendArgs) -> Result<Self, Failure> {
        use shardgrad::mpi::{Collectives, MpiOptions, Universe};

        let collectives = match args.collectives {
            CollectivesArg::Own => Collectives::Own,
            CollectivesArg::Native => Collectives::Native,
        };
        let options = MpiOptions { collectives, ..MpiOptions::default() };
        Ok(Backend::Mpi { universe: Universe::start().map_err(Failure::no)?, options })
    }

    /// Whether ranks share this process and its memory.
    pub(crate) fn is_threads(&self) -> bool {
        matches!(self, Backend::Threads)
    }

    /// Whether this process prints.
    pub(crate) fn speaks(&self) -> bool {
        match self {
            Backend::Threads => true,
            #[cfg(feature = "mpi")]
            Backend::Mpi { universe, .. } => universe.is_first(),
        }
    }

    /// Writes to standard output, once.
    pub(crate) fn print(&self, text: &str) -> Result<(), Failure> {
        if self.speaks() { output::print(text) } else { Ok(()) }
    }

    /// The devices of a plan.
    pub(crate) fn trainer(&self, planned: &Planned) -> Result<Trainer, Failure> {
        self.trainer_with(planned, Buffers::Keep)
    }

    /// The same with another use of buffers.
    pub(crate) fn trainer_with(
        &self,
        planned: &Planned,
        buffers: Buffers,
    ) -> Result<Trainer, Failure> {
        match self {
            Backend::Threads => Trainer::threads_with(planned, buffers),
            #[cfg(feature = "mpi")]
            Backend::Mpi { universe, options } => {
                Trainer::mpi_with(planned, universe, *options, buffers)
            }
        }
        .map_err(Failure::no)
    }

    /// All processes say the same, or all fail.
    pub(crate) fn agree(&self, statements: impl FnOnce() -> Statements) -> Result<(), Failure> {
        match self {
            Backend::Threads => {
                let _ = statements;
                Ok(())
            }
            #[cfg(feature = "mpi")]
            Backend::Mpi { universe, .. } => {
                self.together(universe.agree(&statements()).map_err(Failure::no))
            }
        }
    }

    /// Whether somebody asked for an end, in any process.
    pub(crate) fn interrupted(&self) -> bool {
        match self {
            Backend::Threads => interrupt::asked(),
            #[cfg(feature = "mpi")]
            Backend::Mpi { universe, .. } => universe.any(interrupt::asked()),
        }
    }

    /// All processes come here; if one of them failed, all have. The first that did says why.
    pub(crate) fn together<T>(&self, result: Result<T, Failure>) -> Result<T, Failure> {
        match self {
            Backend::Threads => result,
            #[cfg(feature = "mpi")]
            Backend::Mpi { universe, .. } => {
                let code = result.as_ref().err().map_or(0, |failure| failure.code);
                let codes = universe.all(i32::from(code));
                let Some(first) = codes.iter().position(|&code| code != 0) else { return result };
                let says = first == universe.rank();
                let known = if says { Known::Everywhere } else { Known::Elsewhere };
                let code = u8::try_from(codes[first]).unwrap_or(crate::failure::NO);
                Err(match result {
                    Err(failure) if says && first > 0 => {
                        let message = format!("rank {first}: {}", failure.message);
                        Failure { code, message, known }
                    }
                    Err(failure) => Failure { code, known, ..failure },
                    Ok(_) => Failure { code, message: String::new(), known },
                })
            }
        }
    }

    /// The end of the work. A failure of which others may not know ends all processes here.
    pub(crate) fn finish(self, result: Result<(), Failure>) -> Result<(), Failure> {
        match self {
            Backend::Threads => result,
            #[cfg(feature = "mpi")]
            Backend::Mpi { universe, .. } => match result {
                Err(Failure { code, message, known: Known::Here }) => {
                    universe.abort(&message, i32::from(code))
                }
                // `mpirun` ends the others when the first of them is gone: all wait until it is said.
                Err(failure) => {
                    failure.say();
                    universe.barrier();
                    Err(Failure { known: Known::Elsewhere, ..failure })
                }
                Ok(()) => Ok(()),
            },
        }
    }
}
