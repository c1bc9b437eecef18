//! `check`: plans that the planner makes are right; every violation of a tampered one is listed, exit 1.

mod support;

use serde_json::{Value, json};
use support::{file, run, succeed};

#[test]
fn every_preset_is_right() {
    for (mesh, layout) in [
        ("tp=4", "column"),
        ("tp=3", "fsdp"),
        ("tp=5", "megatron-sp"),
        ("dp=2,tp=2", "dp=zero1,tp=row"),
        ("dp=2,tp=3", "auto"),
    ] {
        let path = file(&format!("right_{layout}.json"), "");
        assert_eq!(
            succeed(&format!("plan --mesh {mesh} --layout {layout} --format json -o {path}")),
            ""
        );
        let said = succeed(&format!("check {path}"));
        assert!(said.contains("right:"), "{layout}: {said}");
        let proven = "certificate: proves that by volume no plan of this space is better\n";
        assert!(said.contains(proven), "{layout}: {said}");
    }
}

#[test]
fn a_tampered_plan_is_refused_with_all_its_violations() {
    let path = file("tampered.json", "");
    succeed(&format!("plan --mesh tp=4 --layout megatron --format json -o {path}"));
    let mut plan: Value =
        serde_json::from_str(&std::fs::read_to_string(&path).expect("plan file")).expect("JSON");
    // The all_reduce of the output is lost: its result is called pending, as its operand is.
    let nodes = plan["plan"]["nodes"].as_array().expect("nodes");
    let lost = nodes
        .iter()
        .position(|n| n["op"].get("transition").is_some_and(|t| t["kind"] == "all_reduce"))
        .expect("an all_reduce");
    plan["plan"]["layouts"][lost] = json!(["P"]);
    let path = file("tampered.json", &plan.to_string());
    let run = run(&format!("check {path}"));
    assert_eq!(run.code, 1, "{run:?}");
    let wrong = run.stdout.lines().filter(|l| l.starts_with("wrong: C0")).count();
    assert!(wrong >= 2, "the transition itself and what reads it: {}", run.stdout);
    assert!(run.stderr.contains(&format!("{wrong} violation")), "{}", run.stderr);
    assert_eq!(run.stderr.lines().count(), 1);
}

#[test]
fn a_tampered_certificate_is_refused() {
    let path = file("certified.json", "");
    succeed(&format!("plan --mesh tp=4 --layout megatron --format json -o {path}"));
    let good: Value =
        serde_json::from_str(&std::fs::read_to_string(&path).expect("plan file")).expect("JSON");
    let refused = |change: &dyn Fn(&mut Value), code: &str| {
        let mut bad = good.clone();
        change(&mut bad["certificate"]["bound"]);
        let path = file("certificate_tampered.json", &bad.to_string());
        let run = run(&format!("check {path}"));
        assert_eq!(run.code, 1, "{run:?}");
        assert!(run.stdout.starts_with(&format!("wrong: {code}: ")), "{}", run.stdout);
        assert!(run.stderr.contains("1 violation"), "{}", run.stderr);
    };
    let more = |value: &mut Value| *value = json!(value.as_u64().expect("a number") + 4);
    refused(&|bound| more(&mut bound["lower"][0]), "C063");
    refused(&|bound| more(&mut bound["cost"][0]), "C064");
    refused(&|bound| more(&mut bound["bags"]["minima"][0][0]), "C062");
    // Without a certificate the plan is right, and that is all.
    let mut bare = good.clone();
    bare.as_object_mut().expect("an object").remove("certificate");
    let path = file("certificate_none.json", &bare.to_string());
    assert!(succeed(&format!("check {path}")).contains("certificate: none"));
}
