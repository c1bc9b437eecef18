//! Bad usage and bad input: exit 2 and exactly one line on standard error that names the file or argument, the key, what
//! was found and what was expected.

mod support;

use support::{file, model, run};

/// Runs, and expects exit 2 with one line that has all parts.
fn refused(arguments: &str, parts: &[&str]) {
    let run = run(arguments);
    assert_eq!(run.code, 2, "`{arguments}`: {run:?}");
    assert_eq!(run.stdout, "", "`{arguments}`");
    assert_eq!(run.stderr.lines().count(), 1, "`{arguments}`: {}", run.stderr);
    assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
    for part in parts {
        assert!(run.stderr.contains(part), "`{arguments}`: {:?} lacks {part:?}", run.stderr);
    }
}

#[test]
fn arguments_are_refused() {
    refused("", &["command", "--help"]);
    refused("compair", &["compair"]);
    refused("compare --mash tp=4", &["--mash"]);
    refused("compare --mesh", &["--mesh"]);
    refused("compare --mesh tp=0", &["--mesh", "`tp`", "size 0"]);
    refused("compare --mesh tp", &["--mesh", "`tp`", "name=size"]);
    refused("compare --mesh tp=2,tp=2", &["--mesh", "`tp`", "twice"]);
    refused("compare --mesh tp=99999999999", &["--mesh", "devices"]);
    refused("compare --format yaml", &["--format", "yaml", "table", "json"]);
    refused("compare --objective speed", &["--objective", "speed", "volume"]);
    refused("train --epochs 0", &["--epochs", "0"]);
    refused("train --collectives native", &["--collectives native", "--backend mpi"]);
    refused("measure --layout megatrn", &["--layout", "`megatrn`"]);
    refused("check", &["PLAN.json"]);
}

#[test]
fn layouts_are_refused() {
    refused("compare --layout megatrn", &["--layout", "`megatrn`", "megatron-sp"]);
    refused("compare --layout dp=data", &["`dp`", "tp"]);
    refused("compare --mesh dp=2,tp=2 --layout data", &["`data`", "dp, tp", "axis=data"]);
    refused("compare --layout tp=data,tp=row", &["`tp`", "twice"]);
    refused("compare --layout nowhere.toml", &["nowhere.toml", "cannot be read"]);
    let layout = file("bad_layout.toml", "layout = \"tp=data\"\n[pin]\n");
    refused(&format!("compare --layout {layout}"), &["bad_layout.toml:2", "`pin`", "`pins`"]);
}

#[test]
fn pins_and_splits_are_refused() {
    let with = |name: &str, tail: &str| model(name, 8, &[6, 4], "", "", tail);
    let path = with("pin_axis.toml", "[pins]\nx = \"dp: S(0)\"\n");
    refused(
        &format!("compare {path} --layout data"),
        &["pin_axis.toml: --layout data: ", "`dp`", "tp"],
    );
    let path = with("pin_empty.toml", "[pins]\nx = \"\"\n");
    refused(&format!("compare {path}"), &["pin_empty.toml", "`pins.x`", "no axis", "tp: S(0)"]);
    let path = with("pin_value.toml", "[pins]\nw7 = \"tp: R\"\n");
    refused(&format!("plan {path}"), &["pin_value.toml: --layout auto: ", "`w7`", "w0"]);
    let path = with("pin_dim.toml", "[pins]\nw0 = \"tp: S(2)\"\n");
    refused(&format!("compare {path}"), &["`w0`", "S(2)", "2 dims"]);
    let path = with("pin_pending.toml", "[pins]\nw0 = \"tp: P\"\n");
    refused(&format!("compare {path}"), &["`w0`", "pending"]);
    let path = with("split_layer.toml", "[splits]\n\"3\" = \"tp: out\"\n");
    refused(&format!("compare {path}"), &["layer 3", "1 layer"]);
    let path = with("split_name.toml", "[splits]\n\"0\" = \"tp: rows\"\n");
    refused(&format!("compare {path}"), &["split_name.toml:", "rows", "batch, in, out, none"]);
}

#[test]
fn model_files_are_refused() {
    refused("compare nowhere.toml", &["nowhere.toml", "cannot be read"]);
    let path = file("broken.toml", "batch = 8\n[[layer]\nin = 3\n");
    refused(&format!("compare {path}"), &["broken.toml:2"]);
    let path = file("binary.toml", "batch = \u{0}");
    refused(&format!("compare {path}"), &["binary.toml:1"]);
    let path = file("key.toml", "batch = 8\nlearning_rate = 1\n[[layer]]\nin = 3\nout = 2\n");
    refused(&format!("plan {path}"), &["key.toml:2", "`learning_rate`", "`optimizer`"]);
    let path = file("no_layers.toml", "batch = 8\n");
    refused(
        &format!("compare {path} --layout megatron"),
        &["no_layers.toml", "`layer`", "at least one"],
    );
    let path =
        file("shapes.toml", "batch = 8\n[[layer]]\nin = 3\nout = 5\n[[layer]]\nin = 4\nout = 2\n");
    refused(&format!("compare {path}"), &["shapes.toml", "`layer[1].in`", "4", "5"]);
    let path = file("zero.toml", "batch = 0\n[[layer]]\nin = 3\nout = 5\n");
    refused(&format!("compare {path}"), &["zero.toml", "`batch`", "0"]);
    let path = file(
        "machine.toml",
        "flops = 1e9\nmemory_bandwidth = -1.0\n[link]\nlatency = 0.0\nbandwidth = 1e9\n",
    );
    refused(
        &format!("compare --machine {path}"),
        &["machine.toml", "memory_bandwidth", "-1", "positive"],
    );
}

#[test]
fn data_files_are_refused() {
    let net = model(
        "data_model.toml",
        2,
        &[2, 3],
        "",
        "loss = \"cross_entropy\"\noptimizer = \"sgd\"",
        "",
    );
    let train = |name: &str, csv: &str, parts: &[&str]| {
        let data = file(name, csv);
        refused(&format!("train {net} --data {data} --mesh tp=2"), parts);
    };
    train(
        "field.csv",
        "a,b,label\n1,2,0\n1,two,0\n",
        &["field.csv", "row 2", "column `b`", "`two`"],
    );
    train("range.csv", "a,b,label\n1,1e39,0\n", &["range.csv", "row 1", "column `b`", "f32"]);
    train("short.csv", "a,b,label\n1,2\n", &["short.csv", "row 1", "2 fields"]);
    train("class.csv", "a,b,label\n1,2,3\n", &["class.csv", "row 1", "`label`", "0 to 2"]);
    train("header.csv", "a,b,c,label\n1,2,3,0\n", &["header.csv", "4 columns", "2 features"]);
    train("few.csv", "a,b,label\n1,2,0\n1,2,0\n", &["`batch` is 2", "1 rows"]);
    refused(&format!("train {net} --data nowhere.csv"), &["nowhere.csv", "cannot be read"]);
    refused(&format!("train {net}"), &["--data", "digits", "64"]);
    let none = model("no_optimizer.toml", 8, &[64, 10], "", "loss = \"cross_entropy\"", "");
    refused(&format!("train {none}"), &["`optimizer`", "none"]);
}

#[test]
fn plan_files_are_refused() {
    refused("check nowhere.json", &["nowhere.json", "cannot be read"]);
    let path = file("broken.json", "{\"schema\": 1,");
    refused(&format!("check {path}"), &["broken.json"]);
    let path = file("version.json", "{\"schema\": 99}");
    refused(&format!("check {path}"), &["version.json", "99"]);
}
