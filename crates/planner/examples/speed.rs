//! How long planning takes, by depth, mesh and freedom: `cargo run --release -p shardgrad-planner --example speed`, or
//! with a mesh, a layout and a depth for one case alone.

use std::time::Instant;

use shardgrad_core::Mesh;
use shardgrad_graph::{Activation, LayerSpec, Loss, MlpSpec, Optimizer};
use shardgrad_planner::{LayoutRequest, Options, plan};

type Failure = Box<dyn std::error::Error>;

/// Plans a deep MLP and prints how long it took.
fn case(mesh: &str, layout: &str, depth: usize) -> Result<(), Failure> {
    let parsed: Mesh = mesh.parse()?;
    let layer = |activation| LayerSpec { inputs: 64, outputs: 64, bias: true, activation };
    let mut layers = vec![layer(Activation::Relu); depth - 1];
    layers.push(layer(Activation::None));
    let spec = MlpSpec {
        layers,
        loss: Loss::CrossEntropy,
        optimizer: Optimizer::named("adam")?,
        ..MlpSpec::new("deep", 128)
    };
    let program = spec.training_program()?;
    let request: LayoutRequest = layout.parse()?;
    let start = Instant::now();
    let planned = plan(&program, &parsed, &request, &Options::default())?;
    let time = start.elapsed().as_secs_f64() * 1e3;
    let proven = if planned.optimal { "optimal" } else { "with a gap" };
    let nodes = planned.plan.nodes.len();
    println!("{depth:>6} {mesh:>16} {layout:>28} {time:>8.1}ms {nodes:>8} {proven}");
    Ok(())
}

fn main() -> Result<(), Failure> {
    println!("{:>6} {:>16} {:>28} {:>10} {:>8}", "layers", "mesh", "layout", "time", "nodes");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [mesh, layout, depth] = arguments.as_slice() {
        return case(mesh, layout, depth.parse()?);
    }
    for (mesh, layouts) in [
        ("tp=4", &["tp=megatron", "tp=auto"][..]),
        ("dp=2, tp=4", &["dp=data, tp=megatron", "dp=fsdp, tp=megatron-sp", "dp=auto, tp=auto"]),
        ("a=2, b=2, c=2", &["a=auto, b=auto, c=auto"]),
    ] {
        for layout in layouts {
            for depth in [2, 8, 256, 1000] {
                case(mesh, layout, depth)?;
            }
        }
    }
    Ok(())
}
