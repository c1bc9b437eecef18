//! From a request to demands: which placements of which values, and which splits of which layers, are fixed.
//!
//! Stored values: pins first; then, axis by axis, the presets that name a placement; then, in mesh order, those that
//! shard the first dim no other axis shards. Optimizer state `m(w0)` follows its parameter `w0`, which is resolved
//! before it.

use std::collections::BTreeMap;

use shardgrad_core::ops::Role;
use shardgrad_core::{Layout, LayoutSpec, Mesh, Placement};
use shardgrad_graph::{Layer, NodeId, OutputRole, Program};
use smallvec::SmallVec;

use crate::error::Error;
use crate::presets::{Preset, Rule, Split, Stored};
use crate::request::{Free, LayoutRequest};

/// A placement per axis, where one is demanded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partial(pub SmallVec<[Option<Placement>; 4]>);

impl Partial {
    /// No demand on any axis.
    #[must_use]
    pub fn free(mesh: &Mesh) -> Self {
        Self(SmallVec::from_elem(None, mesh.rank()))
    }

    /// Demand of a whole layout.
    #[must_use]
    pub fn exactly(layout: &Layout) -> Self {
        Self(layout.iter().map(Some).collect())
    }

    /// The demand on one axis.
    #[must_use]
    pub fn on(&self, axis: usize) -> Option<Placement> {
        self.0[axis]
    }

    /// Whether a layout meets the demand on every axis of more than one device.
    #[must_use]
    pub fn admits(&self, layout: &Layout, mesh: &Mesh) -> bool {
        (0..mesh.rank())
            .filter(|&a| mesh.axis_size(a) > 1)
            .all(|a| self.0[a].is_none_or(|p| p == layout.on(a)))
    }

    /// A layout with the demanded placements put in.
    #[must_use]
    pub fn over(&self, layout: &Layout) -> Layout {
        Layout(self.0.iter().zip(layout.iter()).map(|(p, other)| p.unwrap_or(other)).collect())
    }

    /// The demand as a pin: the axes on which there is one.
    #[must_use]
    pub fn spec(&self, mesh: &Mesh) -> LayoutSpec {
        let named = mesh.axes().iter().zip(&self.0);
        LayoutSpec(named.filter_map(|(axis, p)| Some((axis.name.clone(), (*p)?))).collect())
    }
}

/// What a program's plan must fulfil.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demands {
    /// Placements of values: every leaf, and any other value that is pinned.
    pub values: BTreeMap<NodeId, Partial>,
    /// Split of each layer on each axis; `None` if it is free.
    pub splits: Vec<SmallVec<[Option<Split>; 4]>>,
    /// Axes on which contractions outside layers must share their work, as free splits must.
    pub sharing: Vec<bool>,
    /// The demands on values by name.
    pub pins: BTreeMap<String, LayoutSpec>,
    /// The request as printed.
    pub description: String,
}

impl Demands {
    /// Resolves a request for a program on a mesh.
    ///
    /// # Errors
    /// Anything in the request that does not fit program or mesh, by name.
    pub fn resolve(program: &Program, mesh: &Mesh, request: &LayoutRequest) -> Result<Self, Error> {
        let presets = request.on_mesh(mesh)?;
        for (axis, preset) in mesh.axes().iter().zip(&presets) {
            if preset.needs_layers() && program.layers.is_empty() {
                return Err(Error::NoLayers { preset: preset.name(), axis: axis.name.clone() });
            }
        }
        let mut resolver = Resolver { program, mesh, presets, values: BTreeMap::new() };
        resolver.pins(&program.pins)?;
        resolver.pins(&request.pins)?;
        let mut named: Vec<String> =
            program.pins.keys().chain(request.pins.keys()).cloned().collect();
        resolver.leaves();
        named.extend(resolver.layer_outputs());
        let splits = resolver.splits(request)?;
        let mut pins = BTreeMap::new();
        for (&id, partial) in &resolver.values {
            if let Some(name) = program.node(id).leaf_name() {
                pins.insert(name.to_owned(), partial.spec(mesh));
            }
        }
        for name in named {
            if let Some(partial) =
                value_named(program, &name).and_then(|id| resolver.values.get(&id))
            {
                pins.insert(name, partial.spec(mesh));
            }
        }
        let free = |preset: &Preset| *preset == Preset::Auto || request.free != Free::Nothing;
        Ok(Self {
            sharing: resolver.presets.iter().map(free).collect(),
            values: resolver.values,
            splits,
            pins,
            description: request.describe(mesh)?,
        })
    }
}

/// The value with this name, or the output, unless that is the next value of a leaf.
fn value_named(program: &Program, name: &str) -> Option<NodeId> {
    program.named(name).or_else(|| {
        let output = program.outputs.iter().find(|o| o.name == name)?;
        (!matches!(output.role, OutputRole::Update { .. })).then_some(output.node)
    })
}

struct Resolver<'a> {
    program: &'a Program,
    mesh: &'a Mesh,
    presets: Vec<Preset>,
    values: BTreeMap<NodeId, Partial>,
}

impl Resolver<'_> {
    /// Takes pins in; nothing may be pinned to two placements on one axis.
    fn pins(&mut self, pins: &BTreeMap<String, LayoutSpec>) -> Result<(), Error> {
        let mut by_value: BTreeMap<(NodeId, usize), (Placement, &str)> = BTreeMap::new();
        for (name, spec) in pins {
            let id = value_named(self.program, name).ok_or_else(|| Error::UnknownValue {
                found: name.clone(),
                known: self.program.names.keys().cloned().collect::<Vec<_>>().join(", "),
            })?;
            let layout = spec.resolve(self.mesh, &Layout::replicated(self.mesh.rank()))?;
            let node = self.program.node(id);
            let bad = |problem: String| Error::BadPin {
                name: name.clone(),
                spec: spec.to_string(),
                problem,
            };
            layout.validate(self.mesh, node.ty.rank()).map_err(|e| bad(e.to_string()))?;
            if node.leaf_role().is_some() && layout.is_pending() {
                return Err(bad("stored values are never pending; pin R or S(dim)".to_owned()));
            }
            for (axis, placement) in &spec.0 {
                let axis = self.mesh.axis(axis)?;
                if let Some((other, first)) = by_value.insert((id, axis), (*placement, name))
                    && other != *placement
                {
                    return Err(bad(format!(
                        "`{first}` is the same value and pinned to {other} on the same axis; pin one of them"
                    )));
                }
                let partial = self.values.entry(id).or_insert_with(|| Partial::free(self.mesh));
                if let Some(own) = partial.0[axis].replace(*placement)
                    && own != *placement
                {
                    return Err(bad(format!(
                        "the program itself pins this value to {own} on that axis; leave that axis out"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Every leaf's placements, parameters before optimizer state.
    fn leaves(&mut self) {
        let role = |id: NodeId| self.program.node(id).leaf_role();
        let (states, others): (Vec<NodeId>, Vec<NodeId>) =
            self.program.leaves().partition(|&id| role(id) == Some(Role::State));
        for id in others {
            let rules: Vec<Rule> = match role(id) {
                Some(Role::Scalar) => vec![Rule::Is(Placement::Replicated); self.mesh.rank()],
                _ => self.presets.iter().map(|p| p.stored(self.kind_of(id))).collect(),
            };
            self.leaf(id, &rules);
        }
        for id in states {
            let parameter = self.parameter_of(id);
            let rules: Vec<Rule> = (0..self.mesh.rank())
                .map(|axis| match self.presets[axis].state() {
                    Some(rule) => rule,
                    None => match parameter.and_then(|p| self.values.get(&p)?.on(axis)) {
                        Some(placement) => Rule::Is(placement),
                        None => self.presets[axis].stored(Stored::Other),
                    },
                })
                .collect();
            self.leaf(id, &rules);
        }
    }

    fn leaf(&mut self, id: NodeId, rules: &[Rule]) {
        let rank = self.program.node(id).ty.rank();
        let partial = self.values.entry(id).or_insert_with(|| Partial::free(self.mesh));
        let open: Vec<usize> = (0..rules.len()).filter(|&a| partial.0[a].is_none()).collect();
        for &axis in &open {
            if let Rule::Is(placement) = rules[axis] {
                let fits = placement.sharded_dim().is_none_or(|d| d < rank);
                partial.0[axis] = Some(if fits { placement } else { Placement::Replicated });
            }
        }
        for &axis in &open {
            if rules[axis] == Rule::FirstFreeDim {
                let free = (0..rank).find(|&d| !partial.0.contains(&Some(Placement::Shard(d))));
                partial.0[axis] = Some(free.map_or(Placement::Replicated, Placement::Shard));
            }
        }
    }

    fn kind_of(&self, id: NodeId) -> Stored {
        let node = self.program.node(id);
        if node.leaf_role() == Some(Role::Input) {
            let tokens = self.program.layers.first().map_or(0, tokens_of);
            let whole = tokens > 0 && !node.ty.dtype.is_float();
            return Stored::Input { tokens: (!whole).then_some(tokens) };
        }
        let layers = || self.program.layers.iter().enumerate();
        if let Some((i, layer)) = layers().find(|(_, layer)| layer.weight == id) {
            let dim = |label| layer.weight_dim(label);
            let (inputs, outputs) = (dim(layer.in_label), dim(layer.out_label));
            return Stored::Weight { half: layer.half(i), inputs, outputs };
        }
        if let Some((i, layer)) = layers().find(|(_, layer)| layer.bias == Some(id)) {
            let outputs = layer.bias_dim(layer.out_label, node.ty.rank());
            return Stored::Bias { half: layer.half(i), outputs };
        }
        Stored::Other
    }

    /// The parameter of optimizer state: `w0` for `m(w0)`, if their shapes agree.
    fn parameter_of(&self, state: NodeId) -> Option<NodeId> {
        let node = self.program.node(state);
        let (_, inner) = node.leaf_name()?.strip_suffix(')')?.split_once('(')?;
        let id = self.program.named(inner)?;
        let parameter = self.program.node(id);
        (parameter.leaf_role() == Some(Role::Param) && parameter.ty.shape == node.ty.shape)
            .then_some(id)
    }

    /// Pins the outputs of layers that presets pin, and their gradients where these have names; returns the names.
    fn layer_outputs(&mut self) -> Vec<String> {
        let mut names = Vec::new();
        for (i, layer) in self.program.layers.iter().enumerate() {
            for (axis, preset) in self.presets.iter().enumerate() {
                let tokens = tokens_of(layer);
                let Some(placement) = preset.output(layer.half(i), tokens) else { continue };
                let Some(name) = self.program.name_of(layer.output) else { continue };
                let gradient = format!("grad({name})");
                for name in [name, &gradient] {
                    let Some(id) = self.program.named(name) else { continue };
                    let partial = self.values.entry(id).or_insert_with(|| Partial::free(self.mesh));
                    partial.0[axis].get_or_insert(placement);
                    names.push(name.to_owned());
                }
            }
        }
        names
    }

    fn splits(&self, request: &LayoutRequest) -> Result<Vec<SmallVec<[Option<Split>; 4]>>, Error> {
        let count = self.program.layers.len();
        let free = request.free != Free::Nothing;
        let layers = self.program.layers.iter().enumerate();
        let mut splits: Vec<SmallVec<[Option<Split>; 4]>> = layers
            .map(|(i, l)| {
                self.presets.iter().map(|p| p.split(l.half(i)).filter(|_| !free)).collect()
            })
            .collect();
        for (&layer, by_axis) in &request.splits {
            let row = splits.get_mut(layer).ok_or(Error::UnknownLayer { found: layer, count })?;
            for (axis, split) in by_axis {
                let index = self.mesh.axis(axis)?;
                if *split == Split::Batch && self.program.layers[layer].batch.is_empty() {
                    return Err(Error::SplitDoesNotFit {
                        layer,
                        split: split.name(),
                        axis: axis.clone(),
                    });
                }
                row[index] = Some(*split);
            }
        }
        Ok(splits)
    }
}

/// The dim that tells a layer's tokens apart: the last of its batch.
fn tokens_of(layer: &Layer) -> usize {
    layer.batch.len().saturating_sub(1)
}
