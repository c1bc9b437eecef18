//! `diagnose`: files of other programs in, the kind of fault and the exit code out; hostile files are refused in one line.

mod support;

use std::path::PathBuf;

use serde_json::Value;
use support::{Run, run, succeed};

/// Writes a file for a test; the name must be the test's own. No blanks in the path: arguments are split there.
fn write(name: &str, bytes: &[u8]) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, bytes).expect("the file can be written");
    path.to_str().expect("UTF-8").to_owned()
}

/// An array as NumPy saves it: the header padded to a multiple of 64.
fn npy(descr: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let mut header =
        format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}");
    while (header.len() + 11) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let length = u16::try_from(header.len()).expect("short").to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), data].concat()
}

fn f32s(values: impl IntoIterator<Item = f64>) -> Vec<u8> {
    values.into_iter().flat_map(|v| (v as f32).to_le_bytes()).collect()
}

/// A matrix of f32 in rows.
fn matrix(name: &str, shape: [usize; 2], f: impl Fn(usize) -> f64) -> String {
    let data = f32s((0..shape[0] * shape[1]).map(f));
    write(name, &npy("<f4", false, &format!("({}, {})", shape[0], shape[1]), &data))
}

/// Elements by index.
type Elements<'a> = &'a dyn Fn(usize) -> f64;

/// Tensors of f32 by name, in the order given.
fn safetensors(name: &str, tensors: &[(&str, usize, Elements<'_>)]) -> String {
    let (mut header, mut data) = (Vec::new(), Vec::new());
    for (tensor, len, f) in tensors {
        let start = data.len();
        data.extend(f32s((0..*len).map(f)));
        header.push(format!(
            r#""{tensor}":{{"dtype":"F32","shape":[{len}],"data_offsets":[{start},{}]}}"#,
            data.len()
        ));
    }
    let header = format!("{{{}}}", header.join(","));
    let length = (header.len() as u64).to_le_bytes();
    write(name, &[&length[..], header.as_bytes(), &data].concat())
}

/// No element is a multiple of another, signs are mixed.
fn gradient(i: usize) -> f64 {
    ((i * 7919 + 13) % 101) as f64 / 7.0 - 6.2
}

fn json(arguments: &str) -> (i32, Value) {
    let run = run(&format!("diagnose --format json {arguments}"));
    (run.code, serde_json::from_str(&run.stdout).expect("JSON"))
}

#[test]
fn each_kind_of_fault_has_its_name_and_exit_1() {
    const SHAPE: [usize; 2] = [6, 10];
    let expected = matrix("kinds_expected.npy", SHAPE, gradient);
    let transposed = |i: usize| gradient(i % 6 * 10 + i / 6);
    let halves = |i: usize| gradient((i + 30) % 60);
    let hash = |i: usize| ((i * 2_654_435_761) % 1000) as f64 / 1000.0 - 0.5;
    type Case = (&'static str, Box<dyn Fn(usize) -> f64>, &'static str);
    let cases: Vec<Case> = vec![
        (
            "reduction_repeated",
            Box::new(|i| 3.0 * gradient(i)),
            "reduction over tp (3 devices) runs once too often",
        ),
        (
            "reduction_repeated",
            Box::new(|i| 4.0 * gradient(i)),
            "reduction over dp (2 devices) runs twice too often",
        ),
        ("averaged", Box::new(|i| gradient(i) / 2.0), "divided once by the size of dp"),
        ("negated", Box::new(|i| -gradient(i)), "negative"),
        ("scaled", Box::new(|i| 1.7 * gradient(i)), "scaled by 1.700000"),
        (
            "reduction_missing",
            Box::new(|i| if i < 30 { gradient(i) } else { 0.0 }),
            "a reduction is missing",
        ),
        ("blocks_reordered", Box::new(halves), "blocks of dim 0 in the order [1, 0]"),
        ("transposed", Box::new(transposed), "read as a buffer of the old shape"),
        (
            "not_finite",
            Box::new(|i| if i == 7 { f64::NAN } else { gradient(i) }),
            "element 7 is NaN",
        ),
        ("noise", Box::new(move |i| gradient(i) + hash(i)), "noise"),
        (
            "unknown",
            Box::new(move |i| gradient((i * 7) % 60) + 9.0 * hash(i)),
            "none of the known faults",
        ),
    ];
    for (kind, actual, said) in cases {
        let actual = matrix("kinds_actual.npy", SHAPE, actual);
        let run = run(&format!("diagnose {expected} {actual} --mesh dp=2,tp=3"));
        assert_eq!(run.code, 1, "{kind}: {run:?}");
        assert!(run.stdout.contains(said), "{kind}: {} lacks {said:?}", run.stdout);
        assert!(run.stdout.contains("look at: "), "{kind}: {}", run.stdout);
        assert_eq!(run.stderr.lines().count(), 1, "{kind}: {}", run.stderr);
        assert!(run.stderr.contains(&format!("`kinds_expected` {kind}")), "{kind}: {}", run.stderr);
        let (code, found) = json(&format!("{expected} {actual} --mesh dp=2,tp=3"));
        assert_eq!((code, &found["tensors"][0]["fault"]), (1, &Value::from(kind)));
        assert_eq!((&found["schema"], &found["equal"]), (&Value::from(1), &Value::from(false)));
    }
}

#[test]
fn equal_within_rounding_is_exit_0_and_the_tolerance_can_be_set() {
    let expected = matrix("equal_expected.npy", [6, 10], gradient);
    let said = succeed(&format!("diagnose {expected} {expected}"));
    assert!(said.starts_with("equal_expected f32[6, 10]: equal, bit for bit\n"), "{said}");
    // 16 √1024 u of the largest element, 8.09, is 2.5e-4.
    let off = |by: f64| move |i: usize| gradient(i) + if i == 11 { by } else { 0.0 };
    let close = matrix("equal_close.npy", [6, 10], off(2e-4));
    let said = succeed(&format!("diagnose {expected} {close}"));
    assert!(said.contains("equal within rounding"), "{said}");
    let far = matrix("equal_far.npy", [6, 10], off(4e-4));
    assert_eq!(run(&format!("diagnose {expected} {far}")).code, 1);
    succeed(&format!("diagnose {expected} {far} --tolerance 1e-4"));
    assert_eq!(run(&format!("diagnose {expected} {close} --tolerance 1e-5")).code, 1);
    assert_eq!(run(&format!("diagnose {expected} {close} --tolerance 0")).code, 1);
    // Integers are equal or not.
    let ints = |name: &str, values: &[i64]| {
        let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        write(name, &npy("<i8", false, &format!("({},)", values.len()), &data))
    };
    let (big, next) =
        (ints("equal_big.npy", &[1 << 53, 5]), ints("equal_next.npy", &[(1 << 53) + 1, 5]));
    succeed(&format!("diagnose {big} {big}"));
    let run = run(&format!("diagnose {big} {next}"));
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.contains("beyond 2^53"), "{}", run.stdout);
}

#[test]
fn orders_and_types_of_files_do_not_matter_but_are_said() {
    let rows = matrix("orders_rows.npy", [2, 3], gradient);
    let columns: Vec<u8> =
        [0, 3, 1, 4, 2, 5].iter().flat_map(|&i| gradient(i).to_be_bytes()).collect();
    let columns = write("orders_columns.npy", &npy(">f8", true, "(2, 3)", &columns));
    let said = succeed(&format!("diagnose {columns} {rows}"));
    assert!(said.contains("f64[2, 3]: equal within rounding"), "{said}");
    assert!(said.contains("expected is f64, actual f32"), "{said}");
    // A file of one tensor stands for an array.
    let one = safetensors("orders_one.safetensors", &[("w", 6, &gradient)]);
    let flat = write("orders_flat.npy", &npy("<f4", false, "(6,)", &f32s((0..6).map(gradient))));
    succeed(&format!("diagnose {flat} {one}"));
    succeed(&format!("diagnose {one} {flat}"));
}

#[test]
fn several_tensors_are_reported_one_by_one() {
    let twice = |i: usize| 2.0 * gradient(i);
    let expected = safetensors(
        "several_expected.safetensors",
        &[("w0", 12, &gradient), ("b0", 4, &gradient), ("w1", 8, &gradient)],
    );
    let actual = safetensors(
        "several_actual.safetensors",
        &[("b0", 4, &gradient), ("w0", 12, &twice), ("v(w0)", 12, &gradient)],
    );
    let run = run(&format!("diagnose {expected} {actual} --mesh dp=2"));
    assert_eq!(run.code, 1);
    let lines: Vec<&str> = run.stdout.lines().filter(|l| !l.starts_with(' ')).collect();
    assert_eq!(
        lines,
        [
            "b0 f32[4]: equal, bit for bit",
            "w0 f32[12]: a reduction over dp (2 devices) runs once too often",
            "w1: missing, only EXPECTED has it",
            "v(w0): extra, only ACTUAL has it",
        ]
    );
    assert!(
        run.stderr.contains("3 of 4 tensors") && run.stderr.contains("`w1` missing"),
        "{}",
        run.stderr
    );
    let (code, found) = json(&format!("{expected} {actual} --mesh dp=2"));
    assert_eq!(code, 1);
    assert_eq!(found["missing"], serde_json::json!(["w1"]));
    assert_eq!(found["extra"], serde_json::json!(["v(w0)"]));
    assert_eq!(found["tensors"][1]["certain"], Value::from(true));
    succeed(&format!("diagnose {expected} {expected} --mesh dp=2"));
}

#[test]
fn a_layout_tells_axes_of_one_size_apart_and_recognises_a_block() {
    let expected = matrix("layout_expected.npy", [4, 6], gradient);
    let twice = matrix("layout_twice.npy", [4, 6], |i| 2.0 * gradient(i));
    let said =
        |layout: &str| run(&format!("diagnose {expected} {twice} --mesh dp=2,tp=2{layout}")).stdout;
    assert!(said("").contains("over dp or tp (2 devices)"), "{}", said(""));
    assert!(
        said(" --layout tp:S(1)").contains("over dp (2 devices)"),
        "{}",
        said(" --layout tp:S(1)")
    );
    assert!(said(" --layout [dp:S(0),tp:R]").contains("over tp (2 devices)"));
    let block = matrix("layout_block.npy", [4, 3], |i| gradient(i / 3 * 6 + i % 3 + 3));
    let run = run(&format!("diagnose {expected} {block} --mesh tp=2 --layout tp:S(1)"));
    assert_eq!(run.code, 1);
    assert!(
        run.stdout.contains("shapes differ")
            && run.stdout.contains("block, which was not gathered"),
        "{}",
        run.stdout
    );
}

/// The example of docs/debugging.md: a gradient that is reduced twice over one axis.
#[test]
fn the_documented_example_prints_what_the_page_shows() {
    let page = include_str!("../../../docs/debugging.md");
    let start = page.find("$ shardgrad diagnose dense.safetensors").expect("the example");
    let shown = &page[start..start + page[start..].find("```").expect("its end")];
    let (command, shown) = shown.split_once('\n').expect("a command and its output");
    let twice = |i: usize| 2.0 * gradient(i);
    let dense = safetensors(
        "dense.safetensors",
        &[("grad(b0)", 16, &gradient), ("grad(w0)", 128, &gradient)],
    );
    let sharded = safetensors(
        "sharded.safetensors",
        &[("grad(b0)", 16, &gradient), ("grad(w0)", 128, &twice)],
    );
    let arguments = command
        .trim_start_matches("$ shardgrad ")
        .replace("sharded.safetensors", &sharded)
        .replace("dense.safetensors", &dense);
    let run = run(&arguments);
    let directory = format!("{}/", env!("CARGO_TARGET_TMPDIR"));
    let printed = format!("{}{}", run.stdout, run.stderr.replace(&directory, ""));
    assert_eq!(printed, shown);
    assert_eq!(run.code, 1);
}

/// Runs, and expects exit 2 with one line that has all parts.
fn refused(arguments: &str, parts: &[&str]) {
    let Run { code, stdout, stderr } = run(&format!("diagnose {arguments}"));
    assert_eq!((code, stdout.as_str()), (2, ""), "`{arguments}`: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "`{arguments}`: {stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    for part in parts {
        assert!(stderr.contains(part), "`{arguments}`: {stderr:?} lacks {part:?}");
    }
}

#[test]
fn bad_usage_and_hostile_files_are_exit_2_with_one_line() {
    let good = matrix("hostile_good.npy", [2, 3], gradient);
    refused("", &["EXPECTED"]);
    refused(&good, &["ACTUAL"]);
    refused(&format!("{good} nowhere.npy"), &["nowhere.npy", "cannot be read"]);
    refused(&format!("{good} {}", env!("CARGO_TARGET_TMPDIR")), &[".npy or .safetensors"]);
    refused(&format!("{good} {good} --layout tp:R"), &["--mesh"]);
    refused(&format!("{good} {good} --mesh tp=2 --layout dp:R"), &["--layout", "`dp`", "tp"]);
    refused(
        &format!("{good} {good} --mesh tp=2 --layout tp:S(2)"),
        &["--layout", "`hostile_good`", "S(2)"],
    );
    refused(&format!("{good} {good} --mesh tp=2 --layout tp:X"), &["--layout", "`X`"]);
    refused(&format!("{good} {good} --tolerance 2"), &["--tolerance", "below 1"]);
    refused(&format!("{good} {good} --tolerance nan"), &["--tolerance", "below 1"]);
    let nan = matrix("hostile_nan.npy", [2, 3], |i| if i == 4 { f64::NAN } else { 1.0 });
    refused(&format!("{nan} {good}"), &["hostile_nan.npy", "element 4", "NaN", "finite"]);
    let whole = std::fs::read(&good).expect("written above");
    for length in [0, 5, 6, 7, 8, 9, 10, 40, 127, 128, whole.len() - 1] {
        let cut = write("hostile_cut.npy", &whole[..length]);
        refused(&format!("{good} {cut}"), &["hostile_cut.npy"]);
        refused(&format!("{cut} {good}"), &["hostile_cut.npy"]);
    }
    let half = write("hostile_half.npy", &npy("<f2", false, "(2, 3)", &[0; 12]));
    refused(&format!("{good} {half}"), &["`<f2`", "f4, f8, i4 and i8"]);
    let vast = write("hostile_vast.npy", &npy("<f4", false, "(9223372036854775807, 3)", &[0; 12]));
    refused(&format!("{good} {vast}"), &["more elements than there are addresses"]);
    let large = write("hostile_large.npy", &npy("<f8", false, "(100000000000,)", &[0; 12]));
    refused(&format!("{good} {large}"), &["800000000000 bytes, but 12"]);
    let header = write("hostile_header.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\xff{");
    refused(&format!("{good} {header}"), &["header of 4294967295 bytes"]);
    let one = safetensors("hostile_good.safetensors", &[("w", 6, &gradient)]);
    let whole = std::fs::read(&one).expect("written above");
    for length in [0, 7, 8, 30, whole.len() - 1] {
        let cut = write("hostile_cut.safetensors", &whole[..length]);
        refused(&format!("{one} {cut}"), &["hostile_cut.safetensors"]);
    }
    let header = write("hostile_header.safetensors", &[0xff; 64]);
    refused(&format!("{one} {header}"), &["header of 18446744073709551615 bytes"]);
    let empty = write("hostile_empty.safetensors", b"\x02\0\0\0\0\0\0\0{}");
    refused(&format!("{one} {empty}"), &["hostile_empty.safetensors", "holds no tensor"]);
}
