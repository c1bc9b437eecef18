//! Making programs: a [`Graph`] collects nodes, a [`Var`] is a copyable handle on one.
//!
//! Every builder op checks its operands at once and returns a `Result` that names the op, the operands' types and the
//! caller's place in the source. The ops are methods, by kind in the files of this folder.

mod arithmetic;
mod contraction;
mod indices;
mod order;
mod reduce;
mod shape;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::panic::Location;

use shardgrad_core::ops::{Const, Fill, Leaf, Role};
use shardgrad_core::{DType, LayoutSpec, Mesh, Op, Shape, TensorType};

use crate::error::Error;
use crate::node::{Node, NodeId, Output, OutputRole, Phase};
use crate::program::{Half, Layer, Program};
use crate::start::Start;

/// A program under construction.
///
/// ```
/// use shardgrad_core::DType;
/// use shardgrad_graph::Graph;
/// let g = Graph::new("product", DType::F32);
/// let x = g.input("x", [4, 3])?;
/// let w = g.param("w", [3, 2])?;
/// let y = x.matmul(w)?;
/// assert_eq!(y.ty().to_string(), "f32[4, 2]");
/// assert!(x.matmul(x).is_err());
/// # Ok::<(), shardgrad_graph::Error>(())
/// ```
#[derive(Debug)]
pub struct Graph {
    name: String,
    dtype: DType,
    nodes: RefCell<Vec<Node>>,
    names: RefCell<BTreeMap<String, NodeId>>,
    layers: RefCell<Vec<Layer>>,
    outputs: RefCell<Vec<Output>>,
    pins: RefCell<BTreeMap<String, LayoutSpec>>,
    /// Initial values of parameters that want others than usual.
    starts: RefCell<BTreeMap<String, Start>>,
    /// The mesh that typed tensors lie on, once there are any.
    mesh: OnceCell<Mesh>,
    /// Phase of nodes that are made now.
    phase: Cell<Phase>,
    /// Layer of contractions and look-ups that are made now.
    layer: Cell<Option<u32>>,
    /// The stream of the next random numbers.
    streams: Cell<u32>,
}

/// A handle on a node of a [`Graph`].
#[derive(Clone, Copy)]
pub struct Var<'g> {
    graph: &'g Graph,
    id: NodeId,
}

impl std::fmt::Debug for Var<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.id, self.ty())
    }
}

impl Graph {
    /// An empty program whose float values have this type (`F32` or `F64`).
    #[must_use]
    pub fn new(name: &str, dtype: DType) -> Self {
        Self {
            name: name.to_owned(),
            dtype,
            nodes: RefCell::default(),
            names: RefCell::default(),
            layers: RefCell::default(),
            outputs: RefCell::default(),
            pins: RefCell::default(),
            starts: RefCell::default(),
            mesh: OnceCell::new(),
            phase: Cell::new(Phase::Forward),
            layer: Cell::new(None),
            streams: Cell::new(0),
        }
    }

    /// The float type of the program.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Phase of the nodes that are made from now on; returns the one before.
    pub fn set_phase(&self, phase: Phase) -> Phase {
        self.phase.replace(phase)
    }

    /// Layer that contractions made from now on belong to; returns the one before.
    pub(crate) fn set_layer(&self, layer: Option<u32>) -> Option<u32> {
        self.layer.replace(layer)
    }

    /// Applies an op.
    ///
    /// # Errors
    /// The op refuses its operands, or they come from another graph.
    #[track_caller]
    pub fn apply(&self, op: Op, operands: &[Var<'_>]) -> Result<Var<'_>, Error> {
        let at = Location::caller();
        if operands.iter().any(|v| !std::ptr::eq(v.graph, self)) {
            return Err(Error::ForeignVar { op: op.name(), at });
        }
        let mut nodes = self.nodes.borrow_mut();
        let types: Vec<TensorType> =
            operands.iter().map(|v| nodes[v.id.index()].ty.clone()).collect();
        let ty = op.infer(&types).map_err(|source| Error::Op { source, at })?;
        let of_layer = op.signature(&types, &ty).can_belong_to_a_layer();
        let id = NodeId::from_index(nodes.len());
        nodes.push(Node {
            op,
            operands: operands.iter().map(|v| v.id).collect(),
            ty,
            phase: self.phase.get(),
            layer: self.layer.get().filter(|_| of_layer),
        });
        Ok(Var { graph: self, id })
    }

    /// A handle on an existing node.
    #[must_use]
    pub fn var(&self, id: NodeId) -> Var<'_> {
        Var { graph: self, id }
    }

    /// A copy of a node.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Node {
        self.nodes.borrow()[id.index()].clone()
    }

    /// Number of nodes so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.borrow().len()
    }

    /// Whether there is no node yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A named stored value of any role and type.
    ///
    /// # Errors
    /// The name is taken, or an extent is 0.
    #[track_caller]
    pub fn leaf(&self, name: &str, role: Role, ty: TensorType) -> Result<Var<'_>, Error> {
        let at = Location::caller();
        if self.names.borrow().contains_key(name) {
            return Err(Error::RepeatedName { name: name.to_owned(), at });
        }
        let var = self.apply(Op::Leaf(Leaf { name: name.to_owned(), role, ty }), &[])?;
        self.names.borrow_mut().insert(name.to_owned(), var.id);
        Ok(var)
    }

    /// A float input.
    ///
    /// # Errors
    /// As [`Graph::leaf`].
    #[track_caller]
    pub fn input(
        &self,
        name: &str,
        shape: impl IntoIterator<Item = usize>,
    ) -> Result<Var<'_>, Error> {
        self.leaf(name, Role::Input, TensorType::new(shape, self.dtype))
    }

    /// An integer input: labels.
    ///
    /// # Errors
    /// As [`Graph::leaf`].
    #[track_caller]
    pub fn labels(
        &self,
        name: &str,
        shape: impl IntoIterator<Item = usize>,
    ) -> Result<Var<'_>, Error> {
        self.leaf(name, Role::Input, TensorType::new(shape, DType::I32))
    }

    /// A parameter.
    ///
    /// # Errors
    /// As [`Graph::leaf`].
    #[track_caller]
    pub fn param(
        &self,
        name: &str,
        shape: impl IntoIterator<Item = usize>,
    ) -> Result<Var<'_>, Error> {
        self.leaf(name, Role::Param, TensorType::new(shape, self.dtype))
    }

    /// A parameter with initial values of its own; [`Graph::starts`] gives them to whoever trains the program.
    ///
    /// # Errors
    /// As [`Graph::leaf`].
    #[track_caller]
    pub fn param_from(
        &self,
        name: &str,
        shape: impl IntoIterator<Item = usize>,
        start: Start,
    ) -> Result<Var<'_>, Error> {
        let param = self.param(name, shape)?;
        self.starts.borrow_mut().insert(name.to_owned(), start);
        Ok(param)
    }

    /// Initial values of the parameters that were made with [`Graph::param_from`].
    #[must_use]
    pub fn starts(&self) -> BTreeMap<String, Start> {
        self.starts.borrow().clone()
    }

    /// A scalar that the caller sets each step.
    ///
    /// # Errors
    /// As [`Graph::leaf`].
    #[track_caller]
    pub fn scalar(&self, name: &str) -> Result<Var<'_>, Error> {
        self.leaf(name, Role::Scalar, TensorType::new([], self.dtype))
    }

    /// A tensor of one constant, in the program's float type.
    ///
    /// # Errors
    /// An extent is 0.
    #[track_caller]
    pub fn fill(
        &self,
        value: f64,
        shape: impl IntoIterator<Item = usize>,
    ) -> Result<Var<'_>, Error> {
        let ty = TensorType::new(shape, self.dtype);
        self.apply(Op::Fill(Fill { value: Const::new(value), ty }), &[])
    }

    /// The mesh that typed tensors lie on: the one that is set first.
    pub(crate) fn mesh_or(&self, mesh: impl FnOnce() -> Mesh) -> &Mesh {
        self.mesh.get_or_init(mesh)
    }

    /// The mesh that typed tensors lie on, if there is one.
    pub(crate) fn mesh(&self) -> Option<&Mesh> {
        self.mesh.get()
    }

    /// Names of a value, in order.
    pub(crate) fn names_of(&self, id: NodeId) -> Vec<String> {
        self.names
            .borrow()
            .iter()
            .filter(|(_, n)| **n == id)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// The first of `{stem}0`, `{stem}1` … that is no name yet.
    pub(crate) fn free_name(&self, stem: &str) -> String {
        let names = self.names.borrow();
        (0..=names.len())
            .map(|i| format!("{stem}{i}"))
            .find(|n| !names.contains_key(n))
            .unwrap_or_default()
    }

    /// The pin of a name.
    pub(crate) fn pin(&self, name: &str) -> Option<LayoutSpec> {
        self.pins.borrow().get(name).cloned()
    }

    /// Pins the layout of a named value.
    pub(crate) fn set_pin(&self, name: &str, spec: LayoutSpec) {
        self.pins.borrow_mut().insert(name.to_owned(), spec);
    }

    /// Records a layer and returns its index.
    pub(crate) fn record_layer(&self, layer: Layer) -> u32 {
        let mut layers = self.layers.borrow_mut();
        layers.push(layer);
        u32::try_from(layers.len() - 1).unwrap_or(u32::MAX)
    }

    /// Whether a node is the output of a layer that says that it closes a pair.
    pub(crate) fn closes_pair(&self, id: NodeId) -> bool {
        let closes = |layer: &Layer| layer.half == Some(Half::Closes) && layer.output == id;
        self.layers.borrow().iter().any(closes)
    }

    /// Number of layers recorded so far.
    #[must_use]
    pub fn layer_count(&self) -> usize {
        self.layers.borrow().len()
    }

    /// Declares an output.
    ///
    /// # Errors
    /// Another output has the name.
    #[track_caller]
    pub fn output(&self, name: &str, var: Var<'_>, role: OutputRole) -> Result<(), Error> {
        let at = Location::caller();
        let mut outputs = self.outputs.borrow_mut();
        if outputs.iter().any(|o| o.name == name) {
            return Err(Error::RepeatedName { name: name.to_owned(), at });
        }
        outputs.push(Output { name: name.to_owned(), node: var.id, role });
        Ok(())
    }

    /// The finished program. Nodes that no output needs are dropped, leaves excepted; so are their names.
    #[must_use]
    pub fn finish(&self) -> Program {
        let nodes = self.nodes.borrow();
        let outputs = self.outputs.borrow();
        let mut needed: Vec<bool> = nodes.iter().map(|n| n.leaf_role().is_some()).collect();
        for output in outputs.iter() {
            needed[output.node.index()] = true;
        }
        for i in (0..nodes.len()).rev() {
            if needed[i] {
                for operand in &nodes[i].operands {
                    needed[operand.index()] = true;
                }
            }
        }
        let mut renumbered = vec![None; nodes.len()];
        let mut kept = Vec::new();
        for (i, node) in nodes.iter().enumerate().filter(|(i, _)| needed[*i]) {
            renumbered[i] = Some(NodeId::from_index(kept.len()));
            let mut node = node.clone();
            // Operands of a kept node are kept and come before it.
            node.operands = node.operands.iter().filter_map(|o| renumbered[o.index()]).collect();
            kept.push(node);
        }
        let new = |id: NodeId| renumbered[id.index()];
        let role = |role: OutputRole| match role {
            OutputRole::Gradient { of } => OutputRole::Gradient { of: new(of).unwrap_or(of) },
            OutputRole::Update { of } => OutputRole::Update { of: new(of).unwrap_or(of) },
            OutputRole::Loss | OutputRole::Value => role,
        };
        let names: BTreeMap<String, NodeId> = self
            .names
            .borrow()
            .iter()
            .filter_map(|(name, id)| Some((name.clone(), new(*id)?)))
            .collect();
        let layers = self.layers.borrow();
        let layers = layers
            .iter()
            .filter_map(|layer| {
                Some(Layer {
                    input: new(layer.input)?,
                    weight: new(layer.weight)?,
                    bias: layer.bias.and_then(new),
                    output: new(layer.output)?,
                    ..layer.clone()
                })
            })
            .collect();
        Program {
            name: self.name.clone(),
            nodes: kept,
            names,
            layers,
            outputs: outputs
                .iter()
                .map(|o| Output {
                    name: o.name.clone(),
                    node: new(o.node).unwrap_or(o.node),
                    role: role(o.role),
                })
                .collect(),
            pins: self.pins.borrow().clone(),
        }
    }
}

impl<'g> Var<'g> {
    /// The graph.
    #[must_use]
    pub fn graph(self) -> &'g Graph {
        self.graph
    }

    /// The node.
    #[must_use]
    pub fn id(self) -> NodeId {
        self.id
    }

    /// Global type of the value.
    #[must_use]
    pub fn ty(self) -> TensorType {
        self.graph.nodes.borrow()[self.id.index()].ty.clone()
    }

    /// Global shape of the value.
    #[must_use]
    pub fn shape(self) -> Shape {
        self.ty().shape
    }

    /// Names the value, so that it can be pinned and read.
    ///
    /// # Errors
    /// The name is taken by another value.
    #[track_caller]
    pub fn named(self, name: &str) -> Result<Self, Error> {
        let at = Location::caller();
        let mut names = self.graph.names.borrow_mut();
        match names.get(name) {
            Some(&id) if id != self.id => Err(Error::RepeatedName { name: name.to_owned(), at }),
            _ => {
                names.insert(name.to_owned(), self.id);
                Ok(self)
            }
        }
    }

    /// The value under a name of its own whose layout is pinned: `x.constrain("h", "tp: S(0)")`. Axes that the text does
    /// not name stay free.
    ///
    /// # Errors
    /// The name is taken, or the text is no layout.
    #[track_caller]
    pub fn constrain(self, name: &str, layout: &str) -> Result<Self, Error> {
        let at = Location::caller();
        let spec: LayoutSpec = layout.parse().map_err(|source| Error::Op { source, at })?;
        let var = self.graph.apply(Op::Constrain, &[self])?.named(name)?;
        self.graph.pins.borrow_mut().insert(name.to_owned(), spec);
        Ok(var)
    }

    /// The same value, through which no gradient flows.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    pub fn stop_gradient(self) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::StopGradient, &[self])
    }
}
