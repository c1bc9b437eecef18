//! Every parser of text and files that users hand over, as functions of bytes.
//!
//! Each [`Parser`] may be run on anything: it panics if a parser breaks a promise. The promises: no panic, an error is one
//! line, what was read can be written and reads as the same, and what was read can be used (checked, built, compared).
//! The fuzz targets (`fuzz/`) and the test `hostile_input.rs` run the same functions, from the same valid [seeds](Parser::seeds).

use std::fmt::Display;
use std::path::Path;

use shardgrad::graph::check::check;
use shardgrad::graph::plan_file::PlanFile;
use shardgrad::graph::text::{display_plan, parse_program};
use shardgrad::{Dataset, LayoutFile, ModelFile, dataset::TargetColumns, parse_machine};
use shardgrad_core::{DType, Layout, LayoutSpec, Mesh};
use shardgrad_graph::{Model, StackLayer, StackSpec};
use shardgrad_planner::LayoutRequest;
use shardgrad_runtime::Checkpoint;
use shardgrad_testkit::tensor_file::{from_npy, from_safetensors};

mod seeds;

/// One parser.
#[derive(Clone, Copy, Debug)]
pub struct Parser {
    /// The name of its fuzz target.
    pub name: &'static str,
    /// Runs it on anything; panics where it breaks a promise.
    pub run: fn(&[u8]),
    /// Inputs that it accepts, from which wrong ones are made.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const PARSERS: [Parser; 11] = [
    Parser { name: "layout", run: layout, seeds: seeds::layout },
    Parser { name: "model", run: model, seeds: seeds::model },
    Parser { name: "layout_file", run: layout_file, seeds: seeds::layout_file },
    Parser { name: "machine", run: machine, seeds: seeds::machine },
    Parser { name: "plan", run: plan, seeds: seeds::plan },
    Parser { name: "program", run: program, seeds: seeds::program },
    Parser { name: "csv", run: csv, seeds: seeds::csv },
    Parser { name: "text", run: text, seeds: seeds::text },
    Parser { name: "npy", run: npy, seeds: seeds::npy },
    Parser { name: "safetensors", run: safetensors, seeds: seeds::safetensors },
    Parser { name: "checkpoint", run: checkpoint, seeds: seeds::checkpoint },
];

/// The file that messages name.
const FILE: &str = "file";

/// Whether an error is one line. Where the input itself holds control characters, or escapes of them, messages that quote it
/// may; the command escapes them.
fn judged<T, E: Display>(input: &[u8], result: Result<T, E>) -> Option<T> {
    result
        .map_err(|error| {
            let message = error.to_string();
            assert!(!message.is_empty(), "an error without words");
            if String::from_utf8_lossy(input).chars().all(|c| !c.is_control() && c != '\\') {
                assert!(!message.contains('\n'), "more than one line: {message:?}");
            }
        })
        .ok()
}

/// The same of input that is made of lines: no message quotes more than a part of one.
fn judged_lines<T, E: Display>(input: &[u8], result: Result<T, E>) -> Option<T> {
    let joined: Vec<u8> = input.iter().map(|&b| if b == b'\n' { b' ' } else { b }).collect();
    judged(&joined, result)
}

/// Layouts, meshes and presets as text.
pub fn layout(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (mesh, layout) = text.split_once(';').unwrap_or(("dp=2, tp=3", text));
    if let Some(spec) = judged(input, layout.parse::<LayoutSpec>()) {
        assert_eq!(spec.to_string().parse::<LayoutSpec>().as_ref(), Ok(&spec));
    }
    let Some(mesh) = judged(input, mesh.parse::<Mesh>()) else { return };
    assert_eq!(mesh.to_string().parse::<Mesh>().as_ref(), Ok(&mesh));
    if let Some(layout) = judged(input, Layout::parse(layout, &mesh)) {
        assert_eq!(Layout::parse(&layout.display(&mesh).to_string(), &mesh).as_ref(), Ok(&layout));
        judged(input, layout.validate(&mesh, 2));
    }
    if let Some(request) = judged(input, layout.parse::<LayoutRequest>()) {
        judged(input, request.on_mesh(&mesh));
        judged(input, request.describe(&mesh));
    }
}

/// Model files.
pub fn model(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Some(model) = judged_lines(input, ModelFile::parse(Path::new(FILE), text)) else { return };
    // Programs of many micro-batches are long by right.
    let layers: usize = match &model.spec {
        Model::Mlp(spec) => spec.layers.len(),
        Model::Stack(spec) => spec.layers.iter().map(StackLayer::count).sum(),
    };
    let is_small = *model.spec.micro_batches() <= 4 && layers <= 8;
    if is_small && let Some(program) = judged_lines(input, model.spec.training_program()) {
        program.validate().expect("the program of a model is valid");
    }
}

/// Layout files.
pub fn layout_file(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Some(file) = judged_lines(input, LayoutFile::parse(Path::new(FILE), text)) {
        let request = file.add_to(LayoutRequest::default());
        judged_lines(input, request.on_mesh(&Mesh::new([("dp", 2), ("tp", 3)]).expect("a mesh")));
    }
}

/// Machine files.
pub fn machine(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Some(machine) = judged_lines(input, parse_machine(Path::new(FILE), text)) {
        machine.validate().expect("a machine that was read is valid");
    }
}

/// Plan files, and the checker on whatever parses.
pub fn plan(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Some(file) = judged_lines(input, PlanFile::read(text)) else { return };
    let written = file.to_json().expect("a plan that was read can be written");
    let again = PlanFile::read(&written).expect("and read again");
    assert_eq!(again.to_json().as_deref().ok(), Some(written.as_str()));
    let report = check(&file.plan, &file.program);
    for line in report.violations.iter().map(ToString::to_string) {
        assert!(!line.is_empty());
    }
    assert!(!display_plan(&file.plan, &file.program).to_string().is_empty());
    let _ = file.plan.totals();
}

/// Programs as text.
pub fn program(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Some(program) = judged_lines(input, parse_program(text)) else { return };
    program.validate().expect("a program that was read is valid");
    let written = program.to_string();
    let again = parse_program(&written).unwrap_or_else(|e| panic!("{e}\n{written}"));
    assert_eq!(again.to_string(), written);
}

/// Data files.
pub fn csv(input: &[u8]) {
    let (kind, text) = input.split_first().map_or((0, input), |(&first, rest)| (first, rest));
    let width = usize::from(kind % 4);
    let targets = match kind / 4 % 3 {
        0 => TargetColumns::Label { classes: 3 },
        1 => TargetColumns::Values(1),
        _ => TargetColumns::Values(0),
    };
    let Some(data) =
        judged_lines(text, Dataset::parse_csv(Path::new(FILE), text, width, targets, DType::F32))
    else {
        return;
    };
    let rows: Vec<usize> = (0..data.rows()).collect();
    let batch = data.batch(&rows, DType::F32);
    assert_eq!(batch["x"].ty().elements(), data.rows() * width);
}

/// Texts, for models with and without a mask.
pub fn text(input: &[u8]) {
    let (kind, text) = input.split_first().map_or((0, input), |(&first, rest)| (first, rest));
    let sequence = usize::from(kind / 2 % 8) + 1;
    let mut spec = StackSpec::new(FILE, 2, sequence, 16).decoder(2, 1, 1);
    spec.masked = kind % 2 == 1;
    let Some(data) = judged_lines(text, Dataset::parse_text(Path::new(FILE), text, &spec)) else {
        return;
    };
    let rows: Vec<usize> = (0..data.rows()).collect();
    let ids: Vec<i32> =
        data.batch(&rows, DType::F32)["x"].to_f64s().iter().map(|&id| id as i32).collect();
    let read = data.text().map(|text| text.decode(&ids)).unwrap_or_default();
    let is_start = |written: &str| written.chars().zip(read.chars()).all(|(a, b)| a == b);
    assert!(std::str::from_utf8(text).is_ok_and(is_start) && !rows.is_empty());
}

/// Arrays of NumPy.
pub fn npy(input: &[u8]) {
    if let Some(value) = judged_lines(input, from_npy(input)) {
        assert!(value.ty().bytes() <= input.len());
    }
}

/// Tensors by name.
pub fn safetensors(input: &[u8]) {
    if let Some(values) = judged_lines(input, from_safetensors(input)) {
        let bytes: usize = values.values().map(|v| v.ty().bytes()).sum();
        assert!(bytes <= input.len());
    }
}

/// Checkpoints.
pub fn checkpoint(input: &[u8]) {
    if let Some(read) = judged_lines(input, Checkpoint::parse(Path::new(FILE), input)) {
        let bytes: usize = read.tensors.values().map(|v| v.ty().bytes()).sum();
        assert!(bytes <= input.len());
    }
}
