//! Random small programs: products, arithmetic, functions, sums, transposes and broadcasts of matrices and rows.

use proptest::collection::vec;
use proptest::prelude::{Strategy, any};
use shardgrad_core::DType;
use shardgrad_graph::{Graph, OutputRole, Program, Var};

/// Extents of dims: none splits evenly over three devices, one of them not over two.
const EXTENTS: [usize; 3] = [5, 4, 2];

/// An op and two operands, by number; what does not fit becomes something that does.
pub(crate) type Choice = (u8, u8, u8);

/// Choices of up to so many ops.
pub(crate) fn choices(most: usize) -> impl Strategy<Value = Vec<Choice>> {
    vec(any::<Choice>(), 1..=most)
}

/// The program of some choices. Values that nobody reads are outputs.
pub(crate) fn program(choices: &[Choice]) -> Program {
    let g = Graph::new("random", DType::F32);
    let [m, k, n] = EXTENTS;
    let mut values: Vec<Var<'_>> = vec![
        g.input("x", [m, k]).unwrap(),
        g.param("w", [k, n]).unwrap(),
        g.param("b", [n]).unwrap(),
    ];
    let leaves = values.len();
    let mut read = vec![false; leaves];
    for &(op, i, j) in choices {
        let (i, j) = (usize::from(i) % values.len(), usize::from(j) % values.len());
        let (a, b) = (values[i], values[j]);
        let (made, reads) = apply(op, (i, a), (j, b));
        reads.into_iter().for_each(|value| read[value] = true);
        values.push(made);
        read.push(false);
    }
    for (i, &value) in values.iter().enumerate().skip(leaves).filter(|(i, _)| !read[*i]) {
        g.output(&format!("o{i}"), value, OutputRole::Value).unwrap();
    }
    g.finish()
}

/// The value, and which operands it reads.
fn apply<'g>(op: u8, (i, a): (usize, Var<'g>), (j, b): (usize, Var<'g>)) -> (Var<'g>, Vec<usize>) {
    let (left, right) = (a.shape(), b.shape());
    let both = vec![i, j];
    match (op % 8, left.as_slice(), right.as_slice()) {
        (0 | 1, [_, c], [r, _]) if c == r => (a.matmul(b).unwrap(), both),
        (0 | 1, [r, _], [s, _]) if r == s => (a.einsum("ki,kj->ij", b).unwrap(), both),
        (0 | 1, [_, c], [_, d]) if c == d => (a.einsum("ik,jk->ij", b).unwrap(), both),
        (2, l, r) if l == r => (a.add(b).unwrap(), both),
        (3, l, r) if l == r => (a.mul(b).unwrap(), both),
        (4, [_, _], _) => (a.sum(&[usize::from(op / 8 % 2)]).unwrap(), vec![i]),
        (5, [_, _], _) => (a.transpose(&[1, 0]).unwrap(), vec![i]),
        (6, [n], _) => (a.broadcast(&[1], &[3, *n]).unwrap(), vec![i]),
        (0..=3, ..) => (a.scale(-2.0).unwrap(), vec![i]),
        _ => (a.relu().unwrap(), vec![i]),
    }
}
