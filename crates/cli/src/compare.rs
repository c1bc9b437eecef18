//! `shardgrad compare`: plans of several layouts side by side.

use shardgrad::report::{Report, SCHEMA};

use crate::args::{CompareArgs, CompareFormat};
use crate::failure::Failure;
use crate::{output, request, table};

pub(crate) fn run(args: &CompareArgs) -> Result<(), Failure> {
    let machine = request::machine(&args.model)?;
    let training = request::with_search(request::training(&args.model)?, &args.search, &machine);
    let layouts = if args.layout.is_empty() {
        request::layouts_that_fit(&args.mesh)
    } else {
        args.layout.clone()
    };
    let mut plans = Vec::with_capacity(layouts.len());
    let mut model = None;
    for layout in &layouts {
        let planned = request::with_layout(training.clone(), layout, args.search.free)?
            .plan(&args.mesh, &machine)
            .map_err(Failure::input)?;
        plans.push(planned.report());
        model = Some(planned.model_report());
    }
    let Some(model) = model else {
        return Err(Failure::input("--layout: at least one layout was expected"));
    };
    let report = Report { schema: SCHEMA, mesh: args.mesh.clone(), model, plans };
    let text = match args.format {
        CompareFormat::Table => table::compare(&report, args.output.is_none()),
        CompareFormat::Json => output::json(&report)?,
    };
    output::write(&text, args.output.as_deref())
}
