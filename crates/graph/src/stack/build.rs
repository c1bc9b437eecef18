//! The parts of a stack in a graph.

use super::{StackLayer, StackSpec};
use crate::builder::{Graph, Var};
use crate::error::Error;
use crate::layer::Form;
use crate::nn::{AttentionSpec, BlockSpec, Embedding, Head, Norm, Projection, TransformerBlock};
use crate::program::Half;

/// A layer with its parameters.
enum Part<'g> {
    Embedding(Embedding<'g>),
    Block(Box<TransformerBlock<'g>>),
    Norm(Norm<'g>),
    Linear(Projection<'g>),
    Head(Head<'g>),
}

/// All layers with their parameters.
pub(super) struct Parts<'g>(Vec<Part<'g>>);

impl<'g> Parts<'g> {
    /// Makes the parameters, in order.
    pub(super) fn new(g: &'g Graph, spec: &StackSpec) -> Result<Self, Error> {
        let mut parts = Vec::new();
        let mut width = 0;
        // Linear layers open and close pairs in turn; a block leaves none open.
        let mut opened = false;
        for (i, layer) in spec.layers.iter().enumerate() {
            let bad = |key: &str, found: String, problem: String| Error::BadModel {
                key: format!("stack[{i}].{key}"),
                found,
                problem,
            };
            match layer {
                StackLayer::Embedding { name, width: features, positions } => {
                    if *features == 0 {
                        return Err(bad("width", "0".into(), "it must be 1 or more".into()));
                    }
                    width = *features;
                    let positions = positions.then_some(spec.sequence);
                    let embedding = Embedding::new(g, name, spec.vocabulary, width, positions)?;
                    parts.push(Part::Embedding(embedding));
                }
                StackLayer::Block {
                    name,
                    heads,
                    kv_heads,
                    hidden,
                    activation,
                    norm,
                    bias,
                    causal,
                    dropout,
                    repeat,
                } => {
                    let block = BlockSpec {
                        attention: AttentionSpec {
                            width,
                            heads: *heads,
                            kv_heads: kv_heads.unwrap_or(*heads),
                            bias: *bias,
                            causal: *causal,
                        },
                        hidden: hidden.unwrap_or(width.saturating_mul(4)),
                        activation: *activation,
                        norm: *norm,
                        dropout: *dropout,
                    };
                    for (key, size) in [("repeat", *repeat), ("hidden", block.hidden)] {
                        if size == 0 {
                            return Err(bad(key, "0".into(), "it must be 1 or more".into()));
                        }
                    }
                    for number in 0..*repeat {
                        let name =
                            if *repeat > 1 { format!("{name}.{number}") } else { name.clone() };
                        parts.push(Part::Block(Box::new(TransformerBlock::new(g, &name, block)?)));
                    }
                    opened = false;
                }
                StackLayer::Norm { name, norm } => {
                    parts.push(Part::Norm(Norm::new(g, name, *norm, width)?));
                }
                StackLayer::Linear { name, out, bias, activation } => {
                    if *out == 0 {
                        return Err(bad("out", "0".into(), "it must be 1 or more".into()));
                    }
                    let half = if opened { Half::Closes } else { Half::Opens };
                    opened = !opened;
                    let form = Form::new("bsi,io->bso", 'i', 'o', Some(half))?;
                    let bias = bias.then_some(std::slice::from_ref(out));
                    let weight = [width, *out];
                    let layer = Projection::new(g, name, form, width, &weight, bias, *activation)?;
                    parts.push(Part::Linear(layer));
                    width = *out;
                }
                StackLayer::Head { name, tied: None } => {
                    parts.push(Part::Head(Head::new(g, name, width, spec.vocabulary)?));
                }
                StackLayer::Head { name, tied: Some(tied) } => {
                    let head =
                        spec.layers.iter().zip(&parts).find_map(|(layer, part)| match part {
                            Part::Embedding(embedding) if layer.name() == tied => {
                                Some(embedding.head(name))
                            }
                            _ => None,
                        });
                    let unknown = || {
                        let problem = "it must be the name of the stack's embedding".to_owned();
                        bad("tied", format!("`{tied}`"), problem)
                    };
                    parts.push(Part::Head(head.ok_or_else(unknown)??));
                }
            }
        }
        Ok(Self(parts))
    }

    /// Scores of token ids; elements are dropped if there is a key.
    pub(super) fn of(&self, ids: Var<'g>, key: Option<Var<'g>>) -> Result<Var<'g>, Error> {
        self.0.iter().try_fold(ids, |h, part| match part {
            Part::Embedding(embedding) => embedding.of(h),
            Part::Block(block) => block.of(h, key),
            Part::Norm(norm) => norm.of(h),
            Part::Linear(layer) => layer.of(h),
            Part::Head(head) => head.of(h),
        })
    }
}
