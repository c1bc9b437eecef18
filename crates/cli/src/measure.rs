//! `shardgrad measure`: a machine file from the machine that this runs on, and how well it predicts steps.

use std::collections::BTreeMap;

use shardgrad::core::Machine;
use shardgrad::core::machine::Link;
use shardgrad::measure::{self, batch, steps};
use shardgrad::predict::predict;
use shardgrad::runtime::World;
use shardgrad::runtime::WorldOptions;

use crate::args::{MeasureArgs, ModelArgs};
use crate::backend::Backend;
use crate::failure::Failure;
use crate::units::seconds;
use crate::{output, request};

pub(crate) fn run(args: &MeasureArgs) -> Result<(), Failure> {
    let backend = Backend::start(args.backend)?;
    let result = run_on(&backend, args);
    backend.finish(result)
}

fn run_on(backend: &Backend, args: &MeasureArgs) -> Result<(), Failure> {
    let model = ModelArgs { model: args.model.clone(), machine: None };
    let training = backend.together(request::training(&model))?;
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
    if args.layout.is_empty() {
        return Ok(());
    }
    let mut table = format!(
        "{:<28} {:>12} {:>12} {:>20}\n",
        "layout", "predicted", "measured", "measured/predicted"
    );
    for layout in &args.layout {
        let planned = request::with_layout(training.clone(), layout, None).and_then(|training| {
            let planned = training.plan(&args.mesh, &machine);
            planned.map_err(|e| request::no_plan(&model, layout, e))
        });
        let planned = backend.together(planned)?;
        let predicted = predict(planned.plan(), &machine).seconds;
        let mut trainer = backend.trainer(&planned)?;
        let Some(spec) = training.spec().mlp() else {
            return Err(Failure::input("`stack`: a model with [[layer]] was expected"));
        };
        let took =
            steps(&mut trainer, &batch(spec), usize::from(args.steps)).map_err(Failure::no)?;
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
        Backend::Mpi { universe, options } => {
            shardgrad::Trainer::mpi_with(planned, universe, *options)
        }
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
