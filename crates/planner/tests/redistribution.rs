//! Every conversion sends at most what single-axis collectives send, at least the bound, on the whole less than DTensor,
//! and keeps the value.

use std::path::Path;

use shardgrad_core::schedule_proof::verify;
use shardgrad_core::{DType, Layout, Mesh, TensorType, Transition};
use shardgrad_planner::redistribution::{Conversions, fewest_messages, is_single_axis, page, sums};

#[test]
fn the_page_of_conversions_is_true() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/redistribution.md");
    let page = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/redistribution.md differs; run UPDATE_DOCS=1 cargo test -p shardgrad-planner --test redistribution"
    );
    assert_eq!(
        page.lines().filter(|l| l.contains("| `")).count(),
        3 + 225 - 16,
        "a row is missing"
    );
}

/// Every pair of layouts of a matrix, even and uneven: at most the best sequence of single-axis collectives, at least the
/// mean of the fewest messages, each step proved to keep the value.
#[test]
fn no_pair_sends_more_than_single_axis_collectives() {
    for (mesh, shapes) in [
        ("a=2, b=2", [[16, 16], [5, 7]]),
        ("a=2, b=3", [[12, 18], [7, 5]]),
        ("a=2, b=2, c=2", [[8, 8], [5, 3]]),
    ] {
        let mesh: Mesh = mesh.parse().unwrap();
        for shape in shapes {
            let ty = TensorType::new(shape, DType::F32);
            let all = Conversions::new(&mesh, &ty);
            let single = Conversions::by(&mesh, &ty, is_single_axis);
            for (from, to) in
                all.layouts().iter().flat_map(|f| all.layouts().iter().map(move |t| (f, t)))
            {
                let at = format!("{mesh} {ty} {} to {}", from.display(&mesh), to.display(&mesh));
                let sent = all.bytes(from, to).unwrap_or_else(|| panic!("{at}: no way"));
                if let Some(by_axis) = single.bytes(from, to) {
                    assert!(sent <= by_axis, "{at}: {sent}, by single axes {by_axis}");
                }
                let fewest = 4 * fewest_messages(&mesh, &shape, from, to);
                assert!(sent * mesh.size() as u64 >= fewest, "{at}: {sent} is below the bound");
                let path = all.path(from, to).unwrap();
                let steps = path.windows(2).map(|w| {
                    let step = Transition::between(&mesh, &w[0], &w[1]).unwrap();
                    if mesh.size() < 8 {
                        verify(step, &mesh, &shape, &w[0], &w[1])
                            .unwrap_or_else(|e| panic!("{at}: {e}"));
                    }
                    step.bytes_sent(&mesh, &ty, &w[0], &w[1])
                });
                assert_eq!(steps.sum::<u64>(), sent, "{at}");
            }
        }
    }
}

/// The sum over DTensor's pairs, and the pairs it names.
#[test]
fn less_than_dtensor_on_two_axes_of_two() {
    let mesh: Mesh = "a=2, b=2".parse().unwrap();
    let s = sums(&mesh, 16, 4);
    assert_eq!((s.pairs, s.cheapest, s.single_axis, s.bound), (225, 69.0, 76.0, 64.875));
    let ty = TensorType::new([16, 16], DType::F32);
    let conversions = Conversions::new(&mesh, &ty);
    for (from, to, quarters) in [
        ("P,S(0)", "R,R", 8),
        ("P,R", "R,S(0)", 4),
        ("P,P", "R,R", 12),
        ("P,S(0)", "S(0),S(0)", 4),
        ("P,S(0)", "S(0),R", 4),
        ("S(0),S(1)", "S(1),S(0)", 2),
    ] {
        let layout = |text: &str| {
            let (a, b) = text.split_once(',').unwrap();
            Layout::parse(&format!("a: {a}, b: {b}"), &mesh).unwrap()
        };
        let sent = conversions.bytes(&layout(from), &layout(to)).unwrap();
        assert_eq!(sent * 8, quarters * ty.bytes() as u64, "{from} to {to}");
    }
    // 3/16 of the tensor: the bound.
    let both = |p: &str| Layout::parse(&format!("a: {p}, b: {p}"), &mesh).unwrap();
    let sent = conversions.bytes(&both("S(0)"), &both("S(1)")).unwrap();
    assert_eq!(sent * 16, 3 * ty.bytes() as u64);
}
