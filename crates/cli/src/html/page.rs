//! The page: comparison first, then one section per plan.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use shardgrad::Planned;
use shardgrad::core::Machine;
use shardgrad::report::{NotPlanned, PlanReport, Report};

use super::holdings::Pictures;
use super::style::{FIGURE, PAGE};
use super::{bars, frontier, memory, timeline};
use crate::table;
use crate::units::{bytes, count, seconds};

pub(super) fn page(
    report: &Report,
    planned: &[Planned],
    machine: &Machine,
    limit: Option<u64>,
) -> Markup {
    let letters = table::boundary_letters(&report.plans);
    let model = &report.model;
    let pictures = Pictures::of(planned);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (model.name) " on " (report.mesh) " – shardgrad" }
                style { (PreEscaped(PAGE)) (PreEscaped(FIGURE)) }
            }
            body {
                @if let Some(pictures) = &pictures { (pictures.definitions()) }
                header {
                    h1 { (model.name) " on " (report.mesh) }
                    p { "Batch " (model.batch) ", " (model.dtype) ". What each layout sends, computes and holds in one training step, per device. "
                        "Reductions of scalars (the loss) are not counted." }
                }
                nav aria-label="Plans" { ol { @for (i, plan) in report.plans.iter().enumerate() { li { a href=(format!("#plan{}", i + 1)) { (plan.layout) } } } } }
                main {
                    h2 { "Comparison" }
                    (wide("Comparison", &comparison(&report.plans, &letters)))
                    @for NotPlanned { layout, reason } in &report.not_planned { p { "Not planned: " (layout) ": " (reason) } }
                    div.note { @for line in table::boundary_note(report, &letters).lines() { p { (line) } } }
                    h2 { "Communication" }
                    (wide("Communication", &bars::figure(&report.plans, false)))
                    h2 { "Communication against memory" }
                    figure {
                        (wide("Communication against memory", &frontier::figure(&report.plans, report.pareto.as_ref())))
                        figcaption { "Numbers are those of the table. No plan of the table lies below and left of the dashed line."
                            @if let Some(front) = &report.pareto { " Squares: plans of auto that trade the one for the other" @if front.exact { "; there are none below and left of them." } @else { ", the best of those looked at." } } }
                    }
                    @for (i, (plan, made)) in report.plans.iter().zip(planned).enumerate() { (section(i + 1, plan, made, pictures.as_ref(), machine, limit)) }
                }
            }
        }
    }
}

/// What may be wider than the screen, and is then scrolled by itself.
fn wide(label: &str, inside: &Markup) -> Markup {
    html! { div.wide tabindex="0" role="region" aria-label=(label) { (inside) } }
}

fn comparison(plans: &[PlanReport], letters: &[String]) -> Markup {
    html! {
        table {
            thead { tr {
                th.n { "#" } th { "layout" } th { "collectives" } th.n { "sent" } th.n { "flops" } th.n { "peak" } th.n { "predicted" } th { "optimal" } th { "boundary" }
            } }
            tbody { @for (i, (plan, letter)) in plans.iter().zip(letters).enumerate() {
                @let totals = &plan.totals;
                tr {
                    td.n { (i + 1) }
                    td { a href=(format!("#plan{}", i + 1)) { (plan.layout) } }
                    td { (table::kinds(totals)) }
                    td.n { (bytes(totals.bytes_per_device)) }
                    td.n { (count(totals.flops_per_device)) }
                    td.n { (bytes(totals.peak_bytes_per_device)) }
                    td.n { (seconds(totals.predicted_seconds)) }
                    td { (table::optimal(plan)) }
                    td { (letter) }
                }
            } }
        }
    }
}

fn section(
    number: usize,
    plan: &PlanReport,
    made: &Planned,
    pictures: Option<&Pictures>,
    machine: &Machine,
    limit: Option<u64>,
) -> Markup {
    html! {
        section.plan id=(format!("plan{number}")) {
            h2 { (number) ". " (plan.layout) }
            h3 { "Collectives" }
            @if plan.collectives.is_empty() { p { "None: nothing is sent." } }
            @else { (wide("Collectives", &collectives(plan))) }
            h3 { "Who holds what" }
            p { "One rectangle per rank, the first dim downwards; filled: held complete; hatched: a term of a pending sum." }
            @if let Some(pictures) = pictures { (pictures.rows(made)) }
            h3 { "Schedule" }
            p { "A step on paper, by the machine model: launches run beside computing, from where the plan starts them to where it waits for them." }
            (wide("Schedule", &timeline::figure(made, machine)))
            h3 { "Memory over the step" }
            (wide("Memory over the step", &memory::figure(made, limit)))
        }
    }
}

fn collectives(plan: &PlanReport) -> Markup {
    html! {
        table {
            thead { tr { th.n { "#" } th { "phase" } th { "collective" } th { "axes" } th { "tensor" } th { "from → to" } th.n { "sent" } th { "elements sent" } th.n { "launch" } } }
            tbody { @for (i, c) in plan.collectives.iter().enumerate() {
                tr {
                    td.n { (i + 1) } td { (c.phase) }
                    td { (c.kind) @if c.scalar { " (scalar)" } }
                    td { (c.axes.join(", ")) } td { (c.tensor) }
                    td { code { (c.from) " → " (c.to) } }
                    td.n { (bytes(c.bytes_per_device)) } td { (c.formula) } td.n { (c.launch + 1) }
                }
                @if !c.why.is_empty() { tr.why { td {} td colspan="8" { (c.why) } } }
            } }
        }
    }
}
