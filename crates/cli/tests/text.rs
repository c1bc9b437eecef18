//! `train` on text: models of tokens learn characters, on every layout the same, and what is no text for them is refused.

mod support;

use support::{file, run, succeed};

const SONNETS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/data/sonnets.txt");

/// A small decoder, with these lines before its layers and in its block.
fn stack(name: &str, head: &str, block: &str) -> String {
    let text = format!(
        "batch = 12\nsequence = 16\nvocabulary = 45\noptimizer = {{ name = \"adamw\", lr = 2e-2 }}\n{head}\n\
         [[stack]]\nkind = \"embedding\"\nname = \"tokens\"\nwidth = 8\n\
         [[stack]]\nkind = \"block\"\nname = \"block\"\nheads = 2\nhidden = 12\n{block}\n\
         [[stack]]\nkind = \"norm\"\nname = \"norm\"\n\
         [[stack]]\nkind = \"head\"\nname = \"scores\"\ntied = \"tokens\"\n"
    );
    file(name, &text)
}

/// Where a checkpoint goes.
fn saved(name: &str) -> String {
    format!("{}/{name}", env!("CARGO_TARGET_TMPDIR"))
}

#[test]
fn characters_are_learnt() {
    let model = stack("characters.toml", "clip_norm = 1.0", "");
    let said = succeed(&format!(
        "train {model} --data {SONNETS} --mesh tp=2 --layout megatron --epochs 30"
    ));
    let row = said.lines().rfind(|l| l.trim_end().ends_with('%')).expect("the last epoch");
    let loss: f64 = row.split_whitespace().nth(1).and_then(|f| f.parse().ok()).expect("a loss");
    // By the frequencies of characters alone it is 3.07.
    assert!(loss < 2.8, "{said}");
    // 1,202 characters have one after them: 75 windows, of which 60 are trained on.
    assert!(said.contains("counted = predicted in all 150 steps"), "{said}");
}

#[test]
fn every_step_is_verified_with_masks_parts_of_batches_and_dropout() {
    let all = "masked = true\nlabel_smoothing = 0.1\nmicro_batches = 2";
    let model = stack("verified.toml", all, "dropout = 0.1\nkv_heads = 1\nnorm = \"rms\"");
    for layout in ["--mesh dp=2 --layout fsdp", "--mesh tp=2 --layout megatron-sp"] {
        let said = succeed(&format!("train {model} --data {SONNETS} {layout} --epochs 1 --verify"));
        assert!(said.contains("sharded = dense in steps 1 to 5"), "{said}");
        // The bound says something: elements differ, and of most it is finite.
        assert!(said.contains("the largest difference is"), "{said}");
        let number_before = |word: &str| -> u64 {
            let before = said.split(word).next().and_then(|text| text.split_whitespace().last());
            before.and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        let unbounded = number_before(" more the bound is not finite");
        assert!(number_before(" elements equal") > 3 * unbounded, "{said}");
    }
}

#[test]
fn training_goes_on_where_it_stopped_with_what_it_would_have_dropped() {
    let model = stack("resumed.toml", "", "dropout = 0.2");
    let train = format!("train {model} --data {SONNETS} --mesh dp=2 --layout data");
    let (half, whole, straight) = (saved("half"), saved("whole"), saved("straight"));
    succeed(&format!("{train} --epochs 1 --checkpoint {half}"));
    let said =
        succeed(&format!("{train} --epochs 2 --resume {half} --checkpoint {whole} --verify"));
    assert!(said.contains("sharded = dense in steps 6 to 10"), "{said}");
    succeed(&format!("{train} --epochs 2 --checkpoint {straight}"));
    let read = |path: &str| std::fs::read(path).expect("a checkpoint");
    assert!(read(&whole) == read(&straight));
    // The ids of a text with one character more are others.
    let other = std::fs::read_to_string(SONNETS).expect("a text") + "#";
    let other = file("other.txt", &other);
    let said = run(&format!("{} --epochs 2 --resume {half}", train.replace(SONNETS, &other)));
    assert_eq!((said.code, said.stderr.lines().count()), (2, 1), "{}", said.stderr);
    assert!(said.stderr.contains("`vocabulary` of the checkpoint does not fit"), "{}", said.stderr);
    assert!(said.stderr.contains("'#' is in the data"), "{}", said.stderr);
}

#[test]
fn what_is_no_text_for_the_model_is_refused_on_one_line() {
    let model = stack("refused.toml", "", "");
    let masked = stack("refused_masked.toml", "masked = true", "");
    let small = file(
        "small.toml",
        &std::fs::read_to_string(&model).expect("a model").replace("= 45", "= 43"),
    );
    let binary = saved("binary.txt");
    std::fs::write(&binary, b"words\xff\x00").expect("a file");
    let rows = saved("rows.toml");
    std::fs::write(&rows, "batch = 2\noptimizer = \"sgd\"\n[[layer]]\nin = 3\nout = 2\n")
        .expect("a file");
    let with = |model: &str, data: &str| format!("train {model} --mesh dp=2 --data {data}");
    for (arguments, parts) in [
        (format!("train {model} --mesh dp=2"), &["--data: a text file was expected"][..]),
        (with(&model, "missing.txt"), &["missing.txt: cannot be read"]),
        (with(&model, &binary), &["binary.txt: is not UTF-8 text: byte 5 of 7"]),
        (with(&model, &file("empty.txt", "")), &["empty.txt: has 0 characters; 17 or more"]),
        (with(&model, &file("short.txt", "not 17 letters")), &["has 14 characters; 17 or more"]),
        (with(&masked, &file("one.txt", "I")), &["has 1 characters; 2 or more"]),
        (with(&small, SONNETS), &["has 44 different characters", "`vocabulary` is 43"]),
        (
            with(&model, &file("few.txt", &"two or three windows ".repeat(2))),
            &["`batch` is 12", "only 1 windows to train on"],
        ),
        (with(&rows, SONNETS), &["sonnets.txt: the header has"]),
    ] {
        let run = run(&arguments);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "`{arguments}`: {}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 1, "`{arguments}`: {}", run.stderr);
        for part in parts {
            assert!(run.stderr.contains(part), "`{arguments}`: {:?} lacks {part:?}", run.stderr);
        }
    }
}

#[test]
fn elements_without_a_finite_bound_are_not_called_equal() {
    let model = stack("unbounded.toml", "clip_norm = 1.0", "");
    let said = succeed(&format!(
        "train {model} --data {SONNETS} --mesh tp=2 --layout megatron --epochs 1 --verify"
    ));
    // In f32 the bound of the norm of all gradients reaches the norm, so that there is none behind the clipping. Op by op
    // every bound is finite.
    let evidence = said.lines().find(|line| line.starts_with("sharded = dense")).expect("evidence");
    let numbers: Vec<u64> = evidence.split_whitespace().filter_map(|w| w.parse().ok()).collect();
    assert!(evidence.contains("nothing is claimed"), "{evidence}");
    let ops = said.lines().find(|line| line.starts_with("each op = dense op")).expect("evidence");
    assert!(ops.contains("steps 1 to 5: ") && !ops.contains("not finite"), "{ops}");
    // What is compared: the loss and four times each parameter (gradient, value, two moments), in each of five steps.
    let parameters = 45 * 8 + 16 * 8 + 4 * (8 * 8 + 8) + 8 * 12 + 12 + 12 * 8 + 8 + 3 * 2 * 8;
    let compared: u64 = numbers.iter().filter(|n| **n > 1000).sum();
    assert_eq!(compared, 5 * (1 + 4 * parameters), "{evidence}");
}
