//! Rates of the machine that this runs on, as the planner's model counts them.
//!
//! The model says that a collective takes α a round and β a byte, and that any other op takes the longer of computing its
//! flops and touching its bytes. So the rates are measured with what runs in a step: the collectives of a communicator
//! and the kernels of the executor, on all ranks at once.
//!
//! * **α and β of an axis**: all_reduces of 4 bytes to 4 MB along it; the line through (rounds, bytes, seconds) that makes
//!   the sum of squared *relative* errors least, so that small messages count as much as large ones.
//! * **flops**: the three products of a layer of 512 to 512 features on 128 rows: forward, and of both gradients.
//! * **memory bandwidth**: the update w − c·g of 2²⁰ elements, in the bytes that the model counts for it (what fusion saves is
//!   a higher rate).
//!
//! Every figure is a median over repetitions; of links the slowest rank's, of computing the slowest thread's or the first
//! process's.

use std::collections::BTreeMap;
use std::time::Instant;

use shardgrad_core::machine::Link;
use shardgrad_core::{
    AxisSet, DType, Layout, Machine, Mesh, Placement, TensorType, Transition, schedule,
};
use shardgrad_graph::{Graph, Loss, Model, OutputRole, Program, Value};
use shardgrad_planner::{LayoutRequest, Options};
use shardgrad_runtime::groups::all_reduce;
use shardgrad_runtime::{Collective, Communicator, Data, Pool, Reduce};

use crate::dataset::Inputs;
use crate::error::Error;
use crate::planned::Planned;
use crate::predict::predict;
use crate::trainer::Trainer;

/// Elements of the all_reduces.
const SIZES: [usize; 7] = [1, 64, 1 << 10, 1 << 13, 1 << 16, 1 << 18, 1 << 20];
/// Times that each is measured.
const SAMPLES: usize = 5;
/// Seconds that a sample should take at least.
const SAMPLE_SECONDS: f64 = 0.01;

/// One size along one axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Rounds of the schedule.
    pub rounds: f64,
    /// Bytes that a rank sends.
    pub bytes: f64,
    /// Seconds that it took.
    pub seconds: f64,
}

/// The link along every axis of a mesh of more than one device. All ranks call it at once.
///
/// # Errors
/// Whatever the communicator reports.
pub fn links(
    comm: &mut impl Communicator,
    mesh: &Mesh,
) -> Result<BTreeMap<String, Link>, shardgrad_runtime::Error> {
    let mut links = BTreeMap::new();
    for (axis, described) in mesh.axes().iter().enumerate() {
        if described.size > 1 {
            links.insert(described.name.clone(), fit(&samples(comm, mesh, axis)?));
        }
    }
    Ok(links)
}

#[allow(clippy::cast_precision_loss)]
fn samples(
    comm: &mut impl Communicator,
    mesh: &Mesh,
    axis: usize,
) -> Result<Vec<Sample>, shardgrad_runtime::Error> {
    let to = Layout::replicated(mesh.rank());
    let from = to.with(axis, Placement::PendingSum);
    let pool = &mut Pool::default();
    let mut samples = Vec::new();
    for n in SIZES {
        let ty = TensorType::new([n], DType::F32);
        let transition = Transition::between(mesh, &from, &to)?;
        let collective = Collective::new(mesh, &ty, &from, &to, comm.rank())?;
        let mut buffer = Data::F32(vec![0.0; n]);
        let mut run = |comm: &mut _, times: usize| {
            let start = Instant::now();
            for _ in 0..times {
                collective.run_data(comm, None, &mut buffer, pool, true)?;
            }
            Ok::<f64, shardgrad_runtime::Error>(start.elapsed().as_secs_f64() / times as f64)
        };
        run(comm, 3)?;
        let once = run(comm, 3)?;
        let once = slowest(comm, mesh, once)?;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let times = (SAMPLE_SECONDS / once.max(1e-7)).ceil().clamp(2.0, 10_000.0) as usize;
        let mut all = Vec::new();
        for _ in 0..SAMPLES {
            let seconds = run(comm, times)?;
            all.push(slowest(comm, mesh, seconds)?);
        }
        samples.push(Sample {
            rounds: schedule::rounds(transition, mesh, &ty.shape, &from, &to) as f64,
            bytes: transition.bytes_sent(mesh, &ty, &from, &to) as f64,
            seconds: median(&mut all),
        });
    }
    Ok(samples)
}

/// The most over all ranks, which meet here.
fn slowest(
    comm: &mut impl Communicator,
    mesh: &Mesh,
    seconds: f64,
) -> Result<f64, shardgrad_runtime::Error> {
    let axes: AxisSet = (0..mesh.rank()).filter(|&a| mesh.axis_size(a) > 1).collect();
    let mut most = [seconds];
    all_reduce(comm, mesh, axes, Reduce::Max, &mut most)?;
    Ok(most[0])
}

fn median(all: &mut [f64]) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(0.0)
}

/// α and β of seconds = α · rounds + bytes / bandwidth, by least squares of relative errors. Neither is negative.
#[must_use]
pub fn fit(samples: &[Sample]) -> Link {
    let rows = samples.iter().map(|s| (s.rounds / s.seconds, s.bytes / s.seconds));
    let sum = |f: &dyn Fn((f64, f64)) -> f64| rows.clone().map(f).sum::<f64>();
    let (rr, rb, bb) = (sum(&|(r, _)| r * r), sum(&|(r, b)| r * b), sum(&|(_, b)| b * b));
    let (r1, b1) = (sum(&|(r, _)| r), sum(&|(_, b)| b));
    let determinant = rr * bb - rb * rb;
    let (mut alpha, mut per_byte) =
        ((r1 * bb - b1 * rb) / determinant, (b1 * rr - r1 * rb) / determinant);
    if alpha.is_nan() || alpha < 0.0 {
        (alpha, per_byte) = (0.0, b1 / bb);
    } else if per_byte <= 0.0 {
        (alpha, per_byte) = (r1 / rr, 1e-15);
    }
    Link { latency: alpha, bandwidth: 1.0 / per_byte }
}

/// A machine with these links, and the rates of computing of one device while all devices compute; `start` makes the
/// devices of a plan.
///
/// # Errors
/// A device that fails.
pub fn machine(
    mesh: &Mesh,
    links: BTreeMap<String, Link>,
    mut start: impl FnMut(&Planned) -> Result<Trainer, Error>,
) -> Result<Machine, Error> {
    // With a rate of 1 the prediction is the count.
    let count = |machine: &Machine, planned: &Planned| predict(planned.plan(), machine).seconds;
    let unit = |flops, memory_bandwidth| Machine { flops, memory_bandwidth, ..Machine::default() };
    let mut rate = |program: Program, unit: Machine| -> Result<f64, Error> {
        let request = LayoutRequest::default();
        let planned = Planned::new(program, mesh, &request, &unit, &Options::default())?;
        let seconds = steps(&mut start(&planned)?, &Inputs::new(), 20)?;
        Ok(count(&unit, &planned) / seconds)
    };
    let flops = rate(products()?, unit(1.0, f64::MAX))?;
    let memory_bandwidth = rate(update()?, unit(f64::MAX, 1.0))?;
    let slowest = links.values().fold(None, |worst: Option<Link>, link| {
        let worst = worst.unwrap_or(*link);
        Some(Link {
            latency: worst.latency.max(link.latency),
            bandwidth: worst.bandwidth.min(link.bandwidth),
        })
    });
    let link = slowest.unwrap_or(Machine::default().link);
    Ok(Machine { flops, memory_bandwidth, memory: None, axes: links, link })
}

/// The products of a layer: y = x · w, and with y for its gradient those of w and x.
fn products() -> Result<Program, Error> {
    let g = Graph::new("products", DType::F32);
    let (x, w) = (g.param("x", [128, 512])?, g.param("w", [512, 512])?);
    let y = x.matmul(w)?;
    let made = [("y", y), ("dw", x.einsum("bi,bo->io", y)?), ("dx", y.einsum("bo,io->bi", w)?)];
    for (name, value) in made {
        let place = g.param(name, value.shape())?;
        g.output(name, value, OutputRole::Update { of: place.id() })?;
    }
    Ok(g.finish())
}

/// w ← w − g/1000.
fn update() -> Result<Program, Error> {
    let g = Graph::new("update", DType::F32);
    let (w, gradient) = (g.param("w", [1024, 1024])?, g.param("g", [1024, 1024])?);
    g.output("w", w.sub(gradient.scale(1e-3)?)?, OutputRole::Update { of: w.id() })?;
    Ok(g.finish())
}

/// The median time of a step, of so many after some that warm up.
///
/// # Errors
/// As [`Trainer::step`].
pub fn steps(trainer: &mut Trainer, inputs: &Inputs, times: usize) -> Result<f64, Error> {
    let mut all = Vec::with_capacity(times);
    for step in 0..times + 3 {
        let start = Instant::now();
        trainer.step(inputs)?;
        if step >= 3 {
            all.push(start.elapsed().as_secs_f64());
        }
    }
    Ok(median(&mut all))
}

/// A batch for a model, of any data.
#[must_use]
pub fn batch(model: &Model) -> Inputs {
    let ids = |shape: &[usize], different: usize| {
        let id = |i| f64::from(u32::try_from(i % different).unwrap_or(0));
        Value::from_fn(&TensorType::new(shape.iter().copied(), DType::I32), id)
    };
    let named = |name: &str, value| (name.to_owned(), value);
    match model {
        Model::Mlp(spec) => {
            let ramp = |columns: usize| {
                let number = |i| f64::from(u8::try_from(i * 7 % 17).unwrap_or(0)) / 17.0 - 0.5;
                Value::from_fn(&TensorType::new([spec.batch, columns], spec.dtype), number)
            };
            let targets = match spec.loss {
                Loss::Sum => None,
                Loss::Mse => Some(ramp(spec.outputs())),
                Loss::CrossEntropy => Some(ids(&[spec.batch], spec.outputs())),
            };
            let targets = targets.map(|y| named("y", y));
            [named("x", ramp(spec.inputs()))].into_iter().chain(targets).collect()
        }
        Model::Stack(spec) => {
            let shape = [spec.batch, spec.sequence];
            let tokens = ["x", "y"].map(|name| named(name, ids(&shape, spec.vocabulary)));
            let all = TensorType::new(shape, spec.dtype);
            let mask = spec.masked.then(|| named("mask", Value::from_fn(&all, |_| 1.0)));
            tokens.into_iter().chain(mask).collect()
        }
    }
}

/// The machine file.
///
/// # Errors
/// None in practice: every rate has a TOML form.
pub fn to_toml(machine: &Machine, remark: &str) -> Result<String, Error> {
    let body = toml::to_string(machine).map_err(|e| Error::Mismatch { problem: e.to_string() })?;
    let remark: String = remark.lines().map(|line| format!("# {line}\n")).collect();
    Ok(format!("{remark}\n{body}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardgrad_runtime::World;

    #[test]
    fn a_line_is_found_again_and_no_rate_is_negative() {
        let sample = |rounds, bytes, seconds| Sample { rounds, bytes, seconds };
        let line = |r: f64, b: f64| sample(r, b, 2e-6 * r + b / 4e9);
        let exact = fit(&[line(2.0, 4.0), line(2.0, 4e4), line(2.0, 4e6), line(6.0, 4e5)]);
        assert!((exact.latency / 2e-6 - 1.0).abs() < 1e-9, "{exact:?}");
        assert!((exact.bandwidth / 4e9 - 1.0).abs() < 1e-9, "{exact:?}");
        // Faster than a line: no latency; slower with fewer bytes: no cost of bytes.
        let steep = fit(&[sample(2.0, 100.0, 1e-6), sample(2.0, 1e4, 1e-3)]);
        assert!(steep.latency == 0.0 && steep.bandwidth > 0.0, "{steep:?}");
        let flat = fit(&[sample(2.0, 100.0, 1e-3), sample(2.0, 1e6, 1e-4)]);
        assert!(flat.latency > 0.0 && flat.bandwidth.is_finite(), "{flat:?}");
    }

    #[test]
    fn a_machine_is_measured_and_its_file_is_read_again() {
        let mesh: Mesh = "dp=2, tp=1".parse().unwrap();
        let m = mesh.clone();
        let by_rank = World::new(2).run(move |comm| links(comm, &m));
        let links = by_rank[0].clone().unwrap();
        assert_eq!(by_rank[1], Ok(links.clone()), "all ranks know the slowest rank's time");
        assert_eq!(links.keys().collect::<Vec<_>>(), ["dp"]);
        let machine = machine(&mesh, links, Trainer::threads).unwrap();
        machine.validate().unwrap();
        assert!(machine.flops > 1e6 && machine.memory_bandwidth > 1e6, "{machine:?}");
        let text = to_toml(&machine, "measured\nhere").unwrap();
        assert!(text.starts_with("# measured\n# here\n"), "{text}");
        assert_eq!(crate::parse_machine("m.toml".as_ref(), &text).unwrap(), machine);
    }
}
