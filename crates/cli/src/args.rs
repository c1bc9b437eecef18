//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use shardgrad::core::{LayoutSpec, Mesh};
use shardgrad::planner::Combine;

/// Plans, proves, explains and runs the training of small networks over a mesh of devices.
///
/// Without a model file every command uses the built-in network 64-128-10 (relu, cross-entropy, Adam)
/// and the built-in digits.
#[derive(Debug, Parser)]
#[command(
    name = "shardgrad",
    version,
    verbatim_doc_comment,
    max_term_width = 100,
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Compare the collectives of layouts: what each sends, computes and holds
    #[command(after_help = COMPARE_EXAMPLES)]
    Compare(CompareArgs),
    /// Show one plan, collective by collective or node by node
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(PlanArgs),
    /// Prove a plan file right, with the independent checker
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// A step on paper: time, exposed communication and memory on any number of devices
    #[command(after_help = SIMULATE_EXAMPLES)]
    Simulate(SimulateArgs),
    /// Train on threads or, over MPI, on many machines, and show that the sharded run equals the dense one
    #[command(after_help = TRAIN_EXAMPLES)]
    Train(TrainArgs),
    /// Measure latency, bandwidth and rates of computing: a machine file for the planner
    #[command(after_help = MEASURE_EXAMPLES)]
    Measure(MeasureArgs),
    /// Name the kind of fault that turns one gradient into another
    ///
    /// Compares tensors that any program wrote: .npy (one array) or .safetensors (several, by name). Exit 0: all are equal
    /// within rounding; 1: one is not, or is missing; 2: bad usage or input.
    #[command(after_help = DIAGNOSE_EXAMPLES)]
    Diagnose(DiagnoseArgs),
    /// Write an interactive page on which plans of a tiny network are stepped through, and broken
    #[command(after_help = LAB_EXAMPLES)]
    Lab(LabArgs),
}

const COMPARE_EXAMPLES: &str = "\
Examples:
  shardgrad compare --mesh tp=4
  shardgrad compare model.toml --mesh dp=2,tp=4 --layout dp=data,tp=megatron --layout auto
  shardgrad compare --mesh tp=8 --layout column --layout row --format json -o plans.json
  shardgrad compare --mesh dp=2,tp=4 --format html -o report.html";

const PLAN_EXAMPLES: &str = "\
Examples:
  shardgrad plan --mesh tp=4 --layout megatron --explain
  shardgrad plan --mesh tp=4 --layout auto --why-not megatron
  shardgrad plan --mesh tp=4 --layout megatron --format json -o plan.json
  shardgrad plan --mesh tp=4 --layout megatron --format numpy | python3 -
  shardgrad plan --mesh tp=4 --layout megatron --format dot | dot -Tsvg -o plan.svg";

const CHECK_EXAMPLES: &str = "\
Example:
  shardgrad plan --mesh tp=4 --layout megatron --format json -o plan.json
  shardgrad check plan.json";

const SIMULATE_EXAMPLES: &str = "\
Examples:
  shardgrad simulate --mesh node=128,gpu=8 --layout node=data,gpu=megatron --machine machines/cluster.toml
  shardgrad simulate model.toml --mesh dp=4,tp=8 --layout auto --objective time --format json";

const TRAIN_EXAMPLES: &str = "\
Examples:
  shardgrad train
  shardgrad train --mesh tp=4 --layout megatron --epochs 5 --verify
  shardgrad train --checkpoint digits.safetensors --epochs 5
  shardgrad train --resume digits.safetensors --mesh tp=2 --epochs 10
  shardgrad train model.toml --data rows.csv --mesh dp=3 --layout zero1
  shardgrad train stack.toml --data prose.txt --layout dp=fsdp,tp=megatron-sp
  mpirun -n 4 shardgrad train --mesh dp=2,tp=2 --backend mpi --verify --epochs 1";

const MEASURE_EXAMPLES: &str = "\
Examples:
  shardgrad measure --mesh tp=2 -o here.toml
  mpirun -n 4 shardgrad measure --mesh node=2,core=2 --backend mpi -o cluster.toml
  shardgrad measure examples/wide.toml --mesh p=2 --layout data --layout megatron";

const DIAGNOSE_EXAMPLES: &str = "\
Examples:
  shardgrad diagnose dense/w0.npy sharded/w0.npy
  shardgrad diagnose dense.safetensors sharded.safetensors --mesh dp=2,tp=4
  shardgrad diagnose dense/w0.npy sharded/w0.npy --mesh dp=2,tp=2 --layout '[tp: S(1)]' --format json";

const LAB_EXAMPLES: &str = "\
Example:
  shardgrad lab -o lab.html";

/// What is planned.
#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    /// Model file (TOML); the built-in digits network if it is left out
    #[arg(value_name = "MODEL.toml")]
    pub(crate) model: Option<PathBuf>,
    /// Rates of devices and links (TOML): flops, memory_bandwidth, link, axes
    #[arg(long, value_name = "M.toml")]
    pub(crate) machine: Option<PathBuf>,
}

/// How plans are searched for.
#[derive(Clone, Debug, Args)]
pub(crate) struct SearchArgs {
    /// What is minimised
    #[arg(long, value_enum, default_value_t = ObjectiveArg::Volume)]
    pub(crate) objective: ObjectiveArg,
    /// Free what the layout fixes: the work only, or the stored layouts too
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) free: Option<FreeArg>,
    /// Whether ranks may repeat whole contractions where splits are free
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = RedundantArg::Never)]
    pub(crate) redundant_compute: RedundantArg,
    /// The most that a device may hold at once: 80GiB, 512MB, bytes
    #[arg(long, value_name = "SIZE", value_parser = crate::units::parse_bytes)]
    pub(crate) memory_limit: Option<u64>,
    /// How much small collectives of one kind send in one launch, at most: a size, off, or auto (latency is a hundredth of
    /// a launch)
    #[arg(long, value_name = "SIZE", default_value = "auto", value_parser = crate::units::parse_combine)]
    pub(crate) combine: Combine,
    /// Wait for every collective at once, instead of letting it run beside computing as long as memory allows
    #[arg(long)]
    pub(crate) blocking: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ObjectiveArg {
    /// Bytes sent per device
    Volume,
    /// Seconds of a step by the machine model
    Time,
    /// The most bytes that a device holds at once
    Memory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FreeArg {
    /// Keep the stored layouts, free the work
    Splits,
    /// Free everything: `auto`
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RedundantArg {
    /// Every contraction splits a label on every axis
    Never,
    /// The objective decides
    Allow,
}

/// One layout of a model on a mesh.
#[derive(Debug, Args)]
pub(crate) struct OnePlanArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// The mesh: AXIS=SIZE, outermost first
    #[arg(long, value_name = "AXIS=SIZE,…", default_value = "tp=4")]
    pub(crate) mesh: Mesh,
    /// The layout
    #[arg(long, value_name = "LAYOUT", default_value = "auto", help = layout_help())]
    pub(crate) layout: String,
    #[command(flatten)]
    pub(crate) search: SearchArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// The mesh: AXIS=SIZE, outermost first
    #[arg(long, value_name = "AXIS=SIZE,…", default_value = "tp=4")]
    pub(crate) mesh: Mesh,
    /// A layout to compare
    #[arg(long, value_name = "LAYOUT", help = format!("{}. Repeatable; all presets that fit the mesh if it is left out", layout_help()))]
    pub(crate) layout: Vec<String>,
    #[command(flatten)]
    pub(crate) search: SearchArgs,
    /// Show the plans of `auto` that trade the objective for memory, and where the layouts stand among them; every collective
    /// is then a launch of its own, and waited for at once
    #[arg(long)]
    pub(crate) pareto: bool,
    /// Form of the result
    #[arg(long, value_enum, default_value_t = CompareFormat::Table)]
    pub(crate) format: CompareFormat,
    /// Write the result to a file
    #[arg(short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompareFormat {
    /// For people
    Table,
    /// For programs: stable and versioned
    Json,
    /// A page with figures, complete in one file
    Html,
    /// One figure for a paper: bytes and collectives by layout and phase
    Svg,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) one: OnePlanArgs,
    /// Say of every collective why it is there and what would spare it
    #[arg(long)]
    pub(crate) explain: bool,
    /// Compare the plan with that of another layout: collectives, bytes, boundary
    #[arg(long, value_name = "LAYOUT")]
    pub(crate) why_not: Option<String>,
    /// Form of the result
    #[arg(long, value_enum, default_value_t = PlanFormat::Text)]
    pub(crate) format: PlanFormat,
    /// Write the result to a file
    #[arg(short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlanFormat {
    /// For people
    Text,
    /// The plan file that `check` reads
    Json,
    /// A graph for Graphviz
    Dot,
    /// A NumPy script that simulates every rank and compares with the dense program
    Numpy,
    /// The simulated step as a Chrome trace, which Perfetto opens
    Trace,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Plan file, as `plan --format json` writes it
    #[arg(value_name = "PLAN.json")]
    pub(crate) plan: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    #[command(flatten)]
    pub(crate) one: OnePlanArgs,
    /// Form of the result
    #[arg(long, value_enum, default_value_t = SimulateFormat::Table)]
    pub(crate) format: SimulateFormat,
    /// Write the result to a file
    #[arg(short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SimulateFormat {
    /// For people
    Table,
    /// For programs
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct TrainArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Data file: CSV with a header, last column `label`, or the targets; for a model with [[stack]] any text, of which
    /// characters are the tokens; the built-in digits if it is left out
    #[arg(long, value_name = "FILE")]
    pub(crate) data: Option<PathBuf>,
    /// The mesh: AXIS=SIZE, outermost first
    #[arg(long, value_name = "AXIS=SIZE,…", default_value = "dp=2,tp=2")]
    pub(crate) mesh: Mesh,
    /// The layout
    #[arg(long, value_name = "LAYOUT", help = format!("{} [default: dp=data,tp=megatron where the mesh has these axes, else auto]", layout_help()))]
    pub(crate) layout: Option<String>,
    /// Times to go through the data
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) epochs: u64,
    /// Keep parameters, optimizer state and step in a file (safetensors), replaced after every epoch, at the end, and on
    /// Ctrl-C, which exits with 130
    #[arg(long, value_name = "FILE")]
    pub(crate) checkpoint: Option<PathBuf>,
    /// Go on from a checkpoint of any mesh and layout, or from weights of the same names in any safetensors file
    #[arg(long, value_name = "FILE")]
    pub(crate) resume: Option<PathBuf>,
    /// Compare every step with the dense one
    #[arg(long)]
    pub(crate) verify: bool,
    #[command(flatten)]
    pub(crate) backend: BackendArgs,
}

#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    /// Model file (TOML) of the steps that are timed; the built-in digits network if it is left out
    #[arg(value_name = "MODEL.toml")]
    pub(crate) model: Option<PathBuf>,
    /// The mesh, all of whose devices run: AXIS=SIZE, outermost first
    #[arg(long, value_name = "AXIS=SIZE,…", default_value = "tp=2")]
    pub(crate) mesh: Mesh,
    /// A layout of which steps are timed too, and compared with their prediction. Repeatable
    #[arg(long, value_name = "LAYOUT")]
    pub(crate) layout: Vec<String>,
    /// Steps that are timed of each; the median counts
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) steps: u16,
    /// Write the machine file, instead of printing it
    #[arg(short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) backend: BackendArgs,
}

/// Where the devices are.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct BackendArgs {
    /// Where the devices are
    #[arg(long, value_enum, default_value_t = BackendArg::Threads)]
    pub(crate) backend: BackendArg,
    /// Which collectives run over MPI
    #[arg(long, value_enum, value_name = "WHOSE", default_value_t = CollectivesArg::Own)]
    pub(crate) collectives: CollectivesArg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendArg {
    /// On threads of this process
    Threads,
    /// In the processes that mpirun started, one in each (needs a build with `--features mpi`)
    Mpi,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CollectivesArg {
    /// Those that the plan says: the same bits as on threads
    Own,
    /// MPI's, where there are such: faster on a network, equal within rounding
    Native,
}

#[derive(Debug, Args)]
pub(crate) struct DiagnoseArgs {
    /// The right tensors: .npy or .safetensors, of f32, f64, i32 or i64
    #[arg(value_name = "EXPECTED")]
    pub(crate) expected: PathBuf,
    /// The tensors in question
    #[arg(value_name = "ACTUAL")]
    pub(crate) actual: PathBuf,
    /// The mesh they were computed on: AXIS=SIZE, outermost first; faults are then named by axis [default: any 2 to 8 devices]
    #[arg(long, value_name = "AXIS=SIZE,…")]
    pub(crate) mesh: Option<Mesh>,
    /// How the tensors lie on the mesh, such as '[dp: R, tp: S(1)]': tells axes of one size apart
    #[arg(long, value_name = "LAYOUT", requires = "mesh")]
    pub(crate) layout: Option<LayoutSpec>,
    /// Differences up to so large a part of the largest expected element are rounding [default: 16 √n u, with u the unit
    /// roundoff of the coarser type and n the largest extent, at least 1024; integers must be equal]
    #[arg(long, value_name = "PART", value_parser = tolerance)]
    pub(crate) tolerance: Option<f64>,
    /// Form of the result
    #[arg(long, value_enum, default_value_t = DiagnoseFormat::Text)]
    pub(crate) format: DiagnoseFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiagnoseFormat {
    /// For people
    Text,
    /// For programs: stable and versioned
    Json,
}

/// A part of the largest element.
fn tolerance(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|part| (0.0..1.0).contains(part))
        .ok_or_else(|| "a number from 0 to below 1 was expected, such as 1e-5".to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct LabArgs {
    /// Write the page to a file
    #[arg(short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// What a layout is, with the planner's list of presets.
fn layout_help() -> String {
    format!(
        "AXIS=PRESET,…, a preset alone for a mesh of one axis, or a layout file (.toml); presets: {}",
        shardgrad::planner::Preset::names()
    )
}
