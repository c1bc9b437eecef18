//! Tensor parallelism of a layer pair E → F → E over a mesh of X·Y = n devices whose weights stay where they are, up to 65,536
//! of them: what plans send is what is published (Pope et al., Efficiently Scaling Transformer Inference, 2022).

use shardgrad_core::{DType, Mesh};
use shardgrad_graph::{Graph, OutputRole, Program};
use shardgrad_planner::{LayoutRequest, Options, plan};

const TOKENS: u64 = 8;

fn pair(e: u64) -> Program {
    let g = Graph::new("pair", DType::F32);
    let size = |n: u64| usize::try_from(n).unwrap();
    let x = g.input("x", [size(TOKENS), size(e)]).unwrap();
    let w0 = g.param("w0", [size(e), size(4 * e)]).unwrap();
    let w1 = g.param("w1", [size(4 * e), size(e)]).unwrap();
    let out = x.matmul(w0).unwrap().relu().unwrap().matmul(w1).unwrap();
    g.output("out", out, OutputRole::Value).unwrap();
    g.finish()
}

/// Elements per device.
fn sent(program: &Program, x: u64, y: u64, pins: [(&str, &str); 4]) -> u64 {
    let mesh: Mesh = format!("a={x}, b={y}").parse().unwrap();
    let request = pins.into_iter().fold(LayoutRequest::auto(), |request, (name, layout)| {
        request.pin(name, layout.parse().unwrap())
    });
    let planned = plan(program, &mesh, &request, &Options::default()).unwrap();
    assert!(planned.optimal);
    planned.cost.bytes / 4
}

const TWO_DIMENSIONAL: [(&str, &str); 4] = [
    ("x", "a: S(1), b: S(1)"),
    ("w0", "a: S(0), b: S(1)"),
    ("w1", "a: S(1), b: S(0)"),
    ("out", "a: S(1), b: S(1)"),
];

const ONE_DIMENSIONAL: [(&str, &str); 4] = [
    ("x", "a: S(1), b: S(1)"),
    ("w0", "a: S(1), b: S(1)"),
    ("w1", "a: S(0), b: S(0)"),
    ("out", "a: S(1), b: S(1)"),
];

#[test]
fn two_dimensional_layouts_send_less_the_more_devices_there_are() {
    for (n, best) in [(64, 4), (256, 8), (65_536, 128)] {
        let e = n.max(4096);
        let program = pair(e);
        let published =
            |x: u64, y: u64| 2 * TOKENS * (e * (y - 1) / (x * y) + 4 * e * (x - 1) / (x * y));
        let found: Vec<u64> = [best / 2, best, 2 * best]
            .into_iter()
            .map(|x| {
                let found = sent(&program, x, n / x, TWO_DIMENSIONAL);
                assert_eq!(found, published(x, n / x), "{x} of {n}");
                found
            })
            .collect();
        assert!(found[1] < found[0] && found[1] < found[2], "{n}: {found:?}");
        // 8E/√n per token, but for what stays on a device.
        let limit = 8 * TOKENS * e / n.isqrt();
        assert!(found[1] < limit && found[1] * 4 > limit * 3, "{n}: {} and {limit}", found[1]);
        // 2E per token whatever n is.
        let flat = sent(&program, best, n / best, ONE_DIMENSIONAL);
        let published = 2 * TOKENS * e * (n - 1) / n;
        if n <= 256 {
            assert_eq!(flat, published, "{n}");
        }
        // On many devices splits that are free find less, for weights that are small beside the devices' number.
        assert!(flat <= published, "{n}: {flat}");
        assert!(flat > found[1]);
    }
}
