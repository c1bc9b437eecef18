//! Plans as text, for reading: layouts on every node, transitions set off with what they change and send, and with the
//! bucket that they are launched in and the node behind which they are waited for.

use std::collections::BTreeMap;
use std::fmt;

use shardgrad_core::{Algorithm, Op, Transition};

use super::{Row, Table, left_side, quoted, role};
use crate::node::{Node, NodeId};
use crate::plan::Plan;
use crate::program::Program;

/// A plan with the names of its program's values. The plan must be [valid](Plan::validate).
#[must_use]
pub fn display_plan<'a>(plan: &'a Plan, program: &'a Program) -> impl fmt::Display + 'a {
    Named { plan, program: Some(program) }
}

impl fmt::Display for Plan {
    /// The plan with the names that it knows itself: those of leaves and outputs. It must be [valid](Plan::validate).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Named { plan: self, program: None }.fmt(f)
    }
}

struct Named<'a> {
    plan: &'a Plan,
    program: Option<&'a Program>,
}

impl Named<'_> {
    /// Names of the values that nodes hold, by origin if the program is known, else by node.
    fn names(&self) -> BTreeMap<NodeId, Vec<String>> {
        let mut names: BTreeMap<NodeId, Vec<String>> = BTreeMap::new();
        match self.program {
            Some(program) => {
                for (name, id) in &program.names {
                    if program.nodes.get(id.index()).and_then(Node::leaf_name) != Some(name) {
                        names.entry(*id).or_default().push(quoted(name));
                    }
                }
            }
            None => {
                for output in &self.plan.outputs {
                    names.entry(output.node).or_default().push(quoted(&output.name));
                }
            }
        }
        names
    }

    fn transition(&self, id: NodeId, transition: Transition) -> Vec<String> {
        let plan = self.plan;
        let node = plan.node(id);
        let (Some(&operand), to) = (node.operands.first(), plan.layout(id)) else {
            return vec![format!("→ {}", left_side(id, node))];
        };
        let from = plan.layout(operand);
        let bytes = transition.bytes_sent(&plan.mesh, &node.ty, from, to);
        let sent = if transition.kind.is_collective() {
            let by = match transition.algorithm {
                Algorithm::Direct => String::new(),
                other => format!(" by {other}"),
            };
            let bucket = plan.buckets.iter().position(|bucket| bucket.contains(&id));
            let bucket = bucket.map_or(String::new(), |index| format!(", bucket {index}"));
            let wait = plan.wait(id);
            let wait =
                if wait > id { format!(", waited for behind {wait}") } else { String::new() };
            format!(", {bytes} bytes{by}{bucket}{wait}")
        } else {
            ", local".to_owned()
        };
        vec![
            format!(
                "→ {id} = {} over {} ({operand})",
                transition.kind,
                if transition.axes.is_empty() {
                    "no axis".to_owned()
                } else {
                    plan.mesh.axis_names(transition.axes)
                }
            ),
            format!("  : {}", node.ty),
            format!("  {} → {}{sent}", from.display(&plan.mesh), to.display(&plan.mesh)),
        ]
    }
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = self.plan;
        let name = self.program.map(|p| format!(" {}", quoted(&p.name))).unwrap_or_default();
        writeln!(f, "plan{name} over {}, layout `{}`", plan.mesh, plan.layout)?;
        let names = self.names();
        let (mut table, mut phase) = (Table::default(), None);
        for id in plan.ids() {
            let node = plan.node(id);
            table.phase(&mut phase, node.phase);
            let mut cells = match node.op {
                Op::Transition(transition) => self.transition(id, transition),
                _ => vec![
                    format!("  {}", left_side(id, node)),
                    format!("  : {}", node.ty),
                    format!("  {}", plan.layout(id).display(&plan.mesh)),
                ],
            };
            cells.push(format!("  slot {}", plan.slots[id.index()]));
            let named = if self.program.is_some() { plan.origins[id.index()] } else { id };
            let names = names.get(&named).map(|n| format!("  # {}", n.join(", ")));
            cells.push(names.unwrap_or_default());
            table.rows.push(Row::Cells(cells));
        }
        write!(f, "{table}")?;
        writeln!(f, "\noutputs:")?;
        for output in &plan.outputs {
            let layout = plan.layout(output.node).display(&plan.mesh);
            let (name, node) = (quoted(&output.name), output.node);
            writeln!(f, "  {name} = {node}, {}, {layout}", role(output.role))?;
        }
        if !plan.pins.is_empty() {
            writeln!(f, "\npins:")?;
            for (name, spec) in &plan.pins {
                writeln!(f, "  {} = {spec}", quoted(name))?;
            }
        }
        Ok(())
    }
}
