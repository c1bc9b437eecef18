//! The best assignment of a problem and a bound: at once if the network's buckets allow it, else axis by axis, else by
//! mini-buckets.

use shardgrad_core::Mesh;
use shardgrad_graph::Program;

use super::Problem;
use super::axes::{self, Told};
use crate::demands::Demands;
use crate::error::Error;
use crate::options::Options;
use crate::search::{
    BUCKET_LIMIT, Factor, Failure, Known, Outcome, Proof, ROUNDS, Solution, Trace, eliminate,
    refine,
};

/// Most entries of a network for which mini-buckets are made after the bound of the axes.
const STRIKE_LIMIT: usize = 1 << 24;

/// Solves a problem.
///
/// # Errors
/// No assignment is possible, or none was found.
pub fn solve(
    program: &Program,
    mesh: &Mesh,
    demands: &Demands,
    options: &Options,
    problem: &mut Problem,
) -> Result<Outcome, Error> {
    let entries = match eliminate(&mut problem.network, BUCKET_LIMIT) {
        Ok(Solution { cost, assignment, trace }) => {
            let proof = Proof::Whole(trace);
            return Ok(Outcome { cost, assignment, lower: cost, proof, traced: cost });
        }
        Err(Failure::Infeasible) => return Err(Error::contradicting(program)),
        Err(Failure::TooWide(entries)) => entries,
    };
    let contradicting = |_| Error::contradicting(program);
    let told = axes::solve(program, mesh, demands, options, problem)?;
    let network = &problem.network;
    let (known, proof, rounds) = match told {
        Some(Told { known, traces }) => {
            let of = |factor: &Factor| network.tables.len(factor.table);
            let small =
                network.factors.iter().map(of).fold(0, usize::saturating_add) <= STRIKE_LIMIT;
            // Larger mini-buckets take seconds, and their bounds were seen to be no better than that of the axes.
            (known, Proof::Axes(traces), if small { &ROUNDS[..2] } else { &[] })
        }
        None => (Known::nothing(network), Proof::Whole(Trace::default()), &ROUNDS[..]),
    };
    let refined = refine(network, BUCKET_LIMIT, rounds, known, proof).map_err(contradicting)?;
    refined.ok_or(Error::TooWide { entries })
}
