//! `compare --format html` and `svg`: complete in one file, escaped, and with the numbers of the JSON report.

mod support;

use support::{compare, file, model, succeed};

/// The page for these arguments.
fn page(arguments: &str) -> String {
    succeed(&format!("compare --format html {arguments}"))
}

/// Values of an attribute.
fn attributes<'p>(page: &'p str, name: &str) -> Vec<&'p str> {
    let start = format!(" {name}=\"");
    page.split(start.as_str()).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

#[test]
fn a_page_fetches_nothing_and_runs_nothing() {
    let page = page("--mesh dp=2,tp=2");
    assert!(page.starts_with("<!DOCTYPE html>"));
    assert!(!page.contains("<script") && !page.contains("<link") && !page.contains("@import"));
    let targets = attributes(&page, "href");
    assert!(targets.len() > 30);
    assert!(targets.iter().all(|t| t.starts_with('#')), "{targets:?}");
    assert!(attributes(&page, "src").is_empty());
    // Every target of a link or a use is on the page.
    let ids = attributes(&page, "id");
    assert!(targets.iter().all(|t| ids.contains(&&t[1..])));
    assert_eq!(page.matches("://").count(), 0);
}

#[test]
fn a_page_of_many_plans_stays_below_a_megabyte() {
    let deep = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/deep.toml");
    let page = page(&format!("{deep} --mesh dp=2,tp=4"));
    assert!(page.matches("<section class=\"plan\"").count() > 10);
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
}

#[test]
fn names_are_escaped() {
    let hostile = "<img src=x onerror=alert(1)>&\\\"";
    let text = format!("name = \"{hostile}\"\nbatch = 4\n[[layer]]\nin = 3\nout = 2\n");
    let net = file("hostile.toml", &text);
    let page = page(&format!("{net} --mesh tp=2 --layout data"));
    assert!(!page.contains("<img"));
    assert!(page.contains("&lt;img src=x onerror=alert(1)&gt;&amp;"));
}

#[test]
fn the_numbers_are_those_of_the_report() {
    let net = model("html_numbers.toml", 64, &[96, 256, 32], "activation = \"relu\"", "", "");
    let arguments = format!("{net} --mesh tp=4 --layout megatron --layout data");
    let (page, report) = (page(&arguments), compare(&arguments));
    let plans = report["plans"].as_array().expect("plans");
    for plan in plans {
        for collective in plan["collectives"].as_array().expect("collectives") {
            let (kind, layouts) = (&collective["kind"], [&collective["from"], &collective["to"]]);
            let [from, to] = layouts.map(|l| l.as_str().expect("a layout"));
            assert!(page.contains(kind.as_str().expect("a kind")));
            assert!(page.contains(&format!("<code>{from} → {to}</code>")), "{from} → {to}");
        }
    }
    // Megatron's one all_reduce is 12,288 bytes, in the table, in the bars and with its collective.
    assert_eq!(plans[0]["totals"]["bytes_per_device"], 12_288);
    assert_eq!(page.matches("12.0 KiB").count(), 4);
}

#[test]
fn a_trace_has_a_lane_for_computing_and_one_for_each_link_and_no_event_overlaps_another_of_its_lane()
 {
    let text = succeed("plan --mesh dp=2,tp=2 --layout dp=data,tp=megatron --format trace");
    let trace: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let lanes: Vec<&str> = events
        .iter()
        .filter(|e| e["ph"] == "M")
        .map(|e| e["args"]["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(lanes, ["computing", "sending over tp", "sending over dp"]);
    for lane in 0..lanes.len() {
        let mut end = 0.0;
        let own: Vec<_> = events.iter().filter(|e| e["ph"] == "X" && e["tid"] == lane).collect();
        assert!(!own.is_empty());
        for event in own {
            let (ts, dur) =
                (event["ts"].as_f64().expect("ts"), event["dur"].as_f64().expect("dur"));
            assert!(ts >= end - 1e-6 && dur >= 0.0, "{event}");
            end = ts + dur;
        }
    }
    // The product that is pending over tp, and the four gradients over dp.
    let sent = events.iter().filter(|e| e["cat"] == "communication").count();
    assert_eq!(sent, 3, "one all_reduce, the scalar loss, four gradients together");
}

#[test]
fn a_figure_stands_alone() {
    let figure = succeed("compare --mesh tp=4 --format svg");
    assert!(figure.starts_with("<?xml") && figure.trim_end().ends_with("</svg>"));
    for layout in ["tp=data", "tp=megatron-sp", "tp=auto"] {
        assert!(figure.contains(layout), "{layout}");
    }
    assert_eq!(figure.matches("://").count(), 1, "the name space only");
    assert_eq!(figure, succeed("compare --mesh tp=4 --format svg"));
}
