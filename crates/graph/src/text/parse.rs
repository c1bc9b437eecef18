//! Reading a program's text, line by line.

use std::collections::BTreeMap;

use shardgrad_core::{DType, LayoutSpec, TensorType};
use smallvec::SmallVec;

use super::{is_plain, op};
use crate::error::Error;
use crate::node::{Node, NodeId, Output, OutputRole, Phase};
use crate::program::{Half, Layer, Program};

/// Reads the text form of a program (grammar: [module](crate::text)).
///
/// ```
/// use shardgrad_graph::text::parse_program;
/// let text = "program p\nforward:\n  %0 = input x : f32[4]\n  %1 = relu(%0) : f32[4]\noutputs:\n  y = %1, value\n";
/// let program = parse_program(text)?;
/// assert_eq!(parse_program(&program.to_string())?, program);
/// let error = parse_program("program p\nforward:\n  %0 = inptu x : f32[4]").unwrap_err();
/// assert!(error.to_string().starts_with("line 3: "));
/// # Ok::<(), shardgrad_graph::Error>(())
/// ```
///
/// # Errors
/// Names the line, what was found there and what was expected; or what is wrong with the program as a whole.
pub fn parse_program(text: &str) -> Result<Program, Error> {
    let mut program = Program {
        name: String::new(),
        nodes: Vec::new(),
        names: BTreeMap::new(),
        layers: Vec::new(),
        outputs: Vec::new(),
        pins: BTreeMap::new(),
    };
    let mut section = None;
    for (index, text) in text.lines().enumerate() {
        let mut line = Line { number: index + 1, rest: text.trim() };
        if line.rest.is_empty() {
            continue;
        }
        let Some(now) = section else {
            line.word("program")?;
            program.name = line.name()?;
            line.end()?;
            section = Some(Section::Start);
            continue;
        };
        if let Some(next) = Section::of(line.rest) {
            section = Some(next);
            continue;
        }
        match now {
            Section::Start => {
                return Err(line.expected("a section: forward:, layers:, outputs: or pins:"));
            }
            Section::Nodes(phase) => node(&mut line, phase, &mut program)?,
            Section::Layers => program.layers.push(layer(&mut line)?),
            Section::Outputs => {
                let output = output(&mut line)?;
                program.outputs.push(output);
            }
            Section::Pins => {
                let before = line.rest;
                let name = line.name()?;
                line.symbol("=")?;
                let spec: LayoutSpec = std::mem::take(&mut line.rest)
                    .parse()
                    .map_err(|e| line.at(before, &format!("a layout ({e})")))?;
                if program.pins.insert(name, spec).is_some() {
                    return Err(line.at(before, "one pin for each name"));
                }
            }
        }
    }
    if section.is_none() {
        let line = Line { number: 1, rest: "" };
        return Err(line.expected("`program` and a name"));
    }
    program.validate()?;
    Ok(program)
}

#[derive(Clone, Copy)]
enum Section {
    Start,
    Nodes(Phase),
    Layers,
    Outputs,
    Pins,
}

impl Section {
    fn of(line: &str) -> Option<Self> {
        match line {
            "forward:" => Some(Section::Nodes(Phase::Forward)),
            "backward:" => Some(Section::Nodes(Phase::Backward)),
            "update:" => Some(Section::Nodes(Phase::Update)),
            "layers:" => Some(Section::Layers),
            "outputs:" => Some(Section::Outputs),
            "pins:" => Some(Section::Pins),
            _ => None,
        }
    }
}

fn node(line: &mut Line<'_>, phase: Phase, program: &mut Program) -> Result<(), Error> {
    let before = line.rest;
    let id = line.id()?;
    if id.index() != program.nodes.len() {
        return Err(line.at(before, &format!("node %{}, the next one", program.nodes.len())));
    }
    line.symbol("=")?;
    let at_op = line.rest;
    let word = line.plain()?;
    let role = op::role(word);
    let mut leaf_name = None;
    let mut attribute = None;
    let mut operands: SmallVec<[NodeId; 2]> = SmallVec::new();
    if role.is_some() {
        leaf_name = Some(line.name()?);
    } else {
        while line.rest.starts_with('(') {
            if line.rest[1..].trim_start().starts_with('%') {
                line.symbol("(")?;
                operands.push(line.id()?);
                while line.rest.starts_with(',') {
                    line.symbol(",")?;
                    operands.push(line.id()?);
                }
                line.symbol(")")?;
                break;
            }
            if attribute.is_some() {
                return Err(line.expected("operands like (%0, %1)"));
            }
            let Some((text, rest)) = line.rest[1..].split_once(')') else {
                return Err(line.expected("an attribute in parentheses"));
            };
            attribute = Some(text);
            line.rest = rest.trim_start();
        }
    }
    line.symbol(":")?;
    let ty = line.ty()?;
    let op = match (role, leaf_name) {
        (Some(role), Some(name)) => {
            program.names.insert(name.clone(), id);
            op::leaf(role, name, &ty)
        }
        _ => op::parse(word, attribute, &ty).map_err(|expected| line.at(at_op, &expected))?,
    };
    let mut layer = None;
    if line.rest.starts_with("layer") {
        line.word("layer")?;
        layer = Some(line.number("the number of a layer")?);
    }
    if line.rest.starts_with('#') {
        line.symbol("#")?;
        loop {
            let at_name = line.rest;
            let name = line.name()?;
            if program.names.insert(name, id).is_some() {
                return Err(line.at(at_name, "a name that no other value has"));
            }
            if !line.rest.starts_with(',') {
                break;
            }
            line.symbol(",")?;
        }
    }
    line.end()?;
    program.nodes.push(Node { op, operands, ty, phase, layer });
    Ok(())
}

fn layer(line: &mut Line<'_>) -> Result<Layer, Error> {
    line.word("input")?;
    let input = line.id()?;
    line.symbol(",")?;
    line.word("weight")?;
    let weight = line.id()?;
    line.symbol(",")?;
    let mut bias = None;
    if line.rest.starts_with("bias") {
        line.word("bias")?;
        bias = Some(line.id()?);
        line.symbol(",")?;
    }
    line.word("output")?;
    let output = line.id()?;
    line.symbol(",")?;
    line.word("labels")?;
    let letters = line.rest;
    let rest = std::mem::take(&mut line.rest);
    let (labels, half) = match rest.split_once(',').map(|(labels, half)| (labels, half.trim())) {
        None => (rest, None),
        Some((labels, "opens")) => (labels, Some(Half::Opens)),
        Some((labels, "closes")) => (labels, Some(Half::Closes)),
        Some(_) => return Err(line.at(letters, "opens or closes behind the comma, or no comma")),
    };
    let mut parts = labels.split('|').map(str::trim);
    let one = |part: Option<&str>| {
        let mut chars = part?.chars();
        chars.next().filter(|_| chars.next().is_none())
    };
    let (batch, in_label, out_label) = (parts.next(), one(parts.next()), one(parts.next()));
    let of_weight = parts.next().unwrap_or_default();
    match (batch, in_label, out_label, parts.next()) {
        (Some(batch), Some(in_label), Some(out_label), None) => Ok(Layer {
            input,
            weight,
            bias,
            output,
            batch: batch.chars().collect(),
            in_label,
            out_label,
            weight_labels: of_weight.chars().collect(),
            half,
        }),
        _ => Err(line.at(letters, "labels of batch, input and output, like b|i|o")),
    }
}

fn output(line: &mut Line<'_>) -> Result<Output, Error> {
    let name = line.name()?;
    line.symbol("=")?;
    let node = line.id()?;
    line.symbol(",")?;
    let before = line.rest;
    let role = match line.plain()? {
        "loss" => OutputRole::Loss,
        "value" => OutputRole::Value,
        "gradient" => {
            line.word("of")?;
            OutputRole::Gradient { of: line.id()? }
        }
        "update" => {
            line.word("of")?;
            OutputRole::Update { of: line.id()? }
        }
        _ => return Err(line.at(before, "loss, value, gradient of %n or update of %n")),
    };
    line.end()?;
    Ok(Output { name, node, role })
}

/// What is left of a line; leading spaces are always gone.
struct Line<'a> {
    number: usize,
    rest: &'a str,
}

impl<'a> Line<'a> {
    /// An error about what stands at `found`.
    fn at(&self, found: &str, expected: &str) -> Error {
        let shown: String = match found.char_indices().nth(40) {
            Some((end, _)) => format!("`{}…`", &found[..end]),
            None if found.is_empty() => "the end of the line".to_owned(),
            None => format!("`{found}`"),
        };
        Error::Syntax { line: self.number, found: shown, expected: expected.to_owned() }
    }

    /// An error about what comes next.
    fn expected(&self, expected: &str) -> Error {
        self.at(self.rest, expected)
    }

    fn symbol(&mut self, symbol: &str) -> Result<(), Error> {
        match self.rest.strip_prefix(symbol) {
            Some(rest) => {
                self.rest = rest.trim_start();
                Ok(())
            }
            None => Err(self.expected(&format!("`{symbol}`"))),
        }
    }

    /// Letters, digits, `_` as far as they go.
    fn plain(&mut self) -> Result<&'a str, Error> {
        let end = self
            .rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .unwrap_or(self.rest.len());
        if end == 0 {
            return Err(self.expected("a word"));
        }
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        Ok(word)
    }

    fn word(&mut self, word: &str) -> Result<(), Error> {
        let before = self.rest;
        match self.plain() {
            Ok(found) if found == word => Ok(()),
            _ => Err(self.at(before, &format!("`{word}`"))),
        }
    }

    fn name(&mut self) -> Result<String, Error> {
        if self.rest.starts_with('"') {
            let mut values = serde_json::Deserializer::from_str(self.rest).into_iter::<String>();
            let Some(Ok(name)) = values.next() else {
                return Err(self.expected("a name in double quotes"));
            };
            self.rest = self.rest[values.byte_offset()..].trim_start();
            return Ok(name);
        }
        let end = self.rest.find(|c| !is_plain(c)).unwrap_or(self.rest.len());
        if end == 0 {
            return Err(self.expected("a name"));
        }
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        Ok(name.to_owned())
    }

    fn number<N: std::str::FromStr>(&mut self, expected: &str) -> Result<N, Error> {
        let before = self.rest;
        let digits = self.plain().map_err(|_| self.at(before, expected))?;
        digits.parse().map_err(|_| self.at(before, expected))
    }

    fn id(&mut self) -> Result<NodeId, Error> {
        let before = self.rest;
        let expected = "a node like %0";
        self.rest = self.rest.strip_prefix('%').ok_or_else(|| self.at(before, expected))?;
        self.number(expected).map(NodeId).map_err(|_| self.at(before, expected))
    }

    fn ty(&mut self) -> Result<TensorType, Error> {
        let before = self.rest;
        let expected = || self.at(before, "a type like f32[64, 10]");
        let (word, rest) = before.split_once('[').ok_or_else(expected)?;
        let (shape, rest) = rest.split_once(']').ok_or_else(expected)?;
        let dtype = [DType::F32, DType::F64, DType::I32, DType::I64]
            .into_iter()
            .find(|dtype| dtype.to_string() == word.trim())
            .ok_or_else(expected)?;
        let shape = op::dims(&format!("[{shape}]")).map_err(|_| expected())?;
        self.rest = rest.trim_start();
        Ok(TensorType::new(shape, dtype))
    }

    fn end(&self) -> Result<(), Error> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.expected("the end of the line")) }
    }
}
