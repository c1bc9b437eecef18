//! Inputs that the parsers accept: made from what the crates write today, so that they never grow old.

use shardgrad::graph::plan_file::PlanFile;
use shardgrad_core::{DType, Mesh, TensorType};
use shardgrad_graph::{Activation, LayerSpec, Loss, MlpSpec, Optimizer, Program, Value};
use shardgrad_planner::LayoutRequest;
use shardgrad_runtime::{Checkpoint, checkpoint::About};

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

pub(super) fn layout() -> Vec<Vec<u8>> {
    texts(&[
        "[dp: S(0), tp: R]",
        "tp=4;[tp: S(1)]",
        "dp=2, tp=3;dp: P, tp: Pmax",
        "dp=2,tp=2;dp=data, tp=megatron",
        "tp=16777216;fsdp",
        "a-b_1=1;auto",
    ])
}

pub(super) fn model() -> Vec<Vec<u8>> {
    texts(&[
        "batch = 8\n[[layer]]\nin = 4\nout = 3\n",
        "name = \"n\"\nbatch = 6\ndtype = \"f64\"\nseed = 7\nloss = \"cross_entropy\"\nmicro_batches = 2\n\
         input_gradient = true\noptimizer = { name = \"adamw\", lr = 1e-3, weight_decay = 0.1 }\n\
         [[layer]]\nin = 5\nout = 4\nbias = false\nactivation = \"gelu\"\n[[layer]]\nin = 4\nout = 3\n\
         [pins]\n\"grad(x)\" = \"tp: S(0)\"\n[splits]\n\"0\" = \"tp: out, dp: batch\"\n",
        "batch = 4\nsequence = 3\nvocabulary = 7\nlabel_smoothing = 0.1\nmasked = true\nclip_norm = 1.0\n\
         optimizer = \"adamw\"\nschedule = { warmup = 2, total = 9, floor = 0.1 }\nmicro_batches = 2\n\
         [[stack]]\nkind = \"embedding\"\nname = \"t\"\nwidth = 4\n\
         [[stack]]\nkind = \"block\"\nname = \"b\"\nheads = 2\nkv_heads = 1\nnorm = \"rms\"\nrepeat = 2\n\
         [[stack]]\nkind = \"norm\"\nname = \"n\"\n[[stack]]\nkind = \"linear\"\nname = \"l\"\nout = 6\n\
         [[stack]]\nkind = \"head\"\nname = \"h\"\n",
        "batch = 2\nloss = \"sum\"\noptimizer = \"momentum\"\n[[layer]]\nin = 1\nout = 1\nactivation = \"relu\"\n",
    ])
}

pub(super) fn layout_file() -> Vec<Vec<u8>> {
    texts(&[
        "layout = \"dp=data, tp=megatron\"\n[pins]\nx = \"dp: S(0)\"\n\"grad(w0)\" = \"tp: P\"\n[splits]\n\"0\" = \"tp: in\"\n",
        "[pins]\nh0 = \"[dp: R, tp: S(1)]\"\n",
    ])
}

pub(super) fn machine() -> Vec<Vec<u8>> {
    texts(&["flops = 1e12\nmemory_bandwidth = 1e11\n[link]\nlatency = 1e-6\nbandwidth = 5e9\n\
         [axes.dp]\nlatency = 1e-5\nbandwidth = 1e9\n"])
}

/// Small programs with all kinds of parts: layers, losses, state, pins, ops with attributes.
fn programs() -> Vec<Program> {
    let layer = |inputs, outputs, activation| LayerSpec { inputs, outputs, bias: true, activation };
    let mut adam = MlpSpec::new("seed", 4);
    adam.layers = vec![layer(3, 5, Activation::Relu), layer(5, 2, Activation::None)];
    adam.loss = Loss::CrossEntropy;
    adam.optimizer = Optimizer::default();
    let mut plain = MlpSpec::new("plain", 3);
    plain.layers = vec![layer(2, 3, Activation::Tanh)];
    plain.input_gradient = true;
    [adam, plain]
        .iter()
        .map(|spec| spec.training_program().expect("the specification is valid"))
        .chain([crate::placed()])
        .collect()
}

pub(super) fn plan() -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    for program in programs() {
        let presets = [("tp=2", "megatron"), ("dp=2, tp=2", "dp=fsdp, tp=column")];
        let no_layers = [("tp=3", "replicated")];
        for &(mesh, layout) in if program.layers.is_empty() { &no_layers[..] } else { &presets } {
            let mesh: Mesh = mesh.parse().expect("a mesh");
            let request: LayoutRequest = layout.parse().expect("a layout");
            let planned = shardgrad_planner::plan(&program, &mesh, &request, &Default::default())
                .expect("presets plan");
            let file = PlanFile::new(program.clone(), planned.plan);
            files.push(file.to_json().expect("plans can be written").into_bytes());
        }
    }
    files
}

pub(super) fn program() -> Vec<Vec<u8>> {
    let written = programs().into_iter().map(|program| program.to_string().into_bytes());
    let by_hand = texts(&[
        "program p\nforward:\n  %0 = input x : f32[4]\n  %1 = relu(%0) : f32[4]\noutputs:\n  y = %1, value\n",
    ]);
    written.chain(by_hand).collect()
}

/// The first byte chooses widths and targets.
pub(super) fn csv() -> Vec<Vec<u8>> {
    texts(&["\u{2}a,b,label\n1,2,0\n-3.5,4e2,2\n", "\u{5}a,t\n1,2\n", "\u{9}\"a\"\n\"1\"\n"])
}

pub(super) fn text() -> Vec<Vec<u8>> {
    texts(&["\u{2}to be or not", "\u{7}to be or not", "\u{1}a\u{e9}\n\r\u{4e16}"])
}

/// An array file as NumPy writes it.
fn array(descr: &str, fortran: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header =
        format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n");
    let length = u16::try_from(header.len()).expect("short").to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), data].concat()
}

pub(super) fn npy() -> Vec<Vec<u8>> {
    vec![
        array("<f4", "False", "(2, 3)", &[1; 24]),
        array(">f8", "True", "(2, 1, 2)", &[63; 32]),
        array("<i8", "False", "()", &[0; 8]),
        array("<i4", "False", "(0, 7)", &[]),
    ]
}

pub(super) fn safetensors() -> Vec<Vec<u8>> {
    let header = r#"{"w0":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"n":{"dtype":"I64","shape":[],"data_offsets":[8,16]},"__metadata__":{"k":"v"}}"#;
    let length = (header.len() as u64).to_le_bytes();
    let file = [&length[..], header.as_bytes(), &[7; 16]].concat();
    [vec![file], checkpoint()].concat()
}

pub(super) fn checkpoint() -> Vec<Vec<u8>> {
    let value = |n: usize, dtype| Value::from_fn(&TensorType::new([n, 2], dtype), |i| i as f64);
    let written = Checkpoint {
        about: About {
            format: 1,
            model: "seed".to_owned(),
            step: 3,
            mesh: "tp=2".to_owned(),
            layouts: [("w0".to_owned(), "[tp: S(0)]".to_owned())].into(),
            ..About::default()
        },
        tensors: [
            ("w0".to_owned(), value(3, DType::F32)),
            ("m(w0)".to_owned(), value(2, DType::F64)),
        ]
        .into(),
    };
    let path = std::env::temp_dir().join(format!("shardgrad-seed-{}", std::process::id()));
    written.write(&path).expect("the checkpoint can be written");
    let bytes = std::fs::read(&path).expect("and read");
    std::fs::remove_file(&path).expect("and removed");
    vec![bytes]
}
