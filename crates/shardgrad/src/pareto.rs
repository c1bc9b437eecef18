//! The front of an objective against memory, as a report.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shardgrad_core::Machine;
use shardgrad_planner::{Front, Point};

use crate::predict::predict;
use crate::report::PlanReport;

/// Plans of `auto` of which none is better than another in both the objective and memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParetoReport {
    /// What is traded for memory.
    pub objective: String,
    /// Whether the plan space has no other such plan. Otherwise these are the best of those that were looked at.
    pub exact: bool,
    /// No plan of the space holds less on a device.
    pub least_bytes: u64,
    /// The plans: the objective rises, the peak falls.
    pub points: Vec<ParetoPoint>,
}

/// A plan of a front.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParetoPoint {
    /// Bytes that a device sends, scalars not counted.
    pub bytes_per_device: u64,
    /// Seconds of a step by the machine model.
    pub predicted_seconds: f64,
    /// Most bytes that a device holds at once.
    pub peak_bytes_per_device: u64,
    /// Collectives of each kind, scalars not counted.
    pub by_kind: BTreeMap<String, u64>,
}

impl ParetoReport {
    /// The report of a front.
    #[must_use]
    pub fn new(front: &Front, machine: &Machine, objective: &str) -> Self {
        let point = |point: &Point| {
            let totals = point.plan.totals();
            ParetoPoint {
                bytes_per_device: totals.bytes_per_device,
                predicted_seconds: predict(&point.plan, machine).seconds,
                peak_bytes_per_device: point.peak,
                by_kind: totals.by_kind,
            }
        };
        Self {
            objective: objective.to_owned(),
            exact: front.exact,
            least_bytes: front.least_memory,
            points: front.points.iter().map(point).collect(),
        }
    }

    /// The first plan of the front that is at least as good as another in both the objective and memory, by number from
    /// 1; and whether it is better in one of them.
    #[must_use]
    pub fn beats(&self, plan: &PlanReport) -> Option<(usize, bool)> {
        let by_time = self.objective == "time";
        let totals = &plan.totals;
        let sent = |p: &ParetoPoint| {
            if by_time {
                p.predicted_seconds.total_cmp(&totals.predicted_seconds)
            } else {
                p.bytes_per_device.cmp(&totals.bytes_per_device)
            }
        };
        self.points.iter().enumerate().find_map(|(i, p)| {
            let held = p.peak_bytes_per_device.cmp(&totals.peak_bytes_per_device);
            (sent(p).is_le() && held.is_le()).then_some((i + 1, sent(p).is_lt() || held.is_lt()))
        })
    }
}
