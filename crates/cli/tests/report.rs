//! The JSON report: its keys, its sums, and that it is the same from run to run.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use support::{compare, file, model, run, succeed};

fn keys(object: &Value) -> Vec<&str> {
    let object: &Map<String, Value> = object.as_object().expect("an object");
    let mut keys: Vec<&str> = object.keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn the_report_has_exactly_the_keys_of_schema_1() {
    let report = compare("--mesh dp=2,tp=2 --layout dp=data,tp=megatron");
    assert_eq!(keys(&report), ["mesh", "model", "not_planned", "plans", "schema"]);
    assert_eq!(report["schema"], json!(1));
    assert_eq!(report["mesh"], json!([{"axis": "dp", "size": 2}, {"axis": "tp", "size": 2}]));
    assert_eq!(report["model"], json!({"name": "digits", "batch": 64, "dtype": "f32"}));
    let plan = &report["plans"][0];
    assert_eq!(
        keys(plan),
        [
            "boundary",
            "certificate",
            "collectives",
            "layout",
            "lower_bound_bytes",
            "memory",
            "objective",
            "optimal",
            "totals"
        ]
    );
    assert_eq!(plan["layout"], json!("dp=data, tp=megatron"));
    assert_eq!(plan["objective"], json!("volume"));
    assert_eq!(plan["boundary"]["w0"], json!("[dp: R, tp: S(1)]"));
    assert_eq!(plan["boundary"]["x"], json!("[dp: S(0), tp: R]"));
    assert_eq!(plan["boundary"]["loss"], json!("[dp: R, tp: R]"));
    assert_eq!(
        keys(&plan["totals"]),
        [
            "by_kind",
            "bytes_per_device",
            "flops_per_device",
            "launches",
            "peak_bytes_per_device",
            "predicted_seconds",
            "scalar_bytes_per_device",
            "scalar_reductions"
        ]
    );
    for collective in plan["collectives"].as_array().expect("collectives") {
        assert_eq!(
            keys(collective),
            [
                "axes",
                "bytes_per_device",
                "elements",
                "formula",
                "from",
                "kind",
                "launch",
                "phase",
                "scalar",
                "tensor",
                "to",
                "why"
            ]
        );
    }
}

#[test]
fn totals_are_the_sums_of_the_collectives_and_scalars_are_counted_apart() {
    let report = compare("--mesh tp=4");
    let plans = report["plans"].as_array().expect("plans");
    assert_eq!(plans.len(), 9, "every preset");
    for plan in plans {
        let (mut bytes, mut scalar_bytes, mut scalars) = (0, 0, 0);
        let (mut kinds, mut launches) = (BTreeMap::<String, u64>::new(), BTreeSet::new());
        for collective in plan["collectives"].as_array().expect("collectives") {
            let sent = collective["bytes_per_device"].as_u64().expect("bytes");
            assert!(sent > 0);
            if collective["scalar"] == json!(true) {
                assert_eq!(collective["elements"], json!(1));
                (scalar_bytes, scalars) = (scalar_bytes + sent, scalars + 1);
            } else {
                bytes += sent;
                let kind = collective["kind"].as_str().expect("kind").to_owned();
                *kinds.entry(kind).or_default() += 1;
                launches.insert(collective["launch"].as_u64().expect("a number"));
            }
            assert!(!collective["why"].as_str().expect("why").is_empty());
        }
        let totals = &plan["totals"];
        assert_eq!(totals["bytes_per_device"], json!(bytes), "{}", plan["layout"]);
        assert_eq!(totals["launches"], json!(launches.len()));
        assert_eq!(totals["by_kind"], json!(kinds));
        assert_eq!(totals["scalar_bytes_per_device"], json!(scalar_bytes));
        assert_eq!(totals["scalar_reductions"], json!(scalars));
        assert!(totals["flops_per_device"].as_u64() > Some(0));
        assert!(totals["peak_bytes_per_device"].as_u64() > Some(0));
        assert!(totals["predicted_seconds"].as_f64() > Some(0.0));
        assert!(plan["lower_bound_bytes"].as_u64() <= totals["bytes_per_device"].as_u64());
    }
}

#[test]
fn the_example_of_the_documentation() {
    let net = model("example.toml", 64, &[64, 32], "", "input_gradient = true", "");
    let report = compare(&format!("{net} --layout column"));
    let collectives = report["plans"][0]["collectives"].as_array().expect("collectives");
    let collective = collectives.iter().find(|c| c["scalar"] == json!(false)).expect("one");
    let shown = [
        "phase",
        "kind",
        "axes",
        "tensor",
        "from",
        "to",
        "elements",
        "bytes_per_device",
        "formula",
    ]
    .map(|key| collective[key].clone());
    assert_eq!(
        shown,
        [
            json!("backward"),
            json!("all_reduce"),
            json!(["tp"]),
            json!("grad(x)"),
            json!("[tp: P]"),
            json!("[tp: R]"),
            json!(4096),
            json!(24576),
            json!("2(p-1)/p·B·D")
        ]
    );
}

#[test]
fn formulas_of_several_axes_go_by_their_names() {
    let report = compare("--mesh dp=2,tp=2 --layout dp=data,tp=megatron");
    let formulas: Vec<&str> = report["plans"][0]["collectives"]
        .as_array()
        .expect("collectives")
        .iter()
        .map(|c| c["formula"].as_str().expect("formula"))
        .collect();
    assert!(formulas.contains(&"2(tp-1)/tp·B·O/dp"), "{formulas:?}");
    assert!(formulas.contains(&"2(dp-1)/dp·D·H/tp"), "{formulas:?}");
}

#[test]
fn outputs_are_the_same_from_run_to_run_and_in_files() {
    for arguments in [
        "compare --mesh tp=3",
        "compare --mesh dp=2,tp=2 --format json",
        "plan --mesh tp=4 --layout column",
        "plan --mesh tp=4 --layout fsdp --explain",
        "plan --mesh tp=4 --layout zero1 --format json",
    ] {
        let first = succeed(arguments);
        assert_eq!(first, succeed(arguments), "{arguments}");
        let path = file("output.txt", "what was there before");
        assert_eq!(succeed(&format!("{arguments} -o {path}")), "");
        assert_eq!(std::fs::read_to_string(&path).expect("written"), first, "{arguments}");
    }
}

#[test]
fn the_table_flags_differing_boundaries_only() {
    let differing = succeed("compare --mesh tp=4 --layout data --layout megatron");
    assert!(differing.contains("Boundaries differ"), "{differing}");
    let equal = succeed("compare --mesh tp=4 --layout data --layout data");
    assert!(!equal.contains("Boundaries differ"), "{equal}");
    assert!(!equal.contains('\u{1b}'), "no colour outside a terminal");
}

#[test]
fn a_layout_file_is_a_layout() {
    let path = file("layout.toml", "layout = \"tp=megatron\"\n[pins]\nx = \"tp: S(0)\"\n");
    let report = compare(&format!("--mesh tp=4 --layout {path}"));
    assert_eq!(report["plans"][0]["boundary"]["x"], json!("[tp: S(0)]"));
    assert_eq!(report["plans"][0]["boundary"]["w0"], json!("[tp: S(1)]"));
}

#[test]
fn help_names_the_presets_and_gives_an_example() {
    for command in ["compare", "plan", "check", "train"] {
        let help = succeed(&format!("{command} --help"));
        assert!(help.contains("Example"), "{command}");
        assert!(help.contains(&format!("shardgrad {command}")), "{command}");
        assert_eq!(help.contains("megatron-sp"), command != "check", "{command}");
    }
    assert_eq!(run("--version").code, 0);
}
