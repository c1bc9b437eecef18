//! The checker: whether a plan computes its program, shown without search and without trusting whoever made the plan.
//!
//! A plan is right if
//!
//! 1. every node's layouts satisfy a rule of its op, or are the two ends of its transition;
//! 2. *erasure* to the program keeps op, attributes and operands of every node, a transition mapping to its operand's
//!    origin: an op may be repeated in several layouts, and nothing else may change;
//! 3. outputs, pins, stored values and values carried from step to step have the layouts that are demanded;
//! 4. slots, executed symbolically in node order, hold what each node reads when it reads it; collectives that run as one
//!    launch are of one kind over one group and independent of each other; and nobody touches the slots of a collective
//!    between its start and its wait.
//!
//! From (1) and (2) it follows by induction over nodes that every node holds, in its layout, the value of its origin:
//! a rule says that the op on local blocks gives a block (or term) of the op's global result, and a transition keeps the
//! global value. A missing gradient reduction leaves a `P` where a rule wants `R`; a second `all_reduce` meets an `R`,
//! from which no such transition leads.
//!
//! The checker shares [`shardgrad_core`]'s tables with everybody else and nothing with planners. It reports all
//! violations; only a structurally malformed plan or program ([`crate::validate`]) ends it early. What is right but
//! wasteful is a lint.

mod boundary;
mod erasure;
mod launches;
mod lints;
mod local;
pub mod optimality;
mod pins;
mod schedule;

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::node::NodeId;
use crate::plan::Plan;
use crate::program::Program;

/// All codes of violations (`C…`) and lints (`L…`), with what each means.
pub const CODES: &[(&str, &str)] = &[
    ("C001", "the program is malformed: an id, a type, an attribute or an output is not sound"),
    ("C002", "the plan is malformed: an id, a type, a layout, a slot or an output is not sound"),
    ("C003", "a node's origin is not a node of the program"),
    ("C010", "no placement rule of the op admits the layouts of operands and result on some axis"),
    ("C011", "a label is split over axes, but its blocks do not line up in all dims that carry it"),
    ("C012", "no single transition leads from the layout before to the layout after"),
    ("C013", "a transition is not of the kind, or not over the axes, that its layouts call for"),
    ("C014", "a collective cannot be carried out by the algorithm that the plan names"),
    ("C020", "a node's op, attributes or type are not those of its origin"),
    ("C021", "a node's operands are not values of its origin's operands, in order"),
    ("C022", "a transition has another origin than its operand"),
    ("C023", "a leaf stands in the plan more than once"),
    ("C030", "an output of the program is missing, out of order, or the plan has one too many"),
    ("C031", "an output's role, or the leaf that it belongs to, is not the program's"),
    ("C032", "an output's node does not hold the output's value"),
    ("C033", "an output is pending on an axis where no pin says so"),
    ("C034", "the loss is not replicated on an axis where no pin says otherwise"),
    (
        "C035",
        "a gradient does not have its leaf's placement on an axis where no pin says otherwise",
    ),
    ("C036", "an update does not have the layout of the leaf that it replaces"),
    ("C037", "a stored value is pending"),
    ("C038", "a scalar is not replicated"),
    (
        "C040",
        "a pin names a value or an axis that does not exist, or contradicts the program's pin",
    ),
    ("C041", "a pinned leaf or output does not have its pinned layout"),
    ("C042", "a node reads a pinned value that did not pass through its pinned layout"),
    ("C050", "a slot no longer holds, or does not hold yet, the value that a node reads from it"),
    ("C051", "an alias does not live in its operand's slot"),
    ("C052", "a slot is used again by a node that cannot overwrite what was in it"),
    ("C053", "a result overwrites an operand whose local type differs on some rank"),
    ("C054", "a leaf is overwritten by something else than its own update"),
    ("C055", "an output's slot holds another value at the end of the step"),
    ("C056", "a slot is freed twice, before its first use, or not at all"),
    ("C060", "the certificate is malformed"),
    ("C061", "the plan is not of the space that its certificate speaks of"),
    ("C062", "a bag of the certificate claims a larger minimum than its factors have"),
    ("C063", "the minima of the certificate's bags add up to less than the bound it claims"),
    ("C064", "the plan costs something else than its certificate says"),
    ("C065", "the certificate is too large to be verified"),
    (
        "C070",
        "a bucket has fewer than two members, names one twice, or they do not follow each other",
    ),
    ("C071", "a member of a bucket is no collective that can share a launch"),
    (
        "C072",
        "members of a bucket differ in kind, axes, algorithm, element type, reduction or group",
    ),
    ("C073", "a member of a bucket reads another's result, or two of them use one slot"),
    ("C074", "a wait is for no launch, or does not stand behind its start at the end of a step"),
    ("C075", "a node touches a slot of a collective between its start and its wait"),
    ("L001", "transitions lead back to a layout that the value already had"),
    ("L002", "no output needs the node"),
    ("L003", "no output needs the result of the collective"),
    ("L004", "the same transition of the same node is made twice"),
    ("L005", "an output is pending because a pin says so: whoever reads it must reduce it"),
];

/// One way in which a plan is not right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Stable code, one of [`CODES`].
    pub code: &'static str,
    /// The plan's node at fault, if it is one node.
    pub node: Option<NodeId>,
    /// What was found, what is legal, what to do; one line.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

/// What the checker found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Every violation; the plan is right if there is none.
    pub violations: Vec<Violation>,
    /// What is right but wasteful.
    pub lints: Vec<Violation>,
}

impl Report {
    /// Whether the plan is right.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.violations.is_empty()
    }

    /// Codes of the violations, in order of report.
    #[must_use]
    pub fn codes(&self) -> Vec<&'static str> {
        self.violations.iter().map(|v| v.code).collect()
    }
}

impl fmt::Display for Report {
    /// One line each; violations before lints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for found in self.violations.iter().chain(&self.lints) {
            writeln!(f, "{found}")?;
        }
        Ok(())
    }
}

/// Checks a plan against its program and reports all violations.
#[must_use]
pub fn check(plan: &Plan, program: &Program) -> Report {
    let mut report = Report::default();
    let malformed = [("C001", "program", program.faults()), ("C002", "plan", plan.faults())];
    for (code, what, faults) in malformed {
        for fault in faults {
            let message = format!("{what}: {fault}");
            report.violations.push(Violation { code, node: fault.node, message });
        }
    }
    if plan.origins.len() == plan.nodes.len() {
        for (id, origin) in plan.ids().zip(&plan.origins) {
            if origin.index() >= program.nodes.len() {
                let count = program.nodes.len();
                let message = format!(
                    "node {id} has origin {origin}, but the program has {count} nodes; name the node whose value it is"
                );
                report.violations.push(Violation { code: "C003", node: Some(id), message });
            }
        }
    }
    if !report.violations.is_empty() {
        return report;
    }
    let mut subject = Subject::new(plan, program);
    local::check(&mut subject);
    erasure::check(&mut subject);
    boundary::check(&mut subject);
    pins::check(&mut subject);
    launches::check(&mut subject);
    schedule::check(&mut subject);
    lints::check(&mut subject);
    subject.report
}

/// What is being checked; all ids in it are in range.
struct Subject<'a> {
    plan: &'a Plan,
    program: &'a Program,
    /// A name of each program node that has one.
    names: BTreeMap<NodeId, &'a str>,
    /// Plan nodes that hold the value of each program node, in order.
    copies: Vec<Vec<NodeId>>,
    /// Plan nodes that read each plan node, in order.
    readers: Vec<Vec<NodeId>>,
    report: Report,
}

impl<'a> Subject<'a> {
    fn new(plan: &'a Plan, program: &'a Program) -> Self {
        let mut names: BTreeMap<NodeId, &str> = BTreeMap::new();
        for (name, id) in &program.names {
            if program.node(*id).leaf_name().is_none_or(|leaf| leaf == name) {
                names.entry(*id).or_insert(name);
            }
        }
        let mut copies = vec![Vec::new(); program.nodes.len()];
        let mut readers = vec![Vec::new(); plan.nodes.len()];
        for id in plan.ids() {
            copies[plan.origins[id.index()].index()].push(id);
            for operand in &plan.node(id).operands {
                readers[operand.index()].push(id);
            }
        }
        Self { plan, program, names, copies, readers, report: Report::default() }
    }

    fn violation(&mut self, code: &'static str, node: Option<NodeId>, message: String) {
        self.report.violations.push(Violation { code, node, message });
    }

    fn lint(&mut self, code: &'static str, node: NodeId, message: String) {
        self.report.lints.push(Violation { code, node: Some(node), message });
    }

    /// The program node whose value a plan node holds.
    fn origin(&self, id: NodeId) -> NodeId {
        self.plan.origins[id.index()]
    }

    /// A plan node for messages: `%7 all_reduce of h0`, `%3 relu`.
    fn show(&self, id: NodeId) -> String {
        let op = self.plan.node(id).op.name();
        match self.names.get(&self.origin(id)) {
            Some(name) => format!("{id} {op} of `{name}`"),
            None => format!("{id} {op}"),
        }
    }

    /// A program node for messages: `%7 (h0)`.
    fn show_origin(&self, origin: NodeId) -> String {
        match self.names.get(&origin) {
            Some(name) => format!("{origin} (`{name}`)"),
            None => format!("{origin} ({})", self.program.node(origin).op.name()),
        }
    }

    /// A plan node's layout for messages.
    fn layout(&self, id: NodeId) -> String {
        self.plan.layout(id).display(&self.plan.mesh).to_string()
    }

    /// Name of a mesh axis.
    fn axis(&self, axis: usize) -> &'a str {
        &self.plan.mesh.axes()[axis].name
    }
}
