//! Plan files: a program and a plan for it, as JSON.
//!
//! ```json
//! {"schema": 2, "program": {…}, "plan": {…}}
//! ```
//!
//! [`PlanFile::read`] trusts nothing: what it returns is [valid](Plan::validate), so that the checker and the runtime
//! may index by ids. Whether the plan is *right* is for [`mod@crate::check`] to say. A planner may add its
//! [certificate](crate::certificate), which the checker verifies.

use serde::{Deserialize, Serialize};

use crate::certificate::Certificate;
use crate::error::Error;
use crate::plan::Plan;
use crate::program::Program;

/// The version of the format. Since 2 a plan may have buckets and waits, which a reader of version 1 would
/// overlook.
pub const SCHEMA: u32 = 2;

/// A program with a plan for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanFile {
    /// Version of the format: [`SCHEMA`].
    pub schema: u32,
    /// The program.
    pub program: Program,
    /// The plan.
    pub plan: Plan,
    /// What the planner says of the plan's cost, for the checker to verify.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Certificate>,
}

impl PlanFile {
    /// A file of the current version.
    #[must_use]
    pub fn new(program: Program, plan: Plan) -> Self {
        Self { schema: SCHEMA, program, plan, certificate: None }
    }

    /// Reads and validates a file.
    ///
    /// # Errors
    /// Not JSON of this form, another version, or a structural fault of the program or the plan.
    pub fn read(text: &str) -> Result<Self, Error> {
        #[derive(Deserialize)]
        struct Version {
            schema: Option<u32>,
        }
        let bad = |problem: String| Error::BadPlanFile { problem };
        let version: Version = serde_json::from_str(text).map_err(|e| bad(e.to_string()))?;
        match version.schema {
            Some(SCHEMA) => {}
            Some(other) => {
                return Err(bad(format!("schema is {other}, but only {SCHEMA} is known")));
            }
            None => return Err(bad(format!("the key `schema` is missing; write {SCHEMA}"))),
        }
        let file: Self = serde_json::from_str(text).map_err(|e| bad(e.to_string()))?;
        file.validate()?;
        Ok(file)
    }

    /// Checks that program, plan and the plan's origins are structurally sound.
    ///
    /// # Errors
    /// The first fault.
    pub fn validate(&self) -> Result<(), Error> {
        self.program.validate()?;
        self.plan.validate()?;
        self.plan.validate_origins(&self.program)
    }

    /// The file as JSON.
    ///
    /// # Errors
    /// None in practice: every part has a JSON form.
    pub fn to_json(&self) -> Result<String, Error> {
        serde_json::to_string_pretty(self)
            .map_err(|e| Error::BadPlanFile { problem: e.to_string() })
    }
}
