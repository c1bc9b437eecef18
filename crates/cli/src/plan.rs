//! `shardgrad plan`: one plan, as a table, in words, node by node, or as a file.

use shardgrad::WhyNot;
use shardgrad::simulate::simulate;

use crate::args::{PlanArgs, PlanFormat};
use crate::failure::Failure;
use crate::{output, request, table, trace};

pub(crate) fn run(args: &PlanArgs) -> Result<(), Failure> {
    let machine = request::machine(&args.model)?;
    let training = request::with_search(request::training(&args.model)?, &args.search, &machine);
    if args.why_not.is_some() && args.format != PlanFormat::Text {
        return Err(Failure::input("--why-not is text; leave --format out"));
    }
    let of_layout = |layout: &str, free| {
        request::with_layout(training.clone(), layout, free)?
            .plan(&args.mesh, &machine)
            .map_err(|e| request::no_plan(&args.model, layout, e))
    };
    let planned = of_layout(&args.layout, args.search.free)?;
    let text = match args.format {
        PlanFormat::Json => planned.to_json().map_err(Failure::no)?,
        PlanFormat::Dot => planned.to_dot(),
        PlanFormat::Trace => trace::trace(&planned, &machine),
        PlanFormat::Numpy => planned.to_numpy(),
        PlanFormat::Text if args.why_not.is_some() => {
            let other = of_layout(args.why_not.as_deref().unwrap_or_default(), None)?;
            let (plan, other) = (planned.report(), other.report());
            WhyNot::new(&plan, &other).text()
        }
        PlanFormat::Text if args.explain => planned.explain(),
        PlanFormat::Text => {
            format!(
                "{}\n{}\n{}",
                planned.listing(),
                simulate(planned.plan(), &machine).text(planned.plan()),
                table::collectives(&planned.report(), args.output.is_none())
            )
        }
    };
    output::write(&text, args.output.as_deref())
}
