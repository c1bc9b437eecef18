//! What a plan takes, by the α–β machine model.
//!
//! Every node takes what [`shardgrad_core::timing`] says, a launch what [`shardgrad_core::launch`] says, one after another:
//! nothing overlaps. Counts are those of the largest
//! rank.

use shardgrad_core::launch;
use shardgrad_core::timing::{op_seconds, transition_seconds};
use shardgrad_core::{Layout, Machine, cost};
use shardgrad_graph::plan::PlannedTransition;
use shardgrad_graph::{Plan, memory};

/// Flops of one device, and seconds of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Floating-point operations of the largest rank.
    pub flops: u64,
    /// Seconds by the machine model.
    pub seconds: f64,
}

/// Flops and seconds of one step of a plan.
#[must_use]
pub fn predict(plan: &Plan, machine: &Machine) -> Prediction {
    let mesh = &plan.mesh;
    let mut prediction = Prediction { flops: 0, seconds: 0.0 };
    for launch in plan.launches() {
        let members: Vec<_> = launch.iter().map(PlannedTransition::member).collect();
        prediction.seconds += launch::seconds(machine, mesh, &members);
    }
    for id in plan.ids() {
        let node = plan.node(id);
        if node.leaf_role().is_some() || memory::is_alias(&node.op) {
            continue;
        }
        let types = plan.operand_types(id);
        let layouts: Vec<&Layout> = node.operands.iter().map(|&o| plan.layout(o)).collect();
        let layout = plan.layout(id);
        if let Some(t) = plan.transition(id) {
            if !t.transition.kind.is_collective() {
                prediction.seconds +=
                    transition_seconds(machine, mesh, t.transition, t.ty, t.from, t.to);
            }
            continue;
        }
        prediction.flops += cost::flops(&node.op, mesh, &types, &node.ty, &layouts, layout);
        prediction.seconds +=
            op_seconds(machine, mesh, &node.op, &types, &node.ty, &layouts, layout);
    }
    prediction
}

#[cfg(test)]
mod tests {
    use shardgrad_core::machine::Link;
    use shardgrad_core::{DType, Mesh};
    use shardgrad_graph::{Graph, OutputRole};
    use shardgrad_planner::{LayoutRequest, Options};

    use super::*;

    #[test]
    fn rounds_bytes_flops_and_traffic_add_up() {
        let g = Graph::new("product", DType::F32);
        let x = g.input("x", [8, 12]).unwrap();
        let w = g.param("w", [12, 16]).unwrap();
        g.output("y", x.matmul(w).unwrap(), OutputRole::Value).unwrap();
        let request = LayoutRequest::default()
            .pin("x", "tp: S(1)".parse().unwrap())
            .pin("w", "tp: S(0)".parse().unwrap())
            .pin("y", "tp: R".parse().unwrap());
        let mesh = Mesh::new([("tp", 4)]).unwrap();
        let plan = shardgrad_planner::plan(&g.finish(), &mesh, &request, &Options::default())
            .unwrap()
            .plan;
        assert_eq!(plan.totals().by_kind["all_reduce"], 1);
        let machine = |flops, memory_bandwidth| Machine {
            flops,
            memory_bandwidth,
            memory: None,
            axes: [("tp".to_owned(), Link { latency: 0.5, bandwidth: 64.0 })].into(),
            link: Link { latency: 100.0, bandwidth: 1.0 },
        };
        // The all_reduce of [8, 16]: 2·3 rounds, 2·3/4 of 512 bytes; the product over 12/4 features.
        let collective = 6.0 * 0.5 + 768.0 / 64.0;
        let flops = 2 * 8 * 3 * 16;
        let touched = f64::from(4 * (8 * 3 + 3 * 16 + 8 * 16));
        let bound_by_flops = predict(&plan, &machine(1.0, 1e30));
        assert_eq!(bound_by_flops.flops, flops);
        assert_eq!(bound_by_flops.seconds, collective + 768.0);
        assert_eq!(predict(&plan, &machine(1e30, 1.0)).seconds, collective + touched);
    }
}
