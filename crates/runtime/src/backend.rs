//! Where the ranks of a trainer are: all of them on threads of this process, or one of them in each of many processes.
//!
//! A trainer gives commands to the ranks that are here, and puts together what concerns all of them.

use std::ops::Range;

use shardgrad_core::{Layout, Mesh, TensorType};

use crate::error::Error;
use crate::executor::Counted;
#[cfg(feature = "mpi")]
use crate::mpi::Process;
use crate::ranks::{Command, Ranks, Reply};
use crate::tensor::Data;

pub(crate) enum Backend {
    Threads(Ranks),
    #[cfg(feature = "mpi")]
    Process(Box<Process>),
}

impl Backend {
    /// The ranks that are here, of a mesh of so many.
    pub(crate) fn here(&self, size: usize) -> Range<usize> {
        match self {
            Backend::Threads(_) => 0..size,
            #[cfg(feature = "mpi")]
            Backend::Process(process) => process.rank()..process.rank() + 1,
        }
    }

    /// Gives every rank that is here its command.
    pub(crate) fn command(&mut self, commands: Vec<Command>) -> Result<Vec<Reply>, Error> {
        match self {
            Backend::Threads(ranks) => ranks.command(commands),
            #[cfg(feature = "mpi")]
            Backend::Process(process) => process.command(commands),
        }
    }

    /// Blocks of the ranks that are here become the blocks of all, by rank.
    pub(crate) fn gather(&mut self, here: Vec<Data>) -> Result<Vec<Data>, Error> {
        match self {
            Backend::Threads(_) => Ok(here),
            #[cfg(feature = "mpi")]
            Backend::Process(process) => process.gather(here),
        }
    }

    /// What a step cost the ranks that are here becomes what it cost all, by rank.
    pub(crate) fn counts(&mut self, here: Vec<Counted>) -> Result<Vec<Counted>, Error> {
        match self {
            Backend::Threads(_) => Ok(here),
            #[cfg(feature = "mpi")]
            Backend::Process(process) => process.counts(here),
        }
    }

    /// Notes an error of a rank that is here, and that others cannot know.
    pub(crate) fn fail(&self, error: &Error) {
        match self {
            Backend::Threads(_) => {
                let _ = error;
            }
            #[cfg(feature = "mpi")]
            Backend::Process(process) => process.fail(error),
        }
    }

    /// Blocks of the ranks that are here, brought to another layout; none where ranks are not apart, so that the tensor may
    /// as well be put together.
    pub(crate) fn redistribute(
        &mut self,
        mesh: &Mesh,
        ty: &TensorType,
        (from, to): (&Layout, &Layout),
        here: Vec<Data>,
    ) -> Result<Option<Vec<Data>>, Error> {
        match self {
            Backend::Threads(_) => {
                let _ = (mesh, ty, from, to, here);
                Ok(None)
            }
            #[cfg(feature = "mpi")]
            Backend::Process(process) => process.redistribute(mesh, ty, (from, to), here).map(Some),
        }
    }

    /// Waits for all ranks; if one of them brings an error, all go on with one.
    pub(crate) fn together(&mut self, here: Result<(), Error>) -> Result<(), Error> {
        match self {
            Backend::Threads(_) => here,
            #[cfg(feature = "mpi")]
            Backend::Process(process) => process.together(here),
        }
    }
    /// What the first rank says.
    pub(crate) fn of_first(&mut self, mine: u64) -> Result<u64, Error> {
        match self {
            Backend::Threads(_) => Ok(mine),
            #[cfg(feature = "mpi")]
            Backend::Process(process) => process.of_first(mine),
        }
    }
}
