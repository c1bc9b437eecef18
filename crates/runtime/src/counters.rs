//! What steps cost, counted while they run.

use crate::executor::Counted;

/// What a step cost, as counted while it ran. Reductions of scalars are counted apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Launches; those of scalars alone are not counted.
    pub launches: u64,
    /// Sum over collectives of the most bytes that a rank sent, scalars not counted.
    pub bytes_per_device: u64,
    /// Collectives of scalars.
    pub scalar_reductions: u64,
    /// Their bytes, counted likewise.
    pub scalar_bytes_per_device: u64,
    /// Bytes that each rank sent, scalars included.
    pub bytes_by_rank: Vec<u64>,
    /// Most bytes of live slots and staging, on the rank that had most.
    pub peak_bytes: u64,
    /// The same of every rank.
    pub peak_bytes_by_rank: Vec<u64>,
}

/// Adds up the collectives: each counts as much as the rank that sent most.
pub(crate) fn counters(ranks: &[Counted]) -> Counters {
    let mut counters = Counters {
        bytes_by_rank: ranks
            .iter()
            .map(|r| r.launches.iter().flatten().map(|(_, bytes)| bytes).sum())
            .collect(),
        peak_bytes: ranks.iter().map(|r| r.peak_bytes).max().unwrap_or(0),
        peak_bytes_by_rank: ranks.iter().map(|r| r.peak_bytes).collect(),
        ..Counters::default()
    };
    let Some(first) = ranks.first() else { return counters };
    for (i, launch) in first.launches.iter().enumerate() {
        counters.launches += u64::from(launch.iter().any(|(scalar, _)| !scalar));
        for (member, (scalar, _)) in launch.iter().enumerate() {
            let sent = ranks.iter().filter_map(|r| r.launches.get(i)?.get(member));
            let most = sent.map(|(_, bytes)| *bytes).max().unwrap_or(0);
            if *scalar {
                counters.scalar_reductions += 1;
                counters.scalar_bytes_per_device += most;
            } else {
                counters.bytes_per_device += most;
            }
        }
    }
    counters
}
