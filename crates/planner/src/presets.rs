//! Presets: named ways to lay a model out over one mesh axis. One table: [`Preset::split`] and
//! [`Preset::stored`].
//!
//! | preset | splits | parameters | x, y |
//! |---|---|---|---|
//! | `replicated` | none | `R` | `R` |
//! | `data` | batch | `R` | `S(0)` |
//! | `column` | out | W `S(1)`, b `S(0)` | `R` |
//! | `row` | in | W `S(0)`, b `R` | `R` |
//! | `megatron` | out, in, out, in … | as column, row, … | `R` |
//! | `megatron-sp` | the same | the same; what leaves each pair is pinned `S(0)` | `S(0)` |
//! | `fsdp` | batch | first free dim, optimizer state too | `S(0)` |
//! | `zero1` | batch | `R`, optimizer state on its first free dim | `S(0)` |
//! | `auto` | free | free | free |
//!
//! Sources: Megatron-LM (Shoeybi et al. 2019; Korthikanti et al. 2022 for sequence parallelism), ZeRO (Rajbhandari et
//! al. 2020), FSDP (Zhao et al. 2023).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use shardgrad_core::Placement::{self, Replicated, Shard};

use crate::error::Error;

/// How a layer's three contractions share their work over one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Split {
    /// By rows of the batch: data parallel.
    Batch,
    /// By input features: row parallel.
    In,
    /// By output features: column parallel.
    Out,
    /// Not at all: every rank repeats the work.
    None,
}

impl Split {
    /// All splits.
    pub const ALL: [Split; 4] = [Split::Batch, Split::In, Split::Out, Split::None];

    /// Name as written in model files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Split::Batch => "batch",
            Split::In => "in",
            Split::Out => "out",
            Split::None => "none",
        }
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Split {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|s| s.name() == text.trim());
        known.ok_or_else(|| Error::UnknownSplit { found: text.to_owned() })
    }
}

impl Serialize for Split {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Split {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A stored value, as far as presets tell values apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// An input or a target.
    Input,
    /// The weight `[in, out]` of the layer with this index.
    Weight(usize),
    /// The bias `[out]` of the layer with this index.
    Bias(usize),
    /// A parameter of no layer.
    Other,
}

/// What a preset says of a stored value on its axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// This placement.
    Is(Placement),
    /// Sharded along the first dim that no other axis shards; `R` if there is none.
    FirstFreeDim,
    /// The planner decides.
    Free,
}

/// A named way to lay a model out over one mesh axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Preset {
    /// Every rank does everything.
    Replicated,
    /// Data parallel.
    Data,
    /// Every layer by output features.
    Column,
    /// Every layer by input features.
    Row,
    /// Layers alternate: by output features, by input features.
    Megatron,
    /// The same, with what leaves each pair of layers sharded over the batch.
    MegatronSp,
    /// Fully sharded data parallel.
    Fsdp,
    /// Data parallel with sharded optimizer state.
    Zero1,
    /// Whatever costs least.
    Auto,
}

impl Preset {
    /// All presets, in the order of the table.
    pub const ALL: [Preset; 9] = [
        Preset::Replicated,
        Preset::Data,
        Preset::Column,
        Preset::Row,
        Preset::Megatron,
        Preset::MegatronSp,
        Preset::Fsdp,
        Preset::Zero1,
        Preset::Auto,
    ];

    /// Name as written in layout requests.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Preset::Replicated => "replicated",
            Preset::Data => "data",
            Preset::Column => "column",
            Preset::Row => "row",
            Preset::Megatron => "megatron",
            Preset::MegatronSp => "megatron-sp",
            Preset::Fsdp => "fsdp",
            Preset::Zero1 => "zero1",
            Preset::Auto => "auto",
        }
    }

    /// Names of all presets, for messages.
    #[must_use]
    pub fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// Whether the preset only makes sense for a program with recorded layers.
    #[must_use]
    pub fn needs_layers(self) -> bool {
        !matches!(self, Preset::Replicated | Preset::Auto)
    }

    /// The split of the layer with this index; `None` if it is free.
    #[must_use]
    pub fn split(self, layer: usize) -> Option<Split> {
        Some(match self {
            Preset::Replicated => Split::None,
            Preset::Data | Preset::Fsdp | Preset::Zero1 => Split::Batch,
            Preset::Column => Split::Out,
            Preset::Row => Split::In,
            Preset::Megatron | Preset::MegatronSp => {
                if layer.is_multiple_of(2) {
                    Split::Out
                } else {
                    Split::In
                }
            }
            Preset::Auto => return None,
        })
    }

    /// The placement of a stored value that is no optimizer state.
    #[must_use]
    pub fn stored(self, value: Stored) -> Rule {
        let by_split = |split| match (split, value) {
            (Some(Split::Out), Stored::Weight(_)) => Shard(1),
            (Some(Split::Out), Stored::Bias(_)) | (Some(Split::In), Stored::Weight(_)) => Shard(0),
            _ => Replicated,
        };
        match (self, value) {
            (Preset::Auto, _) => Rule::Free,
            (Preset::Data | Preset::MegatronSp | Preset::Fsdp | Preset::Zero1, Stored::Input) => {
                Rule::Is(Shard(0))
            }
            (Preset::Fsdp, _) => Rule::FirstFreeDim,
            (
                Preset::Column | Preset::Row | Preset::Megatron | Preset::MegatronSp,
                Stored::Weight(layer) | Stored::Bias(layer),
            ) => Rule::Is(by_split(self.split(layer))),
            (Preset::Replicated | Preset::Data | Preset::Zero1, _)
            | (
                Preset::Column | Preset::Row | Preset::Megatron | Preset::MegatronSp,
                Stored::Input | Stored::Other,
            ) => Rule::Is(Replicated),
        }
    }

    /// The placement of optimizer state; `None` if it is its parameter's.
    #[must_use]
    pub fn state(self) -> Option<Rule> {
        match self {
            Preset::Zero1 => Some(Rule::FirstFreeDim),
            Preset::Auto => Some(Rule::Free),
            Preset::Replicated
            | Preset::Data
            | Preset::Column
            | Preset::Row
            | Preset::Megatron
            | Preset::MegatronSp
            | Preset::Fsdp => None,
        }
    }

    /// Where the output of this layer is pinned.
    #[must_use]
    pub fn output(self, layer: usize) -> Option<Placement> {
        (self == Preset::MegatronSp && self.split(layer) == Some(Split::In)).then_some(Shard(0))
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Preset {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|p| p.name() == text.trim());
        known.ok_or_else(|| Error::UnknownPreset {
            found: text.trim().to_owned(),
            known: Self::names(),
        })
    }
}
