//! Tables for people, from the same report that programs read.

use std::collections::BTreeMap;

use comfy_table::{
    Attribute, Cell, CellAlignment, ContentArrangement, LineStyle, Table, TableStyle,
};
use shardgrad::report::{CollectiveReport, NotPlanned, PlanReport, Report, TotalsReport};

use crate::units::{bytes, count, seconds};

/// Letters of boundaries: plans with the same letter have the same layouts of inputs, parameters and outputs.
pub(crate) fn boundary_letters(plans: &[PlanReport]) -> Vec<String> {
    let mut known: Vec<&BTreeMap<String, String>> = Vec::new();
    plans
        .iter()
        .map(|plan| {
            let index = known.iter().position(|b| **b == plan.boundary).unwrap_or_else(|| {
                known.push(&plan.boundary);
                known.len() - 1
            });
            letter(index)
        })
        .collect()
}

/// A … Z, A1 … Z1, A2 …
fn letter(index: usize) -> String {
    let letter = char::from(b'A' + u8::try_from(index % 26).unwrap_or(0));
    match index / 26 {
        0 => letter.to_string(),
        round => format!("{letter}{round}"),
    }
}

/// `2 all_reduce, 1 all_gather in 2 launches`, or `none`.
pub(crate) fn kinds(totals: &TotalsReport) -> String {
    if totals.by_kind.is_empty() { "none".to_owned() } else { totals.kinds() }
}

/// `2 all_reduce, 1 all_gather`, or `none`.
fn kinds_apart(by_kind: &BTreeMap<String, u64>) -> String {
    if by_kind.is_empty() {
        return "none".to_owned();
    }
    by_kind.iter().map(|(kind, n)| format!("{n} {kind}")).collect::<Vec<_>>().join(", ")
}

/// A bar of at most ten blocks in eighths.
fn bar(value: u64, largest: u64) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    if largest == 0 {
        return String::new();
    }
    // Rounded up, so that nothing but zero looks like nothing.
    let eighths = u128::from(value) * 80;
    let eighths = usize::try_from(eighths.div_ceil(u128::from(largest))).unwrap_or(80);
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(EIGHTHS[eighths % 8]);
    }
    bar
}

fn new_table(header: &[&str], styled: bool) -> Table {
    let mut table = Table::new();
    table
        .load_style(TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')))
        .set_content_arrangement(ContentArrangement::Disabled);
    // Bold headers on a terminal only, and never in a file.
    if !styled {
        table.force_no_tty();
    }
    table.set_header(header.iter().map(|h| Cell::new(h).add_attribute(Attribute::Bold)));
    table
}

fn right(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

/// Whether a plan is optimal: `yes` if the checker verified it, else what is known.
pub(crate) fn optimal(plan: &PlanReport) -> String {
    if plan.certificate.proves_optimal {
        "yes".to_owned()
    } else if plan.optimal {
        "yes, not certified".to_owned()
    } else {
        match (plan.objective.as_str(), plan.certificate.gap) {
            ("volume", _) if plan.lower_bound_bytes == plan.totals.bytes_per_device => {
                "yes, by bytes".to_owned()
            }
            ("volume", _) => format!("≥ {}", bytes(plan.lower_bound_bytes)),
            ("time", Some(gap)) => format!("within {}", seconds(gap as f64 * 1e-15)),
            _ => "not known".to_owned(),
        }
    }
}

/// The table of `compare`.
pub(crate) fn compare(report: &Report, styled: bool) -> String {
    let letters = boundary_letters(&report.plans);
    let largest = report.plans.iter().map(|p| p.totals.bytes_per_device).max().unwrap_or(0);
    let objective = report.plans.first().map_or("volume", |p| p.objective.as_str());
    let mut table = new_table(
        &[
            "layout",
            "collectives",
            "sent/device",
            "",
            "flops/device",
            "peak/device",
            "predicted",
            "optimal",
            "boundary",
        ],
        styled,
    );
    for (plan, letter) in report.plans.iter().zip(&letters) {
        let totals = &plan.totals;
        table.add_row(vec![
            Cell::new(&plan.layout),
            Cell::new(kinds(totals)),
            right(bytes(totals.bytes_per_device)),
            Cell::new(bar(totals.bytes_per_device, largest)),
            right(count(totals.flops_per_device)),
            right(bytes(totals.peak_bytes_per_device)),
            right(seconds(totals.predicted_seconds)),
            Cell::new(optimal(plan)),
            Cell::new(letter),
        ]);
    }
    let mut text = format!(
        "{}: batch {}, {}, on {}; objective {objective}\n{}\n",
        report.model.name,
        report.model.batch,
        report.model.dtype,
        report.mesh,
        table.trim_fmt(),
    );
    for NotPlanned { layout, reason } in &report.not_planned {
        text.push_str(&format!("not planned: {layout}: {reason}\n"));
    }
    text.push_str(&memory_note(report, styled));
    text.push_str(&pareto_note(report, styled));
    text.push_str(&boundary_note(report, &letters));
    let scalars = report.plans.iter().map(|p| p.totals.scalar_reductions).max().unwrap_or(0);
    if scalars > 0 {
        text.push_str("Reductions of scalars (the loss) are not counted.\n");
    }
    text
}

/// Under a memory limit: what each plan holds at its peak, and what replication would store.
fn memory_note(report: &Report, styled: bool) -> String {
    let limits = report.plans.iter().filter_map(|p| p.memory.limit);
    let (Some(limit), Some(first)) = (limits.min(), report.plans.first()) else {
        return String::new();
    };
    let mut table = new_table(
        &["layout", "parameters", "state", "inputs", "activations", "gradients", "staging", "peak"],
        styled,
    );
    for plan in &report.plans {
        let held = &plan.memory.at_peak;
        let parts = [
            held.parameters,
            held.state,
            held.inputs,
            held.activations,
            held.gradients,
            held.staging,
            plan.totals.peak_bytes_per_device,
        ];
        table.add_row([Cell::new(&plan.layout)].into_iter().chain(parts.map(|n| right(bytes(n)))));
    }
    let whole = &first.memory.replicated;
    let verdict = if whole.total() > limit { "does not fit" } else { "leaves room" };
    format!(
        "Memory limit {} per device. Replicated, a device would store {} (parameters {}, state {}, inputs {}): that {verdict}.\n{}\n",
        bytes(limit),
        bytes(whole.total()),
        bytes(whole.parameters),
        bytes(whole.state),
        bytes(whole.inputs),
        table.trim_fmt(),
    )
}

/// The front, and where the layouts stand.
fn pareto_note(report: &Report, styled: bool) -> String {
    let Some(front) = &report.pareto else { return String::new() };
    let mut table = new_table(
        &["#", "collectives", "sent/device", "predicted", "peak/device", "layouts there"],
        styled,
    );
    for (index, point) in front.points.iter().enumerate() {
        let there = report.plans.iter().filter(|p| front.beats(p) == Some((index + 1, false)));
        table.add_row(vec![
            right((index + 1).to_string()),
            Cell::new(kinds_apart(&point.by_kind)),
            right(bytes(point.bytes_per_device)),
            right(seconds(point.predicted_seconds)),
            right(bytes(point.peak_bytes_per_device)),
            Cell::new(there.map(|p| p.layout.as_str()).collect::<Vec<_>>().join("; ")),
        ]);
    }
    let mut text = format!(
        "Front of {} against memory, every layout free that is not pinned ({}; no plan holds less than {}):\n{}\n",
        front.objective,
        if front.exact { "complete" } else { "the best of the plans looked at" },
        bytes(front.least_bytes),
        table.trim_fmt(),
    );
    for plan in &report.plans {
        match front.beats(plan) {
            Some((point, true)) => {
                text.push_str(&format!("{}: #{point} is better\n", plan.layout));
            }
            Some((_, false)) => {}
            None => text.push_str(&format!("{}: none of these is better\n", plan.layout)),
        }
    }
    text
}

/// What the letters stand for, and what they mean for comparing.
pub(crate) fn boundary_note(report: &Report, letters: &[String]) -> String {
    let mut note = String::new();
    let mut shown: Vec<&String> = Vec::new();
    for (plan, letter) in report.plans.iter().zip(letters) {
        if shown.contains(&letter) {
            continue;
        }
        shown.push(letter);
        // Values with one layout stand together.
        let mut groups: Vec<(&String, Vec<&str>)> = Vec::new();
        let mut state_follows = false;
        for (name, layout) in &plan.boundary {
            if follows_parameter(name, layout, &plan.boundary) {
                state_follows = true;
                continue;
            }
            match groups.iter_mut().find(|(known, _)| *known == layout) {
                Some((_, names)) => names.push(name),
                None => groups.push((layout, vec![name])),
            }
        }
        let mut groups: Vec<String> =
            groups.iter().map(|(layout, names)| format!("{} {layout}", names.join(" "))).collect();
        if state_follows {
            groups.push("optimizer state not named: as its parameter".to_owned());
        }
        note.push_str(&format!("Boundary {letter}: {}\n", groups.join("; ")));
    }
    if shown.len() > 1 {
        note.push_str(
            "Boundaries differ: counts are comparable only between plans of one letter.\n",
        );
    }
    note
}

/// The parameter whose optimizer state a name is: `w0` of `m(w0)`.
pub(crate) fn parameter_of(state: &str) -> Option<&str> {
    state.strip_prefix(['m', 'v'])?.strip_prefix('(')?.strip_suffix(')')
}

/// Whether a value is optimizer state with the layout of its parameter.
fn follows_parameter(name: &str, layout: &str, boundary: &BTreeMap<String, String>) -> bool {
    parameter_of(name).and_then(|p| boundary.get(p)).is_some_and(|l| l == layout)
}

/// The collectives of one plan.
pub(crate) fn collectives(plan: &PlanReport, styled: bool) -> String {
    if plan.collectives.is_empty() {
        return "No collectives.\n".to_owned();
    }
    let shared = plan.collectives.windows(2).any(|c| c[0].launch == c[1].launch);
    let mut header = vec![
        "#",
        "phase",
        "collective",
        "axes",
        "tensor",
        "from → to",
        "sent/device",
        "elements sent",
    ];
    if shared {
        header.push("launch");
    }
    let mut table = new_table(&header, styled);
    for (index, c) in plan.collectives.iter().enumerate() {
        let CollectiveReport { phase, kind, axes, tensor, from, to, formula, .. } = c;
        let mut row = vec![
            right((index + 1).to_string()),
            Cell::new(phase.to_string()),
            Cell::new(if c.scalar { format!("{kind} (scalar)") } else { kind.clone() }),
            Cell::new(axes.join(", ")),
            Cell::new(tensor),
            Cell::new(format!("{from} → {to}")),
            right(bytes(c.bytes_per_device)),
            Cell::new(formula),
        ];
        if shared {
            row.push(right((c.launch + 1).to_string()));
        }
        table.add_row(row);
    }
    format!("{}\n", table.trim_fmt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_proportional_and_nothing_but_zero_is_empty() {
        assert_eq!(bar(10, 10), "██████████");
        assert_eq!(bar(5, 10), "█████");
        assert_eq!(bar(1, 1_000_000), "▏");
        assert_eq!(bar(0, 10), "");
        assert_eq!(bar(0, 0), "");
        assert_eq!(bar(u64::MAX, u64::MAX).chars().count(), 10);
    }

    #[test]
    fn what_is_known_of_the_optimum_is_said_under_each_objective() {
        let training = crate::request::digits().layout("megatron").unwrap();
        let (mesh, machine) = ("p=2".parse().unwrap(), shardgrad::core::Machine::default());
        let mut plan = training.plan(&mesh, &machine).unwrap().report();
        assert_eq!(optimal(&plan), "yes");
        plan.certificate.proves_optimal = false;
        assert_eq!(optimal(&plan), "yes, not certified");
        plan.optimal = false;
        assert_eq!(optimal(&plan), "yes, by bytes");
        plan.lower_bound_bytes = 512;
        assert_eq!(optimal(&plan), "≥ 512 B");
        plan.objective = "time".to_owned();
        plan.certificate.gap = Some(3_000_000_000);
        assert_eq!(optimal(&plan), "within 3.0 µs");
        plan.objective = "memory".to_owned();
        plan.lower_bound_bytes = plan.totals.bytes_per_device;
        assert_eq!(optimal(&plan), "not known");
    }

    #[test]
    fn letters_go_on_after_z() {
        assert_eq!([0, 25, 26].map(letter), ["A", "Z", "A1"]);
    }
}
