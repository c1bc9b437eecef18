//! How a command ends when it does not end well: an exit code and one line.

use std::fmt;

use clap::error::ErrorKind;

/// Exit 1: the answer is no, or work failed.
pub(crate) const NO: u8 = 1;
/// Exit 2: bad usage or input.
pub(crate) const BAD_INPUT: u8 = 2;
/// Exit 130: stopped by Ctrl-C or a request to terminate, as shells say it.
pub(crate) const INTERRUPTED: u8 = 130;

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) code: u8,
    /// One line for stderr.
    pub(crate) message: String,
    /// Who knows of it, where there are several processes.
    pub(crate) known: Known,
}

/// Which processes know of a failure. Those that do not must be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// This one; perhaps no other.
    Here,
    /// All, and this one says it.
    #[cfg(feature = "mpi")]
    Everywhere,
    /// All, and another one says it, or it is said already.
    #[cfg(feature = "mpi")]
    Elsewhere,
}

impl Failure {
    fn new(code: u8, message: impl fmt::Display) -> Self {
        Self { code, message: one_line(&message.to_string()), known: Known::Here }
    }

    /// Bad usage or input.
    pub(crate) fn input(message: impl fmt::Display) -> Self {
        Self::new(BAD_INPUT, message)
    }

    /// The answer is no, or work failed.
    pub(crate) fn no(message: impl fmt::Display) -> Self {
        Self::new(NO, message)
    }

    /// Somebody asked for an end.
    pub(crate) fn interrupted(message: impl fmt::Display) -> Self {
        Self::new(INTERRUPTED, message)
    }

    /// Says it on standard error, if this process is the one to.
    pub(crate) fn say(&self) {
        match self.known {
            Known::Here => eprintln!("shardgrad: {}", self.message),
            #[cfg(feature = "mpi")]
            Known::Everywhere => eprintln!("shardgrad: {}", self.message),
            #[cfg(feature = "mpi")]
            Known::Elsewhere => {}
        }
    }

    /// The same, with more said.
    pub(crate) fn and(self, more: &str) -> Self {
        Self { message: format!("{}; {more}", self.message), ..self }
    }

    /// What the argument parser refused.
    pub(crate) fn usage(error: &clap::Error) -> Self {
        if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            return Self::input("a command was expected; see `shardgrad --help`");
        }
        let text = error.to_string();
        // The first paragraph says what is wrong; the rest is tips and usage.
        let first = text.split("\n\n").next().unwrap_or_default();
        let message = first.strip_prefix("error: ").unwrap_or(first);
        Self::input(format!("{}; see `shardgrad --help`", one_line(message)))
    }
}

/// Lines joined to one, runs of blanks to one blank, control characters (of names) escaped.
fn one_line(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.chars().fold(String::new(), |mut line, c| {
        if c.is_control() {
            line.extend(c.escape_debug());
        } else {
            line.push(c);
        }
        line
    })
}

impl From<shardgrad_testkit::Error> for Failure {
    fn from(error: shardgrad_testkit::Error) -> Self {
        Failure::no(error)
    }
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn many_lines_become_one() {
        assert_eq!(one_line("not provided:\n  --mesh <MESH>\n"), "not provided: --mesh <MESH>");
    }

    #[test]
    fn control_characters_are_escaped_and_letters_are_not() {
        assert_eq!(one_line("`a\u{1b}[2J` é \"q\""), "`a\\u{1b}[2J` é \"q\"");
    }
}
