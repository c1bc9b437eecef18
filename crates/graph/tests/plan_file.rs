//! Plan files round-trip; hostile ones give a typed error.

mod support;

use serde_json::{Value as Json, json};
use shardgrad_graph::PlanFile;
use support::{megatron, two_layers};

fn file() -> PlanFile {
    let program = two_layers(6, [5, 4, 3], true);
    let plan = megatron(&program, "dp=1, tp=2");
    PlanFile::new(program, plan)
}

#[test]
fn a_file_round_trips() {
    let file = file();
    file.validate().unwrap();
    let text = file.to_json().unwrap();
    assert_eq!(PlanFile::read(&text).unwrap(), file);
    assert_eq!(PlanFile::read(&text).unwrap().to_json().unwrap(), text);
}

/// Sets a value in the JSON tree.
fn with(path: &str, value: Json) -> String {
    let mut tree: Json = serde_json::from_str(&file().to_json().unwrap()).unwrap();
    *tree.pointer_mut(path).unwrap_or_else(|| panic!("{path}")) = value;
    tree.to_string()
}

#[test]
fn hostile_files_are_refused_with_a_reason() {
    let n = file().plan.nodes.len();
    let transition = file().plan.transitions().next().unwrap().id.index();
    let at = |field: &str| format!("/plan/nodes/{transition}/{field}");
    let cases: Vec<(String, &str)> = vec![
        ("[]".to_owned(), "not a plan file"),
        ("{".to_owned(), "not a plan file"),
        (r#"{"plan": 1}"#.to_owned(), "`schema` is missing"),
        (with("/schema", json!(1)), "schema is 1"),
        (with("/plan/mesh", json!([{"axis": "tp", "size": 0}])), "size 0"),
        (with("/plan/mesh", json!([{"axis": "tp", "size": 1_u64 << 40}])), "more than"),
        (with("/plan/mesh", json!([])), "1 to 8 axes"),
        (with("/plan/mesh", json!([{"axis": "tp", "size": 2}])), "wants one per axis"),
        (with("/plan/layouts", json!([])), "there are 0 layouts"),
        (with("/plan/origins", json!([0])), "there are 1 origins"),
        (with("/plan/slots", json!([0, 1])), "there are 2 slots"),
        (with("/plan/layouts/0", json!(["R"])), "the layout has 1 placements"),
        (with("/plan/layouts/0", json!(["R", "S(7)"])), "names a dim"),
        (with("/plan/layouts/0", json!(["P", "Pmax"])), "mixes P and Pmax"),
        (with("/plan/layouts/0", json!(["R", "Q"])), "not one of R"),
        (
            with("/plan/origins/3", json!(4_000_000_000_u32)),
            "its origin %4000000000 is out of range",
        ),
        (with("/plan/slots/3", json!(n)), "is out of range"),
        (with("/plan/slots/3", json!(-1)), "not a plan file"),
        (with(&at("operands"), json!([4_000_000_000_u32])), "does not come before it"),
        (with(&at("operands"), json!([])), "takes 1 operand"),
        (with(&at("op/transition/axes"), json!(128)), "not all axes of the mesh"),
        (with(&at("ty/shape"), json!([1, 1])), "but its op makes"),
        (with(&at("op"), json!({"sum": [9]})), "no dim 9"),
        (with(&at("op"), json!({"transpose": [1, 1]})), "not a permutation"),
        (with(&at("op"), json!({"reshape": [u64::MAX, u64::MAX]})), "same 18 elements"),
        (with(&at("op"), json!({"broadcast": {"dims": [1, 0], "shape": [3, 6]}})), "must increase"),
        (with(&at("op"), json!({"einsum": "ab->zz"})), "not a plan file"),
        (with("/plan/outputs/0/node", json!(9999)), "%9999 is out of range"),
        (with("/plan/outputs/1/role/update/of", json!(9999)), "%9999 is not a parameter"),
        (with("/plan/outputs/1/name", json!("loss")), "two outputs named `loss`"),
        (with("/plan/reasons", json!({"9999": {"why": "x"}})), "a reason for node %9999"),
        (with("/program/nodes/4/operands", json!([7, 1])), "does not come before it"),
        (with("/program/names", json!({"x": 9999})), "malformed program"),
        (
            with("/program/nodes/0/op/leaf/ty/shape", json!([1_u64 << 62, 8])),
            "at most 2^40 elements",
        ),
    ];
    for (text, expected) in cases {
        let error = PlanFile::read(&text).unwrap_err();
        assert!(error.to_string().contains(expected), "expected {expected}: {error}");
        assert!(["E121", "E122"].contains(&error.code()));
    }
}

#[test]
fn damaged_files_never_panic() {
    let text: Vec<char> = file().to_json().unwrap().chars().collect();
    let mut state = 7_u64;
    let mut roll = |sides: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        usize::try_from(state >> 33).unwrap() % sides
    };
    let mut read = 0;
    for _ in 0..400 {
        let mut damaged = text.clone();
        for _ in 0..1 + roll(2) {
            // Digits change more often than structure: those reach the validator.
            let mut at = roll(damaged.len());
            while !damaged[at].is_ascii_digit() && roll(20) > 0 {
                at = (at + 1) % damaged.len();
            }
            damaged[at] =
                if roll(20) == 0 { text[roll(text.len())] } else { ['0', '1', '5', '9'][roll(4)] };
        }
        let damaged: String = damaged.into_iter().collect();
        if let Ok(file) = PlanFile::read(&damaged) {
            read += 1;
            file.validate().unwrap();
        }
    }
    assert!(read > 10, "{read}");
}
