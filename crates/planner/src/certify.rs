//! From a search to a certificate that the checker verifies by itself.

use shardgrad_core::Mesh;
use shardgrad_core::price::Fields;
use shardgrad_graph::certificate::{Bags, Bound, Certificate, Space, Weights, Work};

use crate::cost::Packed;
use crate::demands::Demands;
use crate::options::{Objective, Options, Redundant};
use crate::presets::Split;
use crate::search::{Proof, Trace};

/// Most entries of bags that the checker looks at.
const VERIFIABLE: u64 = 1 << 29;

/// The certificate of a plan that costs so much, from the buckets of a search.
#[must_use]
pub fn certificate(
    mesh: &Mesh,
    demands: &Demands,
    options: &Options,
    found: &Found<'_>,
) -> Certificate {
    let entries = match found.proof {
        Proof::Whole(trace) => trace.entries,
        Proof::Axes(traces) => traces.iter().map(|(trace, _)| trace.entries).sum(),
    };
    if entries > VERIFIABLE {
        let because = format!("its bags have {entries} entries, more than can be looked at");
        return Certificate::None { because };
    }
    if found.cost.contains(&u64::MAX) {
        let because = "the plan costs more than can be counted".to_owned();
        return Certificate::None { because };
    }
    let (bags, axes) = match found.proof {
        Proof::Whole(trace) => (bags(trace, found.sets, |m| found.scale.split(m)), Vec::new()),
        Proof::Axes(traces) => {
            // Shares are in units of the leading field.
            let units = |m: Packed| [u64::try_from(m).unwrap_or(u64::MAX), 0, 0, 0];
            let axes = traces.iter().map(|(trace, sets)| bags(trace, sets, units)).collect();
            (Bags::default(), axes)
        }
    };
    Certificate::Bound(Box::new(Bound {
        space: space(mesh, demands, options),
        scale: found.scale,
        cost: found.cost,
        lower: found.scale.split(found.lower),
        bags,
        axes,
    }))
}

/// Bags from a trace, with minima as `fields` has them.
fn bags(trace: &Trace, sets: &[u32], fields: impl Fn(Packed) -> Fields) -> Bags {
    let mut different = trace.minima.clone();
    different.sort_unstable();
    different.dedup();
    let number = |least: &Packed| {
        let at = different.binary_search(least).unwrap_or(0);
        u32::try_from(at).unwrap_or(u32::MAX)
    };
    Bags {
        sets: sets.to_vec(),
        order: trace.order.clone(),
        factors: trace.factors.clone(),
        minimum: trace.minima.iter().map(number).collect(),
        minima: different.iter().map(|&m| fields(m)).collect(),
    }
}

/// What a search found.
pub struct Found<'a> {
    /// How its bound follows.
    pub proof: &'a Proof,
    /// The bound.
    pub lower: u128,
    /// The scale of costs.
    pub scale: Weights,
    /// The plan's cost.
    pub cost: Fields,
    /// Values whose readers meet in a variable of sets.
    pub sets: &'a [u32],
}

/// The space that was searched.
fn space(mesh: &Mesh, demands: &Demands, options: &Options) -> Space {
    let free = |shares: bool| match options.redundant {
        Redundant::Never if shares => Work::Shared,
        Redundant::Never | Redundant::Allow => Work::Any,
    };
    let work = |split: &Option<Split>| match split {
        None => free(true),
        Some(Split::Batch) => Work::Batch,
        Some(Split::In) => Work::In,
        Some(Split::Out) => Work::Out,
        Some(Split::None) => Work::Repeated,
    };
    Space {
        objective: options.objective,
        machine: options.machine.clone(),
        layers: demands.splits.iter().map(|row| row.iter().map(work).collect()).collect(),
        others: (0..mesh.rank()).map(|axis| free(demands.sharing[axis])).collect(),
    }
}

/// The certificate of a plan under a memory limit: the bound of the space without one, which is a bound all the more.
#[must_use]
pub fn of_limited(free: Certificate, cost: Fields, objective: Objective) -> Certificate {
    match free {
        Certificate::Bound(mut bound) if objective != Objective::Memory => {
            bound.cost = cost;
            Certificate::Bound(bound)
        }
        Certificate::Bound(_) => Certificate::None {
            because: "a peak of memory is no sum over ops and values, which is all that bags bound"
                .to_owned(),
        },
        none @ Certificate::None { .. } => none,
    }
}
