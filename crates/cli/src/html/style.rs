//! Colours and style sheets. The colours are those of Okabe and Ito (*Color Universal Design*, 2008), which stay apart
//! for colour-blind readers; wherever they tell things apart, a label or a pattern does too.

use shardgrad::graph::Phase;

/// Colours of ranks, in turn.
pub(super) const RANKS: [&str; 8] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800", "#8a8a8a"];

/// The phases of a step.
pub(super) const PHASES: [Phase; 3] = [Phase::Forward, Phase::Backward, Phase::Update];

/// The colour of a phase.
pub(super) fn phase_colour(phase: Phase) -> &'static str {
    match phase {
        Phase::Forward => "#0072b2",
        Phase::Backward => "#e69f00",
        Phase::Update => "#009e73",
    }
}

/// Colours of what memory holds: inputs, parameters, state, activations, gradients, messages.
pub(super) const CATEGORIES: [&str; 6] =
    ["#8a8a8a", "#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00"];

/// Of figures, inside a page or alone.
pub(super) const FIGURE: &str = "
text { font: 12px system-ui, sans-serif; fill: currentColor; }
text.end { text-anchor: end; } text.mid { text-anchor: middle; }
text.small { font-size: 11px; } text.strong { font-weight: 600; }
.axis { stroke: currentColor; stroke-width: 1; fill: none; }
.grid { stroke: currentColor; stroke-opacity: .15; }
.front { stroke: currentColor; stroke-opacity: .6; stroke-dasharray: 4 3; fill: none; }
.stalled { fill: none; stroke: #d55e00; stroke-width: 1.5; stroke-dasharray: 3 2; }
.outline { stroke: currentColor; stroke-opacity: .55; fill: none; }
";

/// Of the page.
pub(super) const PAGE: &str = "
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --line: #d0d5db; --soft: #f4f6f8; --link: #0a58a8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaed; --paper: #15181c; --line: #3a4048; --soft: #1e2329; --link: #7fb8ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.2rem; max-width: 76rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .2rem; } h2 { font-size: 1.2rem; margin: 2.2rem 0 .5rem; } h3 { font-size: 1rem; margin: 1.4rem 0 .4rem; }
h1, h2 { overflow-wrap: anywhere; }
p { margin: .3rem 0 .7rem; max-width: 52rem; }
.note { font-size: .92em; } .note p { margin: .15rem 0; max-width: none; }
a { color: var(--link); } a:focus-visible, .wide:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
code { font: .92em ui-monospace, monospace; }
nav ol { margin: .3rem 0; padding-left: 1.5rem; columns: 18rem; }
.wide { overflow-x: auto; }
.wide text.strong { paint-order: stroke; stroke: var(--paper); stroke-width: 4px; }
.wide svg { display: block; min-width: 680px; width: 100%; max-width: 920px; height: auto; }
table { border-collapse: collapse; font-size: .92em; }
th, td { padding: .25rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); white-space: nowrap; }
tr:has(+ tr.why) > td { border-bottom: 0; } tr.why > td { padding-top: 0; white-space: normal; font-size: .92em; opacity: .85; }
th { background: var(--soft); } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
figure { margin: .5rem 0 1rem; } figcaption { font-size: .92em; max-width: 52rem; }
.value { display: flex; flex-wrap: wrap; gap: .2rem 1rem; align-items: center; padding: .35rem 0; border-bottom: 1px solid var(--line); }
.value { overflow-x: auto; } .value > .what { flex: 0 0 19rem; overflow-wrap: anywhere; } .value > svg { flex: none; }
@media print { body { max-width: none; padding: 0; font-size: 11px; } .wide { overflow: visible; } section.plan { break-before: page; } a { color: inherit; text-decoration: none; } th, td { white-space: normal; } }
";
