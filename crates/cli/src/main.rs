//! The `shardgrad` command. The only place that reads arguments or prints.

mod alike;
mod args;
mod backend;
mod check;
mod compare;
mod diagnose;
mod failure;
mod held_out;
mod html;
mod interrupt;
mod lab;
mod measure;
mod output;
mod plan;
mod request;
mod simulate;
mod table;
mod trace;
mod train;
mod units;
mod verify;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::args::{Cli, Command};
use crate::failure::Failure;

fn main() -> ExitCode {
    let result = match Cli::try_parse() {
        Ok(cli) => run(&cli.command),
        Err(error) => match error.kind() {
            // Help goes to standard output, with colour if that is a terminal.
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                return error.print().map_or(ExitCode::from(failure::NO), |()| ExitCode::SUCCESS);
            }
            _ => Err(Failure::usage(&error)),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.say();
            ExitCode::from(failure.code)
        }
    }
}

fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Compare(args) => compare::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Check(args) => check::run(args),
        Command::Simulate(args) => simulate::run(args),
        Command::Train(args) => train::run(args),
        Command::Measure(args) => measure::run(args),
        Command::Diagnose(args) => diagnose::run(args),
        Command::Lab(args) => lab::run(args),
    }
}
