//! Ranks as processes: this test starts itself, and the command, under `mpirun`.
//!
//! ```sh
//! cargo test -p shardgrad-cli --features mpi --test mpi
//! ```
//!
//! Without arguments it is the driver: it starts worlds of 2, 3 and 4 processes and judges what they print and how they end.
//! Behind `--as-rank` stands what one of them does. Every world runs all of its checks in one start, since to start a world
//! takes longer than most checks.

mod command;
mod driver;
mod matrix;
mod ranks;
#[path = "../../../runtime/tests/common/suite.rs"]
mod suite;

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((first, roles)) if first == "--as-rank" => ranks::run(roles),
        _ => driver::run(),
    }
}
