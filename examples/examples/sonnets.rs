//! A small character model of two sonnets, trained on 2×2 devices and made to go on from their first line.
//!
//! The model comes from `sonnets.toml`, which `shardgrad compare` and `plan` read as well. Every layout starts from the same
//! parameters and sees the same batches, so the losses are the same but for rounding.

use std::path::Path;

use shardgrad::ModelFile;
use shardgrad::graph::Model;
use shardgrad::prelude::*;

const TEXT: &str = include_str!("../data/sonnets.txt");
const MODEL: &str = include_str!("../sonnets.toml");
const STEPS: u64 = 80;
const LAYOUTS: [&str; 3] = ["dp=data, tp=megatron", "dp=fsdp, tp=megatron-sp", "dp=zero1, tp=row"];

/// The text as numbers of its different characters.
struct Corpus {
    characters: Vec<char>,
    ids: Vec<usize>,
}

impl Corpus {
    fn new(text: &str) -> Self {
        let mut characters: Vec<char> = text.chars().collect();
        characters.sort_unstable();
        characters.dedup();
        let id = |c: char| characters.binary_search(&c).unwrap_or(0);
        let ids = text.chars().map(id).collect();
        Self { characters, ids }
    }

    /// Windows of the text and, as targets, the same one character on.
    fn batch(&self, step: u64, batch: usize, sequence: usize) -> Inputs {
        let windows = self.ids.len() - sequence;
        let window = |shift: usize| {
            let ty = TensorType::new([batch, sequence], DType::I32);
            Value::from_fn(&ty, |i| {
                let (row, place) = (i / sequence, i % sequence);
                let start = (step as usize * batch + row) * 617 % windows;
                self.ids[start + place + shift] as f64
            })
        };
        [("x".to_owned(), window(0)), ("y".to_owned(), window(1))].into()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let corpus = Corpus::new(TEXT);
    let file = ModelFile::parse(Path::new("sonnets.toml"), MODEL)?;
    let Model::Stack(spec) = &file.spec else { return Err("a stack was expected".into()) };
    assert_eq!(spec.vocabulary, corpus.characters.len());
    let mesh = Mesh::new([("dp", 2), ("tp", 2)])?;
    let machine = Machine::default();

    // The first steps under every layout.
    let mut trainers = Vec::new();
    for layout in LAYOUTS {
        let training = Training::from_file(&file).layout(layout)?;
        let plan = training.plan(&mesh, &machine)?;
        assert!(plan.check().is_right());
        let totals = plan.plan().totals();
        println!(
            "{layout}: {} collectives, {} bytes a device and step",
            totals.launches, totals.bytes_per_device
        );
        trainers.push((layout, training, Trainer::threads(&plan)?));
    }
    for step in 0..3 {
        let batch = corpus.batch(step, spec.batch, spec.sequence);
        let losses: Vec<f64> = trainers
            .iter_mut()
            .map(|(_, _, trainer)| Ok(trainer.step(&batch)?.loss.unwrap_or(f64::NAN)))
            .collect::<Result<_, shardgrad::Error>>()?;
        println!("step {}: losses {losses:.5?}", step + 1);
        assert!(losses.iter().all(|loss| (loss - losses[0]).abs() < 1e-4));
    }

    // On with the first.
    let (_, training, mut trainer) = trainers.swap_remove(0);
    let mut last = f64::NAN;
    for step in 3..STEPS {
        last =
            trainer.step(&corpus.batch(step, spec.batch, spec.sequence))?.loss.unwrap_or(f64::NAN);
        if (step + 1) % 20 == 0 {
            println!("step {}: loss {last:.3}", step + 1);
        }
    }
    assert!(last < 2.0, "a model that learned nothing has a loss of 3.8");

    // The weights stay where training has them; each character is the likeliest after the window before it.
    let forward = training.plan_forward(1, &mesh, &machine)?;
    let mut model = Trainer::threads(&forward)?;
    for name in model.stored() {
        model.set(&name, &trainer.get(&name)?)?;
    }
    let mut ids: Vec<usize> = corpus.ids[..spec.sequence].to_vec();
    for _ in 0..60 {
        let window = &ids[ids.len() - spec.sequence..];
        let ty = TensorType::new([1, spec.sequence], DType::I32);
        let x = Value::from_fn(&ty, |i| window[i] as f64);
        let scores = model.step(&[("x".to_owned(), x)].into())?.outputs["out"].to_f64s();
        let last = &scores[scores.len() - spec.vocabulary..];
        let best = (0..last.len()).max_by(|&a, &b| last[a].total_cmp(&last[b]));
        ids.push(best.unwrap_or(0));
    }
    let text: String = ids.iter().map(|&id| corpus.characters[id]).collect();
    println!("{text}");
    Ok(())
}
