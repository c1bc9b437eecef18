//! The update of each parameter as ops.

use std::panic::Location;

use shardgrad_core::TensorType;
use shardgrad_core::ops::Role;

use super::Optimizer;
use crate::builder::{Graph, Var};
use crate::error::Error;
use crate::node::{OutputRole, Phase};

impl Optimizer {
    /// Adds one step to the graph: scalar and state leaves, and for every parameter with its gradient the outputs that
    /// replace the parameter and its state, named as these.
    ///
    /// # Errors
    /// A parameter is not a leaf, its gradient has another type, or a name is taken.
    #[track_caller]
    pub fn step(self, graph: &Graph, params: &[(Var<'_>, Var<'_>)]) -> Result<(), Error> {
        let phase = graph.set_phase(Phase::Update);
        let done = self.add_step(graph, params);
        graph.set_phase(phase);
        done
    }

    #[track_caller]
    fn add_step(self, graph: &Graph, params: &[(Var<'_>, Var<'_>)]) -> Result<(), Error> {
        let mut scalars = Vec::new();
        for (name, _) in self.scalars(1) {
            scalars.push(graph.scalar(&name)?);
        }
        for &(param, gradient) in params {
            let node = graph.node(param.id());
            let Some(name) = node.leaf_name() else {
                return Err(Error::Bad {
                    op: self.name(),
                    found: param.ty().to_string(),
                    problem: "only leaves can be updated".to_owned(),
                    at: Location::caller(),
                });
            };
            let parameter = Parameter { graph, name, value: param, gradient };
            self.update(&parameter, &scalars)?;
        }
        Ok(())
    }

    fn update(self, p: &Parameter<'_, '_>, scalars: &[Var<'_>]) -> Result<(), Error> {
        match (self, scalars) {
            (Optimizer::Sgd { weight_decay, .. }, &[lr]) => {
                let gradient = p.decayed(weight_decay)?;
                p.replace_by(p.value.sub(p.times_scalar(gradient, lr)?)?)
            }
            (Optimizer::Momentum { momentum, weight_decay, .. }, &[lr]) => {
                let gradient = p.decayed(weight_decay)?;
                let m = p.state("m", |m| m.scale(momentum)?.add(gradient))?;
                p.replace_by(p.value.sub(p.times_scalar(m, lr)?)?)
            }
            (Optimizer::Adam { beta1, beta2, eps, weight_decay, .. }, &[lr, bias1, bias2]) => {
                let gradient = p.decayed(weight_decay)?;
                let moments = Moments { beta1, beta2, eps };
                let change = moments.change(p, gradient, [lr, bias1, bias2])?;
                p.replace_by(p.value.sub(change)?)
            }
            (Optimizer::AdamW { beta1, beta2, eps, weight_decay, .. }, &[lr, bias1, bias2]) => {
                let moments = Moments { beta1, beta2, eps };
                let change = moments.change(p, p.gradient, [lr, bias1, bias2])?;
                let kept = if weight_decay == 0.0 {
                    p.value
                } else {
                    p.times_scalar(p.value, lr.scale(-weight_decay)?.add_const(1.0)?)?
                };
                p.replace_by(kept.sub(change)?)
            }
            // Not reached with the scalars of `Optimizer::scalars`: there is nothing to update.
            (Optimizer::None | Optimizer::Sgd { .. } | Optimizer::Momentum { .. }, _)
            | (Optimizer::Adam { .. } | Optimizer::AdamW { .. }, _) => Ok(()),
        }
    }
}

/// A parameter that is being updated.
struct Parameter<'a, 'g> {
    graph: &'g Graph,
    name: &'a str,
    value: Var<'g>,
    gradient: Var<'g>,
}

impl<'g> Parameter<'_, 'g> {
    /// The gradient, with decay · p added.
    fn decayed(&self, decay: f64) -> Result<Var<'g>, Error> {
        if decay == 0.0 { Ok(self.gradient) } else { self.gradient.add(self.value.scale(decay)?) }
    }

    /// a · s for a scalar s.
    fn times_scalar(&self, a: Var<'g>, s: Var<'g>) -> Result<Var<'g>, Error> {
        a.mul(s.broadcast(&[], &a.shape())?)
    }

    /// A state leaf of the parameter's type and its next value.
    fn state(
        &self,
        kind: &str,
        next: impl FnOnce(Var<'g>) -> Result<Var<'g>, Error>,
    ) -> Result<Var<'g>, Error> {
        let name = format!("{kind}({})", self.name);
        let ty: TensorType = self.value.ty();
        let leaf = self.graph.leaf(&name, Role::State, ty)?;
        let next = next(leaf)?;
        self.graph.output(&name, next, OutputRole::Update { of: leaf.id() })?;
        Ok(next)
    }

    fn replace_by(&self, next: Var<'g>) -> Result<(), Error> {
        self.graph.output(self.name, next, OutputRole::Update { of: self.value.id() })
    }
}

/// What Adam and AdamW share.
struct Moments {
    beta1: f64,
    beta2: f64,
    eps: f64,
}

impl Moments {
    /// lr · m̂ / (√v̂ + ε), after updating both moments.
    fn change<'g>(
        &self,
        p: &Parameter<'_, 'g>,
        gradient: Var<'g>,
        [lr, bias1, bias2]: [Var<'g>; 3],
    ) -> Result<Var<'g>, Error> {
        let m = p.state("m", |m| m.scale(self.beta1)?.add(gradient.scale(1.0 - self.beta1)?))?;
        let v = p.state("v", |v| {
            v.scale(self.beta2)?.add(gradient.square()?.scale(1.0 - self.beta2)?)
        })?;
        let root = p.times_scalar(v, bias2)?.sqrt()?.add_const(self.eps)?;
        p.times_scalar(m, lr.mul(bias1)?)?.div(root)
    }
}
