//! From arguments to trainings and layouts.

use std::path::Path;

use shardgrad::core::{Machine, Mesh};
use shardgrad::graph::{Activation, Loss};
use shardgrad::optimizers::Adam;
use shardgrad::planner::{Free, Objective, Options, Preset, Redundant};
use shardgrad::{
    Batch, Error, LayoutFile, Mlp, ModelFile, Planned, Training, planner, read_machine,
};

use crate::args::{FreeArg, ModelArgs, ObjectiveArg, OnePlanArgs, RedundantArg, SearchArgs};
use crate::failure::Failure;

/// The training that is planned: a model file's, or that of the built-in digits.
pub(crate) fn training(args: &ModelArgs) -> Result<Training, Failure> {
    match &args.model {
        Some(path) => Ok(Training::from_file(&ModelFile::read(path).map_err(Failure::input)?)),
        None => Ok(digits()),
    }
}

/// The built-in network for the built-in digits.
pub(crate) fn digits() -> Training {
    let model = Mlp::new(&[64, 128, 10]).named("digits").activation(Activation::Relu);
    Training::new(model, Loss::CrossEntropy, Adam::new(1e-3), Batch(64))
}

/// The machine that is planned for.
pub(crate) fn machine(args: &ModelArgs) -> Result<Machine, Failure> {
    args.machine
        .as_deref()
        .map_or_else(|| Ok(Machine::default()), |path| read_machine(path).map_err(Failure::input))
}

/// A training with the options of the search.
pub(crate) fn with_search(training: Training, args: &SearchArgs, machine: &Machine) -> Training {
    let redundant = match args.redundant_compute {
        RedundantArg::Never => Redundant::Never,
        RedundantArg::Allow => Redundant::Allow,
    };
    let objective = match args.objective {
        ObjectiveArg::Volume => Objective::Volume,
        ObjectiveArg::Time => Objective::Time,
        ObjectiveArg::Memory => Objective::Memory,
    };
    let options = Options {
        objective,
        redundant,
        machine: machine.clone(),
        memory_limit: args.memory_limit,
        combine: args.combine,
        blocking: args.blocking,
    };
    training.options(options)
}

/// A training with one layout: presets, or a layout file; then with what is freed.
pub(crate) fn with_layout(
    training: Training,
    layout: &str,
    free: Option<FreeArg>,
) -> Result<Training, Failure> {
    let training = if Path::new(layout).extension().is_some_and(|e| e == "toml") {
        let file = LayoutFile::read(Path::new(layout)).map_err(Failure::input)?;
        training.layout_file(&file)
    } else {
        training.layout(layout)
    };
    let training = training.map_err(|e| Failure::input(format!("--layout {layout}: {e}")))?;
    Ok(match free {
        Some(FreeArg::Splits) => training.free(Free::Splits),
        Some(FreeArg::All) => training.free(Free::All),
        None => training,
    })
}

/// The plan of one layout.
pub(crate) fn planned(args: &OnePlanArgs, machine: &Machine) -> Result<Planned, Failure> {
    planned_as(args, &args.layout, args.search.free, machine)
}

/// The plan of another layout of the same model, on the same mesh.
pub(crate) fn planned_as(
    args: &OnePlanArgs,
    layout: &str,
    free: Option<FreeArg>,
    machine: &Machine,
) -> Result<Planned, Failure> {
    let training = with_search(training(&args.model)?, &args.search, machine);
    with_layout(training, layout, free)?
        .plan(&args.mesh, machine)
        .map_err(|e| no_plan(&args.model, layout, e))
}

/// Why there is no plan, behind the places that its demands come from.
pub(crate) fn no_plan(args: &ModelArgs, layout: &str, error: Error) -> Failure {
    let file = args.model.as_deref().map_or(String::new(), |path| format!("{}: ", path.display()));
    let message = format!("{file}--layout {layout}: {error}");
    // Where memory does not suffice the request is fine, and the answer is no.
    match error {
        Error::Planner(planner::Error::OverLimit { .. }) => Failure::no(message),
        _ => Failure::input(message),
    }
}

/// The layouts that are compared when none is named. One axis: every preset. Several: every way to share the batch on
/// all axes but the last with every way to share it or the features on the last; and `auto`.
pub(crate) fn layouts_that_fit(mesh: &Mesh) -> Vec<String> {
    let (last, outer) = match mesh.axes().split_last() {
        Some((last, outer)) if !outer.is_empty() => (last, outer),
        _ => return Preset::ALL.iter().map(|p| p.name().to_owned()).collect(),
    };
    let mut layouts = Vec::new();
    for data in [Preset::Data, Preset::Fsdp, Preset::Zero1] {
        for inner in Preset::ALL {
            let shares_data = matches!(inner, Preset::Data | Preset::Fsdp | Preset::Zero1);
            if matches!(inner, Preset::Replicated | Preset::Auto) || shares_data && inner != data {
                continue;
            }
            let outer = outer.iter().map(|axis| format!("{}={data}", axis.name));
            let all: Vec<String> = outer.chain([format!("{}={inner}", last.name)]).collect();
            layouts.push(all.join(","));
        }
    }
    layouts.push(Preset::Auto.name().to_owned());
    layouts
}
