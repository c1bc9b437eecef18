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
//! | `megatron-sp` | the same | the same; what leaves each pair, and in transformers its gradient, is sharded over tokens | over tokens |
//! | `fsdp` | batch | first free dim, optimizer state too | `S(0)` |
//! | `zero1` | batch | `R`, optimizer state on its first free dim | `S(0)` |
//! | `auto` | free | free | free |
//!
//! A layer may say which half of a pair it is ([`Half`]): in a transformer, queries, keys and values open a pair that the
//! attention's output closes. In the table W is `[in, out]`; of a weight with more dims the one with the split label is
//! sharded. Tokens are told apart by the last dim of a layer's batch: rows of `[batch, in]`, places in the sequence of
//! `[batch, sequence, in]`; programs over sequences keep their integer inputs (ids, labels) whole under `megatron-sp`.
//!
//! Sources: Megatron-LM (Shoeybi et al. 2019; Korthikanti et al. 2022 for sequence parallelism), ZeRO (Rajbhandari et
//! al. 2020), FSDP (Zhao et al. 2023).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use shardgrad_core::Placement::{self, Replicated, Shard};
use shardgrad_graph::Half;

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
    /// An input or a target, with the dim that tells its tokens apart.
    Input {
        /// None for ids and labels of sequences.
        tokens: Option<usize>,
    },
    /// The weight of a layer, with its dims of input and of output features.
    Weight {
        /// The layer's place in a pair.
        half: Half,
        /// The dim of input features.
        inputs: Option<usize>,
        /// The dim of output features.
        outputs: Option<usize>,
    },
    /// The bias of a layer, with its dim of output features.
    Bias {
        /// The layer's place in a pair.
        half: Half,
        /// The dim of output features.
        outputs: Option<usize>,
    },
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

    /// The split of a layer by its place in a pair; `None` if it is free.
    #[must_use]
    pub fn split(self, half: Half) -> Option<Split> {
        Some(match self {
            Preset::Replicated => Split::None,
            Preset::Data | Preset::Fsdp | Preset::Zero1 => Split::Batch,
            Preset::Column => Split::Out,
            Preset::Row => Split::In,
            Preset::Megatron | Preset::MegatronSp => match half {
                Half::Opens => Split::Out,
                Half::Closes => Split::In,
            },
            Preset::Auto => return None,
        })
    }

    /// The placement of a stored value that is no optimizer state.
    #[must_use]
    pub fn stored(self, value: Stored) -> Rule {
        let sharded = |dim: Option<usize>| Rule::Is(dim.map_or(Replicated, Shard));
        match self {
            Preset::Auto => Rule::Free,
            Preset::Replicated => Rule::Is(Replicated),
            Preset::Data | Preset::Zero1 => match value {
                Stored::Input { .. } => Rule::Is(Shard(0)),
                Stored::Weight { .. } | Stored::Bias { .. } | Stored::Other => Rule::Is(Replicated),
            },
            Preset::Fsdp => match value {
                Stored::Input { .. } => Rule::Is(Shard(0)),
                Stored::Weight { .. } | Stored::Bias { .. } | Stored::Other => Rule::FirstFreeDim,
            },
            Preset::Column | Preset::Row | Preset::Megatron | Preset::MegatronSp => match value {
                Stored::Input { tokens } if self == Preset::MegatronSp => sharded(tokens),
                Stored::Weight { half, inputs, outputs } => match self.split(half) {
                    Some(Split::Out) => sharded(outputs),
                    Some(Split::In) => sharded(inputs),
                    _ => Rule::Is(Replicated),
                },
                Stored::Bias { half, outputs } if self.split(half) == Some(Split::Out) => {
                    sharded(outputs)
                }
                Stored::Input { .. } | Stored::Bias { .. } | Stored::Other => Rule::Is(Replicated),
            },
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

    /// Where the output of a layer is pinned, whose tokens are told apart by this dim.
    #[must_use]
    pub fn output(self, half: Half, tokens: usize) -> Option<Placement> {
        (self == Preset::MegatronSp && half == Half::Closes).then_some(Shard(tokens))
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
