//! `shardgrad plan`: one plan, as a table, in words, node by node, or as a file.

use shardgrad::WhyNot;
use shardgrad::simulate::simulate;

use crate::args::{PlanArgs, PlanFormat};
use crate::failure::Failure;
use crate::{output, request, table, trace};

pub(crate) fn run(args: &PlanArgs) -> Result<(), Failure> {
    if args.why_not.is_some() && args.format != PlanFormat::Text {
        return Err(Failure::input("--why-not is text; leave --format out"));
    }
    let machine = request::machine(&args.one.model)?;
    let planned = request::planned(&args.one, &machine)?;
    let text = match args.format {
        PlanFormat::Json => planned.to_json().map_err(Failure::no)?,
        PlanFormat::Dot => planned.to_dot(),
        PlanFormat::Trace => trace::trace(&planned, &machine),
        PlanFormat::Numpy => planned.to_numpy(),
        PlanFormat::Text if args.why_not.is_some() => {
            let layout = args.why_not.as_deref().unwrap_or_default();
            let other = request::planned_as(&args.one, layout, None, &machine)?;
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
