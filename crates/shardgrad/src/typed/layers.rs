//! Tensor-parallel layers whose signatures say where data lies, on a mesh `tp` or on a mesh `dp, tp`.
//!
//! | layer | input | weight | bias | output | communication |
//! |---|---|---|---|---|---|
//! | [`ColumnLinear`] | `Replicated` | `Shard<1>` | `Shard<0>` | `Shard<1>` | none |
//! | [`RowLinear`] | `Shard<1>` | `Shard<0>` | `Replicated` | `Replicated` | one all_reduce |
//! | [`MegatronBlock`] | `Replicated` | | | `Replicated` | one all_reduce |
//!
//! These are the layouts on the axis that shares out features. With two mesh axes the first one shares out the batch:
//! activations are `Shard<0>` there and parameters `Replicated`. Signatures name both at once, as in [`megatron`](super::megatron):
//! `Whole` is `Replicated` or `(Shard<0>, Replicated)`, `Columns` is `Shard<1>` or `(Shard<0>, Shard<1>)`. The number of axes
//! follows from the graph.
//!
//! In the backward pass the reductions change sides: the column layer's input gradient is reduced, the row layer's needs
//! nothing (Shoeybi et al., "Megatron-LM", 2019); and all weight gradients are reduced over the batch's axis if there is
//! one. The bias of a row layer is added after the reduction, or it would count once per rank; the types leave no other
//! order.

use shardgrad_core::types::elementwise::NonlinearRule;
use shardgrad_graph::typed::{Graph, Parameters, Tensor};
use shardgrad_graph::{Activation, Error, Var};

use super::megatron::{
    ColumnBias, ColumnWeight, Columns, Megatron, OnMesh, ParameterLayout, RowBias, RowWeight,
    TensorAxis, Whole,
};

/// x · w + b with the output features shared out: each rank makes some columns.
#[derive(Clone, Copy, Debug)]
pub struct ColumnLinear<'g, const AXES: usize = 1>
where
    Megatron: OnMesh<AXES>,
{
    /// `[in, out]`, by columns.
    pub weight: Tensor<'g, 2, ColumnWeight<AXES>>,
    /// `[out]`, in blocks.
    pub bias: Tensor<'g, 1, ColumnBias<AXES>>,
}

/// x · w + b with the input features shared out: each rank makes a term.
#[derive(Clone, Copy, Debug)]
pub struct RowLinear<'g, const AXES: usize = 1>
where
    Megatron: OnMesh<AXES>,
{
    /// `[in, out]`, by rows.
    pub weight: Tensor<'g, 2, RowWeight<AXES>>,
    /// `[out]`, whole.
    pub bias: Tensor<'g, 1, RowBias<AXES>>,
}

impl<'g, const AXES: usize> ColumnLinear<'g, AXES>
where
    Megatron: OnMesh<AXES>,
{
    /// Parameters `w{index}` and `b{index}`.
    ///
    /// # Errors
    /// A name is taken, or an extent is 0.
    #[track_caller]
    pub fn new(
        g: Graph<'g, AXES>,
        index: usize,
        inputs: usize,
        outputs: usize,
    ) -> Result<Self, Error> {
        Ok(Self {
            weight: g.param(&format!("w{index}"), [inputs, outputs])?,
            bias: g.param(&format!("b{index}"), [outputs])?,
        })
    }

    /// x · w + b. Nothing is sent.
    ///
    /// # Errors
    /// x does not have the layer's input extent.
    #[track_caller]
    pub fn forward(
        &self,
        x: Tensor<'g, 2, Whole<AXES>>,
    ) -> Result<Tensor<'g, 2, Columns<AXES>>, Error> {
        x.matmul(self.weight)?.add_bias(self.bias)
    }

    /// Declares the parameters' next values: p − rate · gradient.
    ///
    /// # Errors
    /// The parameters have next values already.
    #[track_caller]
    pub fn descend(&self, g: Graph<'g, AXES>, gradient: &Self, rate: f64) -> Result<(), Error> {
        step(g, self.weight, gradient.weight, rate)?;
        step(g, self.bias, gradient.bias, rate)
    }
}

impl<'g, const AXES: usize> RowLinear<'g, AXES>
where
    Megatron: OnMesh<AXES>,
{
    /// Parameters `w{index}` and `b{index}`.
    ///
    /// # Errors
    /// A name is taken, or an extent is 0.
    #[track_caller]
    pub fn new(
        g: Graph<'g, AXES>,
        index: usize,
        inputs: usize,
        outputs: usize,
    ) -> Result<Self, Error> {
        Ok(Self {
            weight: g.param(&format!("w{index}"), [inputs, outputs])?,
            bias: g.param(&format!("b{index}"), [outputs])?,
        })
    }

    /// x · w + b: terms, one all_reduce, then the bias.
    ///
    /// # Errors
    /// x does not have the layer's input extent.
    #[track_caller]
    pub fn forward(
        &self,
        x: Tensor<'g, 2, Columns<AXES>>,
        axis: TensorAxis<AXES>,
    ) -> Result<Tensor<'g, 2, Whole<AXES>>, Error> {
        x.matmul(self.weight)?.all_reduce(axis)?.add_bias(self.bias)
    }

    /// Declares the parameters' next values: p − rate · gradient.
    ///
    /// # Errors
    /// The parameters have next values already.
    #[track_caller]
    pub fn descend(&self, g: Graph<'g, AXES>, gradient: &Self, rate: f64) -> Result<(), Error> {
        step(g, self.weight, gradient.weight, rate)?;
        step(g, self.bias, gradient.bias, rate)
    }
}

/// A column layer, an activation and a row layer: whole values in, whole values out, one all_reduce.
#[derive(Clone, Copy, Debug)]
pub struct MegatronBlock<'g, const AXES: usize = 1>
where
    Megatron: OnMesh<AXES>,
{
    /// Makes the hidden features, shared out.
    pub column: ColumnLinear<'g, AXES>,
    /// Takes them back.
    pub row: RowLinear<'g, AXES>,
}

impl<'g, const AXES: usize> MegatronBlock<'g, AXES>
where
    Megatron: OnMesh<AXES>,
{
    /// row(activation(column(x))). As input and output types are equal, blocks run in a `for` loop.
    ///
    /// # Errors
    /// x does not have the block's input extent.
    #[track_caller]
    pub fn forward(
        &self,
        x: Tensor<'g, 2, Whole<AXES>>,
        activation: Activation,
        axis: TensorAxis<AXES>,
    ) -> Result<Tensor<'g, 2, Whole<AXES>>, Error> {
        let hidden: Tensor<'g, 2, Columns<AXES>> = activate(self.column.forward(x)?, activation)?;
        self.row.forward(hidden, axis)
    }
}

/// Declares the next value of a parameter: p − rate · gradient.
#[track_caller]
fn step<'g, const AXES: usize, const RANK: usize, L: ParameterLayout<RANK, AXES>>(
    g: Graph<'g, AXES>,
    parameter: Tensor<'g, RANK, L>,
    gradient: Tensor<'g, RANK, L>,
    rate: f64,
) -> Result<(), Error> {
    g.update(parameter, parameter.sub(gradient.scale(rate)?)?)
}

/// The activation of a complete value.
#[track_caller]
fn activate<'g, L: NonlinearRule>(
    h: Tensor<'g, 2, L>,
    activation: Activation,
) -> Result<Tensor<'g, 2, L>, Error> {
    match activation {
        Activation::None => Ok(h),
        Activation::Relu => h.relu(),
        Activation::Gelu => h.gelu(),
        Activation::Tanh => h.tanh(),
        Activation::Sigmoid => h.sigmoid(),
    }
}

/// A Megatron MLP: blocks, one all_reduce each forward and one each backward; on `dp, tp` also one for each weight gradient.
///
/// ```
/// use shardgrad::typed::{DType, MegatronMlp, Mesh, Replicated, Tensor, Untyped, grad};
/// use shardgrad_graph::Activation;
/// let mesh = Mesh::new([("tp", 2)])?;
/// let tp = mesh.axes();
/// let graph = Untyped::new("megatron", DType::F32);
/// let g = graph.on(&mesh)?;
/// let x: Tensor<2, Replicated> = g.input("x", [8, 6])?;
/// let y: Tensor<2, Replicated> = g.input("y", [8, 3])?;
/// let model = MegatronMlp::new(g, &[6, 16, 6, 12, 3], Activation::Gelu)?; // for one mesh axis, as g is
/// let loss = model.forward(x, tp)?.mse(y)?;
/// let gradient = grad(loss, model.clone())?; // A MegatronMlp again: its tensors are the gradients.
/// model.descend(g, &gradient, 0.1)?;
/// g.loss("loss", loss)?;
/// assert_eq!(g.finish().outputs.len(), 9); // w0, b0 … w3, b3 and the loss
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct MegatronMlp<'g, const AXES: usize = 1>
where
    Megatron: OnMesh<AXES>,
{
    /// The blocks, in order.
    pub blocks: Vec<MegatronBlock<'g, AXES>>,
    /// Between a block's column and row layer, and between blocks.
    pub activation: Activation,
}

impl<'g, const AXES: usize> MegatronMlp<'g, AXES>
where
    Megatron: OnMesh<AXES>,
{
    /// A model of these widths: input, hidden, output of the first block, hidden, output of the second …. Parameters are
    /// `w0`, `b0`, `w1` ….
    ///
    /// # Errors
    /// Not an odd number of widths, at least three; a name is taken; an extent is 0.
    #[track_caller]
    pub fn new(
        g: Graph<'g, AXES>,
        widths: &[usize],
        activation: Activation,
    ) -> Result<Self, Error> {
        if widths.len() < 3 || widths.len().is_multiple_of(2) {
            return Err(Error::Bad {
                op: "MegatronMlp::new",
                found: format!("{widths:?}"),
                problem: "widths are input, then hidden and output of each block: an odd number, 3 or more"
                    .to_owned(),
                at: std::panic::Location::caller(),
            });
        }
        let mut blocks = Vec::new();
        for (block, w) in widths.windows(3).step_by(2).enumerate() {
            let column = ColumnLinear::new(g, 2 * block, w[0], w[1])?;
            let row = RowLinear::new(g, 2 * block + 1, w[1], w[2])?;
            blocks.push(MegatronBlock { column, row });
        }
        Ok(Self { blocks, activation })
    }

    /// The blocks in order, with the activation between them.
    ///
    /// # Errors
    /// x does not have the model's input extent.
    #[track_caller]
    pub fn forward(
        &self,
        x: Tensor<'g, 2, Whole<AXES>>,
        axis: TensorAxis<AXES>,
    ) -> Result<Tensor<'g, 2, Whole<AXES>>, Error> {
        let mut x = x;
        for (i, block) in self.blocks.iter().enumerate() {
            if i > 0 {
                x = activate(x, self.activation)?;
            }
            x = block.forward(x, self.activation, axis)?;
        }
        Ok(x)
    }

    /// Declares all parameters' next values: p − rate · gradient.
    ///
    /// # Errors
    /// The parameters have next values already.
    #[track_caller]
    pub fn descend(&self, g: Graph<'g, AXES>, gradient: &Self, rate: f64) -> Result<(), Error> {
        for (block, gradient) in self.blocks.iter().zip(&gradient.blocks) {
            block.column.descend(g, &gradient.column, rate)?;
            block.row.descend(g, &gradient.row, rate)?;
        }
        Ok(())
    }
}

impl<'g, const AXES: usize> Parameters<'g> for ColumnLinear<'g, AXES>
where
    Megatron: OnMesh<AXES>,
{
    fn collect(&self, vars: &mut Vec<Var<'g>>) {
        (self.weight, self.bias).collect(vars);
    }

    #[track_caller]
    fn wrap(&self, gradients: &mut std::vec::IntoIter<Var<'g>>) -> Result<Self, Error> {
        let (weight, bias) = (self.weight, self.bias).wrap(gradients)?;
        Ok(Self { weight, bias })
    }
}

impl<'g, const AXES: usize> Parameters<'g> for RowLinear<'g, AXES>
where
    Megatron: OnMesh<AXES>,
{
    fn collect(&self, vars: &mut Vec<Var<'g>>) {
        (self.weight, self.bias).collect(vars);
    }

    #[track_caller]
    fn wrap(&self, gradients: &mut std::vec::IntoIter<Var<'g>>) -> Result<Self, Error> {
        let (weight, bias) = (self.weight, self.bias).wrap(gradients)?;
        Ok(Self { weight, bias })
    }
}

impl<'g, const AXES: usize> Parameters<'g> for MegatronBlock<'g, AXES>
where
    Megatron: OnMesh<AXES>,
{
    fn collect(&self, vars: &mut Vec<Var<'g>>) {
        (self.column, self.row).collect(vars);
    }

    #[track_caller]
    fn wrap(&self, gradients: &mut std::vec::IntoIter<Var<'g>>) -> Result<Self, Error> {
        let (column, row) = (self.column, self.row).wrap(gradients)?;
        Ok(Self { column, row })
    }
}

impl<'g, const AXES: usize> Parameters<'g> for MegatronMlp<'g, AXES>
where
    Megatron: OnMesh<AXES>,
{
    fn collect(&self, vars: &mut Vec<Var<'g>>) {
        self.blocks.collect(vars);
    }

    #[track_caller]
    fn wrap(&self, gradients: &mut std::vec::IntoIter<Var<'g>>) -> Result<Self, Error> {
        Ok(Self { blocks: self.blocks.wrap(gradients)?, activation: self.activation })
    }
}
