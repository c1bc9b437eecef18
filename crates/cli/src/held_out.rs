//! What a model in training makes of the rows that it is never trained on.

use shardgrad::core::{DType, Machine, Mesh};
use shardgrad::dataset::Targets;
use shardgrad::graph::Value;
use shardgrad::{Dataset, Trainer, Training};

use crate::backend::Backend;
use crate::failure::Failure;

/// The forward pass, a batch at a time.
pub(crate) struct HeldOut<'a> {
    data: &'a Dataset,
    rows: Vec<usize>,
    batch: usize,
    forward: Trainer,
}

/// What is measured.
#[derive(Clone, Copy)]
enum Figure {
    /// How many labels, or next tokens of a text, have the largest output.
    Accuracy,
    /// The mean squared error.
    SquaredError,
    /// The mean output.
    Output,
}

impl<'a> HeldOut<'a> {
    pub(crate) fn new(
        training: &Training,
        data: &'a Dataset,
        mesh: &Mesh,
        machine: &Machine,
        backend: &Backend,
    ) -> Result<Self, Failure> {
        let rows = data.held_out_rows();
        let batch = rows.len().min(*training.spec().batch());
        let plan = training.plan_forward(batch, mesh, machine).map_err(Failure::no)?;
        let forward = backend.trainer(&plan)?;
        Ok(Self { data, rows, batch, forward })
    }

    fn figure(&self) -> Figure {
        match self.data.targets() {
            None | Some(Targets::Labels(_)) => Figure::Accuracy,
            Some(Targets::Values { width: 0, .. }) => Figure::Output,
            Some(Targets::Values { .. }) => Figure::SquaredError,
        }
    }

    pub(crate) fn title(&self) -> &'static str {
        match self.figure() {
            Figure::Accuracy => "held-out accuracy",
            Figure::Output => "held-out mean",
            Figure::SquaredError => "held-out mse",
        }
    }

    pub(crate) fn measure(&mut self, trainer: &mut Trainer) -> Result<String, Failure> {
        self.forward.copy_stored(trainer).map_err(Failure::no)?;
        let (mut sum, mut count) = (0.0, 0.0);
        for rows in self.rows.chunks(self.batch.max(1)) {
            // A plan has one batch size: the last batch is filled up with rows that do not count.
            let filled: Vec<usize> = rows.iter().copied().cycle().take(self.batch).collect();
            let report = self.forward.outputs_of_rows(self.data, &filled).map_err(Failure::no)?;
            let out = report.outputs.get("out").map(Value::to_f64s).unwrap_or_default();
            let (more, counted) = self.sum(rows, &out[..out.len() / self.batch * rows.len()]);
            sum += more;
            count += counted;
        }
        Ok(match self.figure() {
            Figure::Accuracy => format!("{:.1} %", 100.0 * sum / count),
            Figure::Output | Figure::SquaredError => format!("{:.6}", sum / count),
        })
    }

    /// The sum of the figure over some rows, and how many terms it has.
    #[allow(clippy::cast_precision_loss)]
    fn sum(&self, rows: &[usize], out: &[f64]) -> (f64, f64) {
        let batch = self.data.batch(rows, DType::F64);
        let of = |name| batch.get(name).map(Value::to_f64s);
        let expected = of("y").unwrap_or_default();
        let count = out.len() as f64;
        match self.figure() {
            Figure::Output => (out.iter().sum(), count),
            Figure::SquaredError => {
                (out.iter().zip(expected).map(|(a, b)| (a - b) * (a - b)).sum(), count)
            }
            Figure::Accuracy => {
                let counts = of("mask").unwrap_or_else(|| vec![1.0; expected.len()]);
                let classes = (out.len() / expected.len().max(1)).max(1);
                let right = |(scores, label)| f64::from(u8::from(largest(scores) as f64 == label));
                let right = out.chunks_exact(classes).zip(expected).map(right);
                (
                    right.zip(&counts).map(|(right, counts)| right * counts).sum(),
                    counts.iter().sum(),
                )
            }
        }
    }
}

/// Index of the largest element, the first of equals.
fn largest(values: &[f64]) -> usize {
    let mut best = 0;
    for (index, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = index;
        }
    }
    best
}
