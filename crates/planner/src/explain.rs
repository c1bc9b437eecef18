//! Why a transition is there: what made the value lie as it does, and who wants it otherwise.

use shardgrad_core::rules::RuleKind;
use shardgrad_core::{Layout, LayoutSpec, Mesh, Op};
use shardgrad_graph::{Names, NodeId, OutputRole, Program, Reason};

use crate::demands::Demands;

/// Who wants a value in a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// An operand of this node, computed by these rules.
    Operand(NodeId, usize, &'a [RuleKind]),
    /// The output with this index.
    Output(usize),
    /// The pin on the value.
    Pin,
}

/// A transition to explain.
#[derive(Clone, Debug)]
pub struct Subject<'a> {
    /// The program.
    pub program: &'a Program,
    /// What was asked for.
    pub demands: &'a Demands,
    /// What its values are called.
    pub names: &'a Names<'a>,
    /// The mesh.
    pub mesh: &'a Mesh,
    /// The value that changes its layout.
    pub value: NodeId,
    /// The rules by which it was made.
    pub made: &'a [RuleKind],
    /// Whether it comes from a pinned layout.
    pub from_pin: bool,
    /// Layout before.
    pub from: &'a Layout,
    /// Layout after.
    pub to: &'a Layout,
    /// The first that wants it.
    pub wanted: Wanted<'a>,
}

impl Subject<'_> {
    /// The reason.
    #[must_use]
    pub fn reason(&self) -> Reason {
        let name = self.names.value(self.value);
        let axes: Vec<usize> =
            (0..self.mesh.rank()).filter(|&a| self.from.on(a) != self.to.on(a)).collect();
        let Some(&axis) = axes.iter().find(|&&a| self.mesh.axis_size(a) > 1).or(axes.first())
        else {
            return Reason::default();
        };
        let names: Vec<&str> = axes.iter().map(|&a| self.mesh.axes()[a].name.as_str()).collect();
        let list = |layout: &Layout| {
            axes.iter().map(|&a| layout.on(a).to_string()).collect::<Vec<_>>().join(", ")
        };
        let why = format!(
            "{name} is {} on {} because {}; {}, which makes it {}",
            list(self.from),
            names.join(", "),
            self.origin(axis),
            self.target(axis),
            list(self.to),
        );
        Reason { why }
    }

    /// What made the value lie as it does on an axis.
    fn origin(&self, axis: usize) -> String {
        let node = self.program.node(self.value);
        let axis_name = &self.mesh.axes()[axis].name;
        if self.from_pin {
            return format!("it is pinned to `{}`", self.pin(self.value));
        }
        if matches!(node.op, Op::Leaf(_)) {
            let fixed = self.demands.values.get(&self.value).and_then(|v| v.on(axis)).is_some();
            return if fixed {
                format!("it is stored so, pinned to `{}`", self.pin(self.value))
            } else {
                "it is stored so, which is cheapest".to_owned()
            };
        }
        match self.made.get(axis) {
            Some(RuleKind::Split(label)) if self.from.on(axis).is_pending() => {
                let fixed = self.fixed(self.value, axis);
                format!(
                    "`{}` shares the reduced label `{label}` over `{axis_name}`{fixed}",
                    node.op
                )
            }
            Some(RuleKind::Split(label)) => {
                let fixed = self.fixed(self.value, axis);
                format!("`{}` splits label `{label}` over `{axis_name}`{fixed}", node.op)
            }
            Some(RuleKind::Linear(_) | RuleKind::Joint | RuleKind::Monotone) => {
                format!("`{}` passes a pending operand through", node.op)
            }
            Some(RuleKind::Replicate) | None => {
                format!("every rank of `{axis_name}` computes it whole")
            }
        }
    }

    /// The demand on a value, as a pin.
    fn pin(&self, id: NodeId) -> LayoutSpec {
        self.demands.values.get(&id).map(|v| v.spec(self.mesh)).unwrap_or_default()
    }

    /// What fixes the split of a layer's contraction on an axis, if something does.
    fn fixed(&self, id: NodeId, axis: usize) -> String {
        let split = self.program.node(id).layer.and_then(|layer| {
            let split = *self.demands.splits.get(layer as usize)?.get(axis)?;
            Some((layer, split?))
        });
        split.map_or(String::new(), |(layer, split)| {
            format!(" (the layout splits layer {layer} by `{}` there)", split.name())
        })
    }

    /// Who wants it otherwise on an axis.
    fn target(&self, axis: usize) -> String {
        let axis_name = &self.mesh.axes()[axis].name;
        match self.wanted {
            Wanted::Operand(user, _, kinds) => {
                let op = self.names.op(user);
                match kinds.get(axis) {
                    Some(RuleKind::Split(label)) => {
                        let fixed = self.fixed(user, axis);
                        format!("{op} splits label `{label}` over `{axis_name}`{fixed}")
                    }
                    Some(RuleKind::Joint) => {
                        format!("{op} adds terms that are pending")
                    }
                    Some(RuleKind::Linear(_) | RuleKind::Monotone) => {
                        format!("{op} takes a pending operand")
                    }
                    Some(RuleKind::Replicate) | None => {
                        format!("{op} is computed whole on every rank of `{axis_name}`")
                    }
                }
            }
            Wanted::Output(index) => {
                let output = &self.program.outputs[index];
                match output.role {
                    OutputRole::Loss => "the loss is wanted whole on every rank".to_owned(),
                    OutputRole::Value => format!("output `{}` is wanted so", output.name),
                    OutputRole::Gradient { of } => {
                        let of = self.names.value(of);
                        format!("output `{}` is wanted in the layout of {of}", output.name)
                    }
                    OutputRole::Update { .. } => {
                        format!("the next `{}` must lie as the old one does", output.name)
                    }
                }
            }
            Wanted::Pin => format!("it is pinned to `{}`", self.pin(self.value)),
        }
    }
}
