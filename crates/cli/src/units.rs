//! Numbers for people.

/// `0 B`, `512 B`, `24.0 KiB`, `1.5 GiB`.
pub(crate) fn bytes(n: u64) -> String {
    scaled(n, 1024, " B", &[" KiB", " MiB", " GiB", " TiB", " PiB", " EiB"])
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
