//! What a golden case says is to come of it, compared with what came.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use pointsman_scheduler::route::Route;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::decision::{Answer, Code, Hook, Rejection};
use crate::hooks::{Candidate, Next, Terms};
use crate::json::{self, Json, form, stored};

/// What is to come of a case. What is not named here may be anything, but a rejection must be named.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Expect {
    /// Fields of the route, after `on-action` and after an `on-result` that wants another attempt.
    pub route: Option<Partial<Route>>,
    /// Fields of the terms, after `on-worker`.
    pub terms: Option<Partial<Terms>>,
    /// The refusal; after `on-result`: what the action ends with.
    pub rejection: Option<ExpectedRejection>,
    /// What happens after an attempt.
    pub next: Option<ExpectedNext>,
    /// Workers in the order of `on-assignment`.
    pub order: Option<Vec<String>>,
    /// All notes of the route or the terms.
    pub notes: Option<Vec<String>>,
    /// Values that are stored afterwards; `null`: none under that key.
    #[serde(with = "stored")]
    pub stored: BTreeMap<String, Option<Vec<u8>>>,
}

/// Fields of a refusal.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExpectedRejection {
    /// Its code.
    #[serde(with = "form")]
    pub code: Option<Code>,
    /// Its reason, word for word.
    pub reason: Option<String>,
    /// Its help, word for word.
    pub help: Option<String>,
}

/// What happens after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpectedNext {
    /// Its result is the result.
    Accept,
    /// It runs again.
    Again,
    /// It ends with a rejection.
    Fail,
}

impl ExpectedNext {
    fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Again => "again",
            Self::Fail => "fail",
        }
    }
}

/// Some fields of `T`.
#[derive(Clone, Debug)]
pub struct Partial<T> {
    /// By name, in the form that a whole `T` has: what is the default has no value.
    fields: Vec<(String, Option<Value>)>,
    of: PhantomData<T>,
}

/// Whose platform has an order.
pub trait Ordered {
    /// Puts it in order.
    fn order(&mut self);
}

impl Ordered for Route {
    fn order(&mut self) {
        self.sort_platform();
    }
}

impl Ordered for Terms {
    fn order(&mut self) {
        self.platform.sort_unstable();
        self.platform.dedup();
    }
}

impl<'de, T: Json + Ordered> Deserialize<'de> for Partial<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let given = Map::deserialize(from)?;
        let names: Vec<String> = given.keys().cloned().collect();
        // Read as a whole one, so that a mistake is found now, and 5 is 5 however it was written.
        let mut whole: T = json::from_value(&Value::Object(given)).map_err(serde::de::Error::custom)?;
        whole.order();
        let form = json::to_value(&whole);
        let field = |name: String| {
            let value = form.get(&name).cloned();
            (name, value)
        };
        Ok(Self { fields: names.into_iter().map(field).collect(), of: PhantomData })
    }
}

/// Something that is not as a case says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Name of the case.
    pub case: String,
    /// What differs, such as `route.pool`.
    pub field: String,
    /// What the case says.
    pub expected: String,
    /// What came.
    pub found: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, field, expected, found } = self;
        write!(f, "case {case:?}: {field} was to be {expected}, but is {found}")
    }
}

/// Collects mismatches of one case.
struct Report<'a> {
    case: &'a str,
    found: Vec<Mismatch>,
}

impl Report<'_> {
    fn compare(&mut self, field: impl Into<String>, expected: Option<&Value>, found: Option<&Value>) {
        if expected != found {
            let show = |value: Option<&Value>| value.map_or_else(|| "the default".into(), Value::to_string);
            self.differs(field, show(expected), show(found));
        }
    }

    fn differs(&mut self, field: impl Into<String>, expected: impl Into<String>, found: impl Into<String>) {
        self.found.push(Mismatch {
            case: self.case.to_owned(),
            field: field.into(),
            expected: expected.into(),
            found: found.into(),
        });
    }

    fn partial<T: Json + Ordered + Clone>(&mut self, what: &str, expected: &Partial<T>, found: &T) {
        let mut found = found.clone();
        found.order();
        let found = json::to_value(&found);
        for (name, value) in &expected.fields {
            self.compare(format!("{what}.{name}"), value.as_ref(), found.get(name));
        }
    }

    fn rejection(&mut self, expected: &ExpectedRejection, found: &Rejection) {
        let ExpectedRejection { code, reason, help } = expected;
        if let Some(code) = code {
            let (expected, found) = (json::to_value(code), json::to_value(&found.code));
            self.compare("rejection.code", Some(&expected), Some(&found));
        }
        let found = [("reason", reason, Some(&found.reason)), ("help", help, found.help.as_ref())];
        for (field, expected, found) in found {
            if let Some(expected) = expected {
                let found = found.map(|text| Value::from(&**text)).unwrap_or_default();
                self.compare(format!("rejection.{field}"), Some(&expected.as_str().into()), Some(&found));
            }
        }
    }
}

impl Expect {
    /// What no answer of this hook could bring about.
    pub(super) fn nonsense(&self, hook: Hook) -> Option<String> {
        let routes = matches!(hook, Hook::OnAction | Hook::OnResult);
        let wrong = [
            ("route", self.route.is_some() && !routes),
            ("terms", self.terms.is_some() && hook != Hook::OnWorker),
            ("rejection", self.rejection.is_some() && hook == Hook::OnAssignment),
            ("next", self.next.is_some() && hook != Hook::OnResult),
            ("order", self.order.is_some() && hook != Hook::OnAssignment),
            ("notes", self.notes.is_some() && hook == Hook::OnAssignment),
        ];
        let (name, _) = wrong.into_iter().find(|(_, wrong)| *wrong)?;
        Some(format!("it expects `{name}`, which {hook} does not give"))
    }

    /// All that is not as it says.
    pub(super) fn mismatches(
        &self,
        case: &str,
        candidates: &[Candidate],
        answer: &Answer,
        stored: impl Fn(&str) -> Option<Vec<u8>>,
    ) -> Vec<Mismatch> {
        let mut report = Report { case, found: Vec::new() };
        self.answer(answer, candidates, &mut report);
        for (key, expected) in &self.stored {
            let found = stored(key);
            if *expected != found {
                let show = |value: &Option<Vec<u8>>| match value {
                    Some(bytes) => format!("{:?}", String::from_utf8_lossy(bytes)),
                    None => "nothing".into(),
                };
                report.differs(format!("stored.{key}"), show(expected), show(&found));
            }
        }
        report.found
    }

    fn answer(&self, answer: &Answer, candidates: &[Candidate], report: &mut Report<'_>) {
        match answer {
            Answer::Route(route) => self.route(route, report),
            Answer::Terms(terms) => {
                self.no_rejection("the worker was let in", report);
                if let Some(expected) = &self.terms {
                    report.partial("terms", expected, &**terms);
                }
                self.notes(&terms.notes, report);
            }
            Answer::Rejected(rejection) => self.rejected(rejection, report),
            Answer::Next(next) => self.next(next, report),
            Answer::Order(order) => {
                let names: Vec<&str> = order
                    .iter()
                    .filter_map(|(index, _)| candidates.get(*index))
                    .map(|candidate| &*candidate.worker)
                    .collect();
                if let Some(expected) = &self.order {
                    report.compare("order", Some(&expected.clone().into()), Some(&names.into()));
                }
            }
        }
    }

    fn route(&self, route: &Route, report: &mut Report<'_>) {
        self.no_rejection("the action was routed", report);
        if let Some(expected) = &self.route {
            report.partial("route", expected, route);
        }
        self.notes(&route.notes, report);
    }

    fn next(&self, next: &Next, report: &mut Report<'_>) {
        let found = match next {
            Next::Accept => ExpectedNext::Accept,
            Next::Again(_) => ExpectedNext::Again,
            Next::Fail(_) => ExpectedNext::Fail,
        };
        if let Some(expected) = self.next.filter(|expected| *expected != found) {
            report.differs("next", expected.name(), found.name());
            return;
        }
        match next {
            Next::Accept => self.no_rejection("the result was accepted", report),
            Next::Again(route) => self.route(route, report),
            // That it fails may be all that a case says.
            Next::Fail(_) if self.next.is_some() && self.rejection.is_none() => {}
            Next::Fail(rejection) => self.rejected(rejection, report),
        }
    }

    fn rejected(&self, rejection: &Rejection, report: &mut Report<'_>) {
        match &self.rejection {
            Some(expected) => report.rejection(expected, rejection),
            None => report.differs("rejection", "none", json::to_value(rejection).to_string()),
        }
    }

    fn no_rejection(&self, instead: &str, report: &mut Report<'_>) {
        if self.rejection.is_some() {
            report.differs("rejection", "one", format!("none: {instead}"));
        }
    }

    fn notes(&self, notes: &[std::sync::Arc<str>], report: &mut Report<'_>) {
        if let Some(expected) = &self.notes {
            let found: Vec<&str> = notes.iter().map(|note| &**note).collect();
            report.compare("notes", Some(&expected.clone().into()), Some(&found.into()));
        }
    }
}
