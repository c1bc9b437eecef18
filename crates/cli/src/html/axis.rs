//! Axes: round numbers from 0 to just beyond the largest value, in one unit.

/// An axis from 0 to `end`.
pub(super) struct Axis {
    /// Where it ends, in the values' own unit.
    end: f64,
    /// Tick values, in the values' own unit, with their labels.
    pub(super) ticks: Vec<(f64, String)>,
    /// The unit of the labels.
    pub(super) unit: &'static str,
}

impl Axis {
    /// For bytes: labels are in the largest binary unit that leaves the largest label at 1 or more.
    pub(super) fn bytes(largest: u64) -> Self {
        let units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let power = (largest.max(1).ilog2() / 10) as usize;
        #[allow(clippy::cast_precision_loss)]
        Self::new(largest as f64, (1_u64 << (10 * power)) as f64, units[power])
    }

    /// For seconds: labels are in the largest of ns, µs, ms, s that leaves the largest label at 1 or more.
    pub(super) fn seconds(largest: f64) -> Self {
        let units = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")];
        let (scale, unit) =
            units.into_iter().find(|(scale, _)| largest >= *scale).unwrap_or((1e-9, "ns"));
        Self::new(largest, scale, unit)
    }

    /// For counts.
    pub(super) fn count(largest: u64, unit: &'static str) -> Self {
        #[allow(clippy::cast_precision_loss)]
        Self::new(largest.max(4) as f64, 1.0, unit)
    }

    /// Four to ten steps of 1, 2 or 5 times a power of ten.
    fn new(largest: f64, scale: f64, unit: &'static str) -> Self {
        let largest = if largest > 0.0 { largest / scale } else { 1.0 };
        let rough = largest / 4.0;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [5.0, 2.0].into_iter().map(|m| m * power).find(|&s| s <= rough).unwrap_or(power);
        let steps = (largest / step).ceil().max(1.0);
        let mut ticks = Vec::new();
        let mut at = 0.0;
        while at <= steps {
            let value = at * step;
            let digits = if step < 1.0 { (-step.log10().floor()).clamp(0.0, 6.0) } else { 0.0 };
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            ticks.push((value * scale, format!("{value:.*}", digits as usize)));
            at += 1.0;
        }
        Self { end: steps * step * scale, ticks, unit }
    }

    /// Whether so many bytes are on the axis.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn reaches(&self, bytes: u64) -> bool {
        bytes as f64 <= self.end
    }

    /// Where a value lies, from 0 to `length`.
    pub(super) fn at(&self, value: f64, length: f64) -> f64 {
        value / self.end * length
    }
}

/// A coordinate in a tenth of a pixel.
pub(super) fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_reach_beyond_the_largest_value_in_round_steps() {
        for largest in [0, 1, 7, 1000, 1024, 20_520, 57_344, 1 << 40, u64::MAX] {
            let axis = Axis::bytes(largest);
            #[allow(clippy::cast_precision_loss)]
            let largest = largest as f64;
            assert!(axis.end >= largest && (largest == 0.0 || axis.end <= 1.5 * largest));
            assert!((2..=12).contains(&axis.ticks.len()), "{largest}: {}", axis.ticks.len());
            let labels: std::collections::BTreeSet<_> = axis.ticks.iter().map(|t| &t.1).collect();
            assert_eq!(labels.len(), axis.ticks.len(), "{largest}");
        }
        let axis = Axis::bytes(20_520);
        let labels: Vec<&str> = axis.ticks.iter().map(|(_, label)| label.as_str()).collect();
        assert_eq!((labels, axis.unit), (vec!["0", "5", "10", "15", "20", "25"], "KiB"));
        assert_eq!(axis.at(25.0 * 1024.0, 100.0), 100.0);
    }
}
