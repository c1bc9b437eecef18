//! Programs and plans as text: one node per line, aligned. Programs can be read back ([`parse_program`]), exactly.
//!
//! ```text
//! program two-layers
//!
//! forward:
//!   %0 = input x                        : f32[8, 6]
//!   %1 = param w0                       : f32[6, 4]
//!   %2 = einsum(bi,io->bo)(%0, %1)      : f32[8, 4]  layer 0  # h0
//!   %3 = sum([0, 1])(%2)                : f32[]
//!
//! layers:
//!   input %0, weight %1, output %2, labels b|i|o
//!
//! outputs:
//!   loss = %3, loss
//!
//! pins:
//!   x = [dp: S(0)]
//! ```
//!
//! # Grammar
//!
//! Blank lines and spaces between words do not matter. Sections come in any order and may repeat, but nodes must be
//! numbered 0, 1, 2 … and come before they are used.
//!
//! ```text
//! program   = "program" name { section }
//! section   = ( "forward:" | "backward:" | "update:" ) { node }
//!           | "layers:" { layer } | "outputs:" { output } | "pins:" { pin }
//! node      = id "=" op ":" type [ "layer" number ] [ "#" name { "," name } ]
//! op        = ( "input" | "param" | "state" | "scalar" ) name
//!           | "fill" "(" number ")"
//!           | word [ "(" attribute ")" ] "(" id { "," id } ")"
//! type      = ( "f32" | "f64" | "i32" | "i64" ) "[" [ number { "," number } ] "]"
//! layer     = "input" id "," "weight" id "," [ "bias" id "," ] "output" id "," "labels" letters "|" letter "|" letter
//!             [ "|" letters ] [ "," ( "opens" | "closes" ) ]
//! output    = name "=" id "," ( "loss" | "value" | "gradient of" id | "update of" id )
//! pin       = name "=" layout
//! name      = plain | JSON string      (plain: letters, digits and . _ - ( ) / )
//! id        = "%" number
//! ```
//!
//! A layer's labels are those of the batch, of input and output features and, where the weight is not `[in, out]`, of its
//! dims. Attributes are those that [`Op`](shardgrad_core::Op) prints. The names behind `#` are the value's; a leaf's own name
//! is not repeated there.

mod op;
mod parse;
mod plan;

use std::fmt;

use crate::node::{Node, NodeId, OutputRole, Phase};
use crate::program::{Half, Program};

pub use parse::parse_program;
pub use plan::display_plan;

/// A name as it stands in text: plain if it can be, else as a JSON string.
pub(crate) fn quoted(name: &str) -> String {
    if !name.is_empty() && name.chars().all(is_plain) {
        name.to_owned()
    } else {
        serde_json::Value::from(name).to_string()
    }
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._-()/".contains(c)
}

/// Lines of cells; cells that stand in the same column start at the same place.
#[derive(Default)]
struct Table {
    rows: Vec<Row>,
}

enum Row {
    Heading(String),
    Cells(Vec<String>),
}

/// Cells longer than this do not push the other lines' columns to the right.
const WIDEST: usize = 72;

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths: Vec<usize> = Vec::new();
        for row in &self.rows {
            if let Row::Cells(cells) = row {
                for (column, cell) in cells.iter().enumerate() {
                    let width = cell.chars().count();
                    if column == widths.len() {
                        widths.push(0);
                    }
                    if width <= WIDEST {
                        widths[column] = widths[column].max(width);
                    }
                }
            }
        }
        for row in &self.rows {
            match row {
                Row::Heading(text) => writeln!(f, "{text}")?,
                Row::Cells(cells) => {
                    let mut line = String::new();
                    let mut due = 0;
                    for (cell, width) in cells.iter().zip(&widths) {
                        if !cell.is_empty() {
                            let missing = due.max(line.chars().count()) - line.chars().count();
                            line.extend(std::iter::repeat_n(' ', missing));
                            line.push_str(cell);
                        }
                        due += width;
                    }
                    writeln!(f, "{}", line.trim_end())?;
                }
            }
        }
        Ok(())
    }
}

impl Table {
    /// Starts a phase if it differs from the last.
    fn phase(&mut self, last: &mut Option<Phase>, phase: Phase) {
        if *last != Some(phase) {
            self.rows.push(Row::Heading(String::new()));
            self.rows.push(Row::Heading(format!("{phase}:")));
            *last = Some(phase);
        }
    }
}

/// `%3 = add(%1, %2)`.
fn left_side(id: NodeId, node: &Node) -> String {
    let operands: Vec<String> = node.operands.iter().map(ToString::to_string).collect();
    let operands =
        if operands.is_empty() { String::new() } else { format!("({})", operands.join(", ")) };
    format!("{id} = {}{operands}", op::display(&node.op))
}

/// `%4, update of %1`.
fn role(role: OutputRole) -> String {
    match role {
        OutputRole::Loss => "loss".to_owned(),
        OutputRole::Value => "value".to_owned(),
        OutputRole::Gradient { of } => format!("gradient of {of}"),
        OutputRole::Update { of } => format!("update of {of}"),
    }
}

impl fmt::Display for Program {
    /// The text form; [`parse_program`] reads it back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "program {}", quoted(&self.name))?;
        let mut names: Vec<Vec<String>> = vec![Vec::new(); self.nodes.len()];
        for (name, id) in &self.names {
            let own = self.nodes.get(id.index()).and_then(Node::leaf_name) == Some(name);
            if let Some(names) = names.get_mut(id.index()).filter(|_| !own) {
                names.push(quoted(name));
            }
        }
        let (mut table, mut phase) = (Table::default(), None);
        for (id, node) in self.ids().zip(&self.nodes) {
            table.phase(&mut phase, node.phase);
            let layer = node.layer.map(|l| format!("  layer {l}")).unwrap_or_default();
            let names = &names[id.index()];
            let names =
                if names.is_empty() { String::new() } else { format!("  # {}", names.join(", ")) };
            table.rows.push(Row::Cells(vec![
                format!("  {}", left_side(id, node)),
                format!("  : {}", node.ty),
                layer,
                names,
            ]));
        }
        write!(f, "{table}")?;
        if !self.layers.is_empty() {
            writeln!(f, "\nlayers:")?;
            for layer in &self.layers {
                let bias = layer.bias.map(|b| format!("bias {b}, ")).unwrap_or_default();
                let weight: String = match layer.weight_labels.is_empty() {
                    true => String::new(),
                    false => std::iter::once(&'|').chain(&layer.weight_labels).collect(),
                };
                let half = match layer.half {
                    None => "",
                    Some(Half::Opens) => ", opens",
                    Some(Half::Closes) => ", closes",
                };
                writeln!(
                    f,
                    "  input {}, weight {}, {bias}output {}, labels {}|{}|{}{weight}{half}",
                    layer.input,
                    layer.weight,
                    layer.output,
                    layer.batch.iter().collect::<String>(),
                    layer.in_label,
                    layer.out_label
                )?;
            }
        }
        if !self.outputs.is_empty() {
            writeln!(f, "\noutputs:")?;
            for output in &self.outputs {
                writeln!(f, "  {} = {}, {}", quoted(&output.name), output.node, role(output.role))?;
            }
        }
        if !self.pins.is_empty() {
            writeln!(f, "\npins:")?;
            for (name, spec) in &self.pins {
                writeln!(f, "  {} = {spec}", quoted(name))?;
            }
        }
        Ok(())
    }
}
