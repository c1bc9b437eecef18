//! A plan in words: its totals, and every collective with its reason and with what would spare it.

use std::fmt::Write as _;

use shardgrad_graph::Plan;
use shardgrad_planner::{Remedies, Remedy};

use crate::report::{MemoryReport, PlanReport};

/// The plan in words. `legend` says what the letters of formulas stand for.
pub(crate) fn explain(
    report: &PlanReport,
    plan: &Plan,
    legend: &str,
    Remedies { found, tried, untried }: &Remedies,
) -> String {
    let totals = &report.totals;
    let mut text = format!("layout {} on {}\n", report.layout, plan.mesh);
    let kinds =
        if totals.by_kind.is_empty() { "no collectives".to_owned() } else { totals.kinds() };
    // Writing to a string cannot fail.
    let _ = writeln!(text, "sent per device: {} bytes ({kinds})", totals.bytes_per_device);
    let _ = writeln!(
        text,
        "{}",
        if report.optimal {
            format!("optimal: by {} no plan of this space is better", report.objective)
        } else {
            format!("lower bound: {} bytes", report.lower_bound_bytes)
        }
    );
    let _ = writeln!(text, "certificate: {}", report.certificate.says);
    let _ = writeln!(text, "peak per device: {} bytes", totals.peak_bytes_per_device);
    text.push_str(&memory(&report.memory));
    if !legend.is_empty() {
        let _ = writeln!(text, "letters: {legend}");
    }
    let nodes = plan.launches().flatten().map(|c| c.id);
    for ((index, c), node) in report.collectives.iter().enumerate().zip(nodes) {
        let scalar = if c.scalar { ", a scalar" } else { "" };
        let _ = writeln!(
            text,
            "{}. {}{scalar}: {} → {}, {} bytes per device ({} elements)",
            index + 1,
            c.movement(),
            c.from,
            c.to,
            c.bytes_per_device,
            c.formula,
        );
        let together = report.launched_with(index);
        if !together.is_empty() {
            let others: Vec<String> = together.iter().map(usize::to_string).collect();
            let _ = writeln!(text, "   launched with {}", others.join(", "));
        }
        if !c.why.is_empty() {
            let _ = writeln!(text, "   {}", c.why);
        }
        if let Some(Remedy { change, bytes }) = found.get(&node) {
            let _ =
                writeln!(text, "   spared by: {change}; {bytes} bytes are then sent per device");
        }
    }
    if *untried > 0 {
        let _ = writeln!(
            text,
            "of {} changes that might spare a collective the first {tried} were tried, since the program is large",
            tried + untried
        );
    }
    text
}

/// Under a memory limit: what the peak holds, and what replication would.
fn memory(memory: &MemoryReport) -> String {
    let Some(limit) = memory.limit else { return String::new() };
    let (held, whole) = (&memory.at_peak, &memory.replicated);
    let verdict = if whole.total() > limit { "which does not fit" } else { "which leaves room" };
    format!(
        "at the peak: parameters {}, optimizer state {}, inputs {}, activations {}, gradients {}, staging {}\n\
         memory limit: {limit} bytes; replicated, a device would store {} bytes (parameters {}, optimizer state {}, inputs {}), {verdict}\n",
        held.parameters,
        held.state,
        held.inputs,
        held.activations,
        held.gradients,
        held.staging,
        whole.total(),
        whole.parameters,
        whole.state,
        whole.inputs,
    )
}
