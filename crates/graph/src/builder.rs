//! Making programs: a [`Graph`] collects nodes, a [`Var`] is a copyable handle on one.
//!
//! Every builder op checks its operands at once and returns a `Result` that names the op, the operands' types and the
//! caller's place in the source.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::panic::Location;

use shardgrad_core::ops::{
    Broadcast, Comparison, Const, Einsum, Fill, Leaf, ReduceDims, Role, Unary,
};
use shardgrad_core::{DType, LayoutSpec, Mesh, Op, Shape, TensorType};
use smallvec::SmallVec;

use crate::error::Error;
use crate::node::{Node, NodeId, Output, OutputRole, Phase};
use crate::program::{Layer, Program};

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
    /// The mesh that typed tensors lie on, once there are any.
    mesh: OnceCell<Mesh>,
    /// Phase of nodes that are made now.
    phase: Cell<Phase>,
    /// Layer of contractions that are made now.
    layer: Cell<Option<u32>>,
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
            mesh: OnceCell::new(),
            phase: Cell::new(Phase::Forward),
            layer: Cell::new(None),
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
        let contraction = op.signature(&types, &ty).is_contraction();
        let id = NodeId::from_index(nodes.len());
        nodes.push(Node {
            op,
            operands: operands.iter().map(|v| v.id).collect(),
            ty,
            phase: self.phase.get(),
            layer: self.layer.get().filter(|_| contraction),
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

    #[track_caller]
    fn unary(self, unary: Unary) -> Result<Self, Error> {
        self.graph.apply(Op::Unary(unary), &[self])
    }

    /// Einsum with one other operand: `x.einsum("mk,kn->mn", w)`.
    ///
    /// # Errors
    /// The text is no einsum, or shapes do not fit it.
    #[track_caller]
    pub fn einsum(self, spec: &str, other: Var<'_>) -> Result<Var<'g>, Error> {
        let at = Location::caller();
        let einsum: Einsum = spec.parse().map_err(|source| Error::Op { source, at })?;
        self.graph.apply(Op::Einsum(einsum), &[self, other])
    }

    /// Matrix product over the last two dims; leading dims, if any, are batch dims of both operands.
    ///
    /// # Errors
    /// Either operand has fewer than two dims, their numbers of dims differ, or extents do not fit.
    #[track_caller]
    pub fn matmul(self, other: Var<'_>) -> Result<Var<'g>, Error> {
        let at = Location::caller();
        let (a, b) = (self.ty(), other.ty());
        if a.rank() < 2 || b.rank() != a.rank() {
            return Err(Error::Bad {
                op: "matmul",
                found: format!("{a}, {b}"),
                problem: "both operands need the same number of dims, at least 2; use einsum for other products".to_owned(),
                at,
            });
        }
        let batch: SmallVec<[char; 4]> = ('a'..='h').take(a.rank() - 2).collect();
        let labels = |tail: [char; 2]| batch.iter().copied().chain(tail).collect();
        let einsum = Einsum::new(
            [labels(['m', 'k']), labels(['k', 'n'])].into_iter().collect(),
            labels(['m', 'n']),
        )
        .map_err(|source| Error::Op { source, at })?;
        self.graph.apply(Op::Einsum(einsum), &[self, other])
    }

    /// a + b, elementwise.
    ///
    /// # Errors
    /// Types differ.
    #[track_caller]
    #[allow(clippy::should_implement_trait)]
    pub fn add(self, other: Var<'_>) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::Add, &[self, other])
    }

    /// a − b, elementwise.
    ///
    /// # Errors
    /// Types differ.
    #[track_caller]
    #[allow(clippy::should_implement_trait)]
    pub fn sub(self, other: Var<'_>) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::Sub, &[self, other])
    }

    /// a · b, elementwise.
    ///
    /// # Errors
    /// Types differ.
    #[track_caller]
    #[allow(clippy::should_implement_trait)]
    pub fn mul(self, other: Var<'_>) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::Mul, &[self, other])
    }

    /// a / b, elementwise.
    ///
    /// # Errors
    /// Types differ.
    #[track_caller]
    #[allow(clippy::should_implement_trait)]
    pub fn div(self, other: Var<'_>) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::Div, &[self, other])
    }

    /// −a.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    #[allow(clippy::should_implement_trait)]
    pub fn neg(self) -> Result<Var<'g>, Error> {
        self.unary(Unary::Neg)
    }

    /// c · a.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    pub fn scale(self, c: f64) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::Scale(Const::new(c)), &[self])
    }

    /// a + c.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    pub fn add_const(self, c: f64) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::AddConst(Const::new(c)), &[self])
    }

    /// 1 where `comparison` holds between the operands, else 0.
    ///
    /// # Errors
    /// Types differ.
    #[track_caller]
    pub fn compare(self, comparison: Comparison, other: Var<'_>) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::Compare(comparison), &[self, other])
    }

    /// 1 where `comparison` holds against a constant, else 0.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    pub fn compare_const(self, comparison: Comparison, c: f64) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::CompareConst(comparison, Const::new(c)), &[self])
    }

    /// Sum over some dims, which vanish.
    ///
    /// # Errors
    /// A dim that is not there.
    #[track_caller]
    pub fn sum(self, dims: &[usize]) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::Sum(ReduceDims::new(dims.iter().copied())), &[self])
    }

    /// Sum over all dims: a scalar.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    pub fn sum_all(self) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::Sum(ReduceDims::new(0..self.ty().rank())), &[self])
    }

    /// Mean over some dims: their sum, scaled by one over the product of their global extents.
    ///
    /// # Errors
    /// A dim that is not there.
    #[track_caller]
    pub fn mean(self, dims: &[usize]) -> Result<Var<'g>, Error> {
        let sum = self.sum(dims)?;
        #[allow(clippy::cast_precision_loss)]
        let n = (self.ty().elements() / sum.ty().elements()) as f64;
        sum.scale(1.0 / n)
    }

    /// Mean over all dims: a scalar.
    ///
    /// # Errors
    /// None in practice; the signature is that of all ops.
    #[track_caller]
    pub fn mean_all(self) -> Result<Var<'g>, Error> {
        let dims: Vec<usize> = (0..self.ty().rank()).collect();
        self.mean(&dims)
    }

    /// Maximum over some dims, which vanish.
    ///
    /// # Errors
    /// A dim that is not there.
    #[track_caller]
    pub fn max(self, dims: &[usize]) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::Max(ReduceDims::new(dims.iter().copied())), &[self])
    }

    /// Dim i becomes dim `dims[i]` of `shape`; the other dims of `shape` are new, and the value repeats along them.
    ///
    /// # Errors
    /// Places do not increase, or extents differ.
    #[track_caller]
    pub fn broadcast(self, dims: &[usize], shape: &[usize]) -> Result<Var<'g>, Error> {
        let broadcast = Broadcast {
            dims: dims.iter().copied().collect(),
            shape: shape.iter().copied().collect(),
        };
        self.graph.apply(Op::Broadcast(broadcast), &[self])
    }

    /// Broadcast to the shape of another value by `NumPy`'s rule: dims line up from the last, and dims of extent 1 repeat.
    ///
    /// # Errors
    /// A dim is neither 1 nor the other's extent.
    #[track_caller]
    pub fn broadcast_like(self, other: Var<'_>) -> Result<Var<'g>, Error> {
        let at = Location::caller();
        let (from, to) = (self.ty(), other.ty());
        let Some(lead) = to.rank().checked_sub(from.rank()) else {
            return Err(Error::Bad {
                op: "broadcast_like",
                found: format!("{from}, {to}"),
                problem: "the first operand has more dims than the second".to_owned(),
                at,
            });
        };
        // A dim of extent 1 that must repeat is reshaped away, so that it comes back as a new dim.
        let kept: Vec<usize> =
            (0..from.rank()).filter(|&d| from.shape[d] == to.shape[d + lead]).collect();
        let dropped = (0..from.rank()).filter(|d| !kept.contains(d));
        if dropped.clone().any(|d| from.shape[d] != 1) {
            return Err(Error::Bad {
                op: "broadcast_like",
                found: format!("{from}, {to}"),
                problem: "every dim must be 1 or the other's extent, counted from the last"
                    .to_owned(),
                at,
            });
        }
        let squeezed = if dropped.count() == 0 {
            self
        } else {
            let shape: Vec<usize> = kept.iter().map(|&d| from.shape[d]).collect();
            self.reshape(&shape)?
        };
        if squeezed.ty() == to {
            return Ok(squeezed);
        }
        let dims: Vec<usize> = kept.iter().map(|d| d + lead).collect();
        squeezed.broadcast(&dims, &to.shape)
    }

    /// Dim i of the result is dim `perm[i]` of the operand.
    ///
    /// # Errors
    /// Not a permutation.
    #[track_caller]
    pub fn transpose(self, perm: &[usize]) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::Transpose(perm.iter().copied().collect()), &[self])
    }

    /// The same elements in row-major order under another shape.
    ///
    /// # Errors
    /// Another number of elements.
    #[track_caller]
    pub fn reshape(self, shape: &[usize]) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::Reshape(shape.iter().copied().collect()), &[self])
    }

    /// A new last dim of classes, 1 at each integer label's class, in the program's float type.
    ///
    /// # Errors
    /// The operand is not integer.
    #[track_caller]
    pub fn one_hot(self, classes: usize) -> Result<Var<'g>, Error> {
        self.graph.apply(Op::OneHot { classes, dtype: self.graph.dtype }, &[self])
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

macro_rules! unary_methods {
    ($($(#[$doc:meta])* $method:ident => $variant:ident;)*) => {
        impl<'g> Var<'g> {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// The operand is not a float.
                #[track_caller]
                pub fn $method(self) -> Result<Var<'g>, Error> {
                    self.unary(Unary::$variant)
                }
            )*
        }
    };
}
unary_methods! {
    /// max(a, 0).
    relu => Relu;
    /// The tanh form of gelu.
    gelu => Gelu;
    /// tanh a.
    tanh => Tanh;
    /// 1 / (1 + e⁻ᵃ).
    sigmoid => Sigmoid;
    /// eᵃ.
    exp => Exp;
    /// ln a.
    log => Log;
    /// √a.
    sqrt => Sqrt;
    /// a².
    square => Square;
    /// |a|.
    abs => Abs;
    /// 1/a.
    reciprocal => Reciprocal;
}
