//! Layout requests: what they resolve to, who wins, and what is refused with which words.

use shardgrad_core::{DType, Mesh};
use shardgrad_graph::{Activation, Graph, LayerSpec, MlpSpec, Optimizer, OutputRole, Program};
use shardgrad_planner::demands::Demands;
use shardgrad_planner::{
    Change, Error, Free, LayoutRequest, Options, Preset, Remedy, Split, plan, remedies,
};

fn mesh(text: &str) -> Mesh {
    text.parse().unwrap()
}

fn program() -> Program {
    let layer = |inputs, outputs, activation| LayerSpec { inputs, outputs, bias: true, activation };
    MlpSpec {
        layers: vec![layer(6, 8, Activation::Relu), layer(8, 4, Activation::None)],
        optimizer: Optimizer::named("adam").unwrap(),
        input_gradient: true,
        ..MlpSpec::new("two", 10)
    }
    .training_program()
    .unwrap()
}

/// What a request demands of some values, as text.
fn demanded(mesh: &Mesh, request: &LayoutRequest, names: &[&str]) -> Vec<String> {
    let demands = Demands::resolve(&program(), mesh, request).unwrap();
    names
        .iter()
        .map(|n| demands.pins.get(*n).map_or("free".to_owned(), ToString::to_string))
        .collect()
}

#[test]
fn presets_resolve_to_the_table() {
    let tp = mesh("tp=2");
    let names = ["x", "y", "w0", "b0", "w1", "b1", "m(w0)", "v(b1)", "h0", "h1", "lr"];
    for (preset, expected) in [
        ("replicated", ["R", "R", "R", "R", "R", "R", "R", "R", "", "", "R"]),
        ("data", ["S(0)", "S(0)", "R", "R", "R", "R", "R", "R", "", "", "R"]),
        ("column", ["R", "R", "S(1)", "S(0)", "S(1)", "S(0)", "S(1)", "S(0)", "", "", "R"]),
        ("row", ["R", "R", "S(0)", "R", "S(0)", "R", "S(0)", "R", "", "", "R"]),
        ("megatron", ["R", "R", "S(1)", "S(0)", "S(0)", "R", "S(1)", "R", "", "", "R"]),
        (
            "megatron-sp",
            ["S(0)", "S(0)", "S(1)", "S(0)", "S(0)", "R", "S(1)", "R", "", "S(0)", "R"],
        ),
        ("fsdp", ["S(0)", "S(0)", "S(0)", "S(0)", "S(0)", "S(0)", "S(0)", "S(0)", "", "", "R"]),
        ("zero1", ["S(0)", "S(0)", "R", "R", "R", "R", "S(0)", "S(0)", "", "", "R"]),
    ] {
        let found = demanded(&tp, &preset.parse().unwrap(), &names);
        let expected =
            expected.map(|p| if p.is_empty() { "free".into() } else { format!("[tp: {p}]") });
        assert_eq!(found, expected, "{preset}");
    }
    // `auto` alone is of all axes.
    let both = mesh("dp=2, tp=2");
    let auto: LayoutRequest = "auto".parse().unwrap();
    assert_eq!(auto.describe(&both).unwrap(), "dp=auto, tp=auto");
    assert_eq!(
        auto.on_mesh(&both),
        "dp=auto, tp=auto".parse::<LayoutRequest>().unwrap().on_mesh(&both)
    );
    // Scalars are replicated whatever else is free; nothing else is said.
    assert_eq!(demanded(&tp, &LayoutRequest::auto(), &["w0", "lr"]), ["[]", "[tp: R]"]);
}

#[test]
fn fsdp_and_zero1_take_the_first_dim_no_other_axis_shards() {
    let m = mesh("fs=2, tp=2");
    let names = ["w0", "b0", "w1", "b1", "m(w1)"];
    let request: LayoutRequest = "fs=fsdp, tp=row".parse().unwrap();
    assert_eq!(
        demanded(&m, &request, &names),
        [
            "[fs: S(1), tp: S(0)]",
            "[fs: S(0), tp: R]",
            "[fs: S(1), tp: S(0)]",
            "[fs: S(0), tp: R]",
            "[fs: S(1), tp: S(0)]"
        ]
    );
    // A bias has one dim: nothing is left for the other axis.
    let request: LayoutRequest = "fs=fsdp, tp=column".parse().unwrap();
    assert_eq!(demanded(&m, &request, &["b0"]), ["[fs: R, tp: S(0)]"]);
    // A pin comes before any preset.
    let pinned = request.pin("w0", "tp: S(0)".parse().unwrap());
    assert_eq!(demanded(&m, &pinned, &["w0", "m(w0)"]), ["[fs: S(1), tp: S(0)]"; 2]);
    let zero: LayoutRequest = "fs=zero1, tp=megatron".parse().unwrap();
    assert_eq!(
        demanded(&m, &zero, &["w0", "m(w0)", "m(w1)"]),
        ["[fs: R, tp: S(1)]", "[fs: S(0), tp: S(1)]", "[fs: S(1), tp: S(0)]"]
    );
}

#[test]
fn splits_win_over_presets_and_survive_freedom() {
    let m = mesh("tp=2");
    let request = LayoutRequest::alone(Preset::Megatron).split(1, "tp", Split::Batch);
    let splits = |r: &LayoutRequest| -> Vec<Option<Split>> {
        Demands::resolve(&program(), &m, r).unwrap().splits.into_iter().flatten().collect()
    };
    assert_eq!(splits(&request), [Some(Split::Out), Some(Split::Batch)]);
    assert_eq!(splits(&request.free(Free::Splits)), [None, Some(Split::Batch)]);
}

fn refused(layout: &str, change: impl Fn(LayoutRequest) -> LayoutRequest) -> Error {
    let request = match layout.parse() {
        Ok(request) => change(request),
        Err(error) => return error,
    };
    plan(&program(), &mesh("dp=2, tp=2"), &request, &Options::default()).unwrap_err()
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let same = |r| r;
    let pin = |name: &'static str, spec: &'static str| {
        move |r: LayoutRequest| r.pin(name, spec.parse().unwrap())
    };
    let cases: Vec<(Error, &str, &[&str])> = vec![
        (refused("tp=megatorn", same), "E201", &["megatorn", "megatron-sp", "zero1", "auto"]),
        (refused("tp=data,", same), "E202", &["axis=preset"]),
        (refused("=data", same), "E202", &["axis=preset"]),
        (refused("data", same), "E203", &["dp, tp", "axis=data"]),
        (refused("pp=data", same), "E009", &["pp", "dp, tp"]),
        (refused("tp=data, tp=row", same), "E209", &["tp"]),
        (refused("tp=data", pin("w7", "tp: R")), "E205", &["w7", "w0", "grad(x)"]),
        (refused("tp=data", pin("w0", "tp: S(2)")), "E208", &["w0", "S(2)", "2 dims"]),
        (refused("tp=data", pin("w0", "tp: P")), "E208", &["never pending"]),
        (refused("tp=data", pin("w0", "pp: R")), "E009", &["pp"]),
        (refused("tp=data", |r| r.split(5, "tp", Split::In)), "E206", &["5", "2 layer"]),
        (refused("tp=data", |r| r.split(0, "pp", Split::In)), "E009", &["pp"]),
        ("left".parse::<Split>().unwrap_err(), "E207", &["left", "batch, in, out, none"]),
    ];
    for (error, code, words) in cases {
        let text = error.to_string();
        assert_eq!(error.code(), code, "{text}");
        assert!(words.iter().all(|w| text.contains(w)), "{text}");
        assert!(!text.contains('\n'));
    }
}

#[test]
fn presets_that_split_layers_need_layers() {
    let g = Graph::new("plain", shardgrad_core::DType::F32);
    let x = g.input("x", [4, 4]).unwrap();
    g.output("y", x.matmul(x).unwrap(), OutputRole::Value).unwrap();
    let program = g.finish();
    for preset in Preset::ALL {
        let found =
            plan(&program, &mesh("x=2"), &LayoutRequest::alone(preset), &Options::default());
        match found {
            Ok(_) => assert!(!preset.needs_layers()),
            Err(error) => assert!(preset.needs_layers() && error.code() == "E204", "{error}"),
        }
    }
}

/// What a plan needs of a program, a mesh and a search is refused by code, too.
#[test]
fn what_cannot_be_planned_is_refused_by_code() {
    let m = mesh("a=2, b=2, c=2");
    // A layer of one row has no batch to split.
    let mut flat = program();
    flat.layers[1].batch = Default::default();
    let request = LayoutRequest::auto().split(1, "b", Split::Batch);
    let error = plan(&flat, &m, &request, &Options::default()).unwrap_err();
    assert_eq!(error.code(), "E210", "{error}");
    assert!(error.to_string().contains("layer 1 cannot be split by batch on axis `b`"), "{error}");
    // No maximum was taken.
    let request = LayoutRequest::auto().pin("h0", "a: Pmax".parse().unwrap());
    let error = plan(&program(), &m, &request, &Options::default()).unwrap_err();
    assert_eq!(error.code(), "E211", "{error}");
    assert!(error.to_string().contains("`h0`"), "{error}");
    // Each reader may want any of 64 layouts. Eight are planned axis by axis, nine are too many.
    let read_by = |count: u32| {
        let g = Graph::new("read", DType::F32);
        let x = g.input("x", [8, 8, 8]).unwrap();
        for i in 0..count {
            let y = x.scale(f64::from(i) + 0.5).unwrap();
            g.output(&format!("y{i}"), y, OutputRole::Value).unwrap();
        }
        g.finish()
    };
    let planned = |program| plan(&program, &m, &LayoutRequest::auto(), &Options::default());
    let eight = planned(read_by(8)).unwrap().plan;
    let report = shardgrad_graph::check::check(&eight, &read_by(8));
    assert!(report.is_right(), "{report}");
    let error = planned(read_by(9)).unwrap_err();
    assert_eq!(error.code(), "E212", "{error}");
    assert!(error.to_string().contains("`x` has 9 readers"), "{error}");
}

#[test]
fn every_collective_says_why() {
    let tp = mesh("tp=2");
    let program = program();
    let found = plan(&program, &tp, &"megatron".parse().unwrap(), &Options::default()).unwrap();
    for collective in found.plan.collectives() {
        let reason = &found.plan.reasons[&collective.id.0];
        assert!(reason.why.contains(" on tp because "), "{}", reason.why);
        assert!(!reason.why.contains('%'), "said in the user's terms: {}", reason.why);
    }
    let id = program.named("grad(x)").unwrap();
    let mut all = found.plan.collectives();
    let collective = all.find(|c| found.plan.origins[c.id.index()] == id).unwrap();
    let input = &found.plan.reasons[&collective.id.0];
    assert!(input.why.contains("reduced label `o`"), "{}", input.why);
    assert!(input.why.contains("in the layout of `x`"), "{}", input.why);
}

/// Each remedy, applied by hand, gives the bytes that it says and spares the collective; none is named where none helps.
#[test]
fn remedies_do_what_they_say() {
    let (program, tp) = (program(), mesh("tp=4"));
    let options = Options::default();
    let mut named = 0;
    for preset in ["data", "megatron", "fsdp", "zero1", "row"] {
        let request: LayoutRequest = preset.parse().unwrap();
        let planned = plan(&program, &tp, &request, &options).unwrap().plan;
        let bytes = planned.totals().bytes_per_device;
        let remedies = remedies(&program, &request, &options, &planned);
        assert_eq!(remedies.untried, 0);
        for (id, Remedy { change, bytes: promised }) in &remedies.found {
            let changed = match change {
                Change::Pin(name, axis, placement) => {
                    request.clone().pin(name, format!("{axis}: {placement}").parse().unwrap())
                }
                Change::Split(layer, axis, split) => request.clone().split(*layer, axis, *split),
            };
            let again = plan(&program, &tp, &changed, &options).unwrap().plan;
            assert_eq!(again.totals().bytes_per_device, *promised, "{preset}: {change}");
            assert!(*promised < bytes, "{preset}: {change}");
            let origin = planned.origins[id.index()];
            let kind = |plan: &shardgrad_graph::Plan| {
                let of = plan.collectives().filter(|c| plan.origins[c.id.index()] == origin);
                of.map(|c| c.transition.kind).collect::<Vec<_>>()
            };
            let spared = planned.collectives().find(|c| c.id == *id).unwrap().transition.kind;
            assert!(!kind(&again).contains(&spared), "{preset}: {change}");
            named += 1;
        }
    }
    assert!(named > 1, "{named}");
    // What is optimal on all axes cannot be spared by asking for more.
    let auto = LayoutRequest::auto();
    let planned = plan(&program, &tp, &auto, &options).unwrap();
    assert!(planned.optimal);
    assert_eq!(remedies(&program, &auto, &options, &planned.plan).found, Default::default());
}

#[test]
fn plans_do_not_depend_on_the_order_in_which_values_are_named() {
    let build = |backwards: bool| {
        let g = Graph::new("named", DType::F32);
        let x = g.input("x", [6, 4]).unwrap();
        let w = g.param("w", [4, 8]).unwrap();
        let y = x.matmul(w).unwrap();
        let z = y.relu().unwrap();
        let mut names = vec![(y, "b"), (z, "c"), (y, "a"), (z, "d")];
        if backwards {
            names.reverse();
        }
        for (value, name) in names {
            value.named(name).unwrap();
        }
        g.output("out", z, OutputRole::Value).unwrap();
        g.finish()
    };
    let m = mesh("a=2, b=2");
    let request = |backwards: bool| {
        let mut pins = vec![("c", "a: S(0)"), ("y", "b: S(1)"), ("x", "a: S(1), b: R")];
        pins[1].0 = "b";
        if backwards {
            pins.reverse();
        }
        let start = LayoutRequest::auto();
        pins.into_iter().fold(start, |r, (name, pin)| r.pin(name, pin.parse().unwrap()))
    };
    let bytes = |names: bool, pins: bool| {
        let planned = plan(&build(names), &m, &request(pins), &Options::default()).unwrap();
        let file = (&planned.plan, &planned.certificate);
        serde_json::to_string(&file).unwrap()
    };
    let first = bytes(false, false);
    for (names, pins) in [(false, false), (true, false), (false, true), (true, true)] {
        assert_eq!(bytes(names, pins), first);
    }
}
