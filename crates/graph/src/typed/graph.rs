//! Typed leaves and outputs of a graph.

use std::panic::Location;

use shardgrad_core::TensorType;
use shardgrad_core::ops::Role;
use shardgrad_core::types::cotangent::LaidOutAs;
use shardgrad_core::types::{FitsRank, LayoutOn, LayoutType, StoredLayout};

use super::{Mesh, Tensor};
use crate::error::Error;
use crate::node::OutputRole;
use crate::program::Program;
use crate::{Graph as Untyped, Var};

/// An ordinary [`crate::Graph`], seen as one whose tensors lie on a mesh of `AXES` axes.
///
/// ```
/// use shardgrad_graph::typed::{Mesh, PendingSum, Replicated, Shard, Tensor};
/// use shardgrad_graph::Graph;
/// use shardgrad_core::DType;
///
/// let mesh = Mesh::new([("tp", 2)])?;
/// let tp = mesh.axes();
/// let graph = Graph::new("pair", DType::F32);
/// let g = graph.on(&mesh)?;
/// let x: Tensor<2, Replicated> = g.input("x", [8, 4])?;
/// let w0: Tensor<2, Shard<1>> = g.param("w0", [4, 6])?;
/// let w1: Tensor<2, Shard<0>> = g.param("w1", [6, 3])?;
/// let h: Tensor<2, Shard<1>> = x.matmul(w0)?.relu()?;
/// let y: Tensor<2, PendingSum> = h.matmul(w1)?;
/// let y: Tensor<2, Replicated> = y.all_reduce(tp)?;
/// g.output("out", y)?;
/// assert_eq!(g.finish().pins["w0"].to_string(), "[tp: S(1)]");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Graph<'g, const AXES: usize> {
    graph: &'g Untyped,
}

impl Untyped {
    /// The graph with its tensors on this mesh, for typed tensors. A graph has one mesh.
    ///
    /// # Errors
    /// The graph is on another mesh already.
    #[track_caller]
    pub fn on<const AXES: usize>(&self, mesh: &Mesh<AXES>) -> Result<Graph<'_, AXES>, Error> {
        let at = Location::caller();
        let own = self.mesh_or(|| mesh.get().clone());
        if own != mesh.get() {
            return Err(Error::Bad {
                op: "on",
                found: format!("the mesh `{}`", mesh.get()),
                problem: format!(
                    "typed tensors of this graph lie on `{own}`; use one mesh, or another graph"
                ),
                at,
            });
        }
        Ok(Graph { graph: self })
    }
}

impl<'g, const AXES: usize> Graph<'g, AXES> {
    /// The graph without types.
    #[must_use]
    pub fn untyped(self) -> &'g Untyped {
        self.graph
    }

    #[track_caller]
    fn leaf<const RANK: usize, L: LayoutType>(
        self,
        name: &str,
        role: Role,
        ty: TensorType,
    ) -> Result<Tensor<'g, RANK, L>, Error> {
        Tensor::pinned(self.graph.leaf(name, role, ty)?, name)
    }

    /// A float input with this layout.
    ///
    /// # Errors
    /// The name is taken, or an extent is 0.
    #[track_caller]
    pub fn input<const RANK: usize, L>(
        self,
        name: &str,
        shape: [usize; RANK],
    ) -> Result<Tensor<'g, RANK, L>, Error>
    where
        L: LayoutType + LayoutOn<AXES> + FitsRank<RANK> + StoredLayout,
    {
        self.leaf(name, Role::Input, TensorType::new(shape, self.graph.dtype()))
    }

    /// An integer input with this layout: labels.
    ///
    /// # Errors
    /// As [`Graph::input`].
    #[track_caller]
    pub fn labels<const RANK: usize, L>(
        self,
        name: &str,
        shape: [usize; RANK],
    ) -> Result<Tensor<'g, RANK, L>, Error>
    where
        L: LayoutType + LayoutOn<AXES> + FitsRank<RANK> + StoredLayout,
    {
        self.leaf(name, Role::Input, TensorType::new(shape, shardgrad_core::DType::I32))
    }

    /// A parameter with this layout.
    ///
    /// # Errors
    /// As [`Graph::input`].
    #[track_caller]
    pub fn param<const RANK: usize, L>(
        self,
        name: &str,
        shape: [usize; RANK],
    ) -> Result<Tensor<'g, RANK, L>, Error>
    where
        L: LayoutType + LayoutOn<AXES> + FitsRank<RANK> + StoredLayout,
    {
        self.leaf(name, Role::Param, TensorType::new(shape, self.graph.dtype()))
    }

    /// Declares the loss.
    ///
    /// # Errors
    /// Another output has the name.
    #[track_caller]
    pub fn loss<L: StoredLayout>(self, name: &str, loss: Tensor<'g, 0, L>) -> Result<(), Error> {
        self.graph.output(name, loss.erase(), OutputRole::Loss)
    }

    /// Declares an output. Outputs are complete, so the layout is pinned, too, under the output's name.
    ///
    /// # Errors
    /// Another output or value has the name.
    #[track_caller]
    pub fn output<const RANK: usize, L: LayoutType + StoredLayout>(
        self,
        name: &str,
        value: Tensor<'g, RANK, L>,
    ) -> Result<(), Error> {
        let named = value.named(name)?;
        self.graph.output(name, named.erase(), OutputRole::Value)
    }

    /// Declares the gradient of a leaf as an output, laid out as the leaf.
    ///
    /// # Errors
    /// The first value is no leaf, or its gradient is an output already.
    #[track_caller]
    pub fn gradient<const RANK: usize, L, D>(
        self,
        of: Tensor<'g, RANK, L>,
        gradient: Tensor<'g, RANK, D>,
    ) -> Result<(), Error>
    where
        D: LaidOutAs<L>,
    {
        let name = leaf_name(of.erase(), "gradient", Location::caller())?;
        let role = OutputRole::Gradient { of: of.erase().id() };
        self.graph.output(&format!("grad({name})"), gradient.erase(), role)
    }

    /// Declares the next value of a parameter, laid out as the parameter.
    ///
    /// # Errors
    /// The first value is no leaf, or it has a next value already.
    #[track_caller]
    pub fn update<const RANK: usize, L, D>(
        self,
        parameter: Tensor<'g, RANK, L>,
        next: Tensor<'g, RANK, D>,
    ) -> Result<(), Error>
    where
        D: LaidOutAs<L>,
    {
        let name = leaf_name(parameter.erase(), "update", Location::caller())?;
        let role = OutputRole::Update { of: parameter.erase().id() };
        self.graph.output(&name, next.erase(), role)
    }

    /// The finished program.
    #[must_use]
    pub fn finish(self) -> Program {
        self.graph.finish()
    }
}

fn leaf_name(
    var: Var<'_>,
    op: &'static str,
    at: &'static Location<'static>,
) -> Result<String, Error> {
    match var.graph().node(var.id()).leaf_name() {
        Some(name) => Ok(name.to_owned()),
        None => Err(Error::Bad {
            op,
            found: var.ty().to_string(),
            problem: "only leaves have gradients and next values as outputs; use `output` for other values".to_owned(),
            at,
        }),
    }
}
