//! One rank of a trainer, in a process of its own.
//!
//! What a step costs is the same in every step of a plan. The first step's counts go round all ranks; each rank holds its
//! later counts to its first ones, so that no step needs another message.

use std::sync::Arc;

use shardgrad_core::{Layout, Mesh, TensorType};
use shardgrad_graph::Plan;

use super::agree::statements;
use super::comm::MpiComm;
use crate::collective::Collective;
use crate::error::Error;
use crate::executor::{Counted, Executor};
use crate::inputs::Input;
use crate::number::Number as _;
use crate::pool::Pool;
use crate::ranks::{Command, Reply, obey};
use crate::tensor::Data;
use crate::trainer::{TrainerOptions, start};

pub(crate) struct Process {
    comm: MpiComm,
    executor: Executor,
    inputs: Arc<Vec<Input>>,
    /// What a step costs all ranks, by rank.
    counts: Option<Vec<Counted>>,
}

impl Process {
    pub(crate) fn new(
        plan: &Plan,
        options: &TrainerOptions,
        mut comm: MpiComm,
        inputs: Arc<Vec<Input>>,
    ) -> Result<Self, Error> {
        let universe = comm.universe().clone();
        let collectives = comm.options().collectives.name();
        universe.agree(&statements(plan, options.seed, universe.build(), collectives))?;
        if universe.size() != plan.mesh.size() {
            return Err(Error::WrongWorld {
                started: universe.size(),
                mesh: plan.mesh.to_string(),
                devices: plan.mesh.size(),
            });
        }
        let executor = start(plan, universe.rank(), options);
        let here = together(&mut comm, executor.as_ref().map(|_| ()).map_err(Error::clone));
        here.and(executor).map(|executor| Self { comm, executor, inputs, counts: None })
    }

    pub(crate) fn rank(&self) -> usize {
        self.comm.universe().rank()
    }

    /// A failure ends all processes when this one's universe goes away.
    pub(crate) fn command(&mut self, commands: Vec<Command>) -> Result<Vec<Reply>, Error> {
        let Self { comm, executor, inputs, .. } = self;
        let mut replies = Vec::new();
        for command in commands {
            match obey(executor, inputs, command, |executor| executor.step(comm)) {
                Some(Reply::Failed(error)) => {
                    comm.universe().fail(&error);
                    return Err(error);
                }
                reply => replies.extend(reply),
            }
        }
        Ok(replies)
    }

    pub(crate) fn fail(&self, error: &Error) {
        self.comm.universe().fail(error);
    }

    pub(crate) fn gather(&mut self, here: Vec<Data>) -> Result<Vec<Data>, Error> {
        match here.into_iter().next() {
            Some(block) => self.comm.gather_all(block),
            None => Ok(Vec::new()),
        }
    }

    pub(crate) fn redistribute(
        &mut self,
        mesh: &Mesh,
        ty: &TensorType,
        (from, to): (&Layout, &Layout),
        here: Vec<Data>,
    ) -> Result<Vec<Data>, Error> {
        let collective = Collective::new(mesh, ty, from, to, self.rank())?;
        let move_one = |mut block: Data| {
            let mut result = Data::zeros(ty.dtype, collective.result_len());
            let (comm, pool) = (&mut self.comm, &mut Pool::default());
            collective.run_data(comm, Some(&mut block), &mut result, pool, false)?;
            Ok(result)
        };
        here.into_iter().map(move_one).collect()
    }

    pub(crate) fn counts(&mut self, here: Vec<Counted>) -> Result<Vec<Counted>, Error> {
        let rank = self.rank();
        let Some(mine) = here.into_iter().next() else { return Ok(Vec::new()) };
        if let Some(counts) = &self.counts {
            if counts.get(rank) == Some(&mine) {
                return Ok(counts.clone());
            }
            let problem = format!("a step of rank {rank} costs other bytes than the first one did");
            let error = Error::Mpi { problem };
            self.comm.universe().fail(&error);
            return Err(error);
        }
        let all = self.comm.gather_all(to_data(&mine))?;
        let counts: Vec<Counted> = all.iter().map(from_data).collect();
        self.counts = Some(counts.clone());
        Ok(counts)
    }

    pub(crate) fn of_first(&mut self, mine: u64) -> Result<u64, Error> {
        let all = self.comm.gather_all(Data::I64(vec![mine.cast_signed()]))?;
        let first = all.first().and_then(i64::slice).and_then(<[i64]>::first);
        Ok(first.map_or(mine, |number| number.cast_unsigned()))
    }

    pub(crate) fn together(&mut self, here: Result<(), Error>) -> Result<(), Error> {
        together(&mut self.comm, here)
    }
}

/// If a rank brings an error all go on with one: their own, or that of the first rank that has one.
fn together(comm: &mut MpiComm, here: Result<(), Error>) -> Result<(), Error> {
    let message = here.as_ref().err().map(ToString::to_string).unwrap_or_default();
    let all = comm.gather_all(Data::I32(message.bytes().map(i32::from).collect()))?;
    here?;
    let text = |data: &Data| match data {
        Data::I32(bytes) => bytes.iter().filter_map(|&b| u8::try_from(b).ok()).collect(),
        Data::F32(_) | Data::F64(_) | Data::I64(_) => Vec::new(),
    };
    match all.iter().position(|data| !data.is_empty()) {
        None => Ok(()),
        Some(rank) => {
            let cause = String::from_utf8_lossy(&text(&all[rank])).into_owned();
            Err(Error::PeerFailed { rank, cause })
        }
    }
}

/// Peak, bytes afterwards, then of every launch the number of its collectives, and of each whether it is of a scalar, and its
/// bytes.
fn to_data(counted: &Counted) -> Data {
    let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let mut numbers = vec![number(counted.peak_bytes), number(counted.current_bytes)];
    for launch in &counted.launches {
        numbers.push(number(launch.len() as u64));
        for &(scalar, bytes) in launch {
            numbers.extend([i64::from(scalar), number(bytes)]);
        }
    }
    Data::I64(numbers)
}

fn from_data(data: &Data) -> Counted {
    let Data::I64(numbers) = data else { return Counted::default() };
    let mut numbers = numbers.iter().map(|&n| u64::try_from(n).unwrap_or(0));
    let mut next = || numbers.next();
    let (peak_bytes, current_bytes) = (next().unwrap_or(0), next().unwrap_or(0));
    let mut launches = Vec::new();
    while let Some(members) = next() {
        let member = |_| (next().unwrap_or(0) != 0, next().unwrap_or(0));
        launches.push((0..members).map(member).collect());
    }
    Counted { launches, peak_bytes, current_bytes }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;

    #[test]
    fn counts_come_back() {
        let counted = Counted {
            launches: vec![smallvec![(false, 40), (true, 4)], smallvec![], smallvec![(false, 0)]],
            peak_bytes: 1 << 40,
            current_bytes: 7,
        };
        assert_eq!(from_data(&to_data(&counted)), counted);
        assert_eq!(from_data(&to_data(&Counted::default())), Counted::default());
    }
}
