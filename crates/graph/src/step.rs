//! What training programs of all models share: a batch in parts, whose losses and gradients add up, and what a step puts
//! out.

use std::collections::BTreeMap;

use shardgrad_core::geometry::split;

use crate::builder::{Graph, Var};
use crate::error::Error;
use crate::node::{OutputRole, Phase};
use crate::optim::Optimizer;
use crate::value::Value;

/// `x`, or `x.1` for part 1 of several.
pub(crate) fn data_name(name: &str, parts: usize, part: usize) -> String {
    if parts > 1 { format!("{name}.{part}") } else { name.to_owned() }
}

/// Inputs of these names are cut into equal parts by their first dim; everything else stays, and so does what cannot be cut.
pub(crate) fn cut(
    names: &[&str],
    parts: usize,
    inputs: BTreeMap<String, Value>,
) -> BTreeMap<String, Value> {
    if parts <= 1 {
        return inputs;
    }
    let mut named = BTreeMap::new();
    for (name, value) in inputs {
        let rows = value.ty().shape.first().copied().unwrap_or(0);
        if names.contains(&name.as_str()) && rows.is_multiple_of(parts) {
            for part in 0..parts {
                named.insert(data_name(&name, parts, part), value.rows(split(rows, parts, part)));
            }
        } else {
            named.insert(name, value);
        }
    }
    named
}

/// A step that is being built: the sums of the losses and gradients of the parts so far.
pub(crate) struct Step<'g> {
    g: &'g Graph,
    params: Vec<Var<'g>>,
    sums: Option<(Var<'g>, Vec<Var<'g>>)>,
}

impl<'g> Step<'g> {
    pub(crate) fn new(g: &'g Graph, params: Vec<Var<'g>>) -> Self {
        Self { g, params, sums: None }
    }

    /// The parameters.
    pub(crate) fn params(&self) -> &[Var<'g>] {
        &self.params
    }

    /// Adds a part's share of the loss, and the gradients of the parameters.
    pub(crate) fn add(&mut self, loss: Var<'g>, gradients: Vec<Var<'g>>) -> Result<(), Error> {
        self.sums = Some(match self.sums.take() {
            None => (loss, gradients),
            Some((sum, all)) => {
                let loss = sum.add(loss)?;
                let phase = self.g.set_phase(Phase::Backward);
                let sums: Result<_, Error> =
                    all.iter().zip(gradients).map(|(a, b)| a.add(b)).collect();
                self.g.set_phase(phase);
                (loss, sums?)
            }
        });
        Ok(())
    }

    /// The loss; gradients under their names, as outputs if there is no optimizer; these inputs' gradients, as outputs;
    /// with an optimizer its step, on gradients that are clipped if there is a limit.
    pub(crate) fn finish(
        self,
        optimizer: Optimizer,
        clip_norm: Option<f64>,
        inputs: Vec<(Var<'g>, Var<'g>)>,
    ) -> Result<(), Error> {
        let Self { g, params, sums } = self;
        let Some((loss, gradients)) = sums else { return Ok(()) };
        g.output("loss", loss, OutputRole::Loss)?;
        let is_output = optimizer == Optimizer::None;
        for (&leaf, &gradient) in params.iter().zip(&gradients) {
            name_gradient(g, leaf, gradient, is_output)?;
        }
        for (x, gradient) in inputs {
            name_gradient(g, x, gradient, true)?;
        }
        if is_output {
            return Ok(());
        }
        let gradients = match clip_norm {
            Some(limit) => g.clip_by_global_norm(&gradients, limit)?.0,
            None => gradients,
        };
        let pairs: Vec<_> = params.into_iter().zip(gradients).collect();
        optimizer.step(g, &pairs)
    }
}

/// Names the gradient of a leaf, and declares it as an output if it is one.
fn name_gradient(g: &Graph, leaf: Var<'_>, gradient: Var<'_>, output: bool) -> Result<(), Error> {
    let node = g.node(leaf.id());
    let name = format!("grad({})", node.leaf_name().unwrap_or_default());
    let gradient = g.var(gradient.id()).named(&name)?;
    if output {
        g.output(&name, gradient, OutputRole::Gradient { of: leaf.id() })?;
    }
    Ok(())
}
