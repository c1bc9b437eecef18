//! What a user asks for: a preset per axis, splits of layers, pins of values, and what is left free.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use shardgrad_core::{LayoutSpec, Mesh};

use crate::error::Error;
use crate::presets::{Preset, Split};

/// What the planner may decide beyond what presets leave open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Free {
    /// Nothing more.
    #[default]
    Nothing,
    /// The splits of layers: the least communication for data that lies as the presets say.
    Splits,
    /// Everything that is not pinned, as `auto` on every axis.
    All,
}

/// Presets as they were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presets {
    /// One preset without an axis, for a mesh of one axis; `auto` for any mesh.
    Alone(Preset),
    /// A preset per named axis; axes that are not named are replicated.
    ByAxis(BTreeMap<String, Preset>),
}

/// A request for a layout: `dp=data, tp=megatron`, with splits, pins and freedom added.
///
/// Precedence per value and axis: pins, then splits, then presets.
///
/// ```
/// use shardgrad_core::Mesh;
/// use shardgrad_planner::LayoutRequest;
/// let request: LayoutRequest = "dp=data, tp=megatron".parse()?;
/// let request = request.pin("grad(x)", "tp: S(0)".parse()?);
/// assert_eq!(request.describe(&Mesh::new([("dp", 2), ("tp", 2)])?)?, "dp=data, tp=megatron");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutRequest {
    /// A preset per axis.
    pub presets: Presets,
    /// Splits by layer and axis.
    pub splits: BTreeMap<usize, BTreeMap<String, Split>>,
    /// Layouts of values by name; an axis that is not named falls to the preset.
    pub pins: BTreeMap<String, LayoutSpec>,
    /// What the planner may decide beyond.
    pub free: Free,
}

impl Default for LayoutRequest {
    /// Replicated on every axis.
    fn default() -> Self {
        Self::by_axis(BTreeMap::new())
    }
}

impl LayoutRequest {
    /// One preset, for a mesh of one axis; `auto` for any mesh.
    #[must_use]
    pub fn alone(preset: Preset) -> Self {
        Self {
            presets: Presets::Alone(preset),
            splits: BTreeMap::new(),
            pins: BTreeMap::new(),
            free: Free::Nothing,
        }
    }

    /// Presets by axis.
    #[must_use]
    pub fn by_axis(presets: BTreeMap<String, Preset>) -> Self {
        Self { presets: Presets::ByAxis(presets), ..Self::alone(Preset::Replicated) }
    }

    /// `auto` on every axis.
    #[must_use]
    pub fn auto() -> Self {
        Self { free: Free::All, ..Self::default() }
    }

    /// With a value pinned.
    #[must_use]
    pub fn pin(mut self, name: &str, spec: LayoutSpec) -> Self {
        self.pins.insert(name.to_owned(), spec);
        self
    }

    /// With a layer's split fixed on an axis.
    #[must_use]
    pub fn split(mut self, layer: usize, axis: &str, split: Split) -> Self {
        self.splits.entry(layer).or_default().insert(axis.to_owned(), split);
        self
    }

    /// With more freedom.
    #[must_use]
    pub fn free(mut self, free: Free) -> Self {
        self.free = free;
        self
    }

    /// The preset of every axis of a mesh, in mesh order.
    ///
    /// # Errors
    /// An axis that the mesh does not have; a preset other than `auto` without an axis on a mesh of several.
    pub fn on_mesh(&self, mesh: &Mesh) -> Result<Vec<Preset>, Error> {
        if self.free == Free::All {
            return Ok(vec![Preset::Auto; mesh.rank()]);
        }
        match &self.presets {
            Presets::Alone(preset) if mesh.rank() == 1 || *preset == Preset::Auto => {
                Ok(vec![*preset; mesh.rank()])
            }
            Presets::Alone(preset) => Err(Error::AxisMissing {
                preset: preset.name(),
                axes: mesh.axes().iter().map(|a| a.name.as_str()).collect::<Vec<_>>().join(", "),
            }),
            Presets::ByAxis(named) => {
                let mut presets = vec![Preset::Replicated; mesh.rank()];
                for (name, preset) in named {
                    presets[mesh.axis(name)?] = *preset;
                }
                Ok(presets)
            }
        }
    }

    /// The request as printed: every axis in mesh order.
    ///
    /// # Errors
    /// As [`LayoutRequest::on_mesh`].
    pub fn describe(&self, mesh: &Mesh) -> Result<String, Error> {
        let presets = self.on_mesh(mesh)?;
        let all_free = presets.iter().all(|preset| *preset == Preset::Auto);
        let parts: Vec<String> =
            mesh.axes().iter().zip(presets).map(|(axis, p)| format!("{}={p}", axis.name)).collect();
        let free = if self.free == Free::Splits && !all_free { " (free splits)" } else { "" };
        Ok(format!("{}{free}", parts.join(", ")))
    }
}

impl FromStr for LayoutRequest {
    type Err = Error;

    /// Parses `dp=data, tp=megatron`, or a preset alone.
    fn from_str(text: &str) -> Result<Self, Error> {
        if !text.contains(['=', ',']) {
            return Ok(Self::alone(text.parse()?));
        }
        let mut presets = BTreeMap::new();
        for part in text.split(',') {
            let (axis, preset) =
                part.split_once('=').ok_or_else(|| Error::BadRequest { found: text.to_owned() })?;
            let axis = axis.trim();
            if axis.is_empty() {
                return Err(Error::BadRequest { found: text.to_owned() });
            }
            if presets.insert(axis.to_owned(), preset.parse()?).is_some() {
                return Err(Error::RepeatedAxis { axis: axis.to_owned(), found: text.to_owned() });
            }
        }
        Ok(Self::by_axis(presets))
    }
}

impl fmt::Display for LayoutRequest {
    /// As it was written, presets only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.presets {
            Presets::Alone(preset) => preset.fmt(f),
            Presets::ByAxis(named) => {
                let parts: Vec<String> = named.iter().map(|(a, p)| format!("{a}={p}")).collect();
                f.write_str(&parts.join(", "))
            }
        }
    }
}
