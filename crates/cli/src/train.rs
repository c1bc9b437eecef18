//! `shardgrad train`: train on devices on threads or in processes, and show that the sharded run equals the dense one.
//!
//! Processes each read the blocks of their device and write those that it owns; whole tensors are put together only to be
//! compared with the dense run (`--verify`; on threads in the first step too).
//!
//! What standard output says depends on the arguments and files only: no time of day, no durations. Progress goes to
//! standard error, and only to a terminal.

use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use shardgrad::core::{Machine, Mesh};
use shardgrad::dataset::TargetColumns;
use shardgrad::graph::{Loss, MlpSpec, Model, Optimizer};
use shardgrad::report::TotalsReport;
use shardgrad::runtime::MAX_RANKS;
use shardgrad::trainer::counted_as_predicted;
use shardgrad::{Dataset, Planned, Trainer, Training};

use crate::args::TrainArgs;
use crate::backend::Backend;
use crate::failure::Failure;
use crate::held_out::HeldOut;
use crate::units::{bytes, of};
use crate::verify::Verifier;
use crate::{alike, interrupt, request, table};

pub(crate) fn run(args: &TrainArgs) -> Result<(), Failure> {
    let backend = Backend::start(args.backend)?;
    let result = run_on(&backend, args);
    backend.finish(result)
}

/// What is trained, on what data, by which plan.
struct Work {
    machine: Machine,
    training: Training,
    data: Dataset,
    planned: Planned,
    /// Steps of an epoch.
    per_epoch: u64,
}

fn work(args: &TrainArgs, threads: bool) -> Result<Work, Failure> {
    if threads && args.mesh.size() > MAX_RANKS {
        return Err(Failure::input(format!(
            "--mesh {}: {} devices, but one process trains on up to {MAX_RANKS}; `shardgrad plan` has no such limit",
            args.mesh,
            args.mesh.size()
        )));
    }
    let machine = request::machine(&args.model)?;
    let training = request::training(&args.model)?;
    let layout = args.layout.clone().unwrap_or_else(|| default_layout(&args.mesh));
    let training = request::with_layout(training, &layout, None)?;
    let spec = training.spec();
    if *spec.optimizer() == Optimizer::None {
        return Err(Failure::input(
            "`optimizer` is none, so there is nothing to train; sgd, momentum, adam or adamw was expected",
        ));
    }
    let data = match spec {
        Model::Mlp(spec) => dataset(args.data.as_deref(), spec)?,
        Model::Stack(spec) => {
            let path = args.data.as_deref().ok_or_else(|| {
                Failure::input(
                    "--data: a text file was expected, which a model with [[stack]] learns from",
                )
            })?;
            Dataset::from_text(path, spec).map_err(Failure::input)?
        }
    };
    let per_epoch = data.epoch(*spec.seed(), 0, *spec.batch()).len();
    if per_epoch == 0 {
        return Err(Failure::input(format!(
            "`batch` is {}, but {} has only {} {} to train on, as every fifth is held out; a smaller batch or more data is needed",
            spec.batch(),
            args.data.as_ref().map_or("the data".to_owned(), |path| path.display().to_string()),
            data.training_rows().len(),
            if data.text().is_some() { "windows" } else { "rows" },
        )));
    }
    let planned = training
        .plan(&args.mesh, &machine)
        .map_err(|e| request::no_plan(&args.model, &layout, e))?;
    interrupt::watch()?;
    Ok(Work { machine, training, data, planned, per_epoch: per_epoch as u64 })
}

fn run_on(backend: &Backend, args: &TrainArgs) -> Result<(), Failure> {
    let work = backend.together(work(args, backend.is_threads()))?;
    backend.agree(|| alike::training(args, work.training.spec()))?;
    backend.print(&plan_summary(&work.planned, backend.is_threads()))?;
    let mut run = backend.together(Run::new(&work, args, backend))?;
    let result = run.train(args, &work);
    match (result, &args.checkpoint, run.saved) {
        (Err(failure), Some(path), Some(step)) => {
            Err(failure.and(&format!("{} holds step {step}", path.display())))
        }
        (Err(failure), Some(path), None) => {
            Err(failure.and(&format!("{} was not written", path.display())))
        }
        (result, ..) => result,
    }
}

/// `dp=data,tp=megatron`, as far as the mesh has these axes; else `auto`.
fn default_layout(mesh: &Mesh) -> String {
    let known: Vec<&str> = [("dp", "dp=data"), ("tp", "tp=megatron")]
        .iter()
        .filter(|(axis, _)| mesh.axis(axis).is_ok())
        .map(|(_, layout)| *layout)
        .collect();
    if known.is_empty() { "auto".to_owned() } else { known.join(",") }
}

/// The data file, or the digits where they fit the model.
fn dataset(file: Option<&Path>, spec: &MlpSpec) -> Result<Dataset, Failure> {
    let targets = match spec.loss {
        Loss::CrossEntropy => TargetColumns::Label { classes: spec.outputs() },
        Loss::Mse => TargetColumns::Values(spec.outputs()),
        Loss::Sum => TargetColumns::Values(0),
    };
    match file {
        Some(path) => {
            Dataset::from_csv(path, spec.inputs(), targets, spec.dtype).map_err(Failure::input)
        }
        None if spec.loss == Loss::CrossEntropy && (spec.inputs(), spec.outputs()) == (64, 10) => {
            Ok(Dataset::digits())
        }
        None => Err(Failure::input(format!(
            "--data: a file was expected, since the built-in digits want cross_entropy, 64 inputs and 10 outputs, but the model has {}, {} and {}",
            spec.loss,
            spec.inputs(),
            spec.outputs()
        ))),
    }
}

/// What `mpirun` shows to a terminal or writes to a file is a terminal to us: no styles there.
fn plan_summary(planned: &Planned, styled: bool) -> String {
    let (report, model) = (planned.report(), planned.model_report());
    format!(
        "{}: batch {}, {}, on {}, layout {}\n{}sent per device and step: {}; peak per device: {}\n",
        model.name,
        model.batch,
        model.dtype,
        planned.mesh(),
        report.layout,
        table::collectives(&report, styled),
        bytes(report.totals.bytes_per_device),
        bytes(report.totals.peak_bytes_per_device),
    )
}

/// A bar on standard error, if that is a terminal.
fn progress(steps: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} step {pos} of {len}, {eta} left")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(steps).with_style(style)
}

struct Run<'a> {
    backend: &'a Backend,
    work: &'a Work,
    totals: TotalsReport,
    trainer: Trainer,
    /// None where whole tensors are not to be put together.
    verifier: Option<Verifier>,
    held_out: HeldOut<'a>,
    /// The dense run that goes its own way, and the largest difference of losses so far.
    free: Option<(Trainer, f64)>,
    /// Steps of this run; the trainer counts those before it too.
    steps: u64,
    /// The step that the checkpoint holds, once it is written.
    saved: Option<u64>,
}

impl<'a> Run<'a> {
    fn new(work: &'a Work, args: &TrainArgs, backend: &'a Backend) -> Result<Self, Failure> {
        let Work { machine, training, data, planned, per_epoch } = work;
        let mut trainer = backend.trainer(planned)?;
        if let Some(path) = &args.checkpoint {
            // Not after the first epoch.
            trainer.can_save(path).map_err(|e| Failure::input(format!("--checkpoint: {e}")))?;
        }
        if let Some(text) = data.text() {
            trainer.set_vocabulary(text.characters());
        }
        if let Some(path) = &args.resume {
            let refused =
                |e: shardgrad::Error| Failure::input(format!("--resume {}: {e}", path.display()));
            trainer.load(path).map_err(refused)?;
        }
        let (total, done) = (args.epochs.saturating_mul(*per_epoch), trainer.steps());
        if done >= total {
            return Err(Failure::input(format!(
                "--epochs {}: ends at step {total}, and the checkpoint is at step {done}",
                args.epochs
            )));
        }
        let verifier = (args.verify || backend.is_threads())
            .then(|| Verifier::new(training, planned, backend))
            .transpose()?;
        Ok(Self {
            backend,
            work,
            totals: planned.report().totals,
            trainer,
            verifier,
            held_out: HeldOut::new(training, data, planned.mesh(), machine, backend)?,
            free: None,
            steps: 0,
            saved: None,
        })
    }

    /// Trains from where the trainer is to the last epoch.
    fn train(&mut self, args: &TrainArgs, work: &Work) -> Result<(), Failure> {
        let per_epoch = work.per_epoch;
        let (total, done) = (args.epochs.saturating_mul(per_epoch), self.trainer.steps());
        let bar = if self.backend.speaks() { progress(total) } else { ProgressBar::hidden() };
        bar.set_position(done);
        self.backend.print(&format!(
            "{:>6}  {:>12}  {:>18}",
            "epoch",
            "loss",
            self.held_out.title()
        ))?;
        for epoch in done / per_epoch..args.epochs {
            let loss = self.epoch(epoch, args, &bar)?;
            self.save(args)?;
            let shown = args.epochs.div_ceil(10);
            if epoch == 0 || (epoch + 1) % shown == 0 || epoch + 1 == args.epochs {
                let held_out = self.held_out.measure(&mut self.trainer)?;
                bar.suspend(|| {
                    self.backend.print(&format!("{:>6}  {loss:>12.6}  {held_out:>18}", epoch + 1))
                })?;
            }
        }
        bar.finish_and_clear();
        self.backend.print(&self.evidence(args.verify))
    }

    /// Writes the checkpoint, if one is wanted.
    fn save(&mut self, args: &TrainArgs) -> Result<(), Failure> {
        if let Some(path) = &args.checkpoint {
            self.trainer.save(path).map_err(Failure::no)?;
            self.saved = Some(self.trainer.steps());
        }
        Ok(())
    }

    /// Trains an epoch, or what is left of it, and returns its mean loss. Every step's counts are held to the plan's
    /// prediction; the first step on threads, and with `verify` every step, to the dense run.
    fn epoch(&mut self, epoch: u64, args: &TrainArgs, bar: &ProgressBar) -> Result<f64, Failure> {
        let (verify, Work { data, planned, training, .. }) = (args.verify, self.work);
        let spec = training.spec();
        if verify && self.free.is_none() {
            let mut free = dense(planned, spec)?;
            let here = self.trainer.checkpoint().map_err(Failure::no)?;
            free.restore(&here).map_err(Failure::no)?;
            self.free = Some((free, 0.0));
        }
        let batches = data.epoch(*spec.seed(), epoch, *spec.batch());
        let before = self.trainer.steps() - epoch * batches.len() as u64;
        let batches = &batches[usize::try_from(before).unwrap_or(0)..];
        let mut sum = 0.0;
        for rows in batches {
            if self.backend.interrupted() {
                self.save(args)?;
                let step = self.trainer.steps();
                let asked = Failure::interrupted(format!("interrupted after step {step}"));
                return self.backend.together(Err(asked));
            }
            let report = match &mut self.verifier {
                Some(verifier) if verify || self.steps == 0 => {
                    verifier.step(&mut self.trainer, &data.batch(rows, *spec.dtype()))?
                }
                _ => self.trainer.step_rows(data, rows).map_err(Failure::no)?,
            };
            self.steps += 1;
            let step = self.trainer.steps();
            counted_as_predicted(&self.totals, &report.counted)
                .map_err(|e| Failure::no(format!("step {step}: {e}")))?;
            let loss = report.loss.unwrap_or(f64::NAN);
            if !loss.is_finite() {
                return Err(Failure::no(format!(
                    "step {step}: the loss is {loss}; a smaller learning rate may help"
                )));
            }
            if let Some((dense, apart)) = &mut self.free {
                let other = dense.step_rows(data, rows).map_err(Failure::no)?;
                let difference = (loss - other.loss.unwrap_or(f64::NAN)).abs();
                // A maximum would drop a NaN.
                *apart = if difference.is_nan() { difference } else { apart.max(difference) };
            }
            sum += loss;
            bar.inc(1);
        }
        #[allow(clippy::cast_precision_loss)]
        Ok(sum / batches.len() as f64)
    }

    fn evidence(&self, verify: bool) -> String {
        let totals = &self.totals;
        let mut text = format!(
            "counted = predicted in all {} steps, per device: {} of {} bytes, {} of {} bytes, peak {} bytes\n",
            self.steps,
            of(totals.launches, "launch", "launches"),
            totals.bytes_per_device,
            of(totals.scalar_reductions, "scalar reduction", "scalar reductions"),
            totals.scalar_bytes_per_device,
            totals.peak_bytes_per_device,
        );
        if let Some(verifier) = &self.verifier {
            text.push_str(&format!("sharded = dense in {}\n", verifier.summary()));
            text.push_str(&format!("each op = dense op in {}\n", verifier.summary_of_ops()));
        }
        if let Some((_, apart)) = &self.free {
            text.push_str(&format!(
                "run freely side by side, the losses of the sharded and the dense run differ by at most {apart:.1e} (no bound is claimed: differences grow with the steps)\n"
            ));
        } else if !verify {
            text.push_str(match self.verifier {
                Some(_) => "--verify compares every step, not the first alone\n",
                None => "--verify compares every step with the dense one\n",
            });
        }
        text
    }
}

/// The same training on one device.
fn dense(planned: &Planned, spec: &Model) -> Result<Trainer, Failure> {
    let mesh = Mesh::new([("one", 1)]).map_err(Failure::no)?;
    let plan = Training::of(spec.clone())
        .plan(&mesh, &Machine::default())
        .map_err(Failure::no)?
        .with_seed(planned.seed());
    Trainer::threads(&plan).map_err(Failure::no)
}
