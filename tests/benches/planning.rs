//! How long planning takes, by depth, mesh and freedom, against the time to make the program that is planned.
//!
//! `cargo bench -p shardgrad-tests --bench planning`, or with `-- MESH LAYOUT LAYERS` for one case, `-- blocks MESH LAYOUT BLOCKS`
//! for a transformer. The program is the training step of an MLP: 64 wide, bias, ReLU, cross-entropy, Adam; or of a decoder as
//! large as GPT-3: 12,288 wide, 96 heads, 2,048 tokens, Adam with clipped gradients. Planned by volume, certificate included; `check` verifies plan and
//! certificate. The fastest samples count: what disturbs a sample only makes it slower.

use std::error::Error;
use std::time::{Duration, Instant};

use shardgrad_core::Mesh;
use shardgrad_graph::check::check;
use shardgrad_graph::{Activation, LayerSpec, Loss, MlpSpec, Model, Optimizer, StackSpec};
use shardgrad_planner::{LayoutRequest, Options, plan};

/// Samples of each measurement, if one takes less than a second.
const SAMPLES: usize = 7;

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = work();
    (start.elapsed(), result)
}

fn perceptron(mesh: &str, layout: &str, depth: usize) -> Result<(), Box<dyn Error>> {
    let layer = |activation| LayerSpec { inputs: 64, outputs: 64, bias: true, activation };
    let mut layers = vec![layer(Activation::Relu); depth.saturating_sub(1)];
    layers.push(layer(Activation::None));
    let spec = MlpSpec {
        layers,
        loss: Loss::CrossEntropy,
        optimizer: Optimizer::named("adam")?,
        ..MlpSpec::new("deep", 128)
    };
    case(&spec.into(), mesh, layout, depth)
}

fn decoder(mesh: &str, layout: &str, blocks: usize) -> Result<(), Box<dyn Error>> {
    let spec = StackSpec {
        optimizer: Optimizer::named("adam")?,
        clip_norm: Some(1.0),
        ..StackSpec::new("gpt", 64, 2048, 50_304).decoder(12_288, 96, blocks)
    };
    case(&spec.into(), mesh, layout, blocks)
}

fn case(model: &Model, mesh: &str, layout: &str, depth: usize) -> Result<(), Box<dyn Error>> {
    let parsed: Mesh = mesh.parse()?;
    let request: LayoutRequest = layout.parse()?;
    let mut least = [Duration::MAX; 3];
    let mut proven = String::new();
    for _ in 0..SAMPLES {
        let (making, program) = timed(|| model.training_program());
        let program = program?;
        let (planning, planned) = timed(|| plan(&program, &parsed, &request, &Options::default()));
        let planned = planned?;
        let (checking, report) = timed(|| check(&planned.plan, &program));
        assert!(report.is_right(), "{report}");
        for (least, time) in least.iter_mut().zip([making, planning, checking]) {
            *least = time.min(*least);
        }
        let bytes = planned.plan.totals().bytes_per_device;
        proven = if planned.optimal {
            "optimal".to_owned()
        } else {
            format!("{bytes} bytes, at least {}", planned.lower_bound_bytes)
        };
        if planning > Duration::from_secs(1) {
            break;
        }
    }
    let [making, planning, checking] = least.map(|time| time.as_secs_f64() * 1e3);
    let ratio = planning / making;
    println!(
        "{depth:>6} {mesh:>16} {layout:>26} {planning:>9.1} ms {ratio:>7.1}x {checking:>9.1} ms  {proven}"
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "{:>6} {:>16} {:>26} {:>12} {:>8} {:>12}  answer",
        "layers", "mesh", "layout", "plan", "program", "check"
    );
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["blocks", mesh, layout, depth] => return decoder(mesh, layout, depth.parse()?),
        [mesh, layout, depth] => return perceptron(mesh, layout, depth.parse()?),
        _ => {}
    }
    for (mesh, layout, depths) in [
        ("tp=4", "auto", &[8, 256, 1000][..]),
        ("dp=2, tp=4", "dp=data, tp=megatron", &[8, 256, 1000]),
        ("dp=2, tp=4", "auto", &[8, 256, 1000]),
        ("a=2, b=2, c=2", "auto", &[2, 256]),
    ] {
        for &depth in depths {
            perceptron(mesh, layout, depth)?;
        }
    }
    for (mesh, layout) in [
        ("tp=8", "megatron"),
        ("dp=8, tp=8", "dp=data, tp=megatron"),
        ("dp=8, tp=8", "dp=fsdp, tp=megatron-sp"),
    ] {
        decoder(mesh, layout, 96)?;
    }
    Ok(())
}
