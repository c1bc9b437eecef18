//! The text form of an optimizer in model files: a name, or a table of a name and hyperparameters.

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Optimizer;
use crate::error::Error;

/// `[optimizer]`; what is absent has its default.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lr: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    momentum: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    beta1: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    beta2: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    eps: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weight_decay: Option<f64>,
}

impl Table {
    /// The hyperparameters that are there, by key.
    pub(super) fn numbers(&self) -> impl Iterator<Item = (&'static str, f64)> {
        [
            ("lr", self.lr),
            ("momentum", self.momentum),
            ("beta1", self.beta1),
            ("beta2", self.beta2),
            ("eps", self.eps),
            ("weight_decay", self.weight_decay),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)))
    }
}

impl From<Optimizer> for Table {
    fn from(optimizer: Optimizer) -> Self {
        let mut table = Table {
            name: optimizer.name().to_owned(),
            lr: None,
            momentum: None,
            beta1: None,
            beta2: None,
            eps: None,
            weight_decay: None,
        };
        match optimizer {
            Optimizer::None => {}
            Optimizer::Sgd { lr, weight_decay } => {
                (table.lr, table.weight_decay) = (Some(lr), Some(weight_decay));
            }
            Optimizer::Momentum { lr, momentum, weight_decay } => {
                (table.lr, table.weight_decay) = (Some(lr), Some(weight_decay));
                table.momentum = Some(momentum);
            }
            Optimizer::Adam { lr, beta1, beta2, eps, weight_decay }
            | Optimizer::AdamW { lr, beta1, beta2, eps, weight_decay } => {
                (table.lr, table.weight_decay) = (Some(lr), Some(weight_decay));
                (table.beta1, table.beta2, table.eps) = (Some(beta1), Some(beta2), Some(eps));
            }
        }
        table
    }
}

impl TryFrom<Table> for Optimizer {
    type Error = Error;

    fn try_from(table: Table) -> Result<Self, Error> {
        let mut optimizer = Optimizer::named(&table.name)?;
        for (key, value) in table.numbers() {
            let slot = match (&mut optimizer, key) {
                (
                    Optimizer::Sgd { lr, .. }
                    | Optimizer::Momentum { lr, .. }
                    | Optimizer::Adam { lr, .. }
                    | Optimizer::AdamW { lr, .. },
                    "lr",
                ) => lr,
                (
                    Optimizer::Sgd { weight_decay, .. }
                    | Optimizer::Momentum { weight_decay, .. }
                    | Optimizer::Adam { weight_decay, .. }
                    | Optimizer::AdamW { weight_decay, .. },
                    "weight_decay",
                ) => weight_decay,
                (Optimizer::Momentum { momentum, .. }, "momentum") => momentum,
                (Optimizer::Adam { beta1, .. } | Optimizer::AdamW { beta1, .. }, "beta1") => beta1,
                (Optimizer::Adam { beta2, .. } | Optimizer::AdamW { beta2, .. }, "beta2") => beta2,
                (Optimizer::Adam { eps, .. } | Optimizer::AdamW { eps, .. }, "eps") => eps,
                (_, key) => {
                    let takes: Vec<&str> =
                        Table::from(optimizer).numbers().map(|(key, _)| key).collect();
                    let takes =
                        if takes.is_empty() { "nothing".to_owned() } else { takes.join(", ") };
                    return Err(Error::BadModel {
                        key: format!("optimizer.{key}"),
                        found: format!("{value}"),
                        problem: format!("{} takes only {takes}", table.name),
                    });
                }
            };
            *slot = value;
        }
        optimizer.validate()?;
        Ok(optimizer)
    }
}

impl Serialize for Optimizer {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Optimizer::None => s.serialize_str(self.name()),
            _ => Table::from(*self).serialize(s),
        }
    }
}

impl<'de> Deserialize<'de> for Optimizer {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct NameOrTable;

        impl<'de> Visitor<'de> for NameOrTable {
            type Value = Optimizer;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "one of {}, or a table with a name", Optimizer::NAMES.join(", "))
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Optimizer, E> {
                Optimizer::named(name).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Optimizer, A::Error> {
                let table = Table::deserialize(MapAccessDeserializer::new(map))?;
                Optimizer::try_from(table).map_err(A::Error::custom)
            }
        }

        d.deserialize_any(NameOrTable)
    }
}
