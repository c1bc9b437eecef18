//! The α–β machine model: a message of n bytes along an axis takes α + β·n seconds (Hockney 1994), a device computes at
//! a fixed rate and touches memory at a fixed bandwidth.

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Cost of messages along one mesh axis.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Seconds before the first byte.
    pub latency: f64,
    /// Bytes per second and device.
    pub bandwidth: f64,
}

/// Rates of a device and of the links between devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Floating-point operations per second and device.
    pub flops: f64,
    /// Bytes of memory traffic per second and device.
    pub memory_bandwidth: f64,
    /// Bytes that a device may hold, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<f64>,
    /// Link of each axis that is named here, by name.
    #[serde(default)]
    pub axes: std::collections::BTreeMap<String, Link>,
    /// Link of every other axis.
    pub link: Link,
}

impl Default for Machine {
    /// Round figures of a small shared-memory computer: 50 GFLOP/s and 10 GB/s per core, 1 µs and 5 GB/s between two.
    fn default() -> Self {
        Self {
            flops: 50e9,
            memory_bandwidth: 10e9,
            memory: None,
            axes: std::collections::BTreeMap::new(),
            link: Link { latency: 1e-6, bandwidth: 5e9 },
        }
    }
}

impl Machine {
    /// The link of an axis.
    #[must_use]
    pub fn link(&self, axis: &str) -> Link {
        self.axes.get(axis).copied().unwrap_or(self.link)
    }

    /// Checks that all rates, and the memory if it is given, are positive and finite.
    ///
    /// # Errors
    /// Names the rate that is not.
    pub fn validate(&self) -> Result<(), Error> {
        let links = self.axes.iter().map(|(name, link)| (format!("axes.{name}"), *link));
        let mut rates = vec![
            ("flops".to_owned(), self.flops),
            ("memory_bandwidth".to_owned(), self.memory_bandwidth),
        ];
        rates.extend(self.memory.map(|memory| ("memory".to_owned(), memory)));
        for (name, link) in links.chain([("link".to_owned(), self.link)]) {
            rates.push((format!("{name}.bandwidth"), link.bandwidth));
            if !(link.latency >= 0.0 && link.latency.is_finite()) {
                return Err(Error::BadMachine {
                    problem: format!(
                        "{name}.latency is {}, but must be 0 or more seconds",
                        link.latency
                    ),
                });
            }
        }
        match rates.into_iter().find(|(_, rate)| !(*rate > 0.0 && rate.is_finite())) {
            Some((name, rate)) => Err(Error::BadMachine {
                problem: format!("{name} is {rate}, but must be a positive number"),
            }),
            None => Ok(()),
        }
    }
}
