//! A mesh: a named grid of devices. Ranks are row-major over its axes.

use std::fmt;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::error::Error;

/// Most axes a mesh can have; an [`AxisSet`] is a bit per axis.
pub const MAX_AXES: usize = 8;

/// Most devices a mesh can have: room for planning on paper, and no overflow in rank arithmetic.
pub const MAX_DEVICES: usize = 1 << 24;

/// Position of a rank along every axis of a mesh.
pub type Coords = SmallVec<[usize; 4]>;

/// One named axis of a mesh.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Axis {
    /// Name of the axis: letters, digits, `_` or `-`, starting with a letter.
    #[serde(rename = "axis")]
    pub name: String,
    /// Number of devices along the axis.
    pub size: usize,
}

/// A named grid of devices.
///
/// ```
/// use shardgrad_core::Mesh;
/// let mesh = Mesh::new([("dp", 2), ("tp", 3)])?;
/// assert_eq!(mesh.size(), 6);
/// assert_eq!(mesh.coords(4).as_slice(), &[1, 1]);
/// assert_eq!(mesh, "dp=2, tp=3".parse()?);
/// # Ok::<(), shardgrad_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<Axis>", into = "Vec<Axis>")]
pub struct Mesh {
    axes: Vec<Axis>,
}

impl Mesh {
    /// A mesh of the given axes, outermost first.
    ///
    /// # Errors
    /// No axis, more than [`MAX_AXES`], an axis of size 0, an ill-formed or repeated name, or too many devices.
    pub fn new<N: Into<String>>(axes: impl IntoIterator<Item = (N, usize)>) -> Result<Self, Error> {
        let axes: Vec<Axis> =
            axes.into_iter().map(|(name, size)| Axis { name: name.into(), size }).collect();
        Self::try_from(axes)
    }

    /// The axes, outermost first.
    #[must_use]
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// Number of axes.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.axes.len()
    }

    /// Number of devices.
    #[must_use]
    pub fn size(&self) -> usize {
        self.axes.iter().map(|a| a.size).product()
    }

    /// Number of devices along one axis.
    #[must_use]
    pub fn axis_size(&self, axis: usize) -> usize {
        self.axes[axis].size
    }

    /// The mesh of the same axes on which all but one have one device.
    #[must_use]
    pub fn only(&self, axis: usize) -> Self {
        let of = |(i, a): (usize, &Axis)| {
            let size = if i == axis { a.size } else { 1 };
            Axis { name: a.name.clone(), size }
        };
        Self { axes: self.axes.iter().enumerate().map(of).collect() }
    }

    /// Index of the axis with this name.
    ///
    /// # Errors
    /// No axis has the name; the error lists those there are.
    pub fn axis(&self, name: &str) -> Result<usize, Error> {
        self.axes.iter().position(|a| a.name == name).ok_or_else(|| Error::UnknownAxis {
            found: name.to_owned(),
            known: self.axes.iter().map(|a| a.name.as_str()).collect::<Vec<_>>().join(", "),
        })
    }

    /// All axes of the mesh.
    #[must_use]
    pub fn all_axes(&self) -> AxisSet {
        (0..self.rank()).collect()
    }

    /// Position of a rank along every axis.
    #[must_use]
    pub fn coords(&self, rank: usize) -> Coords {
        let mut rest = rank;
        let mut coords: Coords = self
            .axes
            .iter()
            .rev()
            .map(|a| {
                let c = rest % a.size;
                rest /= a.size;
                c
            })
            .collect();
        coords.reverse();
        coords
    }

    /// Rank at a position; the inverse of [`Mesh::coords`].
    #[must_use]
    pub fn rank_at(&self, coords: &[usize]) -> usize {
        self.axes.iter().zip(coords).fold(0, |rank, (axis, &c)| rank * axis.size + c)
    }

    /// Number of ranks in a group over these axes.
    #[must_use]
    pub fn group_size(&self, axes: AxisSet) -> usize {
        axes.iter().map(|a| self.axes[a].size).product()
    }

    /// The ranks that differ from `rank` along these axes only, `rank` included, row-major over the axes.
    #[must_use]
    pub fn group(&self, rank: usize, axes: AxisSet) -> Vec<usize> {
        let mut coords = self.coords(rank);
        let members: SmallVec<[usize; 4]> = axes.iter().collect();
        (0..self.group_size(axes))
            .map(|i| {
                let mut rest = i;
                for &a in members.iter().rev() {
                    coords[a] = rest % self.axes[a].size;
                    rest /= self.axes[a].size;
                }
                self.rank_at(&coords)
            })
            .collect()
    }

    /// Position of `rank` within [`Mesh::group`] over these axes.
    #[must_use]
    pub fn index_in_group(&self, rank: usize, axes: AxisSet) -> usize {
        let coords = self.coords(rank);
        axes.iter().fold(0, |i, a| i * self.axes[a].size + coords[a])
    }

    /// Names of some axes, as in `dp, tp`.
    #[must_use]
    pub fn axis_names(&self, axes: AxisSet) -> String {
        axes.iter().map(|a| self.axes[a].name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

impl TryFrom<Vec<Axis>> for Mesh {
    type Error = Error;

    fn try_from(axes: Vec<Axis>) -> Result<Self, Error> {
        if axes.is_empty() || axes.len() > MAX_AXES {
            return Err(Error::MeshRank { found: axes.len() });
        }
        let mut size = 1_usize;
        for (i, axis) in axes.iter().enumerate() {
            let mut chars = axis.name.chars();
            let well_formed = chars.next().is_some_and(|c| c.is_ascii_alphabetic())
                && chars.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
            if !well_formed {
                return Err(Error::BadAxisName { found: axis.name.clone() });
            }
            if axes[..i].iter().any(|other| other.name == axis.name) {
                return Err(Error::RepeatedAxis { axis: axis.name.clone() });
            }
            if axis.size == 0 {
                return Err(Error::EmptyAxis { axis: axis.name.clone() });
            }
            size = size
                .checked_mul(axis.size)
                .filter(|&n| n <= MAX_DEVICES)
                .ok_or(Error::MeshTooLarge { limit: MAX_DEVICES })?;
        }
        Ok(Self { axes })
    }
}

impl From<Mesh> for Vec<Axis> {
    fn from(mesh: Mesh) -> Self {
        mesh.axes
    }
}

impl std::str::FromStr for Mesh {
    type Err = Error;

    /// Parses `dp=2, tp=4`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let axes = text
            .split(',')
            .map(|part| {
                let bad = || Error::BadMesh { found: part.trim().to_owned() };
                let (name, size) = part.split_once('=').ok_or_else(bad)?;
                Ok((name.trim().to_owned(), size.trim().parse().map_err(|_| bad())?))
            })
            .collect::<Result<Vec<_>, Error>>()?;
        Mesh::new(axes)
    }
}

impl fmt::Display for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, axis) in self.axes.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{}={}", axis.name, axis.size)?;
        }
        Ok(())
    }
}

/// A set of mesh axes, iterated in mesh order.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct AxisSet(u8);

impl AxisSet {
    /// The set of one axis.
    #[must_use]
    pub fn single(axis: usize) -> Self {
        Self(1 << axis)
    }

    /// Whether the axis is in the set.
    #[must_use]
    pub fn contains(self, axis: usize) -> bool {
        axis < MAX_AXES && self.0 & (1 << axis) != 0
    }

    /// The set with this axis added.
    #[must_use]
    pub fn with(self, axis: usize) -> Self {
        Self(self.0 | 1 << axis)
    }

    /// Whether the set has no axis.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Number of axes in the set.
    #[must_use]
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether some axis is in both.
    #[must_use]
    pub fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The axes, in mesh order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = usize> + Clone {
        (0..MAX_AXES).filter(move |&a| self.contains(a))
    }
}

impl FromIterator<usize> for AxisSet {
    fn from_iter<I: IntoIterator<Item = usize>>(axes: I) -> Self {
        axes.into_iter().fold(Self::default(), Self::with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_row_major_and_groups_partition_them() {
        let mesh = Mesh::new([("a", 2), ("b", 3), ("c", 2)]).unwrap();
        for rank in 0..mesh.size() {
            assert_eq!(mesh.rank_at(&mesh.coords(rank)), rank);
            for bits in 0..8_usize {
                let axes: AxisSet = (0..3).filter(|a| bits >> a & 1 == 1).collect();
                let group = mesh.group(rank, axes);
                assert_eq!(group.len(), mesh.group_size(axes));
                assert_eq!(group[mesh.index_in_group(rank, axes)], rank);
                assert!(group.is_sorted());
            }
        }
        assert_eq!(mesh.group(1, AxisSet::single(1)), [1, 3, 5]);
    }

    #[test]
    fn bad_meshes_are_refused() {
        for text in
            ["", "tp", "tp=0", "tp=x", "tp=2,tp=2", "2=2", "a b=2", "tp=-1", "tp=99999999999"]
        {
            assert!(text.parse::<Mesh>().is_err(), "{text}");
        }
    }
}
