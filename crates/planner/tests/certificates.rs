//! Certificates: verified for plans of every kind, and refused as soon as they claim too much.

mod support;

use shardgrad_core::{DType, Machine, Mesh};
use shardgrad_graph::certificate::{Bound, Certificate, Work};
use shardgrad_graph::check::optimality::{Verdict, verify};
use shardgrad_graph::{
    Activation, Graph, Loss, MlpSpec, NodeId, Optimizer, OutputRole, Plan, Program,
};
use shardgrad_planner::{Free, LayoutRequest, Objective, Options, Planned, Redundant, plan};
use support::{layers, proven, proven_optimal};

fn mesh(text: &str) -> Mesh {
    text.parse().unwrap()
}

fn mlp(batch: usize, widths: &[usize], loss: Loss, optimizer: &str) -> Program {
    let layers = layers(widths, true, Activation::Relu);
    let optimizer = Optimizer::named(optimizer).unwrap();
    let spec = MlpSpec { layers, loss, optimizer, ..MlpSpec::new("mlp", batch) };
    spec.training_program().unwrap()
}

fn bound(planned: &Planned) -> Bound {
    match &planned.certificate {
        Certificate::Bound(bound) => (**bound).clone(),
        Certificate::None { because } => panic!("{because}"),
    }
}

/// The code with which a certificate is refused; `None` if it is verified.
fn refusal(plan: &Plan, program: &Program, bound: Bound) -> Option<&'static str> {
    match verify(plan, program, &Certificate::Bound(Box::new(bound))) {
        Verdict::Proven(_) => None,
        Verdict::Refuted(violation) => Some(violation.code),
        Verdict::Unproven(because) => panic!("{because}"),
    }
}

#[test]
fn plans_of_every_kind_carry_a_certificate_that_holds() {
    let program = mlp(10, &[6, 9, 5], Loss::CrossEntropy, "adam");
    for m in ["x=1", "x=3", "a=2, b=1, c=2"] {
        let m = mesh(m);
        for preset in ["replicated", "megatron-sp", "zero1", "auto"] {
            let by_axis = m.axes().iter().map(|a| format!("{}={preset}", a.name));
            let request: LayoutRequest = by_axis.collect::<Vec<_>>().join(",").parse().unwrap();
            for (objective, redundant, free) in [
                (Objective::Volume, Redundant::Never, Free::Nothing),
                (Objective::Volume, Redundant::Never, Free::Splits),
                (Objective::Time, Redundant::Never, Free::Nothing),
                (Objective::Time, Redundant::Allow, Free::Splits),
            ] {
                let options = Options { objective, redundant, ..Options::default() };
                let request = request.clone().free(free);
                let planned = plan(&program, &m, &request, &options).unwrap();
                proven_optimal(&planned, &program);
            }
        }
    }
}

/// Maxima, values of every role as outputs, a leaf handed out, pins on the way, and a value that several read.
fn mixed() -> Program {
    let g = Graph::new("mixed", DType::F32);
    let x = g.input("x", [6, 5]).unwrap();
    let w = g.param("w", [5, 4]).unwrap();
    let rate = g.scalar("rate").unwrap();
    let h = x.matmul(w).unwrap().named("h").unwrap();
    let top = h.max(&[1]).unwrap().named("top").unwrap();
    let loss = h.softmax(1).unwrap().square().unwrap().sum_all().unwrap();
    let gradient = g.grad(loss, &[w]).unwrap()[0];
    let step = gradient.mul(rate.broadcast(&[], &[5, 4]).unwrap()).unwrap();
    g.output("loss", loss, OutputRole::Loss).unwrap();
    g.output("grad(w)", gradient, OutputRole::Gradient { of: w.id() }).unwrap();
    g.output("w", w.sub(step).unwrap(), OutputRole::Update { of: w.id() }).unwrap();
    g.output("highest", x.max(&[0]).unwrap(), OutputRole::Value).unwrap();
    g.output("top", top, OutputRole::Value).unwrap();
    g.output("same", x, OutputRole::Value).unwrap();
    g.finish()
}

/// Bags that claim nothing hand on all that they take. What is left in the end is the least cost of the space as the checker
/// rebuilds it from the tables: exactly what the planner's search found, in all fields.
fn assert_least(planned: &Planned, program: &Program) {
    let mut least = bound(planned);
    assert!(planned.optimal && least.bags.factors.is_none());
    least.bags.minima.fill([0; 4]);
    least.lower = least.scale.split(least.scale.pack(least.cost));
    let context = format!("{} on {}, {:?}", program.name, planned.plan.mesh, planned.plan.pins);
    assert_eq!(refusal(&planned.plan, program, least.clone()), None, "{context}");
    least.lower[3] += 1;
    assert_eq!(refusal(&planned.plan, program, least), Some("C063"), "{context}");
}

#[test]
fn the_least_of_the_rebuilt_costs_is_the_plans() {
    let least_is_the_plans = |program: &Program, m: &str, request: LayoutRequest| {
        for (objective, redundant) in [
            (Objective::Volume, Redundant::Never),
            (Objective::Volume, Redundant::Allow),
            (Objective::Time, Redundant::Allow),
        ] {
            let options = Options { objective, redundant, ..Options::default() };
            assert_least(&plan(program, &mesh(m), &request, &options).unwrap(), program);
        }
    };
    for program in
        [mlp(10, &[6, 9, 5], Loss::CrossEntropy, "adam"), mlp(12, &[6, 8], Loss::Mse, "sgd")]
    {
        for (m, request) in [
            ("x=1", "auto"),
            ("x=3", "auto"),
            ("x=3", "fsdp"),
            ("x=2", "megatron-sp"),
            ("a=2, b=2", "a=data, b=megatron"),
            ("a=2, b=1, c=2", "a=auto, b=auto, c=auto"),
        ] {
            least_is_the_plans(&program, m, request.parse().unwrap());
        }
    }
    for pins in [
        &[][..],
        &[("h", "x: S(1)"), ("x", "x: S(0)")],
        &[("top", "x: R"), ("grad(w)", "x: P"), ("w", "x: R")],
        &[("x", "x: S(1)"), ("highest", "x: S(0)"), ("loss", "x: P")],
    ] {
        let request = pins.iter().fold(LayoutRequest::auto(), |request, (name, spec)| {
            request.pin(name, spec.parse().unwrap())
        });
        for m in ["x=2", "x=3"] {
            least_is_the_plans(&mixed(), m, request.clone());
        }
    }
}

#[test]
fn values_with_many_readers_are_certified_through_their_sets() {
    let g = Graph::new("fan", DType::F32);
    let x = g.input("x", [6, 5]).unwrap();
    for i in 0..10 {
        let w = g.param(&format!("w{i}"), [5, 3 + i % 2]).unwrap();
        g.output(&format!("y{i}"), x.matmul(w).unwrap(), OutputRole::Value).unwrap();
    }
    g.output("other", x.exp().unwrap(), OutputRole::Value).unwrap();
    let program = g.finish();
    let request = (0..10).fold(LayoutRequest::auto(), |request, i| {
        let placement = ["R", "S(0)", "S(1)"][i % 3];
        request.pin(&format!("y{i}"), format!("x: {placement}").parse().unwrap())
    });
    let planned = plan(&program, &mesh("x=3"), &request, &Options::default()).unwrap();
    assert!(!bound(&planned).bags.sets.is_empty());
    proven_optimal(&planned, &program);
    assert_least(&planned, &program);
}

#[test]
fn depth_adds_bags_but_no_new_minima() {
    let of = |depth: usize| {
        let program = mlp(12, &vec![6; depth + 1], Loss::Mse, "sgd");
        let planned =
            plan(&program, &mesh("x=2"), &LayoutRequest::auto(), &Options::default()).unwrap();
        proven_optimal(&planned, &program);
        bound(&planned).bags
    };
    let (few, many) = (of(8), of(40));
    assert!(many.order.len() > 4 * few.order.len());
    assert_eq!(many.minima.len(), few.minima.len());
}

/// Every number of a certificate, changed so that it claims more.
#[test]
fn whatever_claims_too_much_is_refused() {
    let program = mlp(10, &[6, 8, 4], Loss::Mse, "sgd");
    let m = mesh("a=2, b=2");
    let request: LayoutRequest = "a=data, b=megatron".parse().unwrap();
    let planned = plan(&program, &m, &request, &Options::default()).unwrap();
    let good = bound(&planned);
    let refused = |change: &dyn Fn(&mut Bound)| {
        let mut bad = good.clone();
        change(&mut bad);
        assert_ne!(bad, good);
        refusal(&planned.plan, &program, bad)
    };
    assert_eq!(refusal(&planned.plan, &program, good.clone()), None);
    for field in 0..4 {
        assert_eq!(refused(&|b| b.cost[field] += 1), Some("C064"));
        assert_eq!(refused(&|b| b.lower[field] += 1), Some("C063"));
        for minimum in 0..good.bags.minima.len() {
            let code = refused(&|b| b.bags.minima[minimum][field] += 1);
            assert_eq!(code, Some("C062"), "minimum {minimum}, field {field}");
        }
    }
    // A bound below the right one is right, and proves less.
    assert_eq!(refused(&|b| b.lower[0] -= 1), None);
    for bag in 0..good.bags.order.len() {
        // A larger minimum is too large for the bag. What a smaller one leaves goes on with the message.
        let own = good.bags.minimum[bag] as usize;
        for other in own + 1..good.bags.minima.len() {
            let code = refused(&|b| b.bags.minimum[bag] = u32::try_from(other).unwrap());
            assert_eq!(code, Some("C062"), "bag {bag}");
        }
        // A bag left out takes its minimum from the sum; one of no variable is none.
        let code = refused(&|b| {
            b.bags.order.remove(bag);
            b.bags.minimum.remove(bag);
        });
        let takes_nothing = good.bags.minima[good.bags.minimum[bag] as usize] == [0; 4];
        assert!(matches!(code, Some("C062" | "C063")) || takes_nothing, "bag {bag}: {code:?}");
        assert_eq!(refused(&|b| b.bags.order[bag] = u32::MAX), Some("C060"));
        assert_eq!(refused(&|b| b.bags.minimum[bag] = u32::MAX), Some("C060"));
    }
    // A space that the plan does not lie in, or that holds cheaper plans.
    for layer in 0..2 {
        for work in [Work::Repeated, Work::In, Work::Out] {
            assert_eq!(refused(&|b| b.space.layers[layer][0] = work), Some("C061"));
        }
    }
    assert!(refused(&|b| b.space.layers[0][1] = Work::Any).is_some());
    assert_eq!(refused(&|b| b.space.layers.clear()), Some("C060"));
    assert_eq!(refused(&|b| b.space.others[0] = Work::Batch), Some("C060"));
    assert_eq!(refused(&|b| b.space.objective = Objective::Time), Some("C064"));
    // A scale under which fields run over into each other.
    assert_eq!(refused(&|b| b.scale.shift = [3, 2, 1, 0]), Some("C060"));
    assert_eq!(refused(&|b| b.scale.shift = [0, 1, 2, 3]), Some("C060"));
    // In larger units addends are rounded down, so that the claims are too large for them.
    assert_eq!(refused(&|b| b.scale.dropped[0] = 4), Some("C062"));
    assert_eq!(refused(&|b| b.bags.sets = vec![7, 3]), Some("C060"));
}

/// A refusal says which bag claims too much, what it is of, and both numbers.
#[test]
fn refusals_name_what_they_refuse() {
    let program = mixed();
    let planned =
        plan(&program, &mesh("x=2"), &LayoutRequest::auto(), &Options::default()).unwrap();
    let good = bound(&planned);
    let message = |bad: Bound| {
        let verdict = verify(&planned.plan, &program, &Certificate::Bound(Box::new(bad)));
        let Verdict::Refuted(violation) = verdict else { panic!("{verdict:?}") };
        violation.message
    };
    let show = |fields: [u64; 4]| format!("{fields:?}");
    let mut kinds = [0; 3];
    for (bag, &var) in good.bags.order.iter().enumerate() {
        let mut bad = good.clone();
        let least = good.bags.minima[good.bags.minimum[bag] as usize];
        let mut claimed = least;
        claimed[3] += 1;
        bad.bags.minimum[bag] = u32::try_from(good.bags.minima.len()).unwrap();
        bad.bags.minima.push(claimed);
        let node = NodeId(var);
        let (kind, of) = match program.nodes.get(node.index()) {
            None => (0, "a layout".to_owned()),
            Some(found) => match program.name_of(node) {
                None => (1, format!("{node} {}", found.op.name())),
                Some(name) => (2, format!("`{name}`")),
            },
        };
        kinds[kind] += 1;
        let (claimed, least) = (show(claimed), show(least));
        let expected =
            format!("bag {bag} ({of}) claims a minimum of {claimed}, but it has {least}");
        assert_eq!(message(bad), expected);
    }
    assert!(kinds.iter().all(|&count| count > 0), "{kinds:?}");
    let mut bad = good.clone();
    bad.cost[1] += 1;
    let (costs, says) = (show(good.cost), show(bad.cost));
    assert_eq!(message(bad), format!("the plan costs {costs}, but its certificate says {says}"));
}

#[test]
fn a_plan_that_a_cheaper_one_beats_is_not_optimal() {
    let program = mlp(256, &[128, 128, 128], Loss::Mse, "sgd");
    let m = mesh("x=4");
    let best = plan(&program, &m, &LayoutRequest::auto(), &Options::default()).unwrap();
    // A plan for other pins, under the pins of the best: it is right, but it costs more.
    let mut worse = plan(&program, &m, &"fsdp".parse().unwrap(), &Options::default()).unwrap().plan;
    worse.pins = best.plan.pins.clone();
    assert!(shardgrad_graph::check(&worse, &program).is_right());
    assert_eq!(refusal(&worse, &program, bound(&best)), Some("C064"));
    // With its true cost in the certificate it is proven to be so much worse.
    let mut honest = bound(&best);
    let prices = Options::default();
    honest.cost = worse.cost(&prices.prices(&m));
    let verdict = verify(&worse, &program, &Certificate::Bound(Box::new(honest.clone())));
    let Verdict::Proven(proof) = verdict else { panic!("{verdict:?}") };
    assert!(!proof.optimal && proof.gap() == honest.cost[0] - best.cost.bytes);
    // To claim that it is optimal takes a bound that the bags do not give.
    honest.lower = honest.cost;
    assert_eq!(refusal(&worse, &program, honest), Some("C063"));
}

#[test]
fn work_done_twice_is_outside_the_space() {
    let program = mlp(8, &[4, 6, 4], Loss::Mse, "sgd");
    let m = mesh("x=2");
    let planned = plan(&program, &m, &"data".parse().unwrap(), &Options::default()).unwrap();
    let mut twice = planned.plan.clone();
    let last = twice.nodes.len() - 1;
    twice.nodes.push(twice.nodes[last].clone());
    twice.layouts.push(twice.layouts[last].clone());
    twice.origins.push(twice.origins[last]);
    assert_eq!(refusal(&twice, &program, bound(&planned)), Some("C061"));
}

#[test]
fn certificates_survive_the_plan_file() {
    let program = mlp(10, &[6, 8, 4], Loss::CrossEntropy, "adam");
    let m = mesh("a=2, b=2");
    let machine = Machine::default();
    let options = Options { objective: Objective::Time, machine, ..Options::default() };
    let planned = plan(&program, &m, &LayoutRequest::auto(), &options).unwrap();
    let text = serde_json::to_string(&planned.certificate).unwrap();
    let read: Certificate = serde_json::from_str(&text).unwrap();
    assert_eq!(read, planned.certificate);
    assert!(proven(&planned, &program).optimal);
}

/// Where buckets of the whole space would be too large, bags are made axis by axis.
#[test]
fn a_bound_that_is_made_axis_by_axis_holds_and_claims_no_more() {
    let program = mlp(8, &[6, 4], Loss::CrossEntropy, "adam");
    let m = mesh("a=2, b=2, c=2, d=1");
    let planned = plan(&program, &m, &LayoutRequest::auto(), &Options::default()).unwrap();
    let good = bound(&planned);
    assert!(good.bags.is_empty() && good.axes.len() == 4 && good.axes[3].is_empty());
    let proof = proven(&planned, &program);
    assert!(!proof.optimal && proof.least == good.lower[0] && proof.least > 0);
    assert_eq!(proof.gap(), planned.cost.bytes - proof.least);
    let refused = |change: &dyn Fn(&mut Bound)| {
        let mut bad = good.clone();
        change(&mut bad);
        assert_ne!(bad, good);
        refusal(&planned.plan, &program, bad)
    };
    assert_eq!(refused(&|b| b.lower[0] += 1), Some("C063"));
    assert_eq!(refused(&|b| b.lower[0] -= 1), None);
    for axis in 0..3 {
        for minimum in 0..good.axes[axis].minima.len() {
            let code = refused(&|b| b.axes[axis].minima[minimum][0] += 1);
            assert_eq!(code, Some("C062"), "axis {axis}, minimum {minimum}");
        }
    }
    assert_eq!(refused(&|b| b.axes[3] = good.axes[0].clone()), Some("C060"));
    assert_eq!(refused(&|b| b.axes.truncate(3)), Some("C060"));
    assert_eq!(refused(&|b| b.axes[0].minima[0][3] = 1), Some("C060"));
    assert_eq!(refused(&|b| b.axes[0].sets = vec![7, 3]), Some("C060"));
    assert_eq!(refused(&|b| b.bags = good.axes[0].clone()), Some("C060"));
    let text = serde_json::to_string(&planned.certificate).unwrap();
    assert_eq!(serde_json::from_str::<Certificate>(&text).unwrap(), planned.certificate);
}

/// Where bytes are counted in larger units, equal units are no equal bytes.
#[test]
fn a_scale_that_rounds_bytes_proves_no_optimum() {
    let program = mlp(8, &[4, 6, 4], Loss::Mse, "sgd");
    let m = mesh("x=2");
    let planned = plan(&program, &m, &"replicated".parse().unwrap(), &Options::default()).unwrap();
    let mut rounded = bound(&planned);
    // Nothing is sent, so that all claims stay as they are.
    assert_eq!(rounded.cost[0], 0);
    for dropped in [0, 4] {
        rounded.scale.dropped[0] = dropped;
        let certificate = Certificate::Bound(Box::new(rounded.clone()));
        let verdict = verify(&planned.plan, &program, &certificate);
        let Verdict::Proven(proof) = verdict else { panic!("{verdict:?}") };
        assert_eq!(proof.optimal, dropped == 0);
    }
}

/// Costs that run off the scale are equal whatever they are.
#[test]
fn a_cost_that_cannot_be_counted_is_not_certified() {
    let program = mlp(8, &[4, 6, 4], Loss::Mse, "sgd");
    let m = mesh("x=2");
    let options = Options { objective: Objective::Time, ..Options::default() };
    let planned = plan(&program, &m, &"data".parse().unwrap(), &options).unwrap();
    let mut bad = bound(&planned);
    bad.space.machine.flops = 1e-9;
    let prices = Options { machine: bad.space.machine.clone(), ..options.clone() };
    bad.cost = planned.plan.cost(&prices.prices(&m));
    bad.lower = bad.cost;
    assert_eq!(bad.cost[0], u64::MAX);
    assert_eq!(refusal(&planned.plan, &program, bad), Some("C065"));
    let again = plan(&program, &m, &"data".parse().unwrap(), &prices).unwrap();
    assert!(matches!(again.certificate, Certificate::None { .. }));
}
