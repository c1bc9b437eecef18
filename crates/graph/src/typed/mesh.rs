//! A mesh whose number of axes is in its type, so that its axes can be taken apart into values.

use shardgrad_core::Error;
use shardgrad_core::types::MeshAxis;

/// A mesh of one, two or three named axes.
///
/// ```
/// use shardgrad_graph::typed::Mesh;
/// let mesh = Mesh::new([("dp", 2), ("tp", 4)])?;
/// let (dp, tp) = mesh.axes();
/// assert_eq!(mesh.get().to_string(), "dp=2, tp=4");
/// let tp = Mesh::new([("tp", 4)])?.axes(); // One axis: the axis itself.
/// # let _ = (dp, tp);
/// # Ok::<(), shardgrad_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mesh<const AXES: usize>(shardgrad_core::Mesh);

impl<const AXES: usize> Mesh<AXES> {
    /// A mesh of the given axes, outermost first.
    ///
    /// # Errors
    /// As [`shardgrad_core::Mesh::new`].
    pub fn new<N: Into<String>>(axes: [(N, usize); AXES]) -> Result<Self, Error> {
        shardgrad_core::Mesh::new(axes).map(Self)
    }

    /// The mesh, as planner and runtime take it.
    #[must_use]
    pub fn get(&self) -> &shardgrad_core::Mesh {
        &self.0
    }
}

impl Mesh<1> {
    /// The axis.
    #[must_use]
    pub fn axes(&self) -> MeshAxis<0> {
        MeshAxis
    }
}

impl Mesh<2> {
    /// The two axes: `let (dp, tp) = mesh.axes();`.
    #[must_use]
    pub fn axes(&self) -> (MeshAxis<0>, MeshAxis<1>) {
        (MeshAxis, MeshAxis)
    }
}

impl Mesh<3> {
    /// The three axes.
    #[must_use]
    pub fn axes(&self) -> (MeshAxis<0>, MeshAxis<1>, MeshAxis<2>) {
        (MeshAxis, MeshAxis, MeshAxis)
    }
}
