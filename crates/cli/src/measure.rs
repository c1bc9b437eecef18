//! `shardgrad measure`: a machine file from the machine that this runs on, and how well it predicts steps.

use std::collections::BTreeMap;

use shardgrad::core::Machine;
use shardgrad::core::machine::Link;
use shardgrad::graph::Model;
use shardgrad::measure::{self, batch, steps};
use shardgrad::predict::predict;
use shardgrad::runtime::World;
use shardgrad::runtime::WorldOptions;
use shardgrad::{Planned, Training};

use crate::args::{MeasureArgs, ModelArgs};
use crate::backend::Backend;
use crate::failure::Failure;
use crate::units::seconds;
use crate::{alike, output, request};

pub(crate) fn run(args: &MeasureArgs) -> Result<(), Failure> {
    let backend = Backend::start(args.backend)?;
    let result = run_on(&backend, args);
    backend.finish(result)
}

fn run_on(backend: &Backend, args: &MeasureArgs) -> Result<(), Failure> {
    let model = ModelArgs { model: args.model.clone(), machine: None };
    let asked = backend.together(asked(args, &model))?;
    backend.agree(|| alike::measuring(args, &asked.model))?;
    let machine = measured(backend, args)?;
    let remark = format!(
        "Measured by `shardgrad measure` on {} of {}.\nLinks: all_reduces along the axis. flops: the products of a \
         layer. memory_bandwidth: an update,\nin the bytes that the model counts.",
        if backend.is_threads() { "threads" } else { "processes" },
        args.mesh,
    );
    let text = measure::to_toml(&machine, &remark).map_err(Failure::no)?;
    if backend.speaks() {
        output::write(&text, args.output.as_deref())?;
    }
    if asked.layouts.is_empty() {
        return Ok(());
    }
    let mut table = format!(
        "{:<28} {:>12} {:>12} {:>20}\n",
        "layout", "predicted", "measured", "measured/predicted"
    );
    for (layout, training) in &asked.layouts {
        let planned = backend.together(planned(args, &model, layout, training, &machine))?;
        let predicted = predict(planned.plan(), &machine).seconds;
        let mut trainer = backend.trainer(&planned)?;
        let took = steps(&mut trainer, &batch(&asked.model), usize::from(args.steps))
            .map_err(Failure::no)?;
        table.push_str(&format!(
            "{:<28} {:>12} {:>12} {:>20.2}\n",
            planned.plan().layout,
            seconds(predicted),
            seconds(took),
            took / predicted
        ));
    }
    backend.print(&table)
}

/// What is to be timed.
struct Asked {
    model: Model,
    /// Under each layout, with its text.
    layouts: Vec<(String, Training)>,
}

/// What cannot be timed is refused before anything is.
fn asked(args: &MeasureArgs, model: &ModelArgs) -> Result<Asked, Failure> {
    let training = request::training(model)?;
    let under = |layout: &String| {
        let training = request::with_layout(training.clone(), layout, None)?;
        planned(args, model, layout, &training, &Machine::default())?;
        Ok((layout.clone(), training))
    };
    let layouts = args.layout.iter().map(under).collect::<Result<_, Failure>>()?;
    Ok(Asked { model: training.spec().clone(), layouts })
}

fn planned(
    args: &MeasureArgs,
    model: &ModelArgs,
    layout: &str,
    training: &Training,
    machine: &Machine,
) -> Result<Planned, Failure> {
    training.plan(&args.mesh, machine).map_err(|e| request::no_plan(model, layout, e))
}

fn measured(backend: &Backend, args: &MeasureArgs) -> Result<Machine, Failure> {
    let mesh = &args.mesh;
    let links: BTreeMap<String, Link> = match backend {
        Backend::Threads => {
            let on = mesh.clone();
            // A busy machine may stop a thread for longer than a failure may take.
            let timeout = std::time::Duration::from_secs(30);
            let world =
                World::new(mesh.size()).with(WorldOptions { timeout, ..WorldOptions::default() });
            let by_rank = world.run(move |comm| measure::links(comm, &on));
            by_rank.into_iter().next().unwrap_or(Ok(BTreeMap::new())).map_err(Failure::no)?
        }
        #[cfg(feature = "mpi")]
        Backend::Mpi { universe, options } => {
            if universe.size() != mesh.size() {
                let (started, devices) = (universe.size(), mesh.size());
                return backend.together(Err(Failure::no(format!(
                    "{started} processes were started, but the mesh {mesh} has {devices} devices; start as many: `mpirun -n {devices} …`"
                ))));
            }
            measure::links(&mut universe.communicator(*options), mesh).map_err(Failure::no)?
        }
    };
    let machine = measure::machine(mesh, links, |planned| match backend {
        Backend::Threads => shardgrad::Trainer::threads(planned),
        #[cfg(feature = "mpi")]
        Backend::Mpi { universe, options } => shardgrad::Trainer::mpi_with(
            planned,
            universe,
            *options,
            shardgrad::runtime::Buffers::Keep,
        ),
    });
    let machine = machine.map_err(Failure::no)?;
    Ok(same_everywhere(backend, machine))
}

/// Ranks take different times to compute; what is planned must be the same everywhere: what the first rank found.
fn same_everywhere(backend: &Backend, machine: Machine) -> Machine {
    match backend {
        Backend::Threads => machine,
        #[cfg(feature = "mpi")]
        Backend::Mpi { universe, .. } => Machine {
            flops: universe.of_first(machine.flops),
            memory_bandwidth: universe.of_first(machine.memory_bandwidth),
            ..machine
        },
    }
}
