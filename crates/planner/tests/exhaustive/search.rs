//! Exhaustive search over all plans of a small program, written without the planner's code.

use std::collections::HashMap;

use shardgrad_core::rules::{RuleKind, check};
use shardgrad_core::transition::all_layouts;
use shardgrad_core::{Layout, Mesh, Op, TensorType, Transition, cost, geometry::largest_block};
use shardgrad_graph::{Node, NodeId, OutputRole, Program};
use shardgrad_planner::demands::Demands;
use shardgrad_planner::{Cost, LayoutRequest};

/// Whether the node is a contraction.
pub(crate) fn contracts(node: &Node) -> bool {
    matches!(&node.op, Op::Einsum(e) if e.operands().len() == 2
        && e.operands().iter().flatten().any(|l| !e.result().contains(l)))
}

fn add(a: Cost, b: Cost) -> Cost {
    Cost {
        bytes: a.bytes + b.bytes,
        collectives: a.collectives + b.collectives,
        flops: a.flops + b.flops,
        copies: a.copies + b.copies,
    }
}

/// One way to compute a node.
struct Way {
    operands: Vec<Layout>,
    result: Layout,
    cost: Cost,
}

/// All plans of a program.
pub(crate) struct Exhaustive<'a> {
    program: &'a Program,
    mesh: &'a Mesh,
    demands: Demands,
    ways: Vec<Vec<Way>>,
    covers: HashMap<(TensorType, Layout, Vec<Layout>), Option<Cost>>,
    edges: HashMap<TensorType, Vec<Option<Cost>>>,
    best: Option<Cost>,
}

impl<'a> Exhaustive<'a> {
    pub(crate) fn new(
        program: &'a Program,
        mesh: &'a Mesh,
        request: &LayoutRequest,
        allowed: impl Fn(&Node, &[RuleKind]) -> bool,
    ) -> Self {
        let demands = Demands::resolve(program, mesh, request).unwrap();
        let ways = program.ids().map(|id| ways(program, mesh, &demands, id, &allowed)).collect();
        Self {
            program,
            mesh,
            demands,
            ways,
            covers: HashMap::new(),
            edges: HashMap::new(),
            best: None,
        }
    }

    /// The least cost of any plan.
    pub(crate) fn least(mut self) -> Cost {
        // A value's transitions are known once its last reader's layouts are.
        let mut closes: Vec<Vec<NodeId>> = vec![Vec::new(); self.program.nodes.len()];
        for id in self.program.ids() {
            let readers =
                self.program.ids().filter(|&u| self.program.node(u).operands.contains(&id));
            let leaves =
                self.program.outputs.iter().filter(|o| o.node == id).filter_map(|o| match o.role {
                    OutputRole::Gradient { of } | OutputRole::Update { of } => Some(of),
                    OutputRole::Loss | OutputRole::Value => None,
                });
            let last = readers.chain(leaves).chain([id]).max().unwrap_or(id);
            closes[last.index()].push(id);
        }
        self.choose(&closes, &mut Vec::new(), Cost::default());
        self.best.unwrap()
    }

    /// Tries every way of every node. Costs only add up, so a start that is no better than a whole plan is left.
    fn choose(&mut self, closes: &[Vec<NodeId>], chosen: &mut Vec<usize>, so_far: Cost) {
        let at = chosen.len();
        if at == self.program.nodes.len() {
            self.best = Some(so_far);
            return;
        }
        for way in 0..self.ways[at].len() {
            chosen.push(way);
            let mut total = Some(add(so_far, self.ways[at][way].cost));
            for &value in &closes[at] {
                total = total.zip(self.value(value, chosen)).map(|(a, b)| add(a, b));
            }
            if let Some(total) = total
                && self.best.is_none_or(|best| total < best)
            {
                self.choose(closes, chosen, total);
            }
            chosen.pop();
        }
    }

    /// What carrying a value to all its readers costs.
    fn value(&mut self, id: NodeId, chosen: &[usize]) -> Option<Cost> {
        let program = self.program;
        let made = self.ways[id.index()][chosen[id.index()]].result.clone();
        let mut wanted: Vec<Layout> = Vec::new();
        for user in program.ids() {
            let operands = &program.node(user).operands;
            for (position, _) in operands.iter().enumerate().filter(|(_, o)| **o == id) {
                let way = &self.ways[user.index()][chosen[user.index()]];
                wanted.push(way.operands[position].clone());
            }
        }
        let mut open = 0;
        for output in program.outputs.iter().filter(|o| o.node == id) {
            match output.role {
                OutputRole::Loss => wanted.push(Layout::replicated(self.mesh.rank())),
                OutputRole::Value => open += 1,
                OutputRole::Gradient { of } | OutputRole::Update { of } => {
                    wanted.push(self.ways[of.index()][chosen[of.index()]].result.clone());
                }
            }
        }
        assert!(open <= 1);
        let ty = &program.node(id).ty;
        let leaf = program.node(id).leaf_role().is_some();
        let pin = self.demands.values.get(&id).filter(|_| !leaf).cloned();
        let ends: Vec<Option<Layout>> = if open == 0 {
            vec![None]
        } else {
            all_layouts(self.mesh, ty.rank(), false).into_iter().map(Some).collect()
        };
        let starts: Vec<Option<Layout>> = match &pin {
            None => vec![None],
            Some(pin) => {
                let fits = |l: &Layout| pin.admits(l, self.mesh);
                let layouts = all_layouts(self.mesh, ty.rank(), true);
                layouts.into_iter().filter(fits).map(Some).collect()
            }
        };
        let mut least: Option<Cost> = None;
        for start in &starts {
            for end in &ends {
                let set: Vec<Layout> = wanted.iter().chain(end).cloned().collect();
                let cost = match start {
                    None => self.cover(ty, &made, &set),
                    Some(pin) => {
                        let way = self.cover(ty, &made, std::slice::from_ref(pin));
                        let rest = self.cover(ty, pin, &set);
                        way.zip(rest).map(|(a, b)| add(a, b))
                    }
                };
                least = [least, cost].into_iter().flatten().min();
            }
        }
        least
    }

    /// The cheapest arborescence from a root over a set, with all further layouts in it on one axis, up to two on more.
    fn cover(&mut self, ty: &TensorType, root: &Layout, set: &[Layout]) -> Option<Cost> {
        let mut set: Vec<Layout> = set.to_vec();
        set.sort();
        set.dedup();
        set.retain(|l| l != root);
        let key = (ty.clone(), root.clone(), set);
        if let Some(known) = self.covers.get(&key) {
            return *known;
        }
        let all = all_layouts(self.mesh, ty.rank(), true);
        let mesh = self.mesh;
        let edges = self.edges.entry(ty.clone()).or_insert_with(|| edges(mesh, ty, &all));
        let number = |l: &Layout| all.iter().position(|other| other == l).unwrap();
        let terminals: Vec<usize> = [root].into_iter().chain(&key.2).map(number).collect();
        let others: Vec<usize> = (0..all.len()).filter(|i| !terminals.contains(i)).collect();
        let most = if mesh.rank() == 1 { others.len() } else { 2 };
        let mut extras: Vec<Vec<usize>> = vec![Vec::new()];
        let mut level = 0..1;
        for _ in 0..most {
            for i in level.clone() {
                let last = extras[i].last().copied();
                for &other in others.iter().filter(|o| last.is_none_or(|l| **o > l)) {
                    let mut longer = extras[i].clone();
                    longer.push(other);
                    extras.push(longer);
                }
            }
            level = level.end..extras.len();
        }
        let with = |extra: &Vec<usize>| {
            let nodes: Vec<usize> = terminals.iter().chain(extra).copied().collect();
            arborescence(&nodes, |from, to| edges[from * all.len() + to])
        };
        let least = extras.iter().filter_map(with).min();
        self.covers.insert(key, least);
        least
    }
}

/// What each single transition costs.
fn edges(mesh: &Mesh, ty: &TensorType, all: &[Layout]) -> Vec<Option<Cost>> {
    let mut edges = Vec::new();
    for from in all {
        for to in all {
            edges.push(Transition::between(mesh, from, to).ok().map(|transition| Cost {
                bytes: transition.bytes_sent(mesh, ty, from, to),
                collectives: transition.weight(from, to),
                flops: 0,
                copies: (largest_block(&ty.shape, to, mesh) * ty.dtype.size()) as u64,
            }));
        }
    }
    edges
}

/// The cheapest way to make all these layouts one after another, each from one that is there; the first is.
fn arborescence(nodes: &[usize], edge: impl Fn(usize, usize) -> Option<Cost>) -> Option<Cost> {
    let n = nodes.len();
    let mut best: Vec<Option<Cost>> = vec![None; 1 << n];
    best[1] = Some(Cost::default());
    for made in 1..1_usize << n {
        let Some(so_far) = best[made] else { continue };
        for to in (0..n).filter(|to| made >> to & 1 == 0) {
            for from in (0..n).filter(|from| made >> from & 1 == 1) {
                let Some(step) = edge(nodes[from], nodes[to]) else { continue };
                let total = add(so_far, step);
                let entry = &mut best[made | 1 << to];
                if entry.is_none_or(|e| total < e) {
                    *entry = Some(total);
                }
            }
        }
    }
    best[(1 << n) - 1]
}

/// All layouts of operands and result that the rules admit.
fn ways(
    program: &Program,
    mesh: &Mesh,
    demands: &Demands,
    id: NodeId,
    allowed: &impl Fn(&Node, &[RuleKind]) -> bool,
) -> Vec<Way> {
    let node = program.node(id);
    let types = program.operand_types(id);
    let mut operand_layouts: Vec<Vec<Layout>> = vec![Vec::new()];
    for ty in &types {
        operand_layouts = operand_layouts
            .into_iter()
            .flat_map(|head| {
                all_layouts(mesh, ty.rank(), true).into_iter().map(move |l| {
                    let mut longer = head.clone();
                    longer.push(l);
                    longer
                })
            })
            .collect();
    }
    let leaf = node.leaf_role().is_some();
    let mut ways = Vec::new();
    for operands in operand_layouts {
        for result in all_layouts(mesh, node.ty.rank(), true) {
            let by_ref: Vec<&Layout> = operands.iter().collect();
            let Ok(kinds) = check(&node.op, mesh, &types, &node.ty, &by_ref, &result) else {
                continue;
            };
            let stored = demands.values.get(&id).filter(|_| leaf);
            if !allowed(node, &kinds) || stored.is_some_and(|d| !d.admits(&result, mesh)) {
                continue;
            }
            let block = largest_block(&node.ty.shape, &result, mesh) * node.ty.dtype.size();
            ways.push(Way {
                cost: Cost {
                    flops: cost::flops(&node.op, mesh, &types, &node.ty, &by_ref, &result),
                    copies: if node.op.is_alias() { 0 } else { block as u64 },
                    ..Cost::default()
                },
                operands: operands.clone(),
                result,
            });
        }
    }
    ways
}
