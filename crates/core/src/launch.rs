//! Buckets: several collectives of one kind over one group as one launch.
//!
//! A launch sends one message per peer and round: in round number k each rank exchanges, with the peers that every member
//! has in that round, what all members exchange there, one behind the other. Each member's elements are copied and
//! combined as if it were alone, so that a bucket changes no result. What it saves is the latency of all rounds but one
//! member's; what it costs is staging, the largest sum over members of a round's messages.
//!
//! Members agree in kind, axes, algorithm, group, element type and reduction ([`difference`]). A reshard is never one: its
//! peers depend on its layouts.

use std::collections::BTreeMap;

use crate::dtype::TensorType;
use crate::layout::Layout;
use crate::machine::Machine;
use crate::mesh::Mesh;
use crate::schedule::{self, exchange_axes, rank_schedule, reduction};
use crate::timing::transition_seconds;
use crate::transition::{Transition, TransitionKind};

/// A collective of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// What it does.
    pub transition: Transition,
    /// The tensor's global type.
    pub ty: &'a TensorType,
    /// Layout before.
    pub from: &'a Layout,
    /// Layout after.
    pub to: &'a Layout,
}

/// Whether collectives of this kind can share a launch with others.
#[must_use]
pub fn can_be_shared(kind: TransitionKind) -> bool {
    match kind {
        TransitionKind::AllGather
        | TransitionKind::ReduceScatter
        | TransitionKind::AllReduce
        | TransitionKind::AllToAll => true,
        TransitionKind::Relabel
        | TransitionKind::Slice
        | TransitionKind::Mask
        | TransitionKind::Pad
        | TransitionKind::Reshard => false,
    }
}

/// In what two collectives differ that keeps them from sharing a launch, if anything does.
#[must_use]
pub fn difference(mesh: &Mesh, a: Member<'_>, b: Member<'_>) -> Option<&'static str> {
    let reduces = |m: Member<'_>| {
        let pending = m.transition.axes.iter().any(|axis| m.from.on(axis).is_pending());
        pending.then(|| reduction(m.from, m.transition.axes))
    };
    let group = |m: Member<'_>| exchange_axes(mesh, m.from, m.to);
    if a.transition.kind != b.transition.kind {
        Some("kind")
    } else if a.transition.axes != b.transition.axes {
        Some("axes")
    } else if a.transition.algorithm != b.transition.algorithm {
        Some("algorithm")
    } else if a.ty.dtype != b.ty.dtype {
        Some("element type")
    } else if reduces(a) != reduces(b) {
        Some("reduction")
    } else if group(a) != group(b) {
        Some("group")
    } else {
        None
    }
}

/// Bytes of staging a rank needs at most during a launch: the largest round's messages out plus messages in.
#[must_use]
pub fn staging_bytes(mesh: &Mesh, members: &[Member<'_>], rank: usize) -> usize {
    // Layers repeat each other: members that are alike have one schedule.
    let mut alike: Vec<(&Member<'_>, usize)> = Vec::new();
    for member in members {
        match alike.iter_mut().find(|(known, _)| *known == member) {
            Some((_, count)) => *count += 1,
            None => alike.push((member, 1)),
        }
    }
    let mut rounds: BTreeMap<usize, usize> = BTreeMap::new();
    for (m, count) in alike {
        let schedule = rank_schedule(m.transition, mesh, &m.ty.shape, m.from, m.to, rank);
        for round in schedule.rounds {
            let out = round.send.map_or(0, |send| send.region.len());
            let into = round.receive.map_or(0, |receive| receive.region.len());
            *rounds.entry(round.number).or_default() += count * (out + into) * m.ty.dtype.size();
        }
    }
    rounds.into_values().max().unwrap_or(0)
}

/// Seconds that a launch takes by the α–β model: the latency of one member's rounds, the bytes of all.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn seconds(machine: &Machine, mesh: &Mesh, members: &[Member<'_>]) -> f64 {
    if let [only] = members {
        return transition_seconds(machine, mesh, only.transition, only.ty, only.from, only.to);
    }
    let Some(first) = members.first() else { return 0.0 };
    let links = || first.transition.axes.iter().map(|a| machine.link(&mesh.axes()[a].name));
    let bandwidth = links().map(|l| l.bandwidth).fold(f64::INFINITY, f64::min);
    let sent: u64 = members.iter().map(|m| m.transition.bytes_sent(mesh, m.ty, m.from, m.to)).sum();
    latency(machine, mesh, members) + sent as f64 / bandwidth
}

/// The part of a launch's seconds that does not depend on how much is sent.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn latency(machine: &Machine, mesh: &Mesh, members: &[Member<'_>]) -> f64 {
    let rounds =
        members.iter().map(|m| schedule::rounds(m.transition, mesh, &m.ty.shape, m.from, m.to));
    let axes = members.iter().flat_map(|m| m.transition.axes.iter());
    let slowest = axes.map(|a| machine.link(&mesh.axes()[a].name).latency).fold(0.0, f64::max);
    slowest * rounds.max().unwrap_or(0) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::transition::all_layouts;

    /// In rounds of one number all collectives of a kind and group have the same peers, whatever their blocks.
    #[test]
    fn rounds_of_one_number_have_the_same_peers() {
        use crate::algorithm::Algorithm;
        let mut met = 0;
        for mesh in ["a=2", "a=3", "a=4", "a=5", "a=2, b=3", "a=2, b=2"] {
            let mesh: Mesh = mesh.parse().unwrap();
            let types = [[1, 3], [7, 4], [2, 2]].map(|shape| TensorType::new(shape, DType::F32));
            let layouts = all_layouts(&mesh, 2, true);
            let mut members: Vec<Member<'_>> = Vec::new();
            for (from, to) in layouts.iter().flat_map(|f| layouts.iter().map(move |t| (f, t))) {
                let Ok(transition) = Transition::between(&mesh, from, to) else { continue };
                if !can_be_shared(transition.kind) {
                    continue;
                }
                for algorithm in Algorithm::ALL.into_iter().filter(|a| a.fits(transition, &mesh)) {
                    let transition = transition.by(algorithm);
                    members.extend(types.iter().map(|ty| Member { transition, ty, from, to }));
                }
            }
            for (i, &a) in members.iter().enumerate().step_by(3) {
                let mates = members.iter().skip(i).filter(|b| difference(&mesh, a, **b).is_none());
                for &b in mates {
                    for rank in 0..mesh.size() {
                        let [one, other] = [a, b].map(|m| {
                            rank_schedule(m.transition, &mesh, &m.ty.shape, m.from, m.to, rank)
                        });
                        for r in &one.rounds {
                            let same = other.rounds.iter().filter(|s| s.number == r.number);
                            for s in same {
                                if let (Some(x), Some(y)) = (&r.send, &s.send) {
                                    assert_eq!(x.to, y.to);
                                    met += 1;
                                }
                                if let (Some(x), Some(y)) = (&r.receive, &s.receive) {
                                    assert_eq!((x.from, x.combine), (y.from, y.combine));
                                }
                            }
                        }
                        assert!(one.rounds.windows(2).all(|w| w[0].number < w[1].number));
                        let sum = [a, b].map(|m| staging_bytes(&mesh, &[m], rank));
                        let both = staging_bytes(&mesh, &[a, b], rank);
                        assert!(both <= sum[0] + sum[1] && both >= sum[0].max(sum[1]));
                    }
                }
            }
        }
        assert!(met > 5_000, "{met}");
    }
}
