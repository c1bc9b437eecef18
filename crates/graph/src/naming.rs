//! What values are called where people read of them.
//!
//! A value has the name that the program gives it; else that of the output it is; else that of what a layer computes by it
//! (`h0·w1`, `grad(w1)`). What has none is said by its op and the nearest name: `exp after h1`, `mul before grad(h0)`, `scale in
//! the update of w1`. Ids stand only where that would be said of two values.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

use shardgrad_core::Op;
use shardgrad_core::ops::Role;

use crate::node::{NodeId, OutputRole, Phase};
use crate::program::Program;

/// What stands before a leaf's name for the value that replaces it.
const NEXT: &str = "next ";

/// The names of a program's values.
#[derive(Debug)]
pub struct Names<'a> {
    program: &'a Program,
    /// The name of each value that has one.
    own: Vec<Option<&'a str>>,
    /// The leaves that values replace, by name.
    next: HashMap<NodeId, &'a str>,
    /// The scalars that become the loss by scalar steps only, and the loss.
    loss: HashSet<NodeId>,
    near: OnceCell<Near>,
}

/// Where values without a name are.
#[derive(Debug)]
struct Near {
    places: Vec<Place>,
    /// The values that are made by an op of this name at a place.
    alike: HashMap<(Place, &'static str), Vec<NodeId>>,
}

/// Where a value without a name is, as close as names tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    /// It is computed from this one.
    After(NodeId),
    /// This one is computed from it.
    Before(NodeId),
    /// It updates a parameter, or several.
    Update(Option<NodeId>),
    /// There is no name near.
    Unknown,
}

/// The parameters whose next values depend on a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Updates {
    Nothing,
    One(NodeId),
    Many,
}

impl<'a> Names<'a> {
    /// The names of a program.
    #[must_use]
    pub fn new(program: &'a Program) -> Self {
        let mut own: Vec<Option<&str>> =
            program.ids().map(|id| program.node(id).leaf_name()).collect();
        for (name, id) in &program.names {
            own[id.index()].get_or_insert(name);
        }
        let mut next = HashMap::new();
        for output in &program.outputs {
            if matches!(output.role, OutputRole::Update { .. }) {
                next.entry(output.node).or_insert(output.name.as_str());
            } else {
                own[output.node.index()].get_or_insert(&output.name);
            }
        }
        Self { program, own, next, loss: into_loss(program), near: OnceCell::new() }
    }

    /// The name that the program gives a value, or an output that is none of a leaf's next value.
    #[must_use]
    pub fn own(&self, id: NodeId) -> Option<&'a str> {
        self.own[id.index()]
    }

    /// What a value is called: `w1`, `h0·w1`, `exp after h1`.
    #[must_use]
    pub fn name(&self, id: NodeId) -> String {
        let op = self.program.node(id).op.name();
        let place = || format!("{op}{}{}", self.place(id), self.number(id, false));
        self.known(id).unwrap_or_else(|| place().replace('`', ""))
    }

    /// The same within a sentence: `` `w1` ``, or `` `exp` after `h1` ``.
    #[must_use]
    pub fn value(&self, id: NodeId) -> String {
        let op = self.program.node(id).op.name();
        let place = || format!("`{op}`{}{}", self.place(id), self.number(id, false));
        self.quoted(id).unwrap_or_else(place)
    }

    /// The op that makes a value, within a sentence: `` `add` for `h1` ``, or `` `exp` after `h1` ``.
    #[must_use]
    pub fn op(&self, id: NodeId) -> String {
        let op = &self.program.node(id).op;
        match self.quoted(id) {
            Some(name) => format!("`{op}` for {name}"),
            None => format!("`{op}`{}{}", self.place(id), self.number(id, true)),
        }
    }

    /// A name within a sentence.
    fn quoted(&self, id: NodeId) -> Option<String> {
        let name = self.known(id)?;
        Some(match name.strip_prefix(NEXT) {
            Some(leaf) if self.own(id).is_none() => format!("the {NEXT}`{leaf}`"),
            _ => format!("`{name}`"),
        })
    }

    /// A name that tells what the value is.
    fn known(&self, id: NodeId) -> Option<String> {
        if let Some(name) = self.own[id.index()] {
            return Some(name.to_owned());
        }
        if let Some(leaf) = self.next.get(&id) {
            return Some(format!("{NEXT}{leaf}"));
        }
        if self.loss.contains(&id) {
            return Some("loss".to_owned());
        }
        self.derived(id)
    }

    /// The name that a layer's contractions and their sums give to a value. The gradient of a value that several layers read
    /// has that of the first term that has one.
    fn derived(&self, id: NodeId) -> Option<String> {
        let (mut terms, mut seen) = (vec![id], HashSet::new());
        while let Some(term) = terms.pop() {
            let node = self.program.node(term);
            if matches!((&node.op, node.phase), (Op::Add, Phase::Backward)) {
                if seen.insert(term) {
                    terms.extend(node.operands.iter().rev());
                }
            } else if let Some(name) = self.of_layer(term) {
                return Some(name);
            }
        }
        None
    }

    /// The name that a layer gives to a value.
    fn of_layer(&self, id: NodeId) -> Option<String> {
        let program = self.program;
        let node = program.node(id);
        let known = |n: NodeId| self.own[n.index()];
        let layer = node.layer.and_then(|l| program.layers.get(l as usize));
        match (&node.op, layer, node.phase) {
            (Op::Einsum(_), Some(layer), Phase::Forward) => {
                Some(format!("{}·{}", known(layer.input).unwrap_or("…"), known(layer.weight)?))
            }
            (Op::Einsum(_), Some(layer), Phase::Backward) => {
                let of = if node.ty == program.node(layer.weight).ty
                    && !node.operands.contains(&layer.weight)
                {
                    layer.weight
                } else {
                    layer.input
                };
                if let Some(of) = known(of) {
                    return Some(format!("grad({of})"));
                }
                Some(format!("grad(input of {})", known(layer.output)?))
            }
            (Op::Add, _, Phase::Forward) => {
                let layer = program.layers.iter().find(|l| self.adds_bias(id, l.bias))?;
                let input = known(layer.input).unwrap_or("…");
                Some(format!("{input}·{} + {}", known(layer.weight)?, known(layer.bias?)?))
            }
            (Op::Sum(_), _, Phase::Backward) => {
                let of = program.outputs.iter().find_map(|o| match o.role {
                    OutputRole::Gradient { of } if o.node == id => Some(of),
                    _ => None,
                });
                let bias =
                    || program.layers.iter().find_map(|l| l.bias.filter(|&b| self.updates(id, b)));
                Some(format!("grad({})", known(of.or_else(bias)?)?))
            }
            _ => None,
        }
    }

    /// Whether a node adds this bias, broadcast, to something.
    fn adds_bias(&self, id: NodeId, bias: Option<NodeId>) -> bool {
        let Some(bias) = bias else { return false };
        self.program.node(id).operands.iter().any(|&operand| {
            let node = self.program.node(operand);
            matches!(node.op, Op::Broadcast(_)) && node.operands.first() == Some(&bias)
        })
    }

    /// Whether a gradient of a leaf's type flows into that leaf's update.
    fn updates(&self, gradient: NodeId, leaf: NodeId) -> bool {
        let program = self.program;
        let Some(update) =
            program.outputs.iter().find(|o| o.role == OutputRole::Update { of: leaf })
        else {
            return false;
        };
        // Walk back through the update's own nodes.
        let mut stack = vec![update.node];
        let mut seen = vec![false; program.nodes.len()];
        while let Some(id) = stack.pop() {
            if id == gradient {
                return true;
            }
            if std::mem::replace(&mut seen[id.index()], true) {
                continue;
            }
            let node = program.node(id);
            if node.phase == Phase::Update || id == update.node {
                stack.extend(node.operands.iter().copied());
            }
        }
        false
    }

    /// Where a value without a name is, as what follows its op's name.
    fn place(&self, id: NodeId) -> String {
        let name = |id: NodeId| self.own[id.index()].unwrap_or_default();
        match self.near().places[id.index()] {
            Place::After(other) => format!(" after `{}`", name(other)),
            Place::Before(other) => format!(" before `{}`", name(other)),
            Place::Update(Some(of)) => format!(" in the update of `{}`", name(of)),
            Place::Update(None) => " in the update".to_owned(),
            Place::Unknown => String::new(),
        }
    }

    /// The id of a value without a name, if another one is at its place whose op has the same name, or is the same.
    fn number(&self, id: NodeId, same: bool) -> String {
        let op = |id: NodeId| &self.program.node(id).op;
        let Near { places, alike } = self.near();
        let others = alike.get(&(places[id.index()], op(id).name())).into_iter().flatten();
        if others.copied().any(|other| other != id && (!same || op(other) == op(id))) {
            format!(" ({id})")
        } else {
            String::new()
        }
    }

    fn near(&self) -> &Near {
        self.near.get_or_init(|| Near::of(self))
    }
}

/// The scalars that become the loss by scalar steps only, and the loss.
fn into_loss(program: &Program) -> HashSet<NodeId> {
    let scalar = |id: &NodeId| program.node(*id).ty.rank() == 0;
    let loss = program.outputs.iter().find(|o| o.role == OutputRole::Loss).map(|o| o.node);
    let mut found = HashSet::new();
    let mut left: Vec<NodeId> = loss.into_iter().filter(scalar).collect();
    while let Some(id) = left.pop() {
        if found.insert(id) {
            left.extend(program.node(id).operands.iter().copied().filter(scalar));
        }
    }
    found
}

impl Near {
    /// The nearest names along operands and along users, the first of those that are equally near.
    fn of(names: &Names<'_>) -> Self {
        let Names { program, own, .. } = names;
        let mut above: Vec<Option<(u32, NodeId)>> = Vec::with_capacity(own.len());
        for id in program.ids() {
            let from = program.node(id).operands.iter().filter_map(|o| above[o.index()]);
            let nearest = from.min_by_key(|&(distance, _)| distance);
            above.push(match own[id.index()] {
                Some(_) => Some((0, id)),
                None => nearest.map(|(distance, of)| (distance + 1, of)),
            });
        }
        let mut below: Vec<Option<(u32, NodeId)>> = vec![None; own.len()];
        let mut updates = vec![Updates::Nothing; own.len()];
        for output in &program.outputs {
            if let OutputRole::Update { of } = output.role
                && program.node(of).leaf_role() == Some(Role::Param)
            {
                updates[output.node.index()] = Updates::One(of);
            }
        }
        for id in program.ids().rev() {
            if own[id.index()].is_some() {
                below[id.index()] = Some((0, id));
            }
            for operand in &program.node(id).operands {
                let at = operand.index();
                if let Some((distance, of)) = below[id.index()]
                    && below[at].is_none_or(|(known, _)| distance < known)
                {
                    below[at] = Some((distance + 1, of));
                }
                updates[at] = match (updates[at], updates[id.index()]) {
                    (known, Updates::Nothing) => known,
                    (Updates::Nothing, of) => of,
                    (known, of) if known == of => known,
                    _ => Updates::Many,
                };
            }
        }
        let mut places = Vec::with_capacity(own.len());
        let mut alike: HashMap<(Place, &'static str), Vec<NodeId>> = HashMap::new();
        for id in program.ids() {
            let node = program.node(id);
            let after = above[id.index()].map(|(_, of)| Place::After(of));
            let before = below[id.index()].map(|(_, of)| Place::Before(of));
            let update = match updates[id.index()] {
                Updates::One(of) => Some(Place::Update(Some(of))),
                Updates::Many => Some(Place::Update(None)),
                Updates::Nothing => None,
            };
            let place = match node.phase {
                Phase::Forward => after.or(before),
                Phase::Backward => before.or(after),
                Phase::Update => update.or(before).or(after),
            };
            let place = place.unwrap_or(Place::Unknown);
            places.push(place);
            if own[id.index()].is_none() {
                alike.entry((place, node.op.name())).or_default().push(id);
            }
        }
        Self { places, alike }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optim::Optimizer;
    use crate::{Activation, Graph, LayerSpec, Loss, MlpSpec};
    use shardgrad_core::DType;

    fn program() -> Program {
        let layer = |inputs, outputs| LayerSpec {
            inputs,
            outputs,
            bias: true,
            activation: Activation::Relu,
        };
        MlpSpec {
            layers: vec![layer(6, 5), layer(5, 3)],
            loss: Loss::CrossEntropy,
            optimizer: Optimizer::named("adam").unwrap(),
            ..MlpSpec::new("named", 4)
        }
        .training_program()
        .unwrap()
    }

    /// Every value has a name of its own or a place, and no two are called alike but for those that become the loss and what
    /// layers make of equal things.
    #[test]
    fn values_are_told_apart_in_the_users_terms() {
        let program = program();
        let names = Names::new(&program);
        let all: Vec<String> = program.ids().map(|id| names.value(id)).collect();
        for (i, name) in all.iter().enumerate() {
            let others = all.iter().filter(|other| *other == name).count();
            assert!(others == 1 || name == "`loss`", "{name} is said of {others}, %{i} among them");
        }
        for expected in [
            "`h0·w1`",
            "`h0·w1 + b1`",
            "`grad(w1)`",
            "the next `w1`",
            "`broadcast` after `b0`",
            "`sqrt` in the update of `w0`",
        ] {
            assert!(all.iter().any(|name| name == expected), "{expected}: {all:#?}");
        }
        let scale = program.ids().find(|&id| names.value(id).starts_with("`sqrt`")).unwrap();
        assert_eq!(names.name(scale).matches('`').count(), 0);
        assert!(names.op(scale).starts_with("`sqrt` in the update of"), "{}", names.op(scale));
        // Ops of one name that differ are told apart by what they do.
        let scales = program.ids().map(|id| (names.value(id), names.op(id)));
        let scales: Vec<_> =
            scales.filter(|(_, op)| op.contains("in the update of `w0`")).collect();
        assert!(scales.iter().any(|(value, _)| value.contains('%')), "{scales:#?}");
        assert!(scales.iter().filter(|(_, op)| op.starts_with("`scale(")).count() > 1);
        assert!(!scales.iter().any(|(_, op)| op.starts_with("`scale(") && op.contains('%')));
        assert_eq!(names.op(program.named("h0").unwrap()), "`relu` for `h0`");
    }

    /// Scalars that are added to themselves over and over have 2^60 ways to the loss, and sums of gradients are deep.
    #[test]
    fn tangled_and_deep_sums_are_named() {
        let g = Graph::new("tangle", DType::F32);
        let mut sum = g.input("x", [2, 2]).unwrap().sum(&[0, 1]).unwrap();
        let first = sum.id();
        for _ in 0..60 {
            sum = sum.add(sum).unwrap();
        }
        g.output("y", sum, OutputRole::Loss).unwrap();
        let w = g.param("w", [2]).unwrap();
        g.set_phase(Phase::Backward);
        let mut deep = w;
        let mut last = w.id();
        for _ in 0..50_000 {
            last = deep.id();
            deep = deep.add(w).unwrap();
        }
        g.output("deep", deep, OutputRole::Value).unwrap();
        let program = g.finish();
        let names = Names::new(&program);
        assert_eq!(names.value(first), "`loss`");
        assert!(names.value(last).starts_with("`add` before `deep`"), "{}", names.value(last));
    }

    /// What updates all parameters is said of none.
    #[test]
    fn what_is_shared_by_all_updates_is_of_none() {
        let spec = MlpSpec { clip_norm: Some(1.0), ..spec_of() };
        let program = spec.training_program().unwrap();
        let names = Names::new(&program);
        let all: Vec<String> = program.ids().map(|id| names.value(id)).collect();
        assert!(all.iter().any(|name| name.contains(" in the update (")), "{all:#?}");
    }

    fn spec_of() -> MlpSpec {
        let layer = LayerSpec { inputs: 6, outputs: 5, bias: false, activation: Activation::None };
        MlpSpec {
            layers: vec![layer.clone(), LayerSpec { inputs: 5, outputs: 3, ..layer }],
            optimizer: Optimizer::named("sgd").unwrap(),
            ..MlpSpec::new("clipped", 4)
        }
    }
}
