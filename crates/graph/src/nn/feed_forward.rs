//! The feed-forward half of a transformer block: two linear layers with an activation between.

use super::projection::Projection;
use crate::builder::{Graph, Var};
use crate::error::Error;
use crate::layer::{Activation, Form};
use crate::program::Half;

/// w₂ · activation(w₁ · x + b₁) + b₂ over `[batch, sequence, width]`: layers `{name}.up` and `{name}.down`.
#[derive(Clone, Debug)]
pub struct FeedForward<'g> {
    up: Projection<'g>,
    down: Projection<'g>,
}

impl<'g> FeedForward<'g> {
    /// Both layers, with or without biases.
    ///
    /// # Errors
    /// A name that is taken, or a width of 0.
    #[track_caller]
    pub fn new(
        g: &'g Graph,
        name: &str,
        [width, hidden]: [usize; 2],
        activation: Activation,
        bias: bool,
    ) -> Result<Self, Error> {
        let layer = |name: &str, [from, to]: [usize; 2], activation, half| {
            let form = Form::new("bsi,io->bso", 'i', 'o', Some(half))?;
            let bias = bias.then_some(std::slice::from_ref(&to));
            Projection::new(g, name, form, from, &[from, to], bias, activation)
        };
        Ok(Self {
            up: layer(&format!("{name}.up"), [width, hidden], activation, Half::Opens)?,
            down: layer(&format!("{name}.down"), [hidden, width], Activation::None, Half::Closes)?,
        })
    }

    /// The output, of the input's shape.
    ///
    /// # Errors
    /// Shapes do not fit.
    #[track_caller]
    pub fn of(&self, x: Var<'g>) -> Result<Var<'g>, Error> {
        self.down.of(self.up.of(x)?)
    }
}
