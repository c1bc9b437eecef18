//! `shardgrad diagnose`: what kind of fault turns the expected tensors into the actual ones.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use serde::Serialize;
use shardgrad::core::{Layout, TensorType};
use shardgrad::graph::Value;
use shardgrad_testkit::diagnose::{Context, Diagnosis, default_tolerance, diagnose};
use shardgrad_testkit::tensor_file;

use crate::args::{DiagnoseArgs, DiagnoseFormat};
use crate::failure::Failure;
use crate::output;

/// Version of the JSON form.
const SCHEMA: u32 = 1;

/// What was found, in the form that `--format json` prints.
#[derive(Serialize)]
struct Findings {
    schema: u32,
    /// Whether every tensor is there and equal within rounding.
    equal: bool,
    tensors: Vec<Finding>,
    /// Names that only EXPECTED has.
    missing: Vec<String>,
    /// Names that only ACTUAL has.
    extra: Vec<String>,
}

/// One tensor.
#[derive(Serialize)]
struct Finding {
    name: String,
    expected: String,
    actual: String,
    /// What counts as rounding, as a part of the largest expected element.
    tolerance: f64,
    /// The stable name of the kind; `equal` if there is no fault.
    fault: &'static str,
    /// Whether every element is predicted by it.
    certain: bool,
    summary: String,
    evidence: Vec<String>,
    advice: &'static str,
    #[serde(skip)]
    text: String,
    #[serde(skip)]
    equal: bool,
}

pub(crate) fn run(args: &DiagnoseArgs) -> Result<(), Failure> {
    let expected = read(&args.expected)?;
    let mut actual = read(&args.actual)?;
    if let (Some(name), 1, 1) = (expected.keys().next(), expected.len(), actual.len())
        && (is_npy(&args.expected) || is_npy(&args.actual))
    {
        // Arrays have no name of their own.
        actual = actual.into_values().map(|value| (name.clone(), value)).collect();
    }
    let findings = compare(args, &expected, &actual)?;
    match args.format {
        DiagnoseFormat::Text => output::print(&text(&findings))?,
        DiagnoseFormat::Json => output::print(&output::json(&findings)?)?,
    }
    if findings.equal {
        return Ok(());
    }
    Err(Failure::no(verdict(args, &findings)))
}

fn is_npy(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "npy")
}

fn read(path: &Path) -> Result<BTreeMap<String, Value>, Failure> {
    let tensors = tensor_file::read(path).map_err(Failure::input)?;
    if tensors.is_empty() {
        return Err(Failure::input(format!("{}: holds no tensor", path.display())));
    }
    Ok(tensors)
}

fn compare(
    args: &DiagnoseArgs,
    expected: &BTreeMap<String, Value>,
    actual: &BTreeMap<String, Value>,
) -> Result<Findings, Failure> {
    let layout = match (&args.layout, &args.mesh) {
        (Some(spec), Some(mesh)) => {
            let layout = spec.resolve(mesh, &Layout::replicated(mesh.rank()));
            Some(layout.map_err(|e| Failure::input(format!("--layout: {e}")))?)
        }
        _ => None,
    };
    let mut tensors = Vec::new();
    for (name, expected) in expected {
        let ty = expected.ty();
        if let Some(at) = expected.to_f64s().iter().position(|v| !v.is_finite()) {
            return Err(Failure::input(format!(
                "{}: element {at} of `{name}` is {}; the expected tensors must be finite",
                args.expected.display(),
                expected.to_f64s()[at],
            )));
        }
        if let (Some(layout), Some(mesh)) = (&layout, &args.mesh) {
            layout
                .validate(mesh, ty.rank())
                .map_err(|e| Failure::input(format!("--layout: `{name}` {ty}: {e}")))?;
        }
        let Some(actual) = actual.get(name) else { continue };
        let tolerance = args.tolerance.unwrap_or_else(|| default_tolerance(&ty, &actual.ty()));
        let context = Context {
            mesh: args.mesh.as_ref(),
            layout: layout.as_ref(),
            bound: None,
            tolerance: Some(tolerance),
        };
        let found = diagnose(expected, actual, &context);
        tensors.push(finding(name, &ty, &actual.ty(), tolerance, &found));
    }
    let only = |a: &BTreeMap<String, Value>, b: &BTreeMap<String, Value>| -> Vec<String> {
        a.keys().filter(|name| !b.contains_key(*name)).cloned().collect()
    };
    let (missing, extra) = (only(expected, actual), only(actual, expected));
    let equal = missing.is_empty() && extra.is_empty() && tensors.iter().all(|t| t.equal);
    Ok(Findings { schema: SCHEMA, equal, tensors, missing, extra })
}

fn finding(
    name: &str,
    expected: &TensorType,
    actual: &TensorType,
    tolerance: f64,
    found: &Diagnosis,
) -> Finding {
    let mut evidence = found.evidence.clone();
    if expected.dtype != actual.dtype {
        evidence.push(format!(
            "expected is {}, actual {}; rounding is that of the coarser",
            expected.dtype, actual.dtype
        ));
    }
    let found = Diagnosis { evidence, ..found.clone() };
    Finding {
        name: name.to_owned(),
        expected: expected.to_string(),
        actual: actual.to_string(),
        tolerance,
        fault: found.fault.name(),
        certain: found.certain,
        summary: found.fault.to_string(),
        evidence: found.evidence.clone(),
        advice: found.fault.advice(),
        text: found.to_string(),
        equal: found.is_equal(),
    }
}

fn text(findings: &Findings) -> String {
    let mut out = String::new();
    for tensor in &findings.tensors {
        let (name, ty) = (tensor.name.escape_debug(), &tensor.expected);
        let _ = writeln!(out, "{name} {ty}: {}", tensor.text);
        if !tensor.equal {
            let _ = writeln!(
                out,
                "  counted as rounding: up to {:.1e} of the largest expected element",
                tensor.tolerance
            );
        }
    }
    for name in &findings.missing {
        let _ = writeln!(out, "{}: missing, only EXPECTED has it", name.escape_debug());
    }
    for name in &findings.extra {
        let _ = writeln!(out, "{}: extra, only ACTUAL has it", name.escape_debug());
    }
    out
}

/// The answer in one line.
fn verdict(args: &DiagnoseArgs, findings: &Findings) -> String {
    let faults: Vec<String> = findings
        .tensors
        .iter()
        .filter(|t| !t.equal)
        .map(|t| format!("`{}` {}", t.name, t.fault))
        .chain(findings.missing.iter().map(|name| format!("`{name}` missing")))
        .chain(findings.extra.iter().map(|name| format!("`{name}` extra")))
        .collect();
    let all = findings.tensors.len() + findings.missing.len() + findings.extra.len();
    let shown = faults.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
    let more = if faults.len() > 5 { ", …" } else { "" };
    format!(
        "{}: {} of {all} tensors not as in {}: {shown}{more}",
        args.actual.display(),
        faults.len(),
        args.expected.display()
    )
}
