//! The planner against exhaustive search: every op in every layout that the checker's rules admit, every set of copies
//! by enumeration of intermediate layouts, nothing pruned. All small programs of matrix products on one axis, two-layer
//! training programs with fixed splits on two, random small programs on both.

mod random;
mod search;

use proptest::prelude::{ProptestConfig, proptest};
use proptest::prop_assert_eq;
use search::Exhaustive;
use shardgrad_core::rules::RuleKind;
use shardgrad_core::{DType, Mesh};
use shardgrad_graph::{
    Activation, Graph, LayerSpec, Loss, MlpSpec, Node, OutputRole, Program, Var,
};
use shardgrad_planner::{LayoutRequest, Options, Redundant, Split, plan};

fn mesh(text: &str) -> Mesh {
    text.parse().unwrap()
}

/// All rules, for programs without layers and redundant work allowed.
fn any(_: &Node, _: &[RuleKind]) -> bool {
    true
}

/// Contractions share their work.
fn shares(node: &Node, kinds: &[RuleKind]) -> bool {
    !search::contracts(node) || kinds.iter().all(|k| matches!(k, RuleKind::Split(_)))
}

/// Products of square matrices: each factor is a leaf or an earlier product; products that nobody uses are outputs.
fn products(code: usize, count: usize, extent: usize) -> Program {
    let g = Graph::new("products", DType::F32);
    let mut values: Vec<Var<'_>> =
        ["a", "b"].iter().map(|n| g.input(n, [extent, extent]).unwrap()).collect();
    let mut code = code;
    let mut used = vec![false; 2 + count];
    for _ in 0..count {
        let n = values.len();
        let (i, j) = (code % n, code / n % n);
        code /= n * n;
        (used[i], used[j]) = (true, true);
        values.push(values[i].matmul(values[j]).unwrap());
    }
    for (i, &value) in values.iter().enumerate().skip(2) {
        if !used[i] {
            g.output(&format!("o{i}"), value, OutputRole::Value).unwrap();
        }
    }
    g.finish()
}

/// Whether no renaming of the two leaves and no other order of the products gives a smaller code: one program stands for
/// all that differ by these alone.
fn is_first(code: usize, count: usize) -> bool {
    let mut factors = Vec::new();
    let mut rest = code;
    for n in 2..2 + count {
        factors.push((rest % n, rest / n % n));
        rest /= n * n;
    }
    let mut smaller = false;
    for swap in [false, true] {
        let mut order = Vec::new();
        orders(&factors, &mut order, &mut |order| {
            let place = |value: usize| match value {
                0 | 1 => value ^ usize::from(swap),
                product => 2 + order.iter().position(|&p| p == product - 2).unwrap(),
            };
            let mut other = 0;
            for (at, &product) in order.iter().enumerate().rev() {
                let n = 2 + at;
                let (i, j) = factors[product];
                other = other * n * n + place(i) + n * place(j);
            }
            smaller |= other < code;
        });
    }
    !smaller
}

/// Calls `with` for every order in which products come after their factors.
fn orders(factors: &[(usize, usize)], order: &mut Vec<usize>, with: &mut impl FnMut(&[usize])) {
    if order.len() == factors.len() {
        with(order);
        return;
    }
    for (next, &(i, j)) in factors.iter().enumerate() {
        let known = |value: usize| value < 2 || order.contains(&(value - 2));
        if !order.contains(&next) && known(i) && known(j) {
            order.push(next);
            orders(factors, order, with);
            order.pop();
        }
    }
}

#[test]
fn all_small_products_on_one_axis() {
    let mut checked = 0;
    for count in 1..=4 {
        let codes: usize = (2..2 + count).map(|n| n * n).product();
        for code in (0..codes).filter(|&code| is_first(code, count)) {
            let program = products(code, count, 5);
            for p in [2, 3] {
                let m = mesh(&format!("x={p}"));
                let pinned = LayoutRequest::default();
                let mut request = LayoutRequest::auto();
                for (i, name) in ["a", "b"].into_iter().enumerate() {
                    let placement = ["R", "S(0)", "S(1)"][(code + i * count) % 3];
                    request = request.pin(name, format!("x: {placement}").parse().unwrap());
                }
                for (request, allowed) in [
                    (&pinned, any as fn(&Node, &[RuleKind]) -> bool),
                    (&request, shares as fn(&Node, &[RuleKind]) -> bool),
                ] {
                    let found = plan(&program, &m, request, &Options::default()).unwrap();
                    let least = Exhaustive::new(&program, &m, request, allowed).least();
                    assert_eq!(found.cost, least, "{request} p={p} {program:?}");
                    checked += 1;
                }
            }
        }
    }
    assert!(checked > 1000, "{checked}");
}

#[test]
fn free_leaves_and_redundant_work_on_one_axis() {
    let options = Options { redundant: Redundant::Allow, ..Options::default() };
    for count in 1..=3 {
        let codes: usize = (2..2 + count).map(|n| n * n).product();
        for code in (0..codes).filter(|&code| is_first(code, count)) {
            let program = products(code, count, 7);
            let m = mesh("x=3");
            let request = LayoutRequest::auto();
            for (options, allowed) in [
                (&Options::default(), shares as fn(&Node, &[RuleKind]) -> bool),
                (&options, any as fn(&Node, &[RuleKind]) -> bool),
            ] {
                let found = plan(&program, &m, &request, options).unwrap();
                let least = Exhaustive::new(&program, &m, &request, allowed).least();
                assert_eq!(found.cost, least, "{program:?}");
            }
        }
    }
}

fn two_layers(bias: bool, activation: Activation) -> MlpSpec {
    let layer = |inputs, outputs, activation| LayerSpec { inputs, outputs, bias, activation };
    MlpSpec {
        loss: Loss::Sum,
        layers: vec![layer(6, 5, activation), layer(5, 4, Activation::None)],
        ..MlpSpec::new("two", 7)
    }
}

#[test]
fn two_layers_with_fixed_splits_on_two_axes() {
    let m = mesh("a=2, b=2");
    let splits = [Split::Batch, Split::In, Split::Out, Split::None];
    let program = two_layers(false, Activation::None).training_program().unwrap();
    for code in 0..256 {
        let pick = |i: u32| splits[code / 4_usize.pow(i) % 4];
        let mut request: LayoutRequest = "a=megatron, b=fsdp".parse().unwrap();
        for layer in 0..2 {
            request = request.split(layer, "a", pick(2 * layer as u32)).split(
                layer,
                "b",
                pick(2 * layer as u32 + 1),
            );
        }
        if code % 3 == 0 {
            request = request.pin("h0", "a: S(0)".parse().unwrap());
        }
        let labels = |node: &Node, kinds: &[RuleKind]| {
            let Some(layer) = node.layer.filter(|_| search::contracts(node)) else { return true };
            (0..2_u32).all(|axis| {
                kinds[axis as usize]
                    == match pick(2 * layer + axis) {
                        Split::Batch => RuleKind::Split('b'),
                        Split::In => RuleKind::Split('i'),
                        Split::Out => RuleKind::Split('o'),
                        Split::None => RuleKind::Replicate,
                    }
            })
        };
        let found = plan(&program, &m, &request, &Options::default()).unwrap();
        let least = Exhaustive::new(&program, &m, &request, labels).least();
        assert_eq!(found.cost, least, "{:?}", request.splits);
    }
}

#[test]
fn training_on_one_axis_with_presets_and_free_splits() {
    let spec = MlpSpec { input_gradient: true, ..two_layers(false, Activation::Relu) };
    let program = spec.training_program().unwrap();
    for preset in ["data", "column", "row", "megatron", "fsdp"] {
        let request: LayoutRequest = preset.parse().unwrap();
        let label = |node: &Node, kinds: &[RuleKind]| {
            let Some(layer) = node.layer.filter(|_| search::contracts(node)) else { return true };
            let expected = match (preset, layer) {
                ("column", _) | ("megatron", 0) => 'o',
                ("row" | "megatron", _) => 'i',
                _ => 'b',
            };
            kinds[0] == RuleKind::Split(expected)
        };
        let m = mesh("x=3");
        let found = plan(&program, &m, &request, &Options::default()).unwrap();
        let least = Exhaustive::new(&program, &m, &request, label).least();
        assert_eq!(found.cost, least, "{preset}");
    }
}

/// The planner's cost against that of all plans: leaves replicated, free leaves with shared work, with repeated work.
fn agrees(program: &Program, m: &Mesh) -> Result<(), proptest::test_runner::TestCaseError> {
    let allow = Options { redundant: Redundant::Allow, ..Options::default() };
    let never = Options::default();
    for (request, options, allowed) in [
        (LayoutRequest::default(), &never, any as fn(&Node, &[RuleKind]) -> bool),
        (LayoutRequest::auto(), &never, shares as fn(&Node, &[RuleKind]) -> bool),
        (LayoutRequest::auto(), &allow, any as fn(&Node, &[RuleKind]) -> bool),
    ] {
        let found = plan(program, m, &request, options).unwrap();
        let least = Exhaustive::new(program, m, &request, allowed).least();
        prop_assert_eq!(found.cost, least, "{} {:?}", request, options.redundant);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn random_programs_on_one_axis(choices in random::choices(5), p in 2..=3_usize) {
        agrees(&random::program(&choices), &mesh(&format!("x={p}")))?;
    }

    #[test]
    fn random_programs_on_two_axes(choices in random::choices(2)) {
        agrees(&random::program(&choices), &mesh("a=2, b=2"))?;
    }
}
