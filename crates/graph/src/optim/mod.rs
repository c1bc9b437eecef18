//! Optimizers as graph programs: the update is elementwise ops on parameters, gradients and state.
//!
//! Forms and defaults are `PyTorch`'s. State leaves are `m(w0)`, `v(w0)` and start at 0; the scalars that change from step
//! to step (`lr`, `bias1`, `bias2`) are leaves that the caller sets from [`Optimizer::scalars`], computed in f64.
//!
//! With gradient g, parameter p and step t = 1, 2 …:
//!
//! | optimizer | update |
//! |---|---|
//! | sgd | p ← p − lr · (g + wd · p) |
//! | momentum | m ← μ · m + (g + wd · p); p ← p − lr · m |
//! | adam | g ← g + wd · p; m ← β₁ m + (1 − β₁) g; v ← β₂ v + (1 − β₂) g²; p ← p − lr · m̂ / (√v̂ + ε) |
//! | adamw | p ← p − lr · wd · p, then as adam without wd |
//!
//! where m̂ = m / (1 − β₁ᵗ) and v̂ = v / (1 − β₂ᵗ) (Kingma and Ba, 2015; Loshchilov and Hutter, 2019).

mod schedule;
mod text;
mod update;

pub use schedule::Schedule;

use crate::error::Error;

/// An optimizer with its hyperparameters.
///
/// ```
/// use shardgrad_graph::Optimizer;
/// let adam = Optimizer::named("adam")?;
/// assert_eq!(adam, Optimizer::Adam { lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0 });
/// let names: Vec<_> = adam.scalars(1).into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["lr", "bias1", "bias2"]);
/// # Ok::<(), shardgrad_graph::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Optimizer {
    /// No update: the gradients are the program's outputs.
    #[default]
    None,
    /// Stochastic gradient descent.
    Sgd {
        /// Learning rate.
        lr: f64,
        /// Factor of the parameter that is added to its gradient.
        weight_decay: f64,
    },
    /// Gradient descent with momentum, without dampening.
    Momentum {
        /// Learning rate.
        lr: f64,
        /// The part of the momentum that is kept, μ.
        momentum: f64,
        /// Factor of the parameter that is added to its gradient.
        weight_decay: f64,
    },
    /// Adam.
    Adam {
        /// Learning rate.
        lr: f64,
        /// Decay of the first moment.
        beta1: f64,
        /// Decay of the second moment.
        beta2: f64,
        /// Added to the root of the second moment.
        eps: f64,
        /// Factor of the parameter that is added to its gradient.
        weight_decay: f64,
    },
    /// Adam with decoupled weight decay.
    AdamW {
        /// Learning rate.
        lr: f64,
        /// Decay of the first moment.
        beta1: f64,
        /// Decay of the second moment.
        beta2: f64,
        /// Added to the root of the second moment.
        eps: f64,
        /// The parameter decays by lr times this.
        weight_decay: f64,
    },
}

impl Optimizer {
    /// Names of all optimizers.
    pub const NAMES: [&'static str; 5] = ["none", "sgd", "momentum", "adam", "adamw"];

    /// The optimizer of this name with `PyTorch`'s defaults; momentum, which has none there, is 0.9.
    ///
    /// # Errors
    /// There is no such optimizer.
    pub fn named(name: &str) -> Result<Self, Error> {
        let (lr, beta1, beta2, eps) = (1e-3, 0.9, 0.999, 1e-8);
        Ok(match name {
            "none" => Optimizer::None,
            "sgd" => Optimizer::Sgd { lr, weight_decay: 0.0 },
            "momentum" => Optimizer::Momentum { lr, momentum: 0.9, weight_decay: 0.0 },
            "adam" => Optimizer::Adam { lr, beta1, beta2, eps, weight_decay: 0.0 },
            "adamw" => Optimizer::AdamW { lr, beta1, beta2, eps, weight_decay: 0.01 },
            other => {
                return Err(Error::BadModel {
                    key: "optimizer.name".to_owned(),
                    found: format!("`{other}`"),
                    problem: format!("it must be one of {}", Self::NAMES.join(", ")),
                });
            }
        })
    }

    /// Name, as in model files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Optimizer::None => "none",
            Optimizer::Sgd { .. } => "sgd",
            Optimizer::Momentum { .. } => "momentum",
            Optimizer::Adam { .. } => "adam",
            Optimizer::AdamW { .. } => "adamw",
        }
    }

    /// The learning rate; 0 for none.
    #[must_use]
    pub fn lr(self) -> f64 {
        match self {
            Optimizer::None => 0.0,
            Optimizer::Sgd { lr, .. }
            | Optimizer::Momentum { lr, .. }
            | Optimizer::Adam { lr, .. }
            | Optimizer::AdamW { lr, .. } => lr,
        }
    }

    /// The scalar leaves of a step, counted from 1, and their values.
    #[must_use]
    pub fn scalars(self, step: u64) -> Vec<(String, f64)> {
        // powf, as powi's exponent is an i32 and steps may be more.
        #[allow(clippy::cast_precision_loss)]
        let correction = |beta: f64| 1.0 / (1.0 - beta.powf(step as f64));
        match self {
            Optimizer::None => Vec::new(),
            Optimizer::Sgd { lr, .. } | Optimizer::Momentum { lr, .. } => {
                vec![("lr".to_owned(), lr)]
            }
            Optimizer::Adam { lr, beta1, beta2, .. }
            | Optimizer::AdamW { lr, beta1, beta2, .. } => vec![
                ("lr".to_owned(), lr),
                ("bias1".to_owned(), correction(beta1)),
                ("bias2".to_owned(), correction(beta2)),
            ],
        }
    }

    /// Checks the hyperparameters.
    ///
    /// # Errors
    /// The one that is out of range.
    pub fn validate(self) -> Result<(), Error> {
        let table = text::Table::from(self);
        for (key, value) in table.numbers() {
            let (fine, legal) = match key {
                "beta1" | "beta2" => ((0.0..1.0).contains(&value), "at least 0 and less than 1"),
                _ => (value >= 0.0 && value.is_finite(), "finite and not negative"),
            };
            if !fine {
                return Err(Error::BadModel {
                    key: format!("optimizer.{key}"),
                    found: format!("{value}"),
                    problem: format!("it must be {legal}"),
                });
            }
        }
        Ok(())
    }
}
