//! Steps on paper: published figures of tensor parallelism over two axes, large meshes, the example machines.

mod support;

use serde_json::Value;
use support::{file, model, run, succeed};

fn simulate(arguments: &str) -> Value {
    serde_json::from_str(&succeed(&format!("simulate --format json {arguments}"))).expect("JSON")
}

fn root(path: &str) -> String {
    format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"))
}

/// Bytes per device of all collectives but those of the loss.
fn sent(summary: &Value) -> u64 {
    summary["bytes_by_axes"].as_object().unwrap().values().map(|b| b.as_u64().unwrap()).sum()
}

#[test]
fn the_example_machines_are_read_and_told_apart() {
    let step = |machine: &str| {
        let summary = simulate(&format!(
            "--mesh node=2,gpu=8 --layout node=data,gpu=megatron --machine {machine}"
        ));
        ["step_seconds", "compute_seconds"].map(|key| summary[key].as_f64().unwrap())
    };
    let [laptop, node, cluster] =
        ["laptop", "node", "cluster"].map(|name| step(&root(&format!("machines/{name}.toml"))));
    // The network is slower than the switch; a core computes slower than an accelerator, but its messages are near.
    assert!(cluster[0] > node[0] && node[0] > laptop[0], "{laptop:?} {node:?} {cluster:?}");
    assert!(laptop[1] > cluster[1] && cluster[1] == node[1], "{laptop:?} {node:?} {cluster:?}");
    let text = succeed(&format!("simulate --mesh tp=8 --machine {}", root("machines/node.toml")));
    assert!(text.contains("80.0 GB, fits"), "{text}");
    let small = support::file(
        "small.toml",
        "flops = 1e9\nmemory_bandwidth = 1e9\nmemory = 1e3\n[link]\nlatency = 0.0\nbandwidth = 1e9\n",
    );
    let text = succeed(&format!("simulate --mesh tp=8 --machine {small}"));
    assert!(text.contains("0.0 GB, does not fit"), "{text}");
    for (line, problem) in [("memory = 0.0", "memory"), ("disk = 1.0", "disk")] {
        let text = format!(
            "flops = 1e9\nmemory_bandwidth = 1e9\n{line}\n[link]\nlatency = 0.0\nbandwidth = 1e9\n"
        );
        let found = run(&format!("simulate --machine {}", support::file("bad.toml", &text)));
        assert_eq!(found.code, 2);
        assert!(found.stderr.contains(problem), "{}", found.stderr);
    }
}

/// A hundred thousand devices: nothing loops over them. Data parallel over nodes, Megatron within.
#[test]
fn a_hundred_thousand_devices_are_simulated_at_once() {
    let net = model("wide.toml", 12_500 * 8, &[1024, 4096, 1024], "", "optimizer = \"none\"", "");
    let start = std::time::Instant::now();
    let summary = simulate(&format!(
        "{net} --mesh node=12500,gpu=8 --layout node=data,gpu=megatron --machine {}",
        root("machines/cluster.toml")
    ));
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
    assert_eq!(summary["devices"], 100_000);
    let number = |key: &str| summary[key].as_f64().unwrap();
    assert!(number("step_seconds") <= number("sequential_seconds"));
    assert!(number("exposed_seconds") > 0.0);
    // One all_reduce of the output's rows within the node: 2·7/8 of 8·1024 elements; gradients of an eighth of the weights,
    // and of the biases, over the nodes.
    let within = summary["bytes_by_axes"]["gpu"].as_u64().unwrap();
    assert_eq!(within, 2 * 8 * 1024 * 4 * 7 / 8);
}

#[test]
fn exports_are_written_by_plan() {
    let dot = succeed("plan --mesh tp=2 --layout megatron --format dot");
    assert!(dot.starts_with("digraph \"digits\" {\n") && dot.ends_with("}\n"));
    let script = succeed("plan --mesh tp=2 --layout megatron --format numpy");
    assert!(script.starts_with("#!/usr/bin/env python3\n"));
    assert!(script.contains("= all_reduce(v"), "{script}");
    assert_eq!(sent(&simulate("--mesh tp=1 --layout replicated")), 0);
}

/// A machine that is measured on threads is one that can be planned for.
#[test]
fn a_measured_machine_predicts() {
    let machine = file("measured.toml", "");
    let table = succeed(&format!("measure --mesh tp=2 --layout data --steps 1 -o {machine}"));
    assert!(table.lines().any(|line| line.starts_with("tp=data")), "{table}");
    let text = std::fs::read_to_string(&machine).expect("a machine file");
    assert!(text.starts_with("# Measured") && text.contains("[axes.tp]"), "{text}");
    succeed(&format!("simulate --mesh tp=2 --layout data --machine {machine}"));
    let none = run("train --backend mpi --epochs 1");
    if !cfg!(feature = "mpi") {
        assert_eq!(none.code, 2);
        assert!(none.stderr.contains("--features mpi"), "{}", none.stderr);
    }
}
