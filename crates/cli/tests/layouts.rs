//! End to end: the published counts of textbook layouts, through model files and `compare --format json`.
//!
//! Sources: Megatron-LM (Shoeybi et al. 2019), sequence parallelism (Korthikanti et al. 2022), ZeRO (Rajbhandari et al.
//! 2020), the intra-operator tests of Alpa (Zheng et al. 2022).

mod support;

use serde_json::{Value, json};
use support::{compare, model, run, succeed};

/// Bytes of one f32.
const F32: u64 = 4;

/// The only plan of a report: kinds with counts, and bytes.
fn only(report: &Value) -> (Value, u64) {
    let plans = report["plans"].as_array().expect("plans");
    assert_eq!(plans.len(), 1);
    assert_eq!(plans[0]["optimal"], json!(true));
    let totals = &plans[0]["totals"];
    (totals["by_kind"].clone(), totals["bytes_per_device"].as_u64().expect("bytes"))
}

/// How many collectives, scalars not counted, are of each phase.
fn phases(report: &Value) -> [usize; 3] {
    let collectives = report["plans"][0]["collectives"].as_array().expect("collectives");
    ["forward", "backward", "update"].map(|phase| {
        collectives.iter().filter(|c| c["phase"] == phase && c["scalar"] == json!(false)).count()
    })
}

#[test]
fn one_column_layer_reduces_the_input_gradient_only() {
    let net = model("column.toml", 64, &[96, 256], "", "input_gradient = true", "");
    let report = compare(&format!("{net} --layout column"));
    assert_eq!(only(&report), (json!({"all_reduce": 1}), 36_864));
    assert_eq!(phases(&report), [0, 1, 0]);
}

#[test]
fn one_row_layer_reduces_its_output_only() {
    let pins = "[pins]\nx = \"tp: S(1)\"\nout = \"tp: R\"\n";
    let net = model("row.toml", 64, &[96, 32], "", "input_gradient = true", pins);
    let report = compare(&format!("{net} --layout row"));
    assert_eq!(only(&report), (json!({"all_reduce": 1}), 64 * 32 * F32 * 3 / 2));
    assert_eq!(phases(&report), [1, 0, 0]);
}

#[test]
fn a_megatron_pair_has_one_all_reduce_or_two_with_the_input_gradient() {
    let widths = [96, 256, 32];
    let net = model("pair.toml", 64, &widths, "activation = \"relu\"", "", "");
    let report = compare(&format!("{net} --layout megatron"));
    assert_eq!(only(&report), (json!({"all_reduce": 1}), 12_288));
    assert_eq!(phases(&report), [1, 0, 0]);

    let net =
        model("pair_gx.toml", 64, &widths, "activation = \"relu\"", "input_gradient = true", "");
    let report = compare(&format!("{net} --layout megatron"));
    assert_eq!(only(&report), (json!({"all_reduce": 2}), 49_152));
    assert_eq!(phases(&report), [1, 1, 0]);
}

#[test]
fn sequence_parallel_sends_what_megatron_sends() {
    let widths = [96, 256, 32];
    let net = model("sp.toml", 64, &widths, "activation = \"relu\"", "", "");
    let (kinds, _) = only(&compare(&format!("{net} --layout megatron-sp")));
    assert_eq!(kinds, json!({"all_gather": 2, "reduce_scatter": 1}));
    let net =
        model("sp_gx.toml", 64, &widths, "activation = \"relu\"", "input_gradient = true", "");
    let (kinds, bytes) = only(&compare(&format!("{net} --layout megatron-sp")));
    assert_eq!(kinds, json!({"all_gather": 2, "reduce_scatter": 2}));
    // Gathered twice for the two products with x, scattered as often: what the two all_reduce of the pair send, and the
    // gathers of x and of the output's gradient that a replicated boundary would not need.
    let (x, out) = (64 * 96 * F32 * 3 / 4, 64 * 32 * F32 * 3 / 4);
    assert_eq!(bytes, 2 * x + 2 * out);
}

#[test]
fn alternating_layers_have_one_all_reduce_fewer_than_layers() {
    for layers in [4, 6] {
        let net = model(
            &format!("deep{layers}.toml"),
            16,
            &vec![24; layers + 1],
            "activation = \"relu\"",
            "",
            "",
        );
        let report = compare(&format!("{net} --mesh tp=3 --layout megatron"));
        let (kinds, bytes) = only(&report);
        assert_eq!(kinds, json!({ "all_reduce": layers - 1 }));
        assert_eq!(bytes, (layers as u64 - 1) * 16 * 24 * F32 * 4 / 3);
        assert_eq!(phases(&report), [layers / 2, layers / 2 - 1, 0]);
    }
}

/// Elements of the parameters of the widths used for data parallelism; every dim divides by 4.
const PSI: u64 = 32 * 64 + 64 + 64 * 8 + 8;

#[test]
fn data_parallel_reduces_each_gradient_once_however_many_parts_the_batch_has() {
    for parts in [1, 4] {
        let head = format!("micro_batches = {parts}");
        let net = model(
            &format!("data{parts}.toml"),
            64,
            &[32, 64, 8],
            "activation = \"relu\"",
            &head,
            "",
        );
        let (kinds, bytes) = only(&compare(&format!("{net} --layout data")));
        assert_eq!(kinds, json!({"all_reduce": 4}), "{parts} parts");
        assert_eq!(bytes, 2 * PSI * F32 * 3 / 4, "{parts} parts");
    }
}

#[test]
fn fsdp_and_zero_gather_and_scatter_each_parameter_once() {
    let net = model(
        "sharded.toml",
        64,
        &[32, 64, 8],
        "activation = \"relu\"",
        "optimizer = \"adam\"",
        "",
    );
    for layout in ["fsdp", "zero1"] {
        let (kinds, bytes) = only(&compare(&format!("{net} --layout {layout}")));
        assert_eq!(kinds, json!({"all_gather": 4, "reduce_scatter": 4}), "{layout}");
        assert_eq!(bytes, 2 * PSI * F32 * 3 / 4, "{layout}");
    }
}

#[test]
fn automatic_layouts_choose_activations_or_weights_by_size() {
    let all_reduce = |elements: u64| elements * F32 * 3 / 2;
    for (batch, width, layers, count, elements) in [
        (128, 1024, 2, 1, 128 * 1024),
        (1024, 128, 2, 2, 128 * 128),
        (128, 1024, 12, 11, 128 * 1024),
        (1024, 128, 12, 12, 128 * 128),
    ] {
        let name = format!("auto_{batch}_{layers}.toml");
        let net = model(&name, batch, &vec![width; layers + 1], "bias = false", "", "");
        let (_, bytes) = only(&compare(&format!("{net} --layout auto")));
        assert_eq!(
            bytes,
            count * all_reduce(elements),
            "batch {batch}, width {width}, {layers} layers"
        );
    }
}

#[test]
fn the_planner_finds_an_optimum_that_no_preset_has() {
    let net = model("all_to_all.toml", 256, &[128; 3], "bias = false", "", "");
    let report =
        compare(&format!("{net} --mesh tp=8 --layout auto --layout megatron --layout data"));
    let bytes: Vec<u64> = report["plans"]
        .as_array()
        .expect("plans")
        .iter()
        .map(|p| p["totals"]["bytes_per_device"].as_u64().expect("bytes"))
        .collect();
    assert_eq!(bytes, [35_840 * F32, 57_344 * F32, 57_344 * F32]);
    // Forward and back, and the gradient of the second weight.
    assert_eq!(report["plans"][0]["totals"]["by_kind"], json!({"all_reduce": 1, "all_to_all": 2}));
}

#[test]
fn with_stored_layouts_given_free_splits_send_no_more_than_possible() {
    let stored = |x: &str, w0: &str, b0: &str, w1: &str, b1: &str, y: &str| {
        format!(
            "[pins]\nx = \"tp: {x}\"\nw0 = \"tp: {w0}\"\nb0 = \"tp: {b0}\"\nw1 = \"tp: {w1}\"\nb1 = \"tp: {b1}\"\ny = \"tp: {y}\"\n"
        )
    };
    let gx = "input_gradient = true";
    for (name, head, pins, most) in [
        ("megatron", gx, stored("R", "S(1)", "S(0)", "S(0)", "R", "R"), 49_152),
        ("megatron_no", "", stored("R", "S(1)", "S(0)", "S(0)", "R", "R"), 12_288),
        ("column", gx, stored("R", "S(1)", "S(0)", "S(1)", "S(0)", "S(1)"), 61_440),
        ("fsdp", "", stored("S(0)", "S(0)", "S(0)", "S(0)", "S(0)", "S(0)"), 67_584),
    ] {
        let net = model(
            &format!("stored_{name}.toml"),
            64,
            &[96, 256, 32],
            "activation = \"relu\"",
            head,
            &pins,
        );
        let (_, bytes) = only(&compare(&format!("{net} --layout replicated --free splits")));
        assert!(bytes <= most, "{name}: {bytes} > {most}");
        assert!(bytes > 0, "{name}");
    }
}

#[test]
fn a_memory_limit_is_kept_or_refused_with_the_least_that_would_do() {
    let free = compare("--mesh tp=4 --layout auto");
    let peak = free["plans"][0]["totals"]["peak_bytes_per_device"].as_u64().expect("a number");
    assert_eq!(free["plans"][0]["memory"]["limit"], json!(null));
    let limit = peak * 9 / 10;
    let limited = compare(&format!("--mesh tp=4 --layout auto --memory-limit {limit}"));
    let plan = &limited["plans"][0];
    assert!(plan["totals"]["peak_bytes_per_device"].as_u64().expect("a number") <= limit);
    assert_eq!(plan["memory"]["limit"], json!(limit));
    assert!(plan["memory"]["least_bytes"].as_u64().expect("a number") <= limit);
    let parts = plan["memory"]["at_peak"].as_object().expect("an object");
    let sum: u64 = parts.values().map(|v| v.as_u64().expect("a number")).sum();
    assert_eq!(json!(sum), plan["totals"]["peak_bytes_per_device"]);
    // Too little for anything: exit 1, and one line that names the least.
    for command in ["compare", "plan"] {
        let run = run(&format!("{command} --mesh tp=4 --layout auto --memory-limit 1kB"));
        assert_eq!((run.code, run.stderr.lines().count()), (1, 1), "{run:?}");
        assert!(run.stderr.contains("the least memory found is"), "{}", run.stderr);
    }
    let bad = run("compare --memory-limit 3apples");
    assert_eq!(bad.code, 2, "{bad:?}");
}

#[test]
fn the_front_falls_in_memory_as_it_rises_in_volume() {
    let report = compare(
        "--mesh tp=2 --layout data --layout fsdp --layout zero1 --layout megatron --pareto",
    );
    let points = report["pareto"]["points"].as_array().expect("points");
    let of = |point: &Value, key: &str| point[key].as_u64().expect("a number");
    assert!(points.len() > 1);
    for pair in points.windows(2) {
        assert!(of(&pair[0], "bytes_per_device") <= of(&pair[1], "bytes_per_device"));
        assert!(of(&pair[0], "peak_bytes_per_device") > of(&pair[1], "peak_bytes_per_device"));
    }
    let table = succeed("compare --mesh tp=2 --layout data --layout fsdp --pareto");
    assert!(table.contains("Front of volume against memory"), "{table}");
}

#[test]
fn why_not_names_the_collectives_and_the_boundary_that_differ() {
    // Two equal linear layers: column, all_to_all, data beats every preset.
    let net =
        model("why_not.toml", 256, &[128, 128, 128], "bias = false", "optimizer = \"none\"", "");
    let text =
        support::succeed(&format!("plan {net} --mesh tp=8 --layout auto --why-not megatron"));
    assert!(text.starts_with("why not tp=megatron?\n"), "{text}");
    assert!(text.contains("tp=auto: 143360 bytes per device in "), "{text}");
    assert!(text.contains("it sends 86016 bytes more"), "{text}");
    assert!(text.contains("boundary: different"), "{text}");
    assert!(text.contains("forward all_to_all over tp of h0"), "{text}");
    let same = support::succeed(&format!("plan {net} --mesh tp=8 --layout row --why-not row"));
    assert!(same.contains("it sends as much"), "{same}");
    assert!(same.contains("boundary: the same"), "{same}");
    assert!(
        same.contains("only there: 0 collectives, 0 bytes\nonly here: 0 collectives, 0 bytes"),
        "{same}"
    );
    let run = support::run(&format!("plan {net} --mesh tp=8 --why-not row --format json"));
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
}
