//! A program in the making: values so far, and the op that a step adds.

use shardgrad_core::ops::{Comparison, Role, Unary};
use shardgrad_core::{Op, TensorType};
use shardgrad_graph::{Error, Graph, OutputRole, Var};

use super::{Step, placed};

/// Most elements of a value.
pub(super) const MAX_ELEMENTS: usize = 150;
/// Values whose coarse bound exceeds this are not used further.
const MAX_SIZE: f64 = 1e6;
/// Number of kinds of steps.
const KINDS: u8 = placed::FIRST + placed::COUNT;

/// Labels for einsums.
const LETTERS: [char; 8] = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'];

pub(super) struct Draft<'g> {
    pub(super) graph: &'g Graph,
    pub(super) exact: bool,
    /// Values with coarse bounds of their elements.
    pool: Vec<(Var<'g>, f64)>,
    /// Float leaves.
    leaves: Vec<(String, Var<'g>)>,
}

pub(super) type Made<'g> = Result<Option<(Var<'g>, f64)>, Error>;

impl<'g> Draft<'g> {
    pub(super) fn new(graph: &'g Graph, exact: bool) -> Self {
        Self { graph, exact, pool: Vec::new(), leaves: Vec::new() }
    }

    pub(super) fn leaf(&mut self, role: Role, shape: &[usize]) -> Result<Var<'g>, Error> {
        let letter = if role == Role::Input { 'x' } else { 'w' };
        let name = format!("{letter}{}", self.leaves.len());
        let ty = TensorType::new(shape.iter().copied(), self.graph.dtype());
        let var = self.graph.leaf(&name, role, ty)?;
        self.leaves.push((name, var));
        self.pool.push((var, 4.0));
        Ok(var)
    }

    pub(super) fn back(&self, i: u8) -> (Var<'g>, f64) {
        let n = self.pool.len();
        self.pool[n - 1 - usize::from(i) % n]
    }

    pub(super) fn take(&mut self, step: Step) -> Result<(), Error> {
        if self.pool.is_empty() {
            return Ok(());
        }
        let made = match step.kind % KINDS {
            0 => self.dense(step)?,
            1 => self.unary(step)?,
            2 => self.binary(step)?,
            3 => self.along_a_dim(step)?,
            4 => self.einsum(step)?,
            5 => self.reduce(step)?,
            6 => self.transpose(step)?,
            7 => self.reshape(step)?,
            8 => self.broadcast(step)?,
            9 => self.affine(step)?,
            10 => self.compare(step)?,
            11 => self.identity(step)?,
            12 => self.one_hot(step)?,
            13 => self.log_softmax(step)?,
            14 => self.normalised(step)?,
            kind if kind >= placed::FIRST => self.placed(kind, step)?,
            _ => {
                let shape: Vec<usize> =
                    (0..step.attr % 3).map(|d| 1 + usize::from(step.attr >> (3 * d)) % 5).collect();
                self.leaf(Role::Param, &shape)?;
                None
            }
        };
        if let Some((var, size)) = made
            && size <= MAX_SIZE
            && var.ty().elements() <= MAX_ELEMENTS
            && var.ty().rank() <= 4
        {
            let name = format!("v{}", self.pool.len());
            let var = if self.graph.node(var.id()).leaf_role().is_some() {
                var
            } else {
                var.named(&name)?
            };
            self.pool.push((var, size));
        }
        Ok(())
    }

    /// x·w + b under an activation.
    fn dense(&mut self, step: Step) -> Made<'g> {
        let (x, size) = self.back(step.a);
        let shape = x.shape();
        let Some((&inner, lead)) = shape.split_last() else { return Ok(None) };
        if lead.len() > 2 {
            return Ok(None);
        }
        let outer = 1 + usize::from(step.attr) % 5;
        let w = self.leaf(Role::Param, &[inner, outer])?;
        let batch: String = LETTERS.iter().take(lead.len()).collect();
        let mut y = x.einsum(&format!("{batch}i,io->{batch}o"), w)?;
        if step.attr & 8 != 0 {
            let b = self.leaf(Role::Param, &[outer])?;
            y = y.add(b.broadcast(&[lead.len()], &y.shape())?)?;
        }
        y = match (step.attr >> 4) % 4 {
            0 => y,
            1 => y.relu()?,
            2 if !self.exact => y.tanh()?,
            3 if !self.exact => y.gelu()?,
            _ => y.abs()?,
        };
        #[allow(clippy::cast_precision_loss)]
        Ok(Some((y, size * 4.0 * inner as f64 + 4.0)))
    }

    fn unary(&mut self, step: Step) -> Made<'g> {
        let (x, size) = self.back(step.a);
        let exact = [Unary::Neg, Unary::Relu, Unary::Abs, Unary::Square];
        let unary = if self.exact {
            exact[usize::from(step.attr) % exact.len()]
        } else {
            Unary::ALL[usize::from(step.attr) % Unary::ALL.len()]
        };
        let safe = x.square()?.add_const(0.5);
        Ok(Some(match unary {
            Unary::Neg => (x.neg()?, size),
            Unary::Relu => (x.relu()?, size),
            Unary::Gelu => (x.gelu()?, size),
            Unary::Tanh => (x.tanh()?, 1.0),
            Unary::Sigmoid => (x.sigmoid()?, 1.0),
            Unary::Exp => (x.tanh()?.exp()?, 3.0),
            Unary::Log => (safe?.log()?, size.abs() + 1.0),
            Unary::Sqrt => (safe?.sqrt()?, size + 1.0),
            Unary::Square => (x.square()?, size * size),
            Unary::Abs => (x.abs()?, size),
            Unary::Reciprocal => (safe?.reciprocal()?, 2.0),
        }))
    }

    /// The newest value of the same type as `a`, counted back from `b`; `a` itself if there is no other.
    pub(super) fn like(&self, a: Var<'g>, b: u8) -> (Var<'g>, f64) {
        let alike: Vec<_> = self.pool.iter().filter(|(v, _)| v.ty() == a.ty()).copied().collect();
        alike[alike.len() - 1 - usize::from(b) % alike.len()]
    }

    fn binary(&mut self, step: Step) -> Made<'g> {
        let (a, sa) = self.back(step.a);
        let (b, sb) = self.like(a, step.b);
        Ok(Some(match step.attr % 4 {
            0 => (a.add(b)?, sa + sb),
            1 => (a.sub(b)?, sa + sb),
            2 => (a.mul(b)?, sa * sb),
            _ if self.exact => (b.sub(a)?, sa + sb),
            _ => (a.div(b.square()?.add_const(0.5)?)?, 2.0 * sa),
        }))
    }

    /// A vector along one dim, added or multiplied: biases and scales.
    fn along_a_dim(&mut self, step: Step) -> Made<'g> {
        let (x, size) = self.back(step.a);
        let shape = x.shape();
        if shape.is_empty() {
            return Ok(None);
        }
        let dim = usize::from(step.b) % shape.len();
        let known = self
            .pool
            .iter()
            .rev()
            .find(|(v, _)| step.attr & 4 != 0 && v.shape().as_slice() == [shape[dim]])
            .copied();
        let (vector, sv) = match known {
            Some(found) => found,
            None => (self.leaf(Role::Param, &[shape[dim]])?, 4.0),
        };
        let wide = vector.broadcast(&[dim], &shape)?;
        let wide = if wide.ty() == vector.ty() { vector } else { wide };
        Ok(Some(match step.attr % 3 {
            0 => (x.add(wide)?, size + sv),
            1 => (x.mul(wide)?, size * sv),
            _ => (wide.sub(x)?, size + sv),
        }))
    }

    fn einsum(&mut self, step: Step) -> Made<'g> {
        let ((a, sa), (b, sb)) = (self.back(step.a), self.back(step.b));
        let (sha, shb) = (a.shape(), b.shape());
        if sha.len() + shb.len() > LETTERS.len() {
            return Ok(None);
        }
        let la: Vec<char> = LETTERS[..sha.len()].to_vec();
        let mut fresh = LETTERS[sha.len()..].iter();
        let mut lb: Vec<char> = Vec::new();
        for (d, &n) in shb.iter().enumerate() {
            let share = step.attr >> (d % 4) & 1 == 0;
            let shared = la
                .iter()
                .zip(&sha)
                .find(|(l, m)| share && **m == n && !lb.contains(l))
                .map(|(l, _)| *l);
            let Some(label) = shared.or_else(|| fresh.next().copied()) else { return Ok(None) };
            lb.push(label);
        }
        let mut all = la.clone();
        all.extend(lb.iter().filter(|l| !la.contains(l)));
        let mut result: Vec<char> = all
            .iter()
            .enumerate()
            .filter(|(i, l)| {
                let both = la.contains(l) && lb.contains(l);
                // Shared labels are contracted by preference.
                if both { step.attr >> (4 + i) & 3 == 3 } else { step.attr >> (6 + i) & 3 != 3 }
            })
            .map(|(_, l)| *l)
            .collect();
        if step.attr & 0x8000 != 0 {
            result.reverse();
        }
        let text = |l: &[char]| l.iter().collect::<String>();
        let elements = |labels: &[char]| -> usize {
            labels
                .iter()
                .map(|l| {
                    la.iter().position(|x| x == l).map_or_else(
                        || lb.iter().position(|x| x == l).map_or(1, |d| shb[d]),
                        |d| sha[d],
                    )
                })
                .product()
        };
        if elements(&result) > MAX_ELEMENTS {
            return Ok(None);
        }
        #[allow(clippy::cast_precision_loss)]
        let inner = (elements(&all) / elements(&result)) as f64;
        let spec = format!("{},{}->{}", text(&la), text(&lb), text(&result));
        Ok(Some((a.einsum(&spec, b)?, sa * sb * inner)))
    }

    fn reduce(&mut self, step: Step) -> Made<'g> {
        let (x, size) = self.back(step.a);
        let rank = x.ty().rank();
        let mut dims: Vec<usize> = (0..rank).filter(|d| step.b >> d & 1 == 1).collect();
        if dims.is_empty() && rank > 0 {
            dims.push(usize::from(step.attr >> 2) % rank);
        }
        if dims.is_empty() {
            return Ok(None);
        }
        #[allow(clippy::cast_precision_loss)]
        let elements = x.ty().elements() as f64;
        Ok(Some(match step.attr % 3 {
            0 => (x.sum(&dims)?, size * elements),
            1 => (x.max(&dims)?, size),
            _ if self.exact => (x.sum(&dims)?, size * elements),
            _ => (x.mean(&dims)?, size),
        }))
    }

    fn transpose(&mut self, step: Step) -> Made<'g> {
        let (x, size) = self.back(step.a);
        let mut perm: Vec<usize> = (0..x.ty().rank()).collect();
        if perm.len() < 2 {
            return Ok(None);
        }
        let turn = 1 + usize::from(step.attr) % (perm.len() - 1);
        perm.rotate_left(turn);
        Ok(Some((x.transpose(&perm)?, size)))
    }

    fn reshape(&mut self, step: Step) -> Made<'g> {
        let (x, size) = self.back(step.a);
        let mut shape = x.shape().to_vec();
        match step.attr % 4 {
            0 => shape = vec![x.ty().elements()],
            1 => shape.insert(usize::from(step.b) % (shape.len() + 1), 1),
            2 if shape.len() > 1 => {
                let d = usize::from(step.b) % (shape.len() - 1);
                let merged = shape[d] * shape.remove(d + 1);
                shape[d] = merged;
            }
            _ => {
                let divides =
                    |n: usize| [2, 3, 5].into_iter().find(|f| n > *f && n.is_multiple_of(*f));
                let Some((d, f)) =
                    shape.iter().enumerate().find_map(|(d, &n)| divides(n).map(|f| (d, f)))
                else {
                    return Ok(None);
                };
                shape[d] /= f;
                shape.insert(d + usize::from(step.b & 1), f);
            }
        }
        Ok(Some((x.reshape(&shape)?, size)))
    }

    fn broadcast(&mut self, step: Step) -> Made<'g> {
        let (x, size) = self.back(step.a);
        let mut shape = x.shape().to_vec();
        let at = usize::from(step.b) % (shape.len() + 1);
        shape.insert(at, 1 + usize::from(step.attr) % 4);
        let dims: Vec<usize> = (0..shape.len()).filter(|&d| d != at).collect();
        if shape.iter().product::<usize>() > MAX_ELEMENTS {
            return Ok(None);
        }
        Ok(Some((x.broadcast(&dims, &shape)?, size)))
    }

    fn affine(&mut self, step: Step) -> Made<'g> {
        let (x, size) = self.back(step.a);
        let constants = [2.0, -1.0, 0.5, -3.0];
        let c = constants[usize::from(step.attr >> 1) % constants.len()];
        Ok(Some(if step.attr & 1 == 0 {
            (x.scale(c)?, 3.0 * size)
        } else {
            (x.add_const(c)?, size + 3.0)
        }))
    }

    /// A mask times a value: where gradients are cut.
    fn compare(&mut self, step: Step) -> Made<'g> {
        let (a, sa) = self.back(step.a);
        let (b, sb) = self.like(a, step.b);
        let comparison = Comparison::ALL[usize::from(step.attr >> 1) % Comparison::ALL.len()];
        let mask = if step.attr & 1 == 0 {
            a.compare_const(comparison, 0.25)?
        } else {
            a.compare(comparison, b)?
        };
        Ok(Some((mask.mul(b)?, sa.max(sb))))
    }

    fn identity(&mut self, step: Step) -> Made<'g> {
        let (x, size) = self.back(step.a);
        if step.attr & 1 == 0 {
            Ok(Some((self.graph.apply(Op::Constrain, &[x])?, size)))
        } else {
            Ok(Some((x.stop_gradient()?.mul(x)?, size * size)))
        }
    }

    fn one_hot(&mut self, step: Step) -> Made<'g> {
        let rows = 1 + usize::from(step.attr) % 5;
        let classes = 2 + usize::from(step.b) % 4;
        let name = format!("y{}", self.graph.len());
        let labels = self.graph.labels(&name, [rows])?;
        let hot = labels.one_hot(classes)?;
        Ok(Some((hot, 1.0)))
    }

    /// x − max − ln Σ e^(x − max) over the last dim.
    fn log_softmax(&mut self, step: Step) -> Made<'g> {
        let (x, size) = self.back(step.a);
        let shape = x.shape();
        if self.exact || shape.is_empty() {
            return Ok(None);
        }
        let last = shape.len() - 1;
        let kept: Vec<usize> = (0..last).collect();
        let wide = |v: Var<'g>| v.broadcast(&kept, &shape);
        let shifted = x.sub(wide(x.max(&[last])?.stop_gradient()?)?)?;
        let norm = shifted.exp()?.sum(&[last])?.log()?;
        Ok(Some((shifted.sub(wide(norm)?)?, 2.0 * size + 3.0)))
    }

    /// x/√(mean x² + ½) over the last dim.
    fn normalised(&mut self, step: Step) -> Made<'g> {
        let (x, _) = self.back(step.a);
        let shape = x.shape();
        if self.exact || shape.is_empty() {
            return Ok(None);
        }
        let last = shape.len() - 1;
        let kept: Vec<usize> = (0..last).collect();
        let norm = x.square()?.mean(&[last])?.add_const(0.5)?.sqrt()?;
        #[allow(clippy::cast_precision_loss)]
        Ok(Some((x.div(norm.broadcast(&kept, &shape)?)?, shape[last] as f64)))
    }

    /// The loss of the last one or two values, its gradients, and perhaps another output.
    pub(super) fn finish(&mut self, loss: u8) -> Result<(), Error> {
        let graph = self.graph;
        let Some(&(last, _)) = self.pool.last() else { return Ok(()) };
        let mut total = self.weighed(last, loss % 3)?;
        if loss & 4 != 0 && self.pool.len() > 1 {
            let (second, _) = self.pool[self.pool.len() - 2];
            total = total.add(self.weighed(second, (loss >> 4) % 3)?)?;
        }
        graph.output("loss", total, OutputRole::Loss)?;
        if loss & 8 != 0 {
            graph.output("value", last, OutputRole::Value)?;
        }
        let leaves: Vec<Var<'g>> = self.leaves.iter().map(|(_, v)| *v).collect();
        let gradients = graph.grad(total, &leaves)?;
        for ((name, leaf), gradient) in self.leaves.iter().zip(gradients) {
            let name = format!("grad({name})");
            let gradient = if graph.node(gradient.id()).leaf_role().is_some() {
                gradient
            } else {
                // One value can be the gradient of two leaves; it keeps its first name.
                gradient.named(&name).unwrap_or(gradient)
            };
            graph.output(&name, gradient, OutputRole::Gradient { of: leaf.id() })?;
        }
        Ok(())
    }

    /// Σ v, ½-free Σ v², or Σ v·k with a k that tells elements apart.
    fn weighed(&mut self, v: Var<'g>, how: u8) -> Result<Var<'g>, Error> {
        match how {
            0 => {
                let shape = v.shape();
                let k = self.leaf(Role::Input, &shape)?;
                v.mul(k)?.sum_all()
            }
            1 => v.square()?.sum_all(),
            _ => v.sum_all(),
        }
    }
}
