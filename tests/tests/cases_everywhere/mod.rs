//! Runs a case on every admissible layout that a user could ask for, and on random plans.

#![allow(dead_code, unreachable_pub)]

use std::collections::BTreeMap;

use shardgrad_core::{DType, LayoutSpec, Mesh, TensorType};
use shardgrad_graph::{Graph, OutputRole, Plan, Program, Value, Var};
use shardgrad_planner::LayoutRequest;
use shardgrad_testkit::equivalence::all_pins;
use shardgrad_testkit::random_plan::random_plan;
use shardgrad_testkit::{Backend, Options, Reference};

/// Inputs by name.
pub type Inputs = BTreeMap<String, Value>;

pub fn mesh(text: &str) -> Mesh {
    text.parse().unwrap()
}

/// A value from elements in row-major order.
pub fn value<const N: usize>(shape: [usize; N], dtype: DType, elements: &[f64]) -> Value {
    let ty = TensorType::new(shape, dtype);
    assert_eq!(ty.elements(), elements.len());
    Value::from_fn(&ty, |i| elements[i])
}

/// Declares `loss` and the gradients of these leaves as outputs.
pub fn outputs(g: &Graph, loss: Var<'_>, leaves: &[(&str, Var<'_>)]) {
    let loss = g.var(loss.id());
    g.output("loss", loss, OutputRole::Loss).unwrap();
    let vars: Vec<Var<'_>> = leaves.iter().map(|(_, v)| g.var(v.id())).collect();
    for ((name, leaf), gradient) in leaves.iter().zip(g.grad(loss, &vars).unwrap()) {
        let name = format!("grad({name})");
        g.output(&name, gradient, OutputRole::Gradient { of: leaf.id() }).unwrap();
    }
}

/// Requests: replicated; every combination of pins of leaves and of named values that are no output, as far as there are not
/// too many; and the free plan.
pub fn requests(program: &Program, mesh: &Mesh) -> Vec<LayoutRequest> {
    let mut requests = vec![LayoutRequest::default()];
    for id in program.leaves() {
        let node = program.node(id);
        if node.leaf_role() == Some(shardgrad_core::ops::Role::Scalar) {
            continue;
        }
        let name = node.leaf_name().unwrap().to_owned();
        let specs: Vec<LayoutSpec> = all_pins(mesh, node.ty.rank());
        let every = requests.len() * specs.len() <= 30;
        requests = requests
            .iter()
            .enumerate()
            .flat_map(|(i, request)| {
                // Too many: one pin each, in turn.
                let chosen: Vec<LayoutSpec> =
                    if every { specs.clone() } else { vec![specs[i % specs.len()].clone()] };
                let name = name.clone();
                chosen.into_iter().map(move |spec| request.clone().pin(&name, spec))
            })
            .collect();
    }
    if mesh.rank() == 1 {
        requests.push(LayoutRequest::auto());
    }
    requests
}

pub fn plan(program: &Program, mesh: &Mesh, request: &LayoutRequest) -> Plan {
    shardgrad_planner::plan(program, mesh, request, &Default::default())
        .unwrap_or_else(|e| panic!("{request:?} on {mesh}: {e}"))
        .plan
}

/// A request from pins as text.
pub fn pinned(pins: &[(&str, &str)]) -> LayoutRequest {
    pins.iter().fold(LayoutRequest::default(), |request, (name, spec)| {
        request.pin(name, spec.parse().unwrap())
    })
}

/// Compares a program with its right answer densely, under every request and on random plans of every mesh.
pub fn everywhere(program: &Program, meshes: &[&str], inputs: &Inputs, answers: &[(&str, &[f64])]) {
    let options = Options { inputs: inputs.clone(), ..Options::default() };
    for text in meshes {
        let mesh = mesh(text);
        let reference = Reference::new(program, mesh.size(), &options).unwrap();
        for (name, answer) in answers {
            let dense = reference.output(name).unwrap().to_f64s();
            assert_eq!(dense.len(), answer.len(), "{name}");
            for (d, a) in dense.iter().zip(*answer) {
                assert!(
                    (d - a).abs() <= 2e-6 * a.abs().max(1.0),
                    "{name}: {dense:?}, not {answer:?}"
                );
            }
        }
        let holds = |plan: &Plan, backend: Backend| {
            let found = reference.compare(plan, backend).unwrap_or_else(|e| panic!("{e}\n{plan}"));
            assert!(found.holds(), "{found}\n{plan}");
        };
        for (i, request) in requests(program, &mesh).iter().enumerate() {
            let backend = if i % 8 == 0 { Backend::Threads } else { Backend::Paper };
            holds(&plan(program, &mesh, request), backend);
        }
        for seed in 0..40 {
            let backend = if seed % 8 == 0 { Backend::Threads } else { Backend::Paper };
            holds(&random_plan(program, &mesh, seed, 230), backend);
        }
    }
}
