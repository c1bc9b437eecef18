//! `shardgrad simulate`: a step of a plan on paper, on any number of devices.

use std::fmt::Write as _;

use shardgrad::simulate::{Summary, simulate};

use crate::args::{SimulateArgs, SimulateFormat};
use crate::failure::Failure;
use crate::units::{bytes, seconds};
use crate::{output, request};

pub(crate) fn run(args: &SimulateArgs) -> Result<(), Failure> {
    let machine = request::machine(&args.one.model)?;
    let planned = request::planned(&args.one, &machine)?;
    let summary = simulate(planned.plan(), &machine).summary;
    let text = match args.format {
        SimulateFormat::Json => {
            let mut json = serde_json::to_string_pretty(&summary).map_err(Failure::no)?;
            json.push('\n');
            json
        }
        SimulateFormat::Table => {
            let head = format!("{}, layout {}", planned.mesh(), planned.plan().layout);
            table(&head, &summary, machine.memory)
        }
    };
    output::write(&text, args.output.as_deref())
}

#[allow(clippy::cast_precision_loss)]
fn table(head: &str, s: &Summary, memory: Option<f64>) -> String {
    let mut text = format!("{head}: {} device(s)\n\n", s.devices);
    // Writing to a string cannot fail.
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<28}{value}");
    };
    line("step", seconds(s.step_seconds));
    line("  nothing overlapping", seconds(s.sequential_seconds));
    line("computing", seconds(s.compute_seconds));
    line("communicating", seconds(s.communication_seconds));
    for (axes, time) in &s.seconds_by_axes {
        let sent = s.bytes_by_axes.get(axes).copied().unwrap_or(0);
        line(&format!("  over {axes}"), format!("{}, {} per device", seconds(*time), bytes(sent)));
    }
    line("  exposed", seconds(s.exposed_seconds));
    line("memory per device", bytes(s.peak_bytes));
    for (name, held) in [
        ("parameters", s.memory.parameters),
        ("optimizer state", s.memory.state),
        ("gradients", s.memory.gradients),
        ("activations", s.memory.activations),
        ("inputs", s.memory.inputs),
        ("staging", s.memory.staging),
    ] {
        line(&format!("  {name}"), bytes(held));
    }
    if let Some(memory) = memory {
        let verdict = if s.peak_bytes as f64 <= memory { "fits" } else { "does not fit" };
        line("device", format!("{:.1} GB, {verdict}", memory / 1e9));
    }
    text
}
