//! Golden cases: what a policy is to decide in examples, carried inside its component and tried before it comes into
//! force.
//!
//! They are JSON in custom sections named [`SECTION`], at any depth of the component; several sections add up:
//!
//! ```json
//! { "cases": [ {
//!     "name": "big links go to big workers",
//!     "facts": { "mnemonic": "CppLink" },
//!     "host": { "now": 1000, "stored": { "count": "1" } },
//!     "expect": { "route": { "pool": "big" }, "stored": { "count": "2" } }
//! } ] }
//! ```
//!
//! Facts, routes and answers of the host are in the form of [`json`](crate::json). Each case gets an instance of its own,
//! whose host answers what the case says and nothing else.

mod expect;
mod run;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use pointsman_scheduler::route::Route;
use serde::Deserialize;
use serde_json::Value;
use wasm_encoder::{CustomSection, Section};
use wasmparser::{Parser, Payload};

use crate::decision::Hook;
use crate::facts::{ActionFacts, Attempt};
use crate::hooks::{Candidate, Terms, WorkerFacts};
use crate::json::{self, HostAnswers, JsonError, form};

pub use expect::{Expect, Mismatch};
pub(crate) use run::check;

/// Name of the custom sections.
pub const SECTION: &str = "pointsman:golden";

/// Size of all sections of a component together.
const BYTES_MAX: usize = 1 << 20;

/// Cases of a component.
const CASES_MAX: usize = 1_000;

/// Why the golden cases of a policy can't be used.
#[derive(Debug, thiserror::Error)]
pub enum GoldenError {
    /// The file can't be looked through.
    #[error("can't look for golden cases: {0}")]
    NotWasm(String),
    /// There is too much of it.
    #[error("its golden cases have {bytes} bytes, allowed are {BYTES_MAX}")]
    TooLarge {
        /// Size of the sections that were read.
        bytes: usize,
    },
    /// There are too many.
    #[error("it has {cases} golden cases, allowed are {CASES_MAX}")]
    TooMany {
        /// Cases that were read.
        cases: usize,
    },
    /// A section does not say what it should.
    #[error("the golden cases at byte {at} of the file can't be read: {problem}")]
    Unreadable {
        /// Where the content of the section begins.
        at: usize,
        /// Place and problem.
        problem: JsonError,
    },
    /// A case makes no sense.
    #[error("golden case {case:?} can't be tried: {problem}")]
    Senseless {
        /// Its name.
        case: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Cases went otherwise than they say.
    #[error("{}", listed(.0))]
    Failed(Vec<Mismatch>),
}

fn listed(mismatches: &[Mismatch]) -> String {
    const SHOWN: usize = 10;
    let shown: Vec<String> = mismatches.iter().take(SHOWN).map(ToString::to_string).collect();
    let more = mismatches.len().saturating_sub(SHOWN);
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    format!("it decides otherwise than its golden cases say: {}{more}", shown.join("; "))
}

/// One example.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// What it shows; each case has another one.
    pub name: String,
    /// The hook that is called.
    #[serde(default = "on_action", with = "form")]
    pub hook: Hook,
    /// Configuration of the policy; that of the operator, if there is none.
    #[serde(default)]
    pub config: Option<Value>,
    /// The action, for all hooks but `on-worker`.
    #[serde(default, with = "form")]
    pub facts: ActionFacts,
    /// The route that the policy finds. If there is none: what a client with these facts wishes.
    #[serde(default, with = "form")]
    pub route: Option<Route>,
    /// The attempt that has ended, for `on-result`.
    #[serde(default, with = "form")]
    pub attempt: Option<Attempt>,
    /// Workers to choose from, for `on-assignment`.
    #[serde(default, with = "form")]
    pub candidates: Vec<Candidate>,
    /// The worker, for `on-worker`.
    #[serde(default, with = "form")]
    pub worker: WorkerFacts,
    /// The terms that the policy finds. If there are none: what this worker offers.
    #[serde(default, with = "form")]
    pub terms: Option<Terms>,
    /// What the host answers.
    #[serde(default)]
    pub host: HostAnswers,
    /// What is to come of it.
    #[serde(default)]
    pub expect: Expect,
}

fn on_action() -> Hook {
    Hook::OnAction
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    cases: Vec<Case>,
}

impl Case {
    /// What can't be, though each part of it is readable.
    fn nonsense(&self) -> Option<String> {
        let Self { hook, attempt, candidates, .. } = self;
        match hook {
            _ if self.name.is_empty() => Some("it has no name".into()),
            Hook::OnResult if attempt.is_none() => Some("it calls on-result and needs an `attempt`".into()),
            Hook::OnAssignment if candidates.is_empty() => {
                Some("it calls on-assignment and needs `candidates`".into())
            }
            _ => self.expect.nonsense(*hook),
        }
    }
}

/// The golden cases that a component or core module carries.
///
/// # Errors
/// When a section can't be read, or there is too much.
pub fn cases(file: &[u8]) -> Result<Vec<Case>, GoldenError> {
    let mut cases = Vec::new();
    let mut bytes = 0;
    for payload in Parser::new(0).parse_all(file) {
        let payload = payload.map_err(|error| GoldenError::NotWasm(error.to_string()))?;
        let Payload::CustomSection(section) = payload else { continue };
        if section.name() != SECTION {
            continue;
        }
        bytes += section.data().len();
        if bytes > BYTES_MAX {
            return Err(GoldenError::TooLarge { bytes });
        }
        cases.extend(read(section.data(), section.data_offset())?);
        if cases.len() > CASES_MAX {
            return Err(GoldenError::TooMany { cases: cases.len() });
        }
    }
    let mut names = BTreeSet::new();
    for case in &cases {
        let twice = (!names.insert(&case.name)).then(|| "another case has the same name".to_owned());
        if let Some(problem) = twice.or_else(|| case.nonsense()) {
            return Err(GoldenError::Senseless { case: case.name.clone(), problem });
        }
    }
    Ok(cases)
}

fn read(content: &[u8], at: usize) -> Result<Vec<Case>, GoldenError> {
    let content: Content =
        json::read_slice(content).map_err(|problem| GoldenError::Unreadable { at, problem })?;
    Ok(content.cases)
}

/// Adds golden cases, as JSON text, to a component or core module. What it has already stays.
///
/// # Errors
/// When the result would be refused for its golden cases.
pub fn pack(file: &[u8], cases_json: &[u8]) -> Result<Vec<u8>, GoldenError> {
    let mut packed = file.to_vec();
    CustomSection { name: SECTION.into(), data: cases_json.into() }.append_to(&mut packed);
    cases(&packed)?;
    Ok(packed)
}
