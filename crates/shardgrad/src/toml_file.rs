//! Reading TOML files with errors that fit on one line: file, line, key, what was found, what was expected.

use std::ops::Range;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::error::Error;

/// Reads a file.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let bytes = std::fs::read(path).map_err(|e| Error::unreadable(path, &e))?;
    let text = String::from_utf8(bytes)
        .map_err(|_| Error::bad_file(path, None, "is not UTF-8 text; a TOML file was expected"))?;
    parse(path, &text)
}

/// Reads text; `path` is for messages.
pub(crate) fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, Error> {
    toml::from_str(text).map_err(|error| {
        let message = error.message().trim().replace('\n', ", ");
        let Some(span) = error.span() else {
            return Error::bad_file(path, None, message);
        };
        let line = text[..floor(text, span.start)].matches('\n').count() + 1;
        let problem = match key_before(text, &span) {
            Some(key) => format!("`{key}`: {message}"),
            None => message,
        };
        Error::bad_file(path, Some(line), problem)
    })
}

/// The largest character boundary up to a position.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0)
}

/// The key whose value the span is, if the text before the span ends in `key =`.
fn key_before<'t>(text: &'t str, span: &Range<usize>) -> Option<&'t str> {
    let before = &text[..floor(text, span.start)];
    let line = before.rsplit('\n').next()?.trim_end().strip_suffix('=')?.trim();
    let key = line.rsplit(['{', ',']).next()?.trim().trim_matches('"');
    (!key.is_empty()).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Sample {
        batch: usize,
        #[serde(default)]
        inner: Option<Inner>,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Inner {
        lr: f64,
    }

    fn message(text: &str) -> String {
        parse::<Sample>(Path::new("m.toml"), text).unwrap_err().to_string()
    }

    #[test]
    fn errors_name_file_line_key_and_expectation_on_one_line() {
        let cases: [(&str, &[&str]); 6] = [
            ("batch = \"x\"", &["m.toml:1", "`batch`", "string", "usize"]),
            ("\nbatch = -3", &["m.toml:2", "`batch`", "-3"]),
            ("batch = 1\nwidht = 2", &["m.toml:2", "`widht`", "`batch`"]),
            ("batch = 1\ninner = { lr = \"é\" }", &["m.toml:2", "`lr`", "f64"]),
            ("batch = 1\n[inner\nlr = 2", &["m.toml:2"]),
            ("", &["m.toml", "`batch`"]),
        ];
        for (text, parts) in cases {
            let message = message(text);
            assert!(!message.contains('\n'), "{message}");
            for part in parts {
                assert!(message.contains(part), "{message:?} lacks {part:?}");
            }
        }
    }
}
