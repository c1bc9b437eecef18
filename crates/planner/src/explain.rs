//! Why a transition is there: what made the value lie as it does, who wants it otherwise, and what would change that.

use shardgrad_core::rules::RuleKind;
use shardgrad_core::{Layout, LayoutSpec, Mesh, Op, Placement};
use shardgrad_graph::{NodeId, OutputRole, Phase, Program, Reason};

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
    /// The name of each value that has one.
    pub names: &'a [Option<String>],
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
        let name = describe(self.program, self.names, self.value);
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
        Reason { why, remedy: self.remedy(axis) }
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
                let user_name = describe(self.program, self.names, user);
                let op = &self.program.node(user).op;
                match kinds.get(axis) {
                    Some(RuleKind::Split(label)) => {
                        let fixed = self.fixed(user, axis);
                        format!(
                            "`{op}` for {user_name} splits label `{label}` over `{axis_name}`{fixed}"
                        )
                    }
                    Some(RuleKind::Joint) => {
                        format!("`{op}` for {user_name} adds terms that are pending")
                    }
                    Some(RuleKind::Linear(_) | RuleKind::Monotone) => {
                        format!("`{op}` for {user_name} takes a pending operand")
                    }
                    Some(RuleKind::Replicate) | None => {
                        format!(
                            "`{op}` for {user_name} is computed whole on every rank of `{axis_name}`"
                        )
                    }
                }
            }
            Wanted::Output(index) => {
                let output = &self.program.outputs[index];
                match output.role {
                    OutputRole::Loss => "the loss is wanted whole on every rank".to_owned(),
                    OutputRole::Value => format!("output `{}` is wanted so", output.name),
                    OutputRole::Gradient { of } => {
                        let of = self.names[of.index()].as_deref().unwrap_or("its leaf");
                        format!("output `{}` is wanted in the layout of `{of}`", output.name)
                    }
                    OutputRole::Update { .. } => {
                        format!("the next `{}` must lie as the old one does", output.name)
                    }
                }
            }
            Wanted::Pin => format!("it is pinned to `{}`", self.pin(self.value)),
        }
    }

    /// The pin or split that would remove the transition.
    fn remedy(&self, axis: usize) -> Option<String> {
        let axis_name = self.mesh.axes()[axis].name.as_str();
        let (from, to) = (self.from.on(axis), self.to.on(axis));
        let pin = |id: NodeId, placement: Placement| {
            let name = self.names[id.index()].as_deref()?;
            let spec = LayoutSpec(vec![(axis_name.to_owned(), placement)]);
            Some(format!("pin `{name}` to `{spec}`"))
        };
        let split = |id: NodeId| {
            let layer = self.program.node(id).layer?;
            Some(format!("split layer {layer} otherwise on `{axis_name}`"))
        };
        if self.from_pin {
            return pin(self.value, to).filter(|_| !to.is_pending());
        }
        if self.program.node(self.value).leaf_role().is_some() && !to.is_pending() {
            return pin(self.value, to);
        }
        let by_target = match self.wanted {
            Wanted::Output(index) if !from.is_pending() => match self.program.outputs[index].role {
                OutputRole::Update { of } => pin(of, from),
                OutputRole::Gradient { .. } | OutputRole::Value => pin(self.value, from),
                OutputRole::Loss => None,
            },
            Wanted::Output(_) | Wanted::Pin => None,
            Wanted::Operand(user, ..) => split(user).filter(|_| !from.is_pending()),
        };
        by_target.or_else(|| split(self.value))
    }
}

/// A value's name, or what it is.
#[must_use]
pub fn describe(program: &Program, names: &[Option<String>], id: NodeId) -> String {
    if let Some(name) = &names[id.index()] {
        return format!("`{name}`");
    }
    let node = program.node(id);
    let layer = node.layer.and_then(|l| Some((l, program.layers.get(l as usize)?)));
    match (&node.op, layer) {
        (Op::Einsum(einsum), Some((index, layer))) => {
            let result = einsum.result();
            let what = if node.phase == Phase::Forward {
                "product"
            } else if !layer.batch.iter().any(|l| result.contains(l)) {
                "weight gradient"
            } else if result.contains(&layer.in_label) {
                "input gradient"
            } else {
                "product"
            };
            format!("layer {index}'s {what}")
        }
        _ => format!("{id} ({})", node.op.name()),
    }
}
