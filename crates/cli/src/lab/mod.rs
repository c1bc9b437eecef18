//! `shardgrad lab`: an interactive page on which plans of a tiny network are stepped through, and broken.
//!
//! Everything that the page shows was computed here, by the runtime on threads, and is embedded as JSON; its script looks
//! numbers up and displays them.

mod faults;
mod linear_map;
mod page;
mod scene;
mod trace;

use crate::args::LabArgs;
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(args: &LabArgs) -> Result<(), Failure> {
    let lab = scene::Lab::new().map_err(Failure::no)?;
    let data = serde_json::to_string(&lab).map_err(Failure::no)?;
    output::write(&page::page(&data), args.output.as_deref())
}
