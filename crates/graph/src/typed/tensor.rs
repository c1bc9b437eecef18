//! The typed handle; entering from [`Var`] and leaving to it.

use std::marker::PhantomData;
use std::panic::Location;

use shardgrad_core::types::{FitsRank, LayoutType};
use shardgrad_core::{LayoutSpec, Shape};

use crate::builder::Var;
use crate::error::Error;

/// A handle on a node of a graph whose value has `RANK` dims and the layout `L`.
pub struct Tensor<'g, const RANK: usize, L> {
    var: Var<'g>,
    layout: PhantomData<L>,
}

impl<const RANK: usize, L> Clone for Tensor<'_, RANK, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<const RANK: usize, L> Copy for Tensor<'_, RANK, L> {}

impl<const RANK: usize, L: LayoutType> std::fmt::Debug for Tensor<'_, RANK, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.var)?;
        match self.var.graph().mesh() {
            Some(mesh) => write!(f, " {}", L::layout().display(mesh)),
            None => Ok(()),
        }
    }
}

impl<'g, const RANK: usize, L> Tensor<'g, RANK, L> {
    /// A value whose layout follows from a rule.
    pub(super) fn of(var: Var<'g>) -> Self {
        Self { var, layout: PhantomData }
    }

    /// The value without types. Its pins stay.
    #[must_use]
    pub fn erase(self) -> Var<'g> {
        self.var
    }

    /// Global shape of the value.
    #[must_use]
    pub fn shape(self) -> Shape {
        self.var.shape()
    }
}

impl<'g, const RANK: usize, L: LayoutType> Tensor<'g, RANK, L> {
    /// A value that has this name; its layout becomes the pin.
    #[track_caller]
    pub(super) fn pinned(var: Var<'g>, name: &str) -> Result<Self, Error> {
        let spec = spec::<L>(var, Location::caller())?;
        check_pin(var, name, &spec, Location::caller())?;
        var.graph().set_pin(name, spec);
        Ok(Self::of(var))
    }

    /// Names the value and pins its layout under that name.
    ///
    /// # Errors
    /// The name is taken by another value.
    #[track_caller]
    pub fn named(self, name: &str) -> Result<Self, Error> {
        Self::pinned(self.var.named(name)?, name)
    }
}

impl<'g> Var<'g> {
    /// The value with its dims and its layout in its type.
    ///
    /// The layout becomes the pin of every name the value has; a pin it has already must agree. A value without a name
    /// is named `typed0`, `typed1` ….
    ///
    /// ```
    /// use shardgrad_graph::typed::{Mesh, Shard, Tensor};
    /// use shardgrad_graph::Graph;
    /// use shardgrad_core::DType;
    /// let graph = Graph::new("entering", DType::F32);
    /// graph.on(&Mesh::new([("tp", 2)])?)?;
    /// let x = graph.input("x", [4, 3])?;
    /// let typed = x.typed::<2, Shard<0>>()?;
    /// assert!(x.typed::<2, Shard<1>>().is_err()); // The pin says otherwise.
    /// assert!(x.typed::<1, Shard<0>>().is_err()); // It has two dims.
    /// assert_eq!(typed.erase().id(), x.id());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The value does not have `RANK` dims; the graph is not on a mesh, or on one of another number of axes; a pin of
    /// the value says otherwise; a stored value would be pending.
    #[track_caller]
    pub fn typed<const RANK: usize, L>(self) -> Result<Tensor<'g, RANK, L>, Error>
    where
        L: LayoutType + FitsRank<RANK>,
    {
        let at = Location::caller();
        let bad =
            |problem: String| Error::Bad { op: "typed", found: self.ty().to_string(), problem, at };
        if self.ty().rank() != RANK {
            return Err(bad(format!("a tensor with {RANK} dim(s) was asked for")));
        }
        if L::layout().is_pending() && self.graph().node(self.id()).leaf_role().is_some() {
            return Err(bad(
                "a stored value is complete; declare it R or S(d), and call `to_pending` on it if terms are wanted"
                    .to_owned(),
            ));
        }
        let spec = spec::<L>(self, at)?;
        let mut names = self.graph().names_of(self.id());
        if names.is_empty() {
            let name = self.graph().free_name("typed");
            self.named(&name)?;
            names.push(name);
        }
        for name in &names {
            check_pin(self, name, &spec, at)?;
        }
        for name in names {
            self.graph().set_pin(&name, spec.clone());
        }
        Ok(Tensor::of(self))
    }
}

impl<'g, const RANK: usize, L> From<Tensor<'g, RANK, L>> for Var<'g> {
    fn from(tensor: Tensor<'g, RANK, L>) -> Self {
        tensor.erase()
    }
}

/// The layout by the names of the graph's mesh axes.
pub(super) fn spec<L: LayoutType>(
    var: Var<'_>,
    at: &'static Location<'static>,
) -> Result<LayoutSpec, Error> {
    match var.graph().mesh() {
        Some(mesh) if mesh.rank() == L::AXES => Ok(LayoutSpec::from((&L::layout(), mesh))),
        mesh => {
            let found = mesh.map_or("no mesh".to_owned(), |mesh| format!("the mesh `{mesh}`"));
            Err(Error::Bad {
                op: "typed",
                found: var.ty().to_string(),
                problem: format!(
                    "the layout is one for {} mesh axis(es), and the graph is on {found}; set it with `Graph::on`",
                    L::AXES
                ),
                at,
            })
        }
    }
}

/// Refuses a layout that contradicts the pin of the name.
fn check_pin(
    var: Var<'_>,
    name: &str,
    spec: &LayoutSpec,
    at: &'static Location<'static>,
) -> Result<(), Error> {
    let Some(pin) = var.graph().pin(name) else { return Ok(()) };
    if pin.0.iter().all(|entry| spec.0.contains(entry)) {
        return Ok(());
    }
    Err(Error::Bad {
        op: "typed",
        found: format!("`{name}`, {}", var.ty()),
        problem: format!(
            "it is pinned to {pin}, and {spec} was asked for; change its layout by an explicit transition"
        ),
        at,
    })
}
