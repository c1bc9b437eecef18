//! `shardgrad check`: the independent checker on a plan file.

use shardgrad::graph::check::check;
use shardgrad::graph::check::optimality::{Verdict, verify};
use shardgrad::graph::plan_file::PlanFile;

use crate::args::CheckArgs;
use crate::failure::Failure;
use crate::output;
use crate::units::of;

pub(crate) fn run(args: &CheckArgs) -> Result<(), Failure> {
    let name = args.plan.display();
    let text = std::fs::read_to_string(&args.plan)
        .map_err(|e| Failure::input(format!("{name}: cannot be read: {e}")))?;
    let file = PlanFile::read(&text).map_err(|e| Failure::input(format!("{name}: {e}")))?;
    let mut report = check(&file.plan, &file.program);
    let proof = match &file.certificate {
        // A certificate speaks of a plan that is right.
        Some(certificate) if report.is_right() => {
            Some(verify(&file.plan, &file.program, certificate))
        }
        _ => None,
    };
    if let Some(Verdict::Refuted(violation)) = &proof {
        report.violations.push(violation.clone());
    }
    let mut out = String::new();
    for lint in &report.lints {
        out.push_str(&format!("wasteful: {lint}\n"));
    }
    for violation in &report.violations {
        out.push_str(&format!("wrong: {violation}\n"));
    }
    if report.violations.is_empty() {
        let totals = file.plan.totals();
        let collectives: u64 = totals.by_kind.values().sum();
        out.push_str(&format!(
            "right: {} on {}, {}{} and {}, {} bytes per device\n",
            of(file.plan.nodes.len() as u64, "node", "nodes"),
            file.plan.mesh,
            of(collectives, "collective", "collectives"),
            if totals.launches == collectives {
                String::new()
            } else {
                format!(" in {}", of(totals.launches, "launch", "launches"))
            },
            of(totals.scalar_reductions, "scalar reduction", "scalar reductions"),
            totals.bytes_per_device,
        ));
        out.push_str(&match proof {
            Some(verdict) => format!("certificate: {verdict}\n"),
            None => "certificate: none, because the file has none\n".to_owned(),
        });
        return output::print(&out);
    }
    output::print(&out)?;
    Err(Failure::no(format!(
        "{name}: {}; the plan is not right",
        of(report.violations.len() as u64, "violation", "violations")
    )))
}
