//! A linear layer of any form with its parameters.

use std::cell::Cell;

use crate::builder::{Graph, Var};
use crate::error::Error;
use crate::layer::{Activation, Form};
use crate::start::Start;

/// activation(x · w + b), of a given [`Form`].
#[derive(Clone, Debug)]
pub struct Projection<'g> {
    name: String,
    weight: Var<'g>,
    bias: Option<Var<'g>>,
    activation: Activation,
    form: Form,
    /// The layer's index once it is recorded.
    index: Cell<Option<u32>>,
}

impl<'g> Projection<'g> {
    /// Parameters `{name}.w` and, if there is a bias, `{name}.b`. Weights start between ±1/√inputs, the bias at 0.
    ///
    /// ```
    /// use shardgrad_core::DType;
    /// use shardgrad_graph::{Activation, Graph, Half, layer::Form, nn::Projection};
    /// let g = Graph::new("queries", DType::F32);
    /// let form = Form::new("bsd,dhk->bshk", 'd', 'h', Some(Half::Opens))?;
    /// let q = Projection::new(&g, "q", form, 8, &[8, 4, 2], Some(&[4, 2]), Activation::None)?;
    /// assert_eq!(q.of(g.input("x", [3, 5, 8])?)?.ty().to_string(), "f32[3, 5, 4, 2]");
    /// # Ok::<(), shardgrad_graph::Error>(())
    /// ```
    ///
    /// # Errors
    /// A name that is taken, an extent of 0.
    #[track_caller]
    pub fn new(
        g: &'g Graph,
        name: &str,
        form: Form,
        inputs: usize,
        weight: &[usize],
        bias: Option<&[usize]>,
        activation: Activation,
    ) -> Result<Self, Error> {
        #[allow(clippy::cast_precision_loss)]
        let start = Start::Uniform(1.0 / (inputs as f64).sqrt());
        let weight = g.param_from(&format!("{name}.w"), weight.iter().copied(), start)?;
        let bias = match bias {
            Some(shape) => {
                let zero = Start::Constant(0.0);
                Some(g.param_from(&format!("{name}.b"), shape.iter().copied(), zero)?)
            }
            None => None,
        };
        Ok(Self { name: name.to_owned(), weight, bias, activation, form, index: Cell::new(None) })
    }

    /// The same layer over a weight that is there already.
    #[must_use]
    pub fn over(name: &str, form: Form, weight: Var<'g>) -> Self {
        let (name, activation) = (name.to_owned(), Activation::None);
        Self { name, weight, bias: None, activation, form, index: Cell::new(None) }
    }

    /// The layer's output, named as the layer at the first use.
    ///
    /// # Errors
    /// Shapes do not fit, or the name is taken.
    #[track_caller]
    pub fn of(&self, x: Var<'g>) -> Result<Var<'g>, Error> {
        let params = (self.weight, self.bias);
        let (output, index) =
            x.layer(params, self.activation, &self.form, &self.name, self.index.get())?;
        self.index.set(Some(index));
        Ok(output)
    }
}
