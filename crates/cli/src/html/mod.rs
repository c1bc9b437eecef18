//! `compare --format html` and `svg`: one self-contained page, or one figure. No script, nothing fetched.
//!
//! All text passes through `maud`, which escapes it; names of models and values may be anything.

mod axis;
mod bars;
mod frontier;
mod holdings;
mod memory;
mod page;
mod style;
mod timeline;

use maud::{Markup, html};
use shardgrad::Planned;
use shardgrad::core::Machine;
use shardgrad::report::Report;

/// The page of a comparison.
pub(crate) fn report(
    report: &Report,
    planned: &[Planned],
    machine: &Machine,
    limit: Option<u64>,
) -> String {
    page::page(report, planned, machine, limit).into_string()
}

/// The figure of bytes and collectives, as a file of its own.
pub(crate) fn figure(report: &Report) -> String {
    let figure: Markup = html! {
        (maud::PreEscaped("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"))
        (bars::figure(&report.plans, true))
    };
    figure.into_string()
}
