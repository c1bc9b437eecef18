//! `shardgrad train --backend mpi`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::driver::{Outcome, finish, mpirun, wait};

const SHARDGRAD: &str = env!("CARGO_BIN_EXE_shardgrad");

type Step<'a> = &'a dyn Fn(&str, &dyn Fn());

pub(crate) fn all(step: Step<'_>) {
    step("command::prints_and_saves_what_threads_do", &as_on_threads);
    step("command::text_is_learnt_as_on_threads", &text);
    step("command::native_collectives_are_equal_within_rounding", &native);
    step("command::what_differs_between_ranks_is_named", &differences);
    step("command::bad_input_is_said_once", &bad_input);
    step("command::an_interruption_saves", &interruption);
    step("command::measures_a_machine", &measures);
    step("command::two_hosts", &two_hosts);
}

fn place() -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mpi");
    std::fs::create_dir_all(&place).expect("a directory");
    place
}

fn file(name: &str, text: &str) -> String {
    let path = place().join(name);
    std::fs::write(&path, text).expect("a file");
    path.to_str().expect("UTF-8").to_owned()
}

/// Small enough that comparing every step takes no time: four steps an epoch, blocks of different lengths.
fn model() -> String {
    file(
        "small.toml",
        "name = \"small\"\nbatch = 350\nloss = \"cross_entropy\"\noptimizer = \"adam\"\n\
         [[layer]]\nin = 64\nout = 15\nactivation = \"relu\"\n[[layer]]\nin = 15\nout = 10\n",
    )
}

fn threads(arguments: &str) -> Outcome {
    finish(Command::new(SHARDGRAD).args(arguments.split_whitespace()))
}

fn processes(p: usize, arguments: &str) -> Outcome {
    let mut command = mpirun();
    command.args(["-n", &p.to_string(), SHARDGRAD]).args(arguments.split_whitespace());
    finish(command.args(["--backend", "mpi"]))
}

/// With `--verify` both print the same: losses and accuracy to the last digit, the same evidence. The files are the same
/// bytes; training goes on from them on another mesh.
fn as_on_threads() {
    let (model, saved) = (model(), place());
    let path = |name: &str| saved.join(name).to_str().expect("UTF-8").to_owned();
    let (a, b) = (path("threads.safetensors"), path("processes.safetensors"));
    let first = format!("train {model} --mesh dp=2,tp=2 --epochs 1 --verify --checkpoint");
    let expected = threads(&format!("{first} {a}")).expect("threads", 0);
    let got = processes(4, &format!("{first} {b}")).expect("processes", 0);
    assert_eq!(got.stdout, expected.stdout);
    assert!(got.stdout.contains("counted = predicted in all 4 steps"), "{}", got.stdout);
    let read = |path: &str| std::fs::read(path).expect("a checkpoint");
    assert_eq!(read(&a), read(&b));
    let entries = std::fs::read_dir(&saved).expect("a directory");
    let stray = entries.flatten().map(|entry| entry.path()).find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("processes.safetensors.")
    });
    assert_eq!(stray, None, "nothing is left beside the file");
    for layout in ["fsdp", "megatron-sp"] {
        let on = format!("train {model} --mesh tp=3 --layout {layout} --epochs 3 --resume {a}");
        let expected = threads(&format!("{on} --verify")).expect("threads", 0);
        let got = processes(3, &format!("{on} --verify")).expect("processes", 0);
        assert_eq!(got.stdout, expected.stdout);
    }
    // Without it nothing is put together, and the numbers stay.
    let plain = processes(3, &format!("train {model} --mesh tp=3 --layout fsdp --epochs 2"));
    let plain = plain.expect("processes", 0).stdout;
    let threads = threads(&format!("train {model} --mesh tp=3 --layout fsdp --epochs 2")).stdout;
    let before = |text: &str| text.split("sharded = ").next().map(str::to_owned);
    let plain = plain.split("--verify").next().map(str::to_owned);
    assert_eq!(plain, before(&threads));
}

/// A decoder that learns a text on four processes: heads and the vocabulary split unevenly, dropout, masked ends.
fn text() {
    let sonnets = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/data/sonnets.txt");
    let model = file(
        "text.toml",
        "batch = 6\nsequence = 32\nvocabulary = 45\nmasked = true\nclip_norm = 1.0\noptimizer = \"adamw\"\n\
         [[stack]]\nkind = \"embedding\"\nname = \"tokens\"\nwidth = 12\n\
         [[stack]]\nkind = \"block\"\nname = \"block\"\nheads = 3\nhidden = 10\ndropout = 0.1\n\
         [[stack]]\nkind = \"norm\"\nname = \"norm\"\n\
         [[stack]]\nkind = \"head\"\nname = \"scores\"\ntied = \"tokens\"\n",
    );
    let path = |name: &str| place().join(name).to_str().expect("UTF-8").to_owned();
    let (a, b) = (path("text-threads"), path("text-processes"));
    let train = format!(
        "train {model} --data {sonnets} --mesh dp=2,tp=2 --layout dp=fsdp,tp=megatron-sp --epochs 2 --verify"
    );
    let expected = threads(&format!("{train} --checkpoint {a}")).expect("threads", 0);
    let got = processes(4, &format!("{train} --checkpoint {b}")).expect("processes", 0);
    assert_eq!(got.stdout, expected.stdout);
    assert!(got.stdout.contains("counted = predicted in all"), "{}", got.stdout);
    let read = |path: &str| std::fs::read(path).expect("a checkpoint");
    assert_eq!(read(&a), read(&b));
    let layouts = "--layout megatron --layout data --steps 2";
    let measured = processes(2, &format!("measure {model} --mesh d=2 {layouts}"));
    let measured = measured.expect("a decoder is measured", 0).stdout;
    assert!(measured.contains("\nd=megatron ") && measured.contains("\nd=data "), "{measured}");
}

fn native() {
    let run = format!("train {} --mesh dp=2,tp=2 --epochs 2", model());
    let verified = format!("{run} --verify --collectives native");
    let outcome = processes(4, &verified).expect("native", 0);
    assert!(outcome.stdout.contains("equal the dense run's within rounding"), "{}", outcome.stdout);
    for (collectives, times) in [("own", 0), ("native", 1)] {
        let Some(account) = account(&format!("{run} --collectives {collectives}")) else {
            println!("SKIPPED: the account of collectives: this MPI library keeps none");
            return;
        };
        // Of rank 0 in 8 steps: along tp h0·w1 (175 rows of 10); along dp the loss and its blocks of w0, b0, w1, b1.
        for (floats, calls) in [(175 * 10, 1), (1 + 64 * 8 + 8 + 8 * 10 + 10, 5)] {
            let line = format!("A2A\t0\t{} bytes\t{} msgs", 8 * 4 * floats, 8 * calls);
            assert_eq!(account.matches(&line).count(), times, "{collectives}: {line}\n{account}");
        }
    }
}

/// The collectives that Open MPI ran for rank 0 of 4, by communicator, as its monitoring component says.
fn account(arguments: &str) -> Option<String> {
    let written = place().join("account.0.prof");
    let _ = std::fs::remove_file(&written);
    let mut command = mpirun();
    for (parameter, value) in [("enable", "1"), ("enable_output", "3")] {
        command.args(["--mca", &format!("pml_monitoring_{parameter}"), value]);
    }
    command.args(["--mca", "pml_monitoring_filename"]).arg(place().join("account"));
    command.args(["-n", "4", SHARDGRAD]).args(arguments.split_whitespace());
    finish(command.args(["--backend", "mpi"])).expect("monitored", 0);
    std::fs::read_to_string(written).ok()
}

/// Arguments, environment, and the executable itself.
fn differences() {
    let other = place().join("another-build");
    let mut bytes = std::fs::read(SHARDGRAD).expect("the command");
    bytes.push(0);
    std::fs::write(&other, bytes).expect("a copy");
    std::fs::set_permissions(&other, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("permissions");
    let other = other.to_str().expect("UTF-8").to_owned();
    let model = model();
    let train = |mesh: &str, layout: &str| {
        format!("train {model} --backend mpi --epochs 1 --mesh {mesh} --layout {layout}")
    };
    let data = train("d=2", "data");
    for (first, second, named) in [
        (format!("{SHARDGRAD} {data}"), format!("{SHARDGRAD} {}", train("d=2", "fsdp")), "layout"),
        (format!("{SHARDGRAD} {data}"), format!("{SHARDGRAD} {}", train("e=2", "data")), "mesh"),
        (format!("{SHARDGRAD} {data}"), format!("{other} {data}"), "build"),
        (
            format!("{SHARDGRAD} {data}"),
            format!("-x SHARDGRAD_NOTE=1 {SHARDGRAD} {data}"),
            "environment",
        ),
    ] {
        let line = format!("-n 1 {first} : -n 1 {second}");
        let outcome = finish(mpirun().args(line.split_whitespace())).expect(named, 1);
        let wanted = format!("rank 1 has another {named}");
        assert_eq!(outcome.stderr.matches(&wanted).count(), 1, "{wanted}: {}", outcome.stderr);
    }
    // What decides the numbers or the way, and is in no plan.
    let base = train("d=2", "data");
    let rows = |last: &str| {
        let line = (0..64).map(|i| (i % 5).to_string()).collect::<Vec<_>>().join(",");
        let head = (0..64).map(|i| format!("x{i}")).collect::<Vec<_>>().join(",");
        format!("{head},label\n{}{line},{last}\n", format!("{line},1\n").repeat(600))
    };
    let (one, two) = (file("one.csv", &rows("1")), file("two.csv", &rows("2")));
    let slow = std::fs::read_to_string(&model).expect("the model");
    let slow = slow.replace("\"adam\"", "{ name = \"adam\", lr = 0.5 }");
    let slow = base.replace(&model, &file("slow.toml", &slow));
    let save = |name: &str| place().join(name).to_str().expect("UTF-8").to_owned();
    let (held, other) = (save("held.safetensors"), save("other.safetensors"));
    threads(&format!("train {model} --mesh d=1 --layout data --epochs 1 --checkpoint {held}"))
        .expect("a checkpoint", 0);
    std::fs::copy(&held, &other).expect("a copy");
    let measure = format!("measure {model} --mesh d=2 --backend mpi --steps");
    for (first, second, named) in [
        (base.clone(), slow, "model"),
        (format!("{base} --data {one}"), format!("{base} --data {two}"), "data"),
        (base.clone(), base.replace("--epochs 1", "--epochs 2"), "--epochs"),
        (format!("{base} --checkpoint {other}"), base.clone(), "--checkpoint"),
        (base.clone(), format!("{base} --resume {held}"), "--resume"),
        (format!("{measure} 3"), format!("{measure} 5"), "--steps"),
    ] {
        let line = format!("-n 1 {SHARDGRAD} {first} : -n 1 {SHARDGRAD} {second}");
        let outcome = finish(mpirun().args(line.split_whitespace())).expect(named, 1);
        let wanted = format!("rank 1 has another {named} than rank 0");
        assert_eq!(outcome.stderr.matches(&wanted).count(), 1, "{wanted}: {}", outcome.stderr);
    }
    let small = processes(2, &format!("train {model} --mesh d=3 --layout data"));
    let small = small.expect("too few", 1).stderr;
    assert!(small.contains("2 processes were started, but the mesh d=3 has 3 devices"), "{small}");
    let _ = std::fs::remove_file(other);
}

fn bad_input() {
    let outcome = processes(2, "train missing.toml --mesh d=2 --layout data").expect("no file", 2);
    assert_eq!(outcome.stderr.matches("missing.toml: cannot be read").count(), 1);
    // A file that one host lacks: the others wait for nothing.
    let train = |model: &str| {
        format!("-n 1 {SHARDGRAD} train {model} --mesh d=2 --layout data --epochs 1 --backend mpi")
    };
    let line = format!("{} : {}", train(&model()), train("missing.toml"));
    let outcome = finish(mpirun().args(line.split_whitespace())).expect("one lacks it", 2);
    assert_eq!(outcome.stderr.matches("rank 1: missing.toml: cannot be read").count(), 1);
    let nowhere = format!("train {} --mesh d=2 --layout data --epochs 1 --checkpoint", model());
    let outcome = processes(2, &format!("{nowhere} missing/a.safetensors")).expect("no place", 2);
    let said = "--checkpoint: missing/a.safetensors: there is no directory missing; make it first";
    assert_eq!(outcome.stderr.matches(said).count(), 1, "{}", outcome.stderr);
    assert!(!outcome.stdout.contains("epoch"), "{}", outcome.stdout);
}

/// One process is asked to end; all finish the step, save and end.
fn interruption() {
    let saved = place().join("interrupted.safetensors");
    let pid = place().join("rank1");
    for old in [&saved, &pid] {
        let _ = std::fs::remove_file(old);
    }
    let arguments = format!(
        "train {} --mesh d=2 --layout data --epochs 1000000 --backend mpi --checkpoint {}",
        model(),
        saved.display()
    );
    let script = format!(
        "echo $$ > {}/rank$OMPI_COMM_WORLD_RANK; exec {SHARDGRAD} {arguments}",
        place().display()
    );
    let start = Instant::now();
    let mut child = mpirun()
        .args(["-n", "2", "sh", "-c", &script])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("mpirun starts");
    while !saved.exists() && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(saved.exists(), "no checkpoint after a minute");
    let pid = std::fs::read_to_string(pid).expect("a process");
    let told = Command::new("kill").args(["-TERM", pid.trim()]).status().expect("kill");
    assert!(told.success());
    let outcome = wait(&mut child, start).expect("interrupted", 130);
    assert_eq!(outcome.stderr.matches("interrupted after step").count(), 1, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("holds step"), "{}", outcome.stderr);
}

/// The planner reads what is measured, and steps are compared with what it predicts.
fn measures() {
    let file = place().join("machine.toml");
    let file = file.to_str().expect("UTF-8");
    let arguments = format!("measure {} --mesh d=2 --layout data --layout fsdp --steps 3", model());
    let outcome = processes(2, &format!("{arguments} -o {file}")).expect("measured", 0);
    for layout in ["d=data", "d=fsdp"] {
        let line = outcome.stdout.lines().find(|line| line.starts_with(layout));
        let ratio = line.and_then(|line| line.split_whitespace().last()).expect("a ratio");
        assert!(ratio.parse::<f64>().is_ok_and(|r| r > 0.0), "{ratio}");
    }
    let text = std::fs::read_to_string(file).expect("a machine file");
    assert!(text.contains("processes of d=2") && text.contains("[axes.d]"), "{text}");
    let read = format!("compare --mesh d=2 --layout data --objective time --machine {file}");
    threads(&read).expect("the file is read", 0);
    let wrong = processes(2, "measure --mesh d=3").expect("too few", 1).stderr;
    assert_eq!(wrong.matches("2 processes were started").count(), 1, "{wrong}");
}

/// Two network namespaces with a name each, joined by one link.
fn two_hosts() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mpi/two_hosts.sh");
    let (model, saved) = (model(), place().join("hosts.safetensors"));
    let arguments = format!(
        "train {model} --mesh d=2 --layout fsdp --epochs 1 --verify --checkpoint {}",
        saved.display()
    );
    let mut command = mpirun();
    let envs: Vec<_> =
        command.get_envs().map(|(k, v)| (k.to_owned(), v.map(ToOwned::to_owned))).collect();
    command = Command::new("sh");
    command.envs(envs.into_iter().filter_map(|(k, v)| Some((k, v?))));
    command.args([script, SHARDGRAD]).args(arguments.split_whitespace()).args(["--backend", "mpi"]);
    let outcome = finish(&mut command);
    if outcome.code == Some(77) {
        println!("SKIPPED: two hosts: {}", outcome.stderr.trim());
        return;
    }
    let outcome = outcome.expect("two hosts", 0);
    let expected = threads(&arguments).expect("threads", 0);
    assert_eq!(outcome.stdout, expected.stdout);
    assert!(outcome.stderr.contains("hosts: left right"), "{}", outcome.stderr);
}
