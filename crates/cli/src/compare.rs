//! `shardgrad compare`: plans of several layouts side by side.

use shardgrad::planner::Combine;
use shardgrad::report::{NotPlanned, Report, SCHEMA};
use shardgrad::{Error, planner};

use crate::args::{CompareArgs, CompareFormat};
use crate::failure::Failure;
use crate::{html, output, request, table};

pub(crate) fn run(args: &CompareArgs) -> Result<(), Failure> {
    let machine = request::machine(&args.model)?;
    let mut search = args.search.clone();
    if args.pareto {
        // The front is that of the plan space, whose plans are compared before their launches are arranged.
        search.combine = Combine::Off;
        search.blocking = true;
    }
    let training = request::with_search(request::training(&args.model)?, &search, &machine);
    let layouts = if args.layout.is_empty() {
        request::layouts_that_fit(&args.mesh)
    } else {
        args.layout.clone()
    };
    let mut plans = Vec::with_capacity(layouts.len());
    let mut all = Vec::with_capacity(layouts.len());
    let mut not_planned = Vec::new();
    let mut model = None;
    for layout in &layouts {
        let planned = request::with_layout(training.clone(), layout, args.search.free)?
            .plan(&args.mesh, &machine);
        let planned = match planned {
            Ok(planned) => planned,
            // The search is at its limits with this layout; the others have their answers all the same.
            Err(
                error @ Error::Planner(
                    planner::Error::TooWide { .. }
                    | planner::Error::TooLarge { .. }
                    | planner::Error::OverLimit { .. },
                ),
            ) => {
                not_planned.push(NotPlanned { layout: layout.clone(), reason: error.to_string() });
                continue;
            }
            Err(error) => return Err(request::no_plan(&args.model, layout, error)),
        };
        plans.push(planned.report());
        model = Some(planned.model_report());
        all.push(planned);
    }
    let Some(model) = model else {
        return Err(match not_planned.first() {
            Some(NotPlanned { layout, reason }) => {
                Failure::no(format!("not planned: {layout}: {reason}"))
            }
            None => Failure::input("--layout: at least one layout was expected"),
        });
    };
    if args.pareto && args.format == CompareFormat::Svg {
        return Err(Failure::input(
            "--pareto has no place in the svg figure; table, json or html was expected",
        ));
    }
    let mut pareto = None;
    if args.pareto {
        let front = training.pareto(&args.mesh, &machine);
        pareto = Some(front.map_err(|e| request::no_plan(&args.model, "auto", e))?);
    }
    let mesh = args.mesh.clone();
    let report = Report { schema: SCHEMA, mesh, model, plans, not_planned, pareto };
    let text = match args.format {
        CompareFormat::Table => table::compare(&report, args.output.is_none()),
        CompareFormat::Json => output::json(&report)?,
        CompareFormat::Html => html::report(&report, &all, &machine, args.search.memory_limit),
        CompareFormat::Svg => html::figure(&report),
    };
    output::write(&text, args.output.as_deref())
}
