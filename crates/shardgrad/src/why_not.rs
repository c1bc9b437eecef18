//! Why a plan is not another: the collectives that only one of two plans has, what they send, and where data lies.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::report::{CollectiveReport, PlanReport};

/// Collectives are the same if they are of one kind, on the same axes, between the same layouts of the same value.
type Key = (String, Vec<String>, String, String, String);

fn key(c: &CollectiveReport) -> Key {
    (c.kind.clone(), c.axes.clone(), c.tensor.clone(), c.from.clone(), c.to.clone())
}

/// What tells two plans of one program on one mesh apart.
#[derive(Clone, Debug, PartialEq)]
pub struct WhyNot<'a> {
    /// The plan in question.
    pub plan: &'a PlanReport,
    /// The plan that it is compared with.
    pub other: &'a PlanReport,
    /// Values that lie differently: name, layout here, layout there.
    pub boundary: Vec<(String, String, String)>,
    /// Collectives of the plan that the other does not have.
    pub only_here: Vec<&'a CollectiveReport>,
    /// Collectives of the other that the plan does not have.
    pub only_there: Vec<&'a CollectiveReport>,
    /// Number of collectives that both have.
    pub shared: usize,
    /// Their bytes.
    pub shared_bytes: u64,
}

impl<'a> WhyNot<'a> {
    /// Compares two plans of one program on one mesh.
    #[must_use]
    pub fn new(plan: &'a PlanReport, other: &'a PlanReport) -> Self {
        let mut left: BTreeMap<Key, Vec<&CollectiveReport>> = BTreeMap::new();
        for c in &other.collectives {
            left.entry(key(c)).or_default().push(c);
        }
        let (mut only_here, mut shared, mut shared_bytes) = (Vec::new(), 0, 0);
        for c in &plan.collectives {
            match left.get_mut(&key(c)).and_then(Vec::pop) {
                Some(_) => {
                    shared += 1;
                    shared_bytes += c.bytes_per_device;
                }
                None => only_here.push(c),
            }
        }
        let unmatched: Vec<&CollectiveReport> = left.into_values().flatten().collect();
        let only_there = other
            .collectives
            .iter()
            .filter(|c| unmatched.iter().any(|u| std::ptr::eq(*u, *c)))
            .collect();
        let boundary = plan
            .boundary
            .iter()
            .filter_map(|(name, here)| {
                let there = other.boundary.get(name)?;
                (here != there).then(|| (name.clone(), here.clone(), there.clone()))
            })
            .collect();
        Self { plan, other, boundary, only_here, only_there, shared, shared_bytes }
    }

    /// The comparison in words.
    #[must_use]
    pub fn text(&self) -> String {
        let (here, there) = (&self.plan.totals, &self.other.totals);
        let mut text = format!(
            "why not {}?\n{}: {} bytes per device in {} collectives; {}: {} in {}\n",
            self.other.layout,
            self.plan.layout,
            here.bytes_per_device,
            here.by_kind.values().sum::<u64>(),
            self.other.layout,
            there.bytes_per_device,
            there.by_kind.values().sum::<u64>(),
        );
        // Writing to a string cannot fail.
        let verdict = match here.bytes_per_device.cmp(&there.bytes_per_device) {
            std::cmp::Ordering::Less => {
                format!("it sends {} bytes more", there.bytes_per_device - here.bytes_per_device)
            }
            std::cmp::Ordering::Equal => "it sends as much".to_owned(),
            std::cmp::Ordering::Greater => {
                format!("it sends {} bytes less", here.bytes_per_device - there.bytes_per_device)
            }
        };
        let _ = writeln!(
            text,
            "{verdict}, holds {} bytes at the peak instead of {}, and takes {:.3e} s instead of {:.3e} s",
            there.peak_bytes_per_device,
            here.peak_bytes_per_device,
            there.predicted_seconds,
            here.predicted_seconds,
        );
        if self.boundary.is_empty() {
            text.push_str("boundary: the same, so the bytes are comparable\n");
        } else {
            text.push_str("boundary: different, so part of the difference is where data lies\n");
            for (name, here, there) in &self.boundary {
                let _ = writeln!(text, "  {name}: {here} here, {there} there");
            }
        }
        for (title, collectives) in
            [("only there", &self.only_there), ("only here", &self.only_here)]
        {
            let bytes: u64 = collectives.iter().map(|c| c.bytes_per_device).sum();
            let _ = writeln!(text, "{title}: {} collectives, {bytes} bytes", collectives.len());
            for c in collectives {
                let _ = writeln!(
                    text,
                    "  {}: {} → {}, {} bytes{}",
                    c.movement(),
                    c.from,
                    c.to,
                    c.bytes_per_device,
                    if c.scalar { ", a scalar" } else { "" },
                );
                if !c.why.is_empty() {
                    let _ = writeln!(text, "    {}", c.why);
                }
            }
        }
        let _ = writeln!(text, "in both: {} collectives, {} bytes", self.shared, self.shared_bytes);
        text
    }
}
