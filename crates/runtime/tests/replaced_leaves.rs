//! Outputs that are a leaf's value of before the step, and leaves that change places.

use std::collections::BTreeMap;

use shardgrad_core::ops::Role;
use shardgrad_core::{DType, Layout, Mesh, TensorType};
use shardgrad_graph::{Graph, NodeId, OutputRole, Plan, Program, Value, check, memory};
use shardgrad_runtime::Trainer;

/// The program on one device, as it stands.
fn alone(program: &Program) -> Plan {
    let mut plan = Plan {
        mesh: Mesh::new([("a", 1)]).unwrap(),
        layout: "replicated".to_owned(),
        nodes: program.nodes.clone(),
        layouts: program.ids().map(|_| Layout::replicated(1)).collect(),
        origins: program.ids().collect::<Vec<NodeId>>(),
        slots: Vec::new(),
        outputs: program.outputs.clone(),
        pins: BTreeMap::new(),
        reasons: BTreeMap::new(),
        buckets: Vec::new(),
        waits: BTreeMap::new(),
    };
    memory::assign_slots(&mut plan);
    assert!(check::check(&plan, program).violations.is_empty());
    plan
}

fn ramp(start: f64) -> Value {
    Value::from_fn(&TensorType::new([3], DType::F64), |i| start + i as f64)
}

#[test]
fn an_output_shows_the_leaf_of_before_the_step() {
    let g = Graph::new("before", DType::F64);
    let w = g.param("w", [3]).unwrap();
    g.output("before", w, OutputRole::Value).unwrap();
    g.output("under another name", w.stop_gradient().unwrap(), OutputRole::Value).unwrap();
    let new = w.add_const(10.0).unwrap();
    g.output("w", new, OutputRole::Update { of: w.id() }).unwrap();
    let mut trainer = Trainer::threads(&alone(&g.finish()), 0).unwrap();
    trainer.set("w", &ramp(1.0)).unwrap();
    for step in 0..3 {
        let old = ramp(1.0 + 10.0 * f64::from(step));
        let report = trainer.step(&BTreeMap::new()).unwrap();
        assert_eq!(report.outputs["before"], old);
        assert_eq!(report.outputs["under another name"], old);
        assert_eq!(trainer.gather("w").unwrap(), ramp(11.0 + 10.0 * f64::from(step)));
    }
}

#[test]
fn two_parameters_change_places() {
    let g = Graph::new("swap", DType::F64);
    let ty = TensorType::new([3], DType::F64);
    let a = g.leaf("a", Role::Param, ty.clone()).unwrap();
    let b = g.leaf("b", Role::Param, ty).unwrap();
    g.output("a", b, OutputRole::Update { of: a.id() }).unwrap();
    g.output("b", a, OutputRole::Update { of: b.id() }).unwrap();
    let mut trainer = Trainer::threads(&alone(&g.finish()), 0).unwrap();
    trainer.set("a", &ramp(1.0)).unwrap();
    trainer.set("b", &ramp(-7.0)).unwrap();
    trainer.step(&BTreeMap::new()).unwrap();
    assert_eq!(trainer.gather("a").unwrap(), ramp(-7.0));
    assert_eq!(trainer.gather("b").unwrap(), ramp(1.0));
}
