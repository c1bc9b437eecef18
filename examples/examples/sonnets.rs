//! A character model of two sonnets, trained on 2×2 devices under three layouts and on one device; then it writes.
//!
//! Every layout makes the same steps from the same initial values. The losses of steps that start from the same parameters
//! are the same numbers but for rounding, and how far rounding may go is derived, not guessed. Some steps later the order of
//! additions has led the parameters apart; so before each comparison all layouts go on from those of the single device.

use shardgrad::core::random::{Draws, step_key};
use shardgrad::graph::Model;
use shardgrad::prelude::*;
use shardgrad::{ModelFile, Text};
use shardgrad_testkit::tolerance::bounds_on;

const LAYOUTS: [&str; 3] = ["dp=data,tp=megatron", "dp=data,tp=megatron-sp", "dp=fsdp,tp=megatron"];
const STEPS: u64 = 80;
/// Every so many steps, and in the first, losses are compared.
const COMPARED: u64 = 20;

type Failed = Box<dyn std::error::Error>;

fn main() -> Result<(), Failed> {
    let file = ModelFile::parse("sonnets.toml".as_ref(), include_str!("../sonnets.toml"))?;
    let Model::Stack(spec) = &file.spec else { return Err("the model has no [[stack]]".into()) };
    let sonnets = include_bytes!("../data/sonnets.txt");
    let data = Dataset::parse_text("sonnets.txt".as_ref(), sonnets, spec)?;
    let text = data.text().ok_or("the data is no text")?;

    let training = &|layout: &str| Training::from_file(&file).layout(layout);
    let (mesh, machine) = (&Mesh::new([("dp", 2), ("tp", 2)])?, &Machine::default());
    let one = training("replicated")?.plan(&Mesh::new([("one", 1)])?, machine)?;
    let mut single = Trainer::threads(&one)?;
    let planned = std::thread::scope(|scope| {
        let plan = |layout| scope.spawn(move || training(layout)?.plan(mesh, machine));
        LAYOUTS.map(plan).map(|plan| plan.join())
    });
    let mut sharded = Vec::new();
    for plan in planned {
        let plan = plan.map_err(|_| "planning panicked")??;
        assert!(plan.check().is_right(), "the independent checker agrees");
        sharded.push(Trainer::threads(&plan)?);
    }

    println!("step  loss      largest difference between layouts");
    let (mut step, mut last) = (0, f64::INFINITY);
    for rows in (0..).flat_map(|epoch| data.epoch(spec.seed, epoch, spec.batch)) {
        step += 1;
        let compared = step == 1 || step % COMPARED == 0;
        let allowed =
            if compared { rounding(&one, &mut single, &data, &rows)? } else { f64::INFINITY };
        if compared && step > 1 {
            for trainer in &mut sharded {
                trainer.copy_stored(&mut single)?;
            }
        }
        let loss = single.step_rows(&data, &rows)?.loss.ok_or("no loss")?;
        let mut apart = 0.0_f64;
        for trainer in &mut sharded {
            let other = trainer.step_rows(&data, &rows)?.loss.ok_or("no loss")?;
            apart = apart.max((loss - other).abs());
        }
        if compared {
            println!("{step:>4}  {loss:.6}  {apart:.1e}; rounding explains {allowed:.1e}");
            assert!(apart <= allowed);
        }
        last = loss;
        if step == STEPS {
            break;
        }
    }

    let entropy = entropy(text);
    println!("the frequencies of characters alone have entropy {entropy:.2}");
    assert!(last < 2.75 && 2.75 < entropy, "more than frequencies is learnt");

    let mut forward = Trainer::threads(&training(LAYOUTS[0])?.plan_forward(2, mesh, machine)?)?;
    forward.copy_stored(&mut sharded[0])?;
    for written in write(&mut forward, text, spec, ["Shall I ", "Let me "])? {
        println!("\n{written}");
    }
    Ok(())
}

/// How far the losses of two runs may lie apart that make the next step from the parameters of `trainer`.
fn rounding(
    plan: &Planned,
    trainer: &mut Trainer,
    data: &Dataset,
    rows: &[usize],
) -> Result<f64, Failed> {
    let mut leaves = trainer.with_scalars(&data.batch(rows, DType::F64), trainer.steps() + 1);
    leaves.extend(trainer.get_all()?);
    let program = plan.program();
    let loss = program.outputs.iter().find(|o| o.name == "loss").ok_or("no loss")?.node;
    let bound = bounds_on(program, &leaves, 4)?.of(loss).sum();
    assert!(bound < 1e-6, "a fault would show");
    Ok(bound)
}

/// The entropy of a character drawn by its frequency, in nats.
#[allow(clippy::cast_precision_loss)]
fn entropy(text: &Text) -> f64 {
    let all = text.ids().len() as f64;
    let share = |id: usize| text.ids().iter().filter(|&&i| i as usize == id).count() as f64 / all;
    (0..text.characters().len()).map(share).map(|p| -p * p.ln()).sum()
}

/// Goes on from two beginnings, one for each half of the devices along `dp`.
fn write(
    forward: &mut Trainer,
    text: &Text,
    spec: &StackSpec,
    beginnings: [&str; 2],
) -> Result<Vec<String>, Failed> {
    let (places, tokens) = (spec.sequence, spec.vocabulary);
    let mut written: Vec<Vec<i32>> = beginnings.iter().filter_map(|b| text.encode(b)).collect();
    let mut draws = Draws::new(step_key(spec.seed, STEPS), 0);
    for number in 0..200 {
        // The last characters that fit a sequence; nobody looks at places behind them.
        let ty = TensorType::new([written.len(), places], DType::I32);
        let x = Value::from_fn(&ty, |i| {
            let (ids, place) = (&written[i / places], i % places);
            ids.get(ids.len().saturating_sub(places) + place).map_or(0.0, |&id| f64::from(id))
        });
        let scores = forward.step(&Inputs::from([("x".to_owned(), x)]))?.outputs["out"].to_f64s();
        for (row, ids) in written.iter_mut().enumerate() {
            let at = (row * places + ids.len().min(places) - 1) * tokens;
            ids.push(drawn(&scores[at..at + tokens], draws.at(2 * number + row as u64)));
        }
    }
    Ok(written.iter().map(|ids| text.decode(ids)).collect())
}

/// A token of probability softmax(2 · scores): a sharpened distribution.
fn drawn(scores: &[f64], uniform: f64) -> i32 {
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|s| (2.0 * (s - largest)).exp()).collect();
    let mut left = uniform * weights.iter().sum::<f64>();
    let chosen = weights.iter().take_while(|&&weight| {
        left -= weight;
        left >= 0.0
    });
    chosen.count().min(scores.len() - 1) as i32
}
