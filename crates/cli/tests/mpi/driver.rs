//! Starts worlds and judges them.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::command;

/// A world that takes longer hangs.
const LONGEST: Duration = Duration::from_secs(120);
/// A failure must end all ranks within this time after the start.
const SOON: Duration = Duration::from_secs(20);

/// How a world ended.
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

/// `mpirun` with arguments, on one machine that may have fewer cores than ranks.
pub(crate) fn mpirun() -> Command {
    let mut command = Command::new("mpirun");
    command
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        .env("OMPI_MCA_mpi_yield_when_idle", "1");
    command
}

/// Runs a command to its end, or ends it when it takes too long.
pub(crate) fn finish(command: &mut Command) -> Outcome {
    let start = Instant::now();
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("mpirun starts");
    wait(&mut child, start)
}

pub(crate) fn wait(child: &mut Child, start: Instant) -> Outcome {
    let read = |pipe: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let stdout = read(child.stdout.take().map(|p| Box::new(p) as _));
    let stderr = read(child.stderr.take().map(|p| Box::new(p) as _));
    let status = loop {
        match child.try_wait().expect("a child") {
            Some(status) => break Some(status),
            None if start.elapsed() > LONGEST => {
                // mpirun ends its ranks when it is asked to end.
                let _ = Command::new("kill").arg(child.id().to_string()).status();
                let _ = child.wait();
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    Outcome {
        code: status.and_then(|s| s.code()),
        stdout: stdout.join().expect("a reader"),
        stderr: stderr.join().expect("a reader"),
        took: start.elapsed(),
    }
}

impl Outcome {
    /// Panics unless it ended with this code.
    pub(crate) fn expect(self, what: &str, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "{what}, after {:?}:\n{}\n{}",
            self.took,
            self.stdout,
            self.stderr
        );
        self
    }
}

fn myself() -> PathBuf {
    std::env::current_exe().expect("this test")
}

/// This test as the ranks of a world.
fn ranks(p: usize, roles: &[&str]) -> Outcome {
    let mut command = mpirun();
    command.args(["-n", &p.to_string()]).arg(myself()).arg("--as-rank").args(roles);
    finish(&mut command)
}

pub(crate) fn run() -> ExitCode {
    let started = Instant::now();
    // As with other tests, a word of the command line chooses.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let step = |name: &str, check: &dyn Fn()| {
        if !wanted.is_empty() && !wanted.iter().any(|word| name.contains(&word[..])) {
            return;
        }
        let start = Instant::now();
        check();
        println!("test {name} ... ok ({:.1} s)", start.elapsed().as_secs_f64());
    };
    for p in [2, 3, 4] {
        step(&format!("ranks::all_on_{p}"), &|| {
            let roles = ["communicator", "differ", "matrix"];
            let outcome = ranks(p, &roles).expect("a world", 0);
            for role in roles {
                let line = format!("{role}: right on {p} ranks");
                assert!(outcome.stdout.contains(&line), "{line} is not in {}", outcome.stdout);
            }
        });
    }
    step("ranks::a_failure_ends_all_with_its_cause", &failures);
    command::all(&step);
    println!("MPI: all checks passed in {:.1} s", started.elapsed().as_secs_f64());
    ExitCode::SUCCESS
}

fn failures() {
    for (how, cause) in [
        ("error", "shardgrad: rank 1 on "),
        ("panic", "rank one gave up"),
        ("killed", "signal 9"),
        ("disagree", "all_gather #1 over mesh axis 0 of 3 f32 elements"),
        ("label", "label 3"),
    ] {
        let outcome = ranks(3, &[how]);
        assert!(outcome.code.is_some_and(|code| code != 0), "{how}: {:?}", outcome.code);
        assert!(outcome.stderr.contains(cause), "{how}: {cause} is not in\n{}", outcome.stderr);
        assert!(outcome.took < SOON, "{how} took {:?}", outcome.took);
        assert!(!outcome.stdout.contains("right"), "{how}: {}", outcome.stdout);
    }
}
