//! Assembly of forward and training programs.

use std::collections::BTreeMap;

use super::MlpSpec;
use crate::builder::{Graph, Var};
use crate::error::Error;
use crate::loss::Loss;
use crate::node::OutputRole;
use crate::program::Program;
use crate::step::{Step, cut, data_name};
use crate::value::Value;

/// The parameters of one layer in a graph.
type Params<'g> = (Var<'g>, Option<Var<'g>>);

impl MlpSpec {
    /// The forward pass on a batch of any size: leaves `x`, `w0`, `b0` …, output `out`.
    ///
    /// # Errors
    /// As [`MlpSpec::validate`], or the batch is 0.
    pub fn forward_program(&self, batch: usize) -> Result<Program, Error> {
        let spec = Self { batch, micro_batches: 1, ..self.clone() };
        spec.validate()?;
        let g = Graph::new(&spec.name, spec.dtype);
        let x = g.input("x", [batch, spec.inputs()])?;
        let params = spec.params(&g)?;
        let out = spec.forward(x, &params, 0)?;
        g.output("out", out, OutputRole::Value)?;
        Ok(g.finish())
    }

    /// One training step: forward, backward and update. Leaves `x`, `y` (unless the loss is a sum), `w0`, `b0` …,
    /// optimizer state and scalars. Outputs: `loss`; without an optimizer the gradients `grad(w0)`, `grad(b0)` …, with
    /// one the updates, named as the leaves that they replace; `grad(x)` if it is wanted. Gradients are named in any case.
    ///
    /// With m > 1 micro-batches the leaves are `x.0`, `y.0`, `x.1` …, equal parts of the batch in order (see
    /// [`MlpSpec::program_inputs`]). Each part goes forward and backward before the next, so that only one part's
    /// activations live at a time; the loss is that of the whole batch, and gradients are added before they are used.
    /// The layers are recorded once: the names `h0` … `out` are part 0's, `h0.1` … `out.1` the next part's.
    ///
    /// # Errors
    /// As [`MlpSpec::validate`].
    pub fn training_program(&self) -> Result<Program, Error> {
        self.validate()?;
        let g = Graph::new(&self.name, self.dtype);
        let parts = (0..self.micro_batches)
            .map(|part| self.data_leaves(&g, part))
            .collect::<Result<Vec<_>, Error>>()?;
        let layers = self.params(&g)?;
        let params: Vec<Var<'_>> =
            layers.iter().flat_map(|&(w, b)| [Some(w), b]).flatten().collect();

        let mut step = Step::new(&g, params);
        let mut input_gradients = Vec::new();
        for (part, &(x, y)) in parts.iter().enumerate() {
            let out = self.forward(x, &layers, part)?;
            let part_loss = self.part_loss(out, y)?;
            let mut wrt = step.params().to_vec();
            wrt.extend(self.input_gradient.then_some(x));
            let mut of_part = g.grad(part_loss, &wrt)?;
            let of_input = of_part.split_off(step.params().len());
            input_gradients.extend(of_input.into_iter().map(|dx| (x, dx)));
            step.add(part_loss, of_part)?;
        }
        step.finish(self.optimizer, self.clip_norm, input_gradients)?;
        Ok(g.finish())
    }

    /// The data of a step under the names of the program's leaves: with micro-batches, `x` and `y` are cut into `x.0`,
    /// `y.0`, `x.1` …; everything else stays.
    #[must_use]
    pub fn program_inputs(&self, inputs: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
        cut(&["x", "y"], self.micro_batches, inputs)
    }

    /// `x`, or `x.1` for part 1 of several.
    fn data_name(&self, name: &str, part: usize) -> String {
        data_name(name, self.micro_batches, part)
    }

    /// Input and target of a part of the batch.
    fn data_leaves<'g>(
        &self,
        g: &'g Graph,
        part: usize,
    ) -> Result<(Var<'g>, Option<Var<'g>>), Error> {
        let rows = self.batch / self.micro_batches;
        let x = g.input(&self.data_name("x", part), [rows, self.inputs()])?;
        let y = self.data_name("y", part);
        let y = match self.loss {
            Loss::Sum => None,
            Loss::Mse => Some(g.input(&y, [rows, self.outputs()])?),
            Loss::CrossEntropy => Some(g.labels(&y, [rows])?),
        };
        Ok((x, y))
    }

    /// What a part adds to the loss of the batch: a mean over the part counts by the part's share.
    fn part_loss<'g>(&self, out: Var<'g>, y: Option<Var<'g>>) -> Result<Var<'g>, Error> {
        let loss = self.loss.of(out, y)?;
        match self.loss {
            Loss::Mse | Loss::CrossEntropy if self.micro_batches > 1 =>
            {
                #[allow(clippy::cast_precision_loss)]
                loss.scale(1.0 / self.micro_batches as f64)
            }
            Loss::Mse | Loss::CrossEntropy | Loss::Sum => Ok(loss),
        }
    }

    /// The parameter leaves `w0`, `b0`, `w1` …
    fn params<'g>(&self, g: &'g Graph) -> Result<Vec<Params<'g>>, Error> {
        let mut params = Vec::new();
        for (i, layer) in self.layers.iter().enumerate() {
            let w = g.param(&format!("w{i}"), [layer.inputs, layer.outputs])?;
            let b =
                if layer.bias { Some(g.param(&format!("b{i}"), [layer.outputs])?) } else { None };
            params.push((w, b));
        }
        Ok(params)
    }

    /// The layers, applied to a part of the batch; part 0 records them and has the plain names.
    fn forward<'g>(
        &self,
        x: Var<'g>,
        params: &[Params<'g>],
        part: usize,
    ) -> Result<Var<'g>, Error> {
        let mut h = x;
        for (i, (layer, &(w, b))) in (0..).zip(self.layers.iter().zip(params)) {
            h = if part == 0 {
                h.linear(w, b, layer.activation)?
            } else {
                h.affine(w, b, layer.activation, i)?.named(&format!("h{i}.{part}"))?
            };
        }
        if part == 0 { h.named("out") } else { h.named(&format!("out.{part}")) }
    }
}
