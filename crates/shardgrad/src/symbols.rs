//! Names for people: letters for dims, beside the names of values.
//!
//! Dims that some op runs together (they carry one label of its signature) are one class. In a program with recorded
//! layers the classes of the layers' dims get letters: `B` for the batch, `D` for the first layer's input width, `H` (`H1`,
//! `H2` … if there are several) for the widths between layers, `O` for the last output width. Where layers look rows up,
//! in models of tokens, `B` is the batch, `S` the sequence, `V` the vocabulary, `D` the width, `H` heads and `F` the features
//! between two layers; a number follows where extents differ. Every other class is shown as its extent.

use shardgrad_graph::{Half, Layer, Names, NodeId, Program};

/// Letters and names of a program's values.
pub(crate) struct Symbols<'a> {
    program: &'a Program,
    /// For every node and dim, its class.
    classes: Vec<Vec<usize>>,
    /// The letter of every class that has one.
    letters: Vec<Option<String>>,
    names: Names<'a>,
}

/// Classes under union; the smallest member stands for the class.
struct Classes(Vec<usize>);

impl Classes {
    fn find(&mut self, mut x: usize) -> usize {
        while self.0[x] != x {
            self.0[x] = self.0[self.0[x]];
            x = self.0[x];
        }
        x
    }

    fn union(&mut self, a: usize, b: usize) {
        let (a, b) = (self.find(a), self.find(b));
        self.0[a.max(b)] = a.min(b);
    }
}

/// Whether a layer takes integers: rows of a table by their numbers.
fn looks_up(program: &Program, layer: &Layer) -> bool {
    !program.node(layer.input).ty.dtype.is_float()
}

/// The dims of a layer that get letters, in models of tokens.
fn letters_of_tokens(
    program: &Program,
    layer: &Layer,
    last: bool,
) -> Vec<(NodeId, Option<usize>, &'static str)> {
    let (inputs, outputs) = (layer.weight_dim(layer.in_label), layer.weight_dim(layer.out_label));
    let many = program.node(layer.weight).ty.rank() > 2;
    let mut letters = vec![(layer.output, Some(0), "B"), (layer.output, Some(1), "S")];
    if looks_up(program, layer) {
        letters.extend([(layer.weight, inputs, "V"), (layer.weight, outputs, "D")]);
    } else if layer.half == Some(Half::Opens) {
        // What the last layer opens, nothing closes: those are scores.
        let letter = match (last, many) {
            (true, _) => "V",
            (false, true) => "H",
            (false, false) => "F",
        };
        letters.push((layer.weight, outputs, letter));
    }
    letters
}

/// A letter, with a number if it stands for another extent already.
fn numbered(letter: &str, extent: usize, known: &mut Vec<(String, usize)>) -> String {
    let mut name = letter.to_owned();
    let mut number = 1;
    while let Some((_, other)) = known.iter().find(|(n, _)| *n == name) {
        if *other == extent {
            return name;
        }
        number += 1;
        name = format!("{letter}{number}");
    }
    known.push((name.clone(), extent));
    name
}

impl<'a> Symbols<'a> {
    pub(crate) fn new(program: &'a Program) -> Self {
        let mut offsets = vec![0];
        for node in &program.nodes {
            offsets.push(offsets[offsets.len() - 1] + node.ty.rank());
        }
        let total = offsets[program.nodes.len()];
        let mut classes = Classes((0..total).collect());
        for id in program.ids() {
            let node = program.node(id);
            let signature = node.op.signature(&program.operand_types(id), &node.ty);
            let mut seen: Vec<(char, usize, usize)> = Vec::new();
            let tensors = signature.operands.iter().zip(&node.operands);
            for (labels, tensor) in tensors.chain([(&signature.result, &id)]) {
                for (dim, &label) in labels.iter().enumerate() {
                    let slot = offsets[tensor.index()] + dim;
                    let extent = program.node(*tensor).ty.shape[dim];
                    // A reshape's label may run over dims of different extents; those are not one dim.
                    match seen.iter().find(|(l, _, e)| *l == label && *e == extent) {
                        Some(&(_, other, _)) => classes.union(other, slot),
                        None => seen.push((label, slot, extent)),
                    }
                }
            }
        }
        let mut letters = vec![None; total];
        let mut give = |id: NodeId, dim: Option<usize>, letter: String| {
            if let Some(dim) = dim.filter(|&d| d < program.node(id).ty.rank()) {
                letters[classes.find(offsets[id.index()] + dim)].get_or_insert(letter);
            }
        };
        if program.layers.iter().any(|layer| looks_up(program, layer)) {
            let mut known = Vec::new();
            for (index, layer) in program.layers.iter().enumerate() {
                let last = index + 1 == program.layers.len();
                for (id, dim, letter) in letters_of_tokens(program, layer, last) {
                    let Some(&extent) = dim.and_then(|d| program.node(id).ty.shape.get(d)) else {
                        continue;
                    };
                    give(id, dim, numbered(letter, extent, &mut known));
                }
            }
        } else {
            let last = program.layers.len().saturating_sub(1);
            for (index, layer) in program.layers.iter().enumerate() {
                let features = program.node(layer.input).ty.rank() - 1;
                for dim in 0..features {
                    give(
                        layer.input,
                        Some(dim),
                        if dim == 0 { "B".into() } else { format!("B{dim}") },
                    );
                }
                if index == 0 {
                    give(layer.weight, Some(0), "D".to_owned());
                }
                let width = match (index == last, last) {
                    (true, _) => "O".to_owned(),
                    (false, 1) => "H".to_owned(),
                    (false, _) => format!("H{}", index + 1),
                };
                give(layer.weight, Some(1), width);
            }
        }
        let classes = program
            .ids()
            .map(|id| {
                (0..program.node(id).ty.rank())
                    .map(|dim| classes.find(offsets[id.index()] + dim))
                    .collect()
            })
            .collect();
        Self { program, classes, letters, names: Names::new(program) }
    }

    /// The number of elements of a value, as in `B·D`.
    pub(crate) fn size(&self, id: NodeId) -> String {
        let node = self.program.node(id);
        if node.ty.rank() == 0 {
            return "1".to_owned();
        }
        let symbols: Vec<String> = self.classes[id.index()]
            .iter()
            .zip(&node.ty.shape)
            .map(|(&class, extent)| {
                self.letters[class].clone().unwrap_or_else(|| extent.to_string())
            })
            .collect();
        symbols.join("·")
    }

    /// What the letters stand for, as in `B=64, D=64, H=128, O=10`.
    pub(crate) fn legend(&self) -> String {
        let mut known: Vec<(&str, usize)> = Vec::new();
        for id in self.program.ids() {
            for (&class, &extent) in
                self.classes[id.index()].iter().zip(&self.program.node(id).ty.shape)
            {
                if let Some(letter) = &self.letters[class]
                    && !known.iter().any(|(l, _)| l == letter)
                {
                    known.push((letter, extent));
                }
            }
        }
        let order = |letter: &str| "BSVDHFO".find(&letter[..1]).unwrap_or(7);
        known.sort_by(|a, b| (order(a.0), a.0.len(), a.0).cmp(&(order(b.0), b.0.len(), b.0)));
        known.iter().map(|(l, n)| format!("{l}={n}")).collect::<Vec<_>>().join(", ")
    }

    /// What a value is called.
    pub(crate) fn name(&self, id: NodeId) -> String {
        self.names.name(id)
    }
}
