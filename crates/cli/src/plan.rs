//! `shardgrad plan`: one plan, as a table, in words, node by node, or as a file.

use crate::args::{PlanArgs, PlanFormat};
use crate::failure::Failure;
use crate::{output, request, table};

pub(crate) fn run(args: &PlanArgs) -> Result<(), Failure> {
    let machine = request::machine(&args.model)?;
    let training = request::with_search(request::training(&args.model)?, &args.search, &machine);
    let planned = request::with_layout(training, &args.layout, args.search.free)?
        .plan(&args.mesh, &machine)
        .map_err(|e| request::no_plan(&args.model, &args.layout, e))?;
    let text = match args.format {
        PlanFormat::Json => planned.to_json().map_err(Failure::no)?,
        PlanFormat::Text if args.explain => planned.explain(),
        PlanFormat::Text => {
            format!(
                "{}\n{}",
                planned.listing(),
                table::collectives(&planned.report(), args.output.is_none())
            )
        }
    };
    output::write(&text, args.output.as_deref())
}
