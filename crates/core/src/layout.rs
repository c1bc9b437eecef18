//! Layouts: one placement per mesh axis, in mesh order. Text form: `[dp: S(0), tp: R]`.

use std::fmt;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::error::Error;
use crate::mesh::Mesh;
use crate::placement::Placement;

/// How a tensor lies on a mesh: one placement per axis, in mesh order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Layout(pub SmallVec<[Placement; 4]>);

impl Layout {
    /// The layout that replicates over every axis of a mesh of this rank.
    #[must_use]
    pub fn replicated(mesh_rank: usize) -> Self {
        Self(SmallVec::from_elem(Placement::Replicated, mesh_rank))
    }

    /// The placement on one axis.
    #[must_use]
    pub fn on(&self, axis: usize) -> Placement {
        self.0[axis]
    }

    /// The same layout with another placement on one axis.
    #[must_use]
    pub fn with(&self, axis: usize, placement: Placement) -> Self {
        let mut layout = self.clone();
        layout.0[axis] = placement;
        layout
    }

    /// Placements in mesh order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Placement> + '_ {
        self.0.iter().copied()
    }

    /// Whether a reduction is outstanding on some axis.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.iter().any(Placement::is_pending)
    }

    /// The axes that shard a dim, in mesh order.
    pub fn axes_sharding(&self, dim: usize) -> impl DoubleEndedIterator<Item = usize> + '_ {
        self.0.iter().enumerate().filter(move |(_, p)| **p == Placement::Shard(dim)).map(|(a, _)| a)
    }

    /// Checks that the layout fits a mesh and a tensor rank, and does not mix `P` with `Pmax`.
    ///
    /// # Errors
    /// Names what does not fit.
    pub fn validate(&self, mesh: &Mesh, tensor_rank: usize) -> Result<(), Error> {
        if self.0.len() != mesh.rank() {
            return Err(Error::LayoutRank { found: self.0.len(), mesh: mesh.to_string() });
        }
        if let Some((axis, dim)) = self
            .iter()
            .enumerate()
            .find_map(|(a, p)| p.sharded_dim().filter(|&d| d >= tensor_rank).map(|d| (a, d)))
        {
            return Err(Error::NoSuchDim {
                dim,
                axis: mesh.axes()[axis].name.clone(),
                rank: tensor_rank,
            });
        }
        if self.0.contains(&Placement::PendingSum) && self.0.contains(&Placement::PendingMax) {
            return Err(Error::MixedPending { layout: self.display(mesh).to_string() });
        }
        Ok(())
    }

    /// Parses `[dp: S(0), tp: R]`, brackets optional; an axis that is not named is replicated.
    ///
    /// # Errors
    /// Unknown or repeated axes and ill-formed placements, by name.
    pub fn parse(text: &str, mesh: &Mesh) -> Result<Self, Error> {
        text.parse::<LayoutSpec>()?.resolve(mesh, &Self::replicated(mesh.rank()))
    }

    /// The text form, with the names of the mesh's axes.
    #[must_use]
    pub fn display<'a>(&'a self, mesh: &'a Mesh) -> impl fmt::Display + 'a {
        DisplayLayout { layout: self, mesh }
    }
}

struct DisplayLayout<'a> {
    layout: &'a Layout,
    mesh: &'a Mesh,
}

impl fmt::Display for DisplayLayout<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, (axis, placement)) in self.mesh.axes().iter().zip(self.layout.iter()).enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{}: {placement}", axis.name)?;
        }
        f.write_str("]")
    }
}

/// A layout by axis names, before it meets a mesh: what users write for pins. Axes may be missing.
///
/// ```
/// use shardgrad_core::{Layout, LayoutSpec, Mesh};
/// let spec: LayoutSpec = "tp: S(1)".parse()?;
/// let mesh = Mesh::new([("dp", 2), ("tp", 2)])?;
/// let layout = spec.resolve(&mesh, &Layout::parse("dp: S(0)", &mesh)?)?;
/// assert_eq!(layout.display(&mesh).to_string(), "[dp: S(0), tp: S(1)]");
/// # Ok::<(), shardgrad_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayoutSpec(pub Vec<(String, Placement)>);

impl LayoutSpec {
    /// The layout on a mesh; axes that are not named take their placement from `fallback`.
    ///
    /// # Errors
    /// An axis the mesh does not have.
    pub fn resolve(&self, mesh: &Mesh, fallback: &Layout) -> Result<Layout, Error> {
        let mut layout = fallback.clone();
        for (name, placement) in &self.0 {
            layout.0[mesh.axis(name)?] = *placement;
        }
        Ok(layout)
    }

    /// Whether a layout has every placement that is named here.
    #[must_use]
    pub fn matches(&self, layout: &Layout, mesh: &Mesh) -> bool {
        self.0.iter().all(|(name, p)| mesh.axis(name).is_ok_and(|axis| layout.on(axis) == *p))
    }
}

impl From<(&Layout, &Mesh)> for LayoutSpec {
    /// The spec that names every axis.
    fn from((layout, mesh): (&Layout, &Mesh)) -> Self {
        Self(mesh.axes().iter().map(|a| a.name.clone()).zip(layout.iter()).collect())
    }
}

impl std::str::FromStr for LayoutSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || Error::BadLayout { found: text.to_owned() };
        let trimmed = text.trim();
        let inner = match trimmed.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').ok_or_else(bad)?,
            None => trimmed,
        };
        let mut entries: Vec<(String, Placement)> = Vec::new();
        if inner.trim().is_empty() {
            return Ok(Self(entries));
        }
        for part in inner.split(',') {
            let (axis, placement) = part.split_once(':').ok_or_else(bad)?;
            let axis = axis.trim().to_owned();
            if entries.iter().any(|(name, _)| *name == axis) {
                return Err(Error::RepeatedAxis { axis });
            }
            entries.push((axis, placement.parse()?));
        }
        Ok(Self(entries))
    }
}

impl fmt::Display for LayoutSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, (axis, placement)) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{axis}: {placement}")?;
        }
        f.write_str("]")
    }
}

impl Serialize for LayoutSpec {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LayoutSpec {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips() {
        let mesh = Mesh::new([("dp", 2), ("tp", 2)]).unwrap();
        let all = [
            Placement::Replicated,
            Placement::Shard(0),
            Placement::Shard(1),
            Placement::PendingSum,
            Placement::PendingMax,
        ];
        for a in all {
            for b in all {
                let layout = Layout([a, b].into_iter().collect());
                let text = layout.display(&mesh).to_string();
                assert_eq!(Layout::parse(&text, &mesh).unwrap(), layout);
            }
        }
    }

    #[test]
    fn bad_layouts_are_refused_by_name() {
        let mesh = Mesh::new([("tp", 2)]).unwrap();
        for text in ["[tp: R", "tp", "dp: R", "tp: R, tp: R", "tp: S(x)", "tp: R,", "]"] {
            assert!(Layout::parse(text, &mesh).is_err(), "{text}");
        }
        assert!(Layout::parse("tp: S(2)", &mesh).unwrap().validate(&mesh, 2).is_err());
    }
}
