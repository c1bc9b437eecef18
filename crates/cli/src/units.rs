//! Numbers for people.

use shardgrad::planner::Combine;

/// `0 B`, `512 B`, `24.0 KiB`, `1.5 GiB`.
pub(crate) fn bytes(n: u64) -> String {
    scaled(n, 1024, " B", &[" KiB", " MiB", " GiB", " TiB", " PiB", " EiB"])
}

/// Reads `80GiB`, `1.5 GB`, `4096`.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 10] = [
        ("", 1),
        ("b", 1),
        ("kb", 1000),
        ("mb", 1_000_000),
        ("gb", 1_000_000_000),
        ("tb", 1_000_000_000_000),
        ("kib", 1 << 10),
        ("mib", 1 << 20),
        ("gib", 1 << 30),
        ("tib", 1 << 40),
    ];
    let bad = || {
        format!(
            "`{text}` is no size; write bytes, or a number with kB, MB, GB, TB, KiB, MiB, GiB or TiB"
        )
    };
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_lowercase();
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(bad)?;
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && part.is_empty() || part.len() > 9 {
        return Err(bad());
    }
    let number = |digits: &str| if digits.is_empty() { Ok(0) } else { digits.parse::<u128>() };
    let (whole, part_value) = (number(whole).map_err(|_| bad())?, number(part).map_err(|_| bad())?);
    let scale = 10_u128.pow(u32::try_from(part.len()).map_err(|_| bad())?);
    let bytes =
        whole.saturating_mul(u128::from(*factor)) + part_value * u128::from(*factor) / scale;
    u64::try_from(bytes).map_err(|_| bad())
}

/// Reads `auto`, `off`, or a size.
pub(crate) fn parse_combine(text: &str) -> Result<Combine, String> {
    match text {
        "auto" => Ok(Combine::Auto),
        "off" => Ok(Combine::Off),
        size => {
            parse_bytes(size).map(Combine::UpTo).map_err(|e| format!("{e}; or `auto`, or `off`"))
        }
    }
}

/// `980`, `4.2 k`, `12.0 M`.
pub(crate) fn count(n: u64) -> String {
    scaled(n, 1000, "", &[" k", " M", " G", " T", " P", " E"])
}

/// One decimal of the largest unit that leaves 1 or more.
#[allow(clippy::cast_precision_loss)]
fn scaled(n: u64, base: u64, unit: &str, larger: &[&str]) -> String {
    if n < base {
        return format!("{n}{unit}");
    }
    let mut value = n as f64 / base as f64;
    let mut steps = 0;
    // 1023.96 would print as 1024.0: go on to the next unit then.
    while value >= base as f64 - 0.05 && steps + 1 < larger.len() {
        value /= base as f64;
        steps += 1;
    }
    format!("{value:.1}{}", larger[steps])
}

/// `1 launch`, `2 launches`.
pub(crate) fn of(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// `850 ns`, `12.3 µs`, `4.5 ms`, `1.20 s`.
pub(crate) fn seconds(s: f64) -> String {
    let tenths = |v: f64, unit: &str| format!("{v:.1} {unit}");
    if s < 1e-6 {
        format!("{:.0} ns", s * 1e9)
    } else if s < 1e-3 {
        tenths(s * 1e6, "µs")
    } else if s < 1.0 {
        tenths(s * 1e3, "ms")
    } else {
        tenths(s, "s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        for (text, bytes) in [
            ("4096", 4096),
            ("80GiB", 80 << 30),
            ("1.5 GB", 1_500_000_000),
            ("0.25kib", 256),
            (" 2 MB ", 2_000_000),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "GB", "-3", "3 apples", "1e9", "999999999TiB", "1.0000000001", "1.2.3"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn how_to_combine_is_a_word_or_a_size() {
        assert_eq!(parse_combine("auto"), Ok(Combine::Auto));
        assert_eq!(parse_combine("off"), Ok(Combine::Off));
        assert_eq!(parse_combine("64KiB"), Ok(Combine::UpTo(65_536)));
        let message = parse_combine("all").unwrap_err();
        assert!(message.contains("`all` is no size") && message.ends_with("`off`"), "{message}");
    }

    #[test]
    fn sizes_are_shown_with_one_decimal() {
        let shown: Vec<String> =
            [0, 512, 1023, 1024, 24576, 1_048_575, 1_610_612_736, u64::MAX].map(bytes).to_vec();
        assert_eq!(
            shown,
            ["0 B", "512 B", "1023 B", "1.0 KiB", "24.0 KiB", "1.0 MiB", "1.5 GiB", "16.0 EiB"]
        );
        assert_eq!([999, 1000, 12_345_678].map(count), ["999", "1.0 k", "12.3 M"]);
        assert_eq!(
            [8.5e-7, 1.23e-5, 0.0045, 1.2].map(seconds),
            ["850 ns", "12.3 µs", "4.5 ms", "1.2 s"]
        );
    }
}
