//! `reshard`: the exchange between any two layouts, pending terms reduced on the way.
//!
//! Every element that a rank needs comes from one owner, and which rank that is follows from coordinates alone. An axis
//! whose placement or whose dim's splitting changes is one of:
//!
//! * *gathered*, `S → R`; *moved*, `S → S` of a dim whose splitting changes;
//! * *scattered*, `P → S`; *reduced*, `P → R`;
//! * *spread*, `R → S` of a dim that a gathered or moved axis splits in the source. The ranks along it hold the same and
//!   are asked for different amounts, so each sends an equal part of what is asked from any of them.
//!
//! Along every other axis a rank deals only with ranks of its own coordinate.
//!
//! **Nothing pending**: one exchange. The ranks whose blocks hold an element send it to every reader that does not hold it.
//!
//! **Terms to reduce**: two exchanges. Each element has an owner among its readers: along gathered axes the rank in whose
//! source block it lies, along moved and scattered axes the rank in whose target block it lies, along reduced axes each
//! rank for an equal part. First the owner receives the terms of the others, its own coming first, and combines them in the
//! order of the group. Then it sends what is complete to the other readers. Terms that are not reduced take the same way,
//! each for itself. With m terms and d readers that is m − 1 + d − 1 messages for an element of which some reader holds a
//! term: no schedule has fewer.
//!
//! A part of a box is cut along the dim that is longest after all splits.
//!
//! Counts factor over dims: the sum over peers of the size of (own box ∩ peer's box) is the product over dims of sums of
//! lengths of intersections, so that counting needs no loop over pairs of ranks.

use crate::geometry::{Block, block_at, nested_split, split};
use crate::layout::Layout;
use crate::mesh::{AxisSet, Coords, Mesh};
use crate::placement::Placement::{self, PendingMax, PendingSum};
use crate::schedule::{Buffer, Combine, RankSchedule, Receive, Region, Round, Send, Start};

/// The exchange between two layouts.
pub(crate) struct Reshard<'a> {
    mesh: &'a Mesh,
    shape: &'a [usize],
    from: &'a Layout,
    to: &'a Layout,
    gathered: AxisSet,
    moved: AxisSet,
    scattered: AxisSet,
    reduced: AxisSet,
    spread: AxisSet,
    cut: Option<usize>,
}

/// Which side of the exchange a sum runs over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Source,
    Target,
}

/// One of some equal parts of a box.
#[derive(Clone, Copy)]
struct Part {
    of: usize,
    index: usize,
}

/// Ranks that are all looked at.
const FEW: usize = 64;

/// Most ranks that are looked at one by one: a plan for more of them is one on paper.
const MANY: usize = 4096;

const WHOLE: Part = Part { of: 1, index: 0 };

fn union(a: AxisSet, b: AxisSet) -> AxisSet {
    a.iter().chain(b.iter()).collect()
}

impl<'a> Reshard<'a> {
    /// The exchange of a tensor of this shape. No axis may become pending.
    pub(crate) fn new(
        mesh: &'a Mesh,
        shape: &'a [usize],
        from: &'a Layout,
        to: &'a Layout,
    ) -> Self {
        let real = |a: &usize| mesh.axis_size(*a) > 1;
        let resplit = |dim: usize| {
            !from.axes_sharding(dim).filter(real).eq(to.axes_sharding(dim).filter(real))
        };
        let axes = |wanted: &dyn Fn(Placement, Placement) -> bool| -> AxisSet {
            (0..mesh.rank()).filter(real).filter(|&a| wanted(from.on(a), to.on(a))).collect()
        };
        let sharded = |p: Placement| p.sharded_dim().is_some();
        let gathered = axes(&|f, t| sharded(f) && t == Placement::Replicated);
        let moved = axes(&|f, t| match (f.sharded_dim(), t.sharded_dim()) {
            (Some(d), Some(e)) => resplit(d) || resplit(e),
            _ => false,
        });
        let scattered = axes(&|f, t| f.is_pending() && sharded(t));
        let reduced = axes(&|f, t| f.is_pending() && t == Placement::Replicated);
        let asked_unequally =
            |dim: usize| union(gathered, moved).iter().any(|a| from.on(a) == Placement::Shard(dim));
        let spread = if scattered.is_empty() && reduced.is_empty() {
            axes(&|f, t| f == Placement::Replicated && t.sharded_dim().is_some_and(asked_unequally))
        } else {
            AxisSet::default()
        };
        let left = |dim: usize| {
            let axes = (0..mesh.rank())
                .filter(|&a| [from.on(a), to.on(a)].contains(&Placement::Shard(dim)));
            shape[dim] / axes.map(|a| mesh.axis_size(a)).product::<usize>().max(1)
        };
        // The first of the longest.
        let cut = (0..shape.len()).rev().max_by_key(|&dim| left(dim));
        Self { mesh, shape, from, to, gathered, moved, scattered, reduced, spread, cut }
    }

    /// The axes along which replicas share the sending.
    pub(crate) fn spread(&self) -> AxisSet {
        self.spread
    }

    /// Whether terms are combined, and how.
    fn combine(&self) -> Option<(Combine, Placement)> {
        let reducing = union(self.scattered, self.reduced);
        reducing.iter().next().map(|a| match self.from.on(a) {
            PendingMax => (Combine::Max, PendingMax),
            _ => (Combine::Sum, PendingSum),
        })
    }

    /// The ranks that `rank` meets in the first exchange differ from it along these axes.
    fn first(&self) -> AxisSet {
        if self.combine().is_some() {
            union(union(self.moved, self.scattered), self.reduced)
        } else {
            union(union(self.gathered, self.moved), self.spread)
        }
    }

    /// Along these axes in the second, if there is one.
    fn second(&self) -> AxisSet {
        if self.combine().is_some() {
            union(self.gathered, self.reduced)
        } else {
            AxisSet::default()
        }
    }

    /// Rounds of a rank that has something to send in each.
    pub(crate) fn rounds(&self) -> usize {
        let first = self.mesh.group_size(self.first()) - 1;
        let second = self.mesh.group_size(self.second()) - 1;
        first + second * self.mesh.group_size(self.moved)
    }

    fn part(&self, block: Block, part: Part) -> Block {
        let mut block = block;
        if let (Some(dim), true) = (self.cut, part.of > 1) {
            let range = &mut block.ranges[dim];
            let inner = split(range.len(), part.of, part.index);
            *range = range.start + inner.start..range.start + inner.end;
        }
        block
    }

    fn part_of(&self, axes: AxisSet, coords: &[usize]) -> Part {
        let rank = self.mesh.rank_at(coords);
        Part { of: self.mesh.group_size(axes), index: self.mesh.index_in_group(rank, axes) }
    }

    /// What `sender` gives `receiver` in the first exchange.
    fn piece(&self, sender: &[usize], receiver: &[usize]) -> Block {
        let source = block_at(self.shape, self.from, self.mesh, sender);
        let target = block_at(self.shape, self.to, self.mesh, receiver);
        let part = if self.combine().is_some() {
            self.part_of(self.reduced, receiver)
        } else {
            self.part_of(self.spread, sender)
        };
        self.part(source.intersect(&target), part)
    }

    /// Whether the receiver holds already what the sender could give it.
    fn has_it(&self, sender: &[usize], receiver: &[usize]) -> bool {
        self.combine().is_none()
            && union(self.gathered, self.moved).iter().all(|a| sender[a] == receiver[a])
    }

    /// What one rank does.
    pub(crate) fn of_rank(&self, rank: usize) -> RankSchedule {
        let coords = self.mesh.coords(rank);
        let mut rounds = Vec::new();
        let combine = self.combine();
        let group = self.mesh.group(rank, self.first());
        let me = self.mesh.index_in_group(rank, self.first());
        let p = group.len();
        for k in 1..p {
            let (next, previous) = (group[(me + k) % p], group[(me + p - k) % p]);
            let message = |from: &Coords, to: &Coords| {
                (!self.has_it(from, to)).then(|| self.piece(from, to)).filter(|b| !b.is_empty())
            };
            let out = message(&coords, &self.mesh.coords(next));
            let into = message(&self.mesh.coords(previous), &coords);
            let how = combine.map_or(Combine::Copy, |(combine, _)| combine);
            push(&mut rounds, (next, Buffer::Source, out), (previous, how, into));
        }
        let readers = self.mesh.group(rank, self.second());
        let me = self.mesh.index_in_group(rank, self.second());
        let p = readers.len();
        for k in 1..p {
            let (next, previous) = (readers[(me + k) % p], readers[(me + p - k) % p]);
            for holder in 0..self.mesh.group_size(self.moved) {
                let owned = |owner: usize| {
                    let owner = self.mesh.coords(owner);
                    let mut sender = owner.clone();
                    self.place(&mut sender, self.moved, holder);
                    Some(self.piece(&sender, &owner)).filter(|b| !b.is_empty())
                };
                let (out, into) = (owned(rank), owned(previous));
                push(&mut rounds, (next, Buffer::Result, out), (previous, Combine::Copy, into));
            }
        }
        let start = match combine {
            Some((_, pending)) => {
                Start::CopyInto { own: self.piece(&coords, &coords), fill: Some(pending) }
            }
            None => {
                let source = block_at(self.shape, self.from, self.mesh, &coords);
                let target = block_at(self.shape, self.to, self.mesh, &coords);
                Start::CopyInto { own: source.intersect(&target), fill: None }
            }
        };
        RankSchedule { start, rounds }
    }

    /// Sets the coordinates along some axes to those of the group's `index`-th rank.
    fn place(&self, coords: &mut Coords, axes: AxisSet, index: usize) {
        let mut rest = index;
        for axis in axes.iter().rev() {
            coords[axis] = rest % self.mesh.axis_size(axis);
            rest /= self.mesh.axis_size(axis);
        }
    }

    /// Elements that the rank at these coordinates sends.
    pub(crate) fn elements_sent_at(&self, coords: &Coords) -> u64 {
        let product = |side: Side, over: AxisSet, part: Part| -> u64 {
            (0..self.shape.len())
                .map(|dim| {
                    let part = if self.cut == Some(dim) { part } else { WHOLE };
                    self.overlaps(dim, coords, side, over, part) as u64
                })
                .product()
        };
        if self.combine().is_some() {
            let part = self.part_of(self.reduced, coords);
            let asked = product(Side::Target, union(self.moved, self.scattered), WHOLE);
            let own = product(Side::Target, AxisSet::default(), part);
            let readers = self.mesh.group_size(self.second()) as u64;
            let owned = if readers > 1 { product(Side::Source, self.moved, part) } else { 0 };
            asked - own + (readers - 1) * owned
        } else {
            let part = self.part_of(self.spread, coords);
            let readers = self.mesh.group_size(self.gathered) as u64;
            let asked = product(Side::Target, self.first(), part) * readers;
            asked - product(Side::Target, self.spread, part)
        }
    }

    /// Elements that the busiest rank sends; on more than [`MANY`] ranks of which none is found to attain it, a bound.
    pub(crate) fn elements_sent(&self) -> u64 {
        // Along an axis that takes no part, coordinate 0 has the largest blocks and sends the most.
        let changes = (0..self.mesh.rank())
            .filter(|&a| self.mesh.axis_size(a) > 1 && self.from.on(a) != self.to.on(a))
            .collect();
        let touched = union(changes, self.moved);
        let ranks = self.mesh.group_size(touched);
        if ranks > FEW
            && let Some(most) = self.elements_sent_at_a_corner(touched)
        {
            return most;
        }
        if ranks > MANY {
            return self.bound();
        }
        let mut coords = self.mesh.coords(0);
        (0..ranks)
            .map(|index| {
                self.place(&mut coords, touched, index);
                self.elements_sent_at(&coords)
            })
            .max()
            .unwrap_or(0)
    }

    /// The most that a rank with the first or last coordinate along each axis sends, if no rank can send more.
    ///
    /// No rank is asked for more than the largest block times the readers, keeps less than the smallest blocks of the dims
    /// that only one side splits, or owns more than the largest target block cut into parts. Where a corner attains
    /// that, the other ranks need no look. On even blocks one mostly does.
    fn elements_sent_at_a_corner(&self, touched: AxisSet) -> Option<u64> {
        let axes: Vec<usize> = touched.iter().collect();
        let mut coords = self.mesh.coords(0);
        let most = (0..1_usize << axes.len())
            .map(|bits| {
                for (i, &axis) in axes.iter().enumerate() {
                    coords[axis] =
                        if bits >> i & 1 == 1 { self.mesh.axis_size(axis) - 1 } else { 0 };
                }
                self.elements_sent_at(&coords)
            })
            .max()?;
        (most == self.bound()).then_some(most)
    }

    /// No rank sends more than this.
    fn bound(&self) -> u64 {
        let first = self.mesh.coords(0);
        let last: Coords = self.mesh.axes().iter().map(|a| a.size - 1).collect();
        let extent = |layout: &Layout, dim: usize, coords: &Coords| {
            nested_split(self.shape[dim], self.mesh, layout.axes_sharding(dim), coords).len()
        };
        let reducing = self.combine().is_some();
        let parts = self.mesh.group_size(if reducing { self.reduced } else { self.spread });
        let (mut asked, mut kept, mut owned) = (1, 1, 1);
        for dim in 0..self.shape.len() {
            let cut = self.cut == Some(dim);
            let whole = self.shape[dim];
            let (source, target) = (extent(self.from, dim, &first), extent(self.to, dim, &first));
            let (least_source, least_target) =
                (extent(self.from, dim, &last), extent(self.to, dim, &last));
            // A sum of parts of so many intersections; exact where all boundaries are multiples of the number of parts.
            let sizes = |layout: &Layout| -> usize {
                layout.axes_sharding(dim).map(|a| self.mesh.axis_size(a)).product()
            };
            let even = whole.is_multiple_of(sizes(self.from) * sizes(self.to) * parts);
            let share = |n: usize, pieces: usize| match (cut, even) {
                (false, _) => n,
                (true, true) => n / parts,
                (true, false) => (n + pieces * (parts - 1)) / parts,
            };
            // What is asked for along a dim that only the own coordinate splits is the own target block.
            let fixed = self.to.axes_sharding(dim).all(|a| !self.first().contains(a));
            let (asked_here, pieces) =
                if fixed { (source.min(target), 1) } else { (source, sizes(self.to)) };
            asked *= if reducing { asked_here } else { share(asked_here, pieces) } as u64;
            let least = if source == whole {
                least_target
            } else if self.to.axes_sharding(dim).all(|a| self.spread.contains(a)) {
                least_source
            } else {
                0
            };
            kept *= if cut { least / parts } else { least } as u64;
            let of_source = self.from.axes_sharding(dim).any(|a| self.moved.contains(a));
            let (owned_here, pieces) =
                if of_source { (target, sizes(self.from)) } else { (source.min(target), 1) };
            owned *= share(owned_here, pieces) as u64;
        }
        let readers = self.mesh.group_size(if reducing { self.second() } else { self.gathered });
        if reducing {
            asked - kept.min(asked) + (readers as u64 - 1) * owned
        } else {
            asked * readers as u64 - kept.min(asked)
        }
    }

    /// The sum of the lengths, along one dim, of the intersections of source and target blocks, where one side runs over
    /// the ranks along some axes and the other stays at `coords`.
    fn overlaps(
        &self,
        dim: usize,
        coords: &Coords,
        side: Side,
        over: AxisSet,
        part: Part,
    ) -> usize {
        let (fixed, running) = match side {
            Side::Source => (self.to, self.from),
            Side::Target => (self.from, self.to),
        };
        let n = self.shape[dim];
        let fixed = nested_split(n, self.mesh, fixed.axes_sharding(dim), coords);
        let real = |a: &usize| self.mesh.axis_size(*a) > 1;
        let axes: AxisSet =
            running.axes_sharding(dim).filter(|&a| real(&a) && over.contains(a)).collect();
        if part.of == 1 && running.axes_sharding(dim).filter(real).count() == axes.len() {
            return fixed.len();
        }
        let mut at = coords.clone();
        (0..self.mesh.group_size(axes))
            .map(|index| {
                self.place(&mut at, axes, index);
                let other = nested_split(n, self.mesh, running.axes_sharding(dim), &at);
                let (start, end) = (fixed.start.max(other.start), fixed.end.min(other.end));
                split(end.saturating_sub(start), part.of, part.index).len()
            })
            .sum()
    }
}

fn push(
    rounds: &mut Vec<Round>,
    (to, buffer, out): (usize, Buffer, Option<Block>),
    (from, combine, into): (usize, Combine, Option<Block>),
) {
    let send = out.map(|block| Send { to, buffer, region: Region::Box(block) });
    let receive = into.map(|block| Receive { from, region: Region::Box(block), combine });
    if send.is_some() || receive.is_some() {
        rounds.push(Round { number: rounds.len(), send, receive });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transition::{Transition, TransitionKind, all_layouts};

    /// The bound holds on every pair, and is attained often enough on even blocks to be of use.
    #[test]
    fn corners_attain_the_bound_on_most_even_blocks() {
        let (mut pairs, mut attained) = (0, 0);
        for (mesh, shape, even) in [
            ("a=2,b=2", [16, 16], true),
            ("a=2,b=3", [36, 72], true),
            ("a=2,b=2,c=2", [64, 64], true),
            ("a=2,b=3", [5, 7], false),
            ("a=3,b=2", [1, 4], false),
            ("a=2,b=2,c=2", [5, 3], false),
        ] {
            let mesh: Mesh = mesh.parse().unwrap();
            let layouts = all_layouts(&mesh, 2, true);
            for (from, to) in layouts.iter().flat_map(|f| layouts.iter().map(move |t| (f, t))) {
                match Transition::between(&mesh, from, to) {
                    Ok(t) if t.kind == TransitionKind::Reshard => {}
                    _ => continue,
                }
                let reshard = Reshard::new(&mesh, &shape, from, to);
                let most = reshard.elements_sent();
                let at = format!("{mesh} {shape:?} {from:?} {to:?}");
                assert!(reshard.bound() >= most, "{at}: {} < {most}", reshard.bound());
                let sent = |rank| reshard.elements_sent_at(&mesh.coords(rank));
                assert_eq!((0..mesh.size()).map(sent).max(), Some(most), "{at}");
                let corner = reshard.elements_sent_at_a_corner(mesh.all_axes());
                assert!(corner.is_none_or(|c| c == most), "{at}");
                if even {
                    pairs += 1;
                    attained += usize::from(corner.is_some());
                }
            }
        }
        assert_eq!((pairs, attained), (1866, 1138));
    }

    /// Counting on a hundred thousand devices takes no loop over them.
    #[test]
    fn large_meshes_are_counted_at_their_corners() {
        let mesh: Mesh = "a=320,b=320".parse().unwrap();
        let layout = |a: &str, b: &str| Layout::parse(&format!("a: {a}, b: {b}"), &mesh).unwrap();
        let rows = 320 * 320;
        let n = (rows * rows) as u64;
        let (part, shape) = (n / 320 / 320, [rows, rows]);
        for (from, to, sent) in [
            (layout("P", "S(0)"), layout("R", "R"), n / 320 - part + (320 * 320 - 1) * part),
            (layout("S(0)", "R"), layout("R", "S(0)"), n / 320 - part),
            (layout("S(0)", "S(1)"), layout("S(1)", "S(0)"), part),
        ] {
            let reshard = Reshard::new(&mesh, &shape, &from, &to);
            let found = reshard.elements_sent_at_a_corner(mesh.all_axes());
            assert_eq!(found, Some(sent), "{from:?} {to:?}");
        }
    }
}
