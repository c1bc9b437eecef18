//! Announcements: each rank of a group says which collective it begins, and the first who disagrees finds out.
//!
//! Messages tell ranks apart that exchange some. An announcement does so for all: also where a rank has nothing to send or
//! to receive (an empty block), and where the other one is far ahead. The first rank of a group that comes to a number
//! fixes what the collective is; whoever comes later is compared with it; the last one removes the entry.

use std::collections::BTreeMap;

use shardgrad_core::AxisSet;
use smallvec::SmallVec;

use crate::comm::CollectiveId;
use crate::sync::{Mutex, lock};

/// A group: the axes it runs along, its first rank and its size.
type Group = (AxisSet, usize, usize);

#[derive(Default)]
pub(crate) struct Announcements(Mutex<BTreeMap<Group, Vec<Open>>>);

/// A collective that not all ranks of its group have begun.
struct Open {
    id: CollectiveId,
    /// The rank that was first.
    first: usize,
    /// Those who have not come.
    missing: SmallVec<[usize; 4]>,
    /// Ranks that have no part in it and wait until all have come.
    idle: SmallVec<[usize; 4]>,
}

/// What an announcement finds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// All agree so far, and this one is not yet there.
    Missing(usize),
    /// All are there.
    All,
    /// Another rank said something else.
    Disagrees(usize, CollectiveId),
}

fn key(id: &CollectiveId, group: &[usize]) -> Group {
    (id.axes, group.first().copied().unwrap_or(0), group.len())
}

impl Announcements {
    /// `rank`, of `group`, begins a collective, in which it may be idle. Returns what it finds, and the idle ranks that
    /// want to know.
    pub(crate) fn announce(
        &self,
        rank: usize,
        group: &[usize],
        id: CollectiveId,
        idle: bool,
    ) -> (Heard, SmallVec<[usize; 4]>) {
        let mut groups = lock(&self.0);
        let open = groups.entry(key(&id, group)).or_default();
        let at = open.iter().position(|o| o.id.sequence == id.sequence).unwrap_or_else(|| {
            let missing = group.iter().copied().collect();
            open.push(Open { id, first: rank, missing, idle: SmallVec::new() });
            open.len() - 1
        });
        let entry = &mut open[at];
        if entry.id != id {
            return (Heard::Disagrees(entry.first, entry.id), SmallVec::new());
        }
        entry.missing.retain(|r| *r != rank);
        let waiting = entry.idle.clone();
        match entry.missing.first() {
            Some(&next) => {
                if idle {
                    entry.idle.push(rank);
                }
                (Heard::Missing(next), waiting)
            }
            None => {
                open.remove(at);
                (Heard::All, waiting)
            }
        }
    }

    /// Whether a rank has not begun a collective of its group that others have.
    pub(crate) fn lacks(&self, rank: usize, id: CollectiveId) -> bool {
        let groups = lock(&self.0);
        groups.values().flatten().any(|open| open.id == id && open.missing.contains(&rank))
    }

    /// A rank of the group that has not begun the collective.
    pub(crate) fn missing(&self, group: &[usize], id: CollectiveId) -> Option<usize> {
        let groups = lock(&self.0);
        let open = groups.get(&key(&id, group))?.iter().find(|o| o.id == id)?;
        open.missing.first().copied()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use shardgrad_core::{DType, TransitionKind};

    fn id(sequence: u64, elements: usize) -> CollectiveId {
        let axes = AxisSet::single(0);
        CollectiveId {
            sequence,
            kind: TransitionKind::AllReduce,
            axes,
            dtype: DType::F32,
            elements,
        }
    }

    #[test]
    fn whoever_comes_later_is_compared_with_the_first() {
        let told = Announcements::default();
        let group = [1, 3, 5];
        let tell = |rank, id| told.announce(rank, &group, id, rank == 3);
        let waiting = |ranks: &[usize]| ranks.iter().copied().collect();
        assert_eq!(tell(3, id(0, 4)), (Heard::Missing(1), waiting(&[])));
        // Far ahead of the others.
        assert_eq!(tell(3, id(1, 4)), (Heard::Missing(1), waiting(&[])));
        assert_eq!(tell(1, id(0, 4)), (Heard::Missing(5), waiting(&[3])));
        assert!(!told.lacks(1, id(0, 4)) && told.lacks(1, id(1, 4)) && told.lacks(5, id(0, 4)));
        assert_eq!(tell(5, id(0, 5)).0, Heard::Disagrees(3, id(0, 4)));
        assert_eq!(told.missing(&group, id(0, 4)), Some(5));
        assert_eq!(tell(5, id(0, 4)), (Heard::All, waiting(&[3])));
        assert_eq!(told.missing(&group, id(0, 4)), None);
        // Other groups along the same axes have collectives of their own.
        assert_eq!(told.announce(0, &[0, 2], id(0, 9), false).0, Heard::Missing(2));
        assert_eq!(told.announce(7, &[7], id(0, 9), false).0, Heard::All);
    }
}
