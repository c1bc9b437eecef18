//! Proof of a transition's schedule by symbolic execution.
//!
//! Every element of a block is the multiset of (global element, pending term) that it stands for; the identity of the
//! reduction stands for none, and an element that nothing has been stored in stands for nothing at all and may not be
//! read. Ranks run their rounds with channels that hold nothing; at the end each rank must hold exactly what its layout
//! promises, each term once. Terms of `P` may only be added, terms of `Pmax` only be compared, and elements that start as an
//! identity must start as that of the layouts' reduction.

use crate::geometry::{Block, block_at};
use crate::layout::Layout;
use crate::mesh::{AxisSet, Mesh};
use crate::placement::Placement::{self, PendingMax, PendingSum};
use crate::schedule::{Buffer, Combine, RankSchedule, Region, Start, rank_schedule};
use crate::transition::Transition;

/// A set of terms, counted: element (origin of the value, coordinates along pending axes) → how often.
type Terms = std::collections::BTreeMap<(usize, usize), usize>;

/// What an element of a result stands for, once something is stored in it.
type Element = Option<Terms>;

/// Executes the schedules of all ranks on symbolic elements and proves the transition right.
///
/// Every element of a block is the multiset of (global element, term) that it stands for. Messages are matched in
/// order between each pair of ranks; every rank must end with what the target layout promises, each term once.
/// Sends and receives of a round are concurrent and no channel holds a message (capacity 0).
///
/// # Errors
/// One line that names rank and element, or the ranks that wait for each other.
pub fn verify(
    transition: Transition,
    mesh: &Mesh,
    shape: &[usize],
    from: &Layout,
    to: &Layout,
) -> Result<(), String> {
    let p = mesh.size();
    let schedules: Vec<RankSchedule> =
        (0..p).map(|r| rank_schedule(transition, mesh, shape, from, to, r)).collect();
    let sources: Vec<Block> =
        (0..p).map(|r| block_at(shape, from, mesh, &mesh.coords(r))).collect();
    let targets: Vec<Block> = (0..p).map(|r| block_at(shape, to, mesh, &mesh.coords(r))).collect();
    let term = |rank: usize, layout: &Layout| {
        let pending: AxisSet = (0..mesh.rank()).filter(|&a| layout.on(a).is_pending()).collect();
        mesh.index_in_group(rank, pending)
    };
    let elements = |block: &Block| -> Vec<usize> { flat_indices(block, shape) };
    let held: Vec<Vec<Terms>> = (0..p)
        .map(|r| {
            elements(&sources[r])
                .into_iter()
                .map(|e| Terms::from([((e, term(r, from)), 1)]))
                .collect()
        })
        .collect();
    let reduction = from.iter().chain(to.iter()).find(|p| p.is_pending());
    let mut result: Vec<Vec<Element>> = (0..p)
        .map(|r| {
            let blocks = (&sources[r], &targets[r]);
            start_symbolic(&schedules[r].start, blocks, &held[r], reduction)
                .map_err(|problem| format!("rank {r} {problem}"))
        })
        .collect::<Result<_, String>>()?;

    // Rendezvous: a send completes only together with its receive. Each rank is at one round, with halves left to do.
    let mut at = vec![0_usize; p];
    let mut half_done = vec![(false, false); p];
    loop {
        let mut progress = false;
        for r in 0..p {
            while let Some(round) = schedules[r].rounds.get(at[r]) {
                let sent = round.send.is_none() || half_done[r].0;
                let received = round.receive.is_none() || half_done[r].1;
                if !(sent && received) {
                    break;
                }
                at[r] += 1;
                half_done[r] = (false, false);
                progress = true;
            }
        }
        for r in 0..p {
            let Some(send) = schedules[r].rounds.get(at[r]).and_then(|x| x.send.as_ref()) else {
                continue;
            };
            if half_done[r].0 {
                continue;
            }
            let peer = send.to;
            let Some(receive) =
                schedules[peer].rounds.get(at[peer]).and_then(|x| x.receive.as_ref())
            else {
                continue;
            };
            if receive.from != r || half_done[peer].1 {
                continue;
            }
            let payload: Option<Vec<Terms>> = match send.buffer {
                Buffer::Source => positions(&send.region, &sources[r])
                    .into_iter()
                    .map(|i| held[r].get(i).cloned())
                    .collect(),
                Buffer::Result => positions(&send.region, &targets[r])
                    .into_iter()
                    .map(|i| result[r].get(i).cloned().flatten())
                    .collect(),
            };
            let Some(payload) = payload else {
                return Err(format!("rank {r} sends rank {peer} what it does not hold"));
            };
            let slots = positions(&receive.region, &targets[peer]);
            if slots.len() != payload.len() {
                return Err(format!(
                    "rank {r} sends {} elements where rank {peer} receives {}",
                    payload.len(),
                    slots.len()
                ));
            }
            let allowed = match receive.combine {
                Combine::Copy => true,
                Combine::Sum => reduction == Some(PendingSum),
                Combine::Max => reduction == Some(PendingMax),
            };
            if !allowed {
                return Err(format!("rank {peer} combines terms by {:?}", receive.combine));
            }
            for (slot, terms) in slots.into_iter().zip(payload) {
                let element =
                    result[peer].get_mut(slot).ok_or("a message reaches beyond the block")?;
                match (receive.combine, element) {
                    (Combine::Copy, element) => *element = Some(terms),
                    (Combine::Sum | Combine::Max, None) => {
                        return Err(format!("rank {peer} combines a term with nothing"));
                    }
                    (Combine::Sum | Combine::Max, Some(sum)) => {
                        for (key, n) in terms {
                            *sum.entry(key).or_insert(0) += n;
                        }
                    }
                }
            }
            half_done[r].0 = true;
            half_done[peer].1 = true;
            progress = true;
        }
        if !progress {
            break;
        }
    }
    if let Some(r) = (0..p).find(|&r| at[r] < schedules[r].rounds.len()) {
        return Err(format!("rank {r} waits in round {} for a message that never matches", at[r]));
    }
    prove_result(mesh, shape, from, to, &targets, &result)
}

fn flat_indices(block: &Block, shape: &[usize]) -> Vec<usize> {
    let mut flat = vec![0_usize];
    for (range, &n) in block.ranges.iter().zip(shape) {
        flat = flat.iter().flat_map(|&base| range.clone().map(move |i| base * n + i)).collect();
    }
    flat
}

/// Positions of a region's elements in a block's row-major order.
fn positions(region: &Region, block: &Block) -> Vec<usize> {
    match region {
        Region::Flat(range) => range.clone().collect(),
        Region::Box(inner) => {
            let local = Block {
                ranges: inner
                    .ranges
                    .iter()
                    .zip(&block.ranges)
                    .map(|(i, o)| i.start - o.start..i.end - o.start)
                    .collect(),
            };
            flat_indices(&local, &block.shape())
        }
    }
}

fn start_symbolic(
    start: &Start,
    (source, target): (&Block, &Block),
    held: &[Terms],
    reduction: Option<Placement>,
) -> Result<Vec<Element>, String> {
    let identity = |pending: Placement| {
        if Some(pending) == reduction {
            Ok(Some(Terms::new()))
        } else {
            Err(format!("starts from the identity of {pending}"))
        }
    };
    match start {
        Start::CopyAll if source == target => Ok(held.iter().cloned().map(Some).collect()),
        Start::CopyAll => {
            Err("copies its whole source, which is not the target's block".to_owned())
        }
        Start::Identity(pending) => Ok(vec![identity(*pending)?; target.len()]),
        Start::CopyInto { own, fill } => {
            let rest = fill.map(identity).transpose()?.flatten();
            let mut result = vec![rest; target.len()];
            if !own.is_empty() {
                let region = Region::Box(own.clone());
                let pairs = positions(&region, target).into_iter().zip(positions(&region, source));
                for (t, s) in pairs {
                    result[t] = Some(held[s].clone());
                }
            }
            Ok(result)
        }
    }
}

/// Over each group of target-pending ranks, every element must be covered by every source term exactly once.
fn prove_result(
    mesh: &Mesh,
    shape: &[usize],
    from: &Layout,
    to: &Layout,
    targets: &[Block],
    result: &[Vec<Element>],
) -> Result<(), String> {
    let pending_from: AxisSet = (0..mesh.rank()).filter(|&a| from.on(a).is_pending()).collect();
    let terms = mesh.group_size(pending_from);
    let pending_to: AxisSet = (0..mesh.rank()).filter(|&a| to.on(a).is_pending()).collect();
    for (rank, target) in targets.iter().enumerate() {
        let group = mesh.group(rank, pending_to);
        for (i, element) in flat_indices(target, shape).into_iter().enumerate() {
            let mut sum = Terms::new();
            for &member in &group {
                let Some(held) = &result[member][i] else {
                    return Err(format!("rank {member} never receives element {element}"));
                };
                for (key, n) in held {
                    *sum.entry(*key).or_insert(0) += n;
                }
            }
            let right = (0..terms).map(|t| ((element, t), 1)).collect::<Terms>();
            if sum != right {
                return Err(format!(
                    "rank {rank}, element {element}: holds {sum:?}, its layout promises {right:?}"
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::Algorithm;
    use crate::transition::{TransitionKind, all_layouts};

    /// Every transition between all pairs of layouts on odd meshes and shapes, for sums and for maxima: proved and counted.
    #[test]
    fn every_transition_is_proved_and_counted() {
        let (mut proved, mut by_other) = (0, 0);
        for (mesh, shape) in [
            ("a=2", [4, 6]),
            ("a=3", [5, 2]),
            ("a=5", [3, 7]),
            ("a=2,b=2", [4, 6]),
            ("a=2,b=2", [1, 3]),
            ("a=2,b=3", [5, 7]),
            ("a=3,b=2", [7, 4]),
            ("a=1,b=3", [2, 4]),
            ("a=2,b=2,c=2", [5, 3]),
        ] {
            let mesh: Mesh = mesh.parse().unwrap();
            for pending in [PendingSum, PendingMax] {
                let layouts = layouts_with(&mesh, pending);
                for (from, to) in layouts.iter().flat_map(|f| layouts.iter().map(move |t| (f, t))) {
                    let Ok(transition) = Transition::between(&mesh, from, to) else {
                        continue;
                    };
                    let (before, after) = (from.display(&mesh), to.display(&mesh));
                    let at = format!("{mesh} {shape:?} {before} → {after}");
                    verify(transition, &mesh, &shape, from, to)
                        .unwrap_or_else(|e| panic!("{at}: {e}"));
                    let mut most = 0;
                    for rank in 0..mesh.size() {
                        let s = rank_schedule(transition, &mesh, &shape, from, to, rank);
                        let sent = transition.elements_sent_by(&mesh, &shape, from, to, rank);
                        assert_eq!(s.elements_sent() as u64, sent, "{at} by rank {rank}");
                        most = most.max(sent);
                    }
                    assert_eq!(transition.elements_sent(&mesh, &shape, from, to), most, "{at}");
                    proved += 1;
                    for algorithm in Algorithm::ALL.into_iter().skip(1) {
                        if algorithm.fits(transition, &mesh) {
                            prove_algorithm(transition.by(algorithm), &mesh, &shape, from, to);
                            by_other += 1;
                        }
                    }
                }
            }
        }
        assert_eq!((proved, by_other), (6774, 1336));
    }

    /// Right, counted, and with no more rounds than said.
    fn prove_algorithm(t: Transition, mesh: &Mesh, shape: &[usize], from: &Layout, to: &Layout) {
        let at = format!("{mesh} {shape:?} {t:?} {} → {}", from.display(mesh), to.display(mesh));
        verify(t, mesh, shape, from, to).unwrap_or_else(|e| panic!("{at}: {e}"));
        let schedules: Vec<RankSchedule> =
            (0..mesh.size()).map(|r| rank_schedule(t, mesh, shape, from, to, r)).collect();
        let most = schedules.iter().map(RankSchedule::elements_sent).max().unwrap_or(0);
        assert_eq!(t.elements_sent(mesh, shape, from, to), most as u64, "{at}");
        let rounds = crate::schedule::rounds(t, mesh, shape, from, to);
        assert!(schedules.iter().all(|s| s.rounds.len() <= rounds), "{at}");
    }

    /// Halving sends what the direct schedule sends in log₂ p rounds where p divides n; a tree sends more in as many.
    #[test]
    fn algorithms_trade_rounds_for_bytes() {
        let mesh: Mesh = "a=8".parse().unwrap();
        let layout = |p: &str| Layout::parse(&format!("a: {p}"), &mesh).unwrap();
        let count = |algorithm, from: &str, to: &str| {
            let (from, to) = (layout(from), layout(to));
            let t = Transition::between(&mesh, &from, &to).unwrap().by(algorithm);
            let shape = [16, 4];
            let rounds = crate::schedule::rounds(t, &mesh, &shape, &from, &to);
            (rounds, t.elements_sent(&mesh, &shape, &from, &to))
        };
        assert_eq!(count(Algorithm::Direct, "P", "R"), (14, 112));
        assert_eq!(count(Algorithm::Ring, "P", "R"), (14, 112));
        assert_eq!(count(Algorithm::Halving, "P", "R"), (6, 112));
        assert_eq!(count(Algorithm::Tree, "P", "R"), (6, 192));
        assert_eq!(count(Algorithm::Direct, "S(0)", "R"), (7, 56));
        assert_eq!(count(Algorithm::Halving, "S(0)", "R"), (3, 56));
    }

    /// On five devices a tree is best for a scalar, the direct schedule for a large tensor; on four, halving for both.
    #[test]
    fn the_fastest_algorithm_depends_on_the_size() {
        use crate::timing::fastest;
        use crate::{DType, Machine, TensorType};
        let machine = Machine::default();
        let chosen = |mesh: &str, n: usize| {
            let mesh: Mesh = mesh.parse().unwrap();
            let (from, to) = (Layout::parse("a: P", &mesh).unwrap(), Layout::replicated(1));
            let t = Transition::between(&mesh, &from, &to).unwrap();
            let ty = TensorType::new([n], DType::F32);
            fastest(&machine, &mesh, t, &ty, &from, &to).0.algorithm
        };
        assert_eq!(chosen("a=5", 1), Algorithm::Tree);
        assert_eq!(chosen("a=5", 1 << 20), Algorithm::Direct);
        assert_eq!(chosen("a=4", 4), Algorithm::Halving);
        assert_eq!(chosen("a=4", 1 << 20), Algorithm::Halving);
        assert_eq!(chosen("a=2", 1 << 20), Algorithm::Direct);
    }

    /// All layouts of a matrix, with one kind of pending terms.
    fn layouts_with(mesh: &Mesh, pending: Placement) -> Vec<Layout> {
        let mut layouts = all_layouts(mesh, 2, true);
        for placement in layouts.iter_mut().flat_map(|l| l.0.iter_mut()) {
            if placement.is_pending() {
                *placement = pending;
            }
        }
        layouts
    }

    /// A pair of layouts has a single transition unless an axis becomes pending along with another change.
    #[test]
    fn only_terms_that_arise_need_a_step_of_their_own() {
        for mesh in ["a=2,b=3", "a=2,b=2,c=2"] {
            let mesh: Mesh = mesh.parse().unwrap();
            let layouts = all_layouts(&mesh, 2, true);
            for (from, to) in layouts.iter().flat_map(|f| layouts.iter().map(move |t| (f, t))) {
                let changes: Vec<usize> =
                    (0..mesh.rank()).filter(|&a| from.on(a) != to.on(a)).collect();
                let arises = changes.iter().any(|&a| to.on(a).is_pending());
                let found = Transition::between(&mesh, from, to);
                match found {
                    Ok(t) if arises => {
                        assert!(changes.len() == 1 && !t.kind.is_collective(), "{from:?} {to:?}");
                    }
                    Ok(_) => {}
                    Err(_) => assert!(arises, "{from:?} {to:?}"),
                }
            }
        }
    }

    #[test]
    fn a_reshard_reduces_and_moves_at_once() {
        let mesh: Mesh = "a=2,b=2".parse().unwrap();
        let sent = |from: &str, to: &str| {
            let layout = |t: &str| {
                let (a, b) = t.split_once(',').unwrap();
                Layout::parse(&format!("a: {a}, b: {b}"), &mesh).unwrap()
            };
            let (from, to) = (layout(from), layout(to));
            let transition = Transition::between(&mesh, &from, &to).unwrap();
            assert_eq!(transition.kind, TransitionKind::Reshard);
            transition.elements_sent(&mesh, &[8, 8], &from, &to)
        };
        assert_eq!(sent("P,S(0)", "R,R"), 64);
        assert_eq!(sent("P,R", "R,S(0)"), 32);
        assert_eq!(sent("P,S(0)", "S(0),R"), 32);
        assert_eq!(sent("P,S(0)", "S(0),S(0)"), 32);
        assert_eq!(sent("S(0),S(1)", "S(1),S(0)"), 16);
        assert_eq!(sent("S(0),S(0)", "S(1),S(1)"), 12);
        assert_eq!(sent("R,S(0)", "S(0),R"), 16); // Replicas share what is asked of either.
    }

    #[test]
    fn bytes_are_those_of_the_table_when_p_divides() {
        let mesh: Mesh = "a=4".parse().unwrap();
        let n = 16 * 8;
        for (from, to, elements) in [
            ("R", "S(0)", 0),
            ("R", "P", 0),
            ("S(0)", "P", 0),
            ("S(0)", "R", n * 3 / 4),
            ("P", "S(0)", n * 3 / 4),
            ("P", "R", n * 6 / 4),
            ("S(0)", "S(1)", n * 3 / 16),
            ("Pmax", "R", n * 6 / 4),
            ("R", "R", 0),
        ] {
            let layout = |p: &str| Layout::parse(&format!("a: {p}"), &mesh).unwrap();
            let (from, to) = (layout(from), layout(to));
            let t = Transition::between(&mesh, &from, &to).unwrap();
            assert_eq!(t.elements_sent(&mesh, &[16, 8], &from, &to), elements, "{from:?} {to:?}");
        }
    }

    #[test]
    fn joint_all_reduce_sends_less_than_one_axis_after_the_other() {
        let mesh: Mesh = "a=2,b=4".parse().unwrap();
        let layout = |t: &str| Layout::parse(t, &mesh).unwrap();
        let sent = |from: &str, to: &str| {
            let (from, to) = (layout(from), layout(to));
            Transition::between(&mesh, &from, &to).unwrap().elements_sent(&mesh, &[8], &from, &to)
        };
        assert_eq!(sent("a: P, b: P", "a: P"), 12); // 2·3/4 of 8
        assert_eq!(sent("a: P, b: P", "b: P"), 8); // 2·1/2 of 8
        assert_eq!(sent("a: P, b: P", "a: R"), 14); // 2·7/8 of 8: 1.75 T against 2.5 T
    }

    #[test]
    fn the_outer_axis_of_a_dim_has_no_named_form() {
        let mesh: Mesh = "a=2,b=2".parse().unwrap();
        let layout = |t: &str| Layout::parse(t, &mesh).unwrap();
        let kind = |from: &str, to: &str| {
            Transition::between(&mesh, &layout(from), &layout(to)).map(|t| t.kind)
        };
        assert_eq!(kind("a: S(0), b: S(0)", "b: S(0)").unwrap(), TransitionKind::Reshard);
        assert_eq!(kind("a: S(0), b: S(0)", "a: S(0)").unwrap(), TransitionKind::AllGather);
        assert_eq!(kind("a: S(0), b: S(0)", "a: R").unwrap(), TransitionKind::AllGather);
        assert_eq!(kind("b: S(0)", "a: S(0), b: S(0)").unwrap(), TransitionKind::Reshard);
        assert!(kind("a: S(0), b: S(0)", "a: P, b: S(0)").is_err());
        assert_eq!(kind("a: P, b: S(0)", "a: S(0), b: S(0)").unwrap(), TransitionKind::Reshard);
        assert!(kind("a: P", "b: P").is_err());
        assert!(kind("a: Pmax", "a: P").is_err());
    }
}
