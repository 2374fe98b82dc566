//! Golden cases, tried on the source of a policy.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::forms::{AttemptForm, FactsForm, HostForm, RejectionForm, RouteForm, TermsForm, WorkerForm};
use super::{Call, Ran, Route, Terms, admit, completed, run};
use crate::{Next, Policy};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fixtures {
    cases: Vec<Case>,
    /// Configurations that the policy refuses. The server's golden cases have none; its tests take them out.
    #[serde(default)]
    refused: Vec<Refused>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refused {
    name: String,
    config: Value,
    /// JSON pointers to all that is wrong, in the order in which it is told.
    paths: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    #[serde(default)]
    hook: Hook,
    #[serde(default)]
    config: Option<Value>,
    #[serde(default)]
    facts: FactsForm,
    #[serde(default)]
    route: Option<RouteForm>,
    #[serde(default)]
    attempt: Option<AttemptForm>,
    #[serde(default)]
    worker: WorkerForm,
    #[serde(default)]
    terms: Option<TermsForm>,
    #[serde(default)]
    host: HostForm,
    #[serde(default)]
    expect: Expect,
}

#[allow(clippy::enum_variant_names, reason = "the names of the interfaces")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Hook {
    #[default]
    OnAction,
    OnWorker,
    OnResult,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Expect {
    route: Option<Map<String, Value>>,
    terms: Option<Map<String, Value>>,
    rejection: Option<RejectionForm>,
    next: Option<ExpectedNext>,
    notes: Option<Vec<String>>,
    stored: BTreeMap<String, Option<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ExpectedNext {
    Accept,
    Again,
    Fail,
}

/// Tries golden cases, in the form that a server runs from inside a component (`{ "cases": [ … ] }`, see
/// `policies/README.md`), on the source of the policy. Under `refused` there may be configurations that it must refuse:
/// `{ "name": …, "config": …, "paths": [ … ] }`.
///
/// # Panics
/// When a case can't be read, or goes otherwise than it says. Then all such cases are named.
pub fn run_fixtures<P: Policy>(json: &str) {
    let fixtures: Fixtures =
        serde_json::from_str(json).unwrap_or_else(|error| panic!("the fixtures can't be read: {error}"));
    assert!(!fixtures.cases.is_empty(), "there are no fixtures");
    let mut wrong = Vec::new();
    for case in fixtures.cases {
        let name = case.name.clone();
        wrong.extend(case.differences::<P>().into_iter().map(|text| format!("case {name:?}: {text}")));
    }
    for Refused { name, config, paths } in fixtures.refused {
        let found: Vec<String> = match run::<P>(&config.to_string(), Call::default()) {
            Ok(_) => Vec::new(),
            Err(errors) => errors.into_iter().map(|error| error.path).collect(),
        };
        if found != paths {
            wrong.push(format!("configuration {name:?}: is refused at {found:?}, not {paths:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

impl Case {
    fn differences<P: Policy>(self) -> Vec<String> {
        let config = self.config.map_or("{}".to_owned(), |config| config.to_string());
        let (action, command) = self.facts.split();
        let worker = self.worker.read();
        let wishes = Route {
            platform: action.platform.clone().unwrap_or_default(),
            priority: action.priority,
            timeout_ms: action.timeout_ms,
            ..Route::default()
        };
        let offer =
            Terms { platform: worker.platform.clone(), size_class: worker.size_class, ..Terms::default() };
        let call = Call {
            action,
            command,
            route: self.route.map_or(wishes, RouteForm::read),
            attempt: self.attempt.map(AttemptForm::read),
            worker,
            terms: self.terms.map_or(offer, TermsForm::read),
            host: self.host.read(),
        };
        let ran = match self.hook {
            Hook::OnAction => run::<P>(&config, call),
            Hook::OnWorker => admit::<P>(&config, call),
            Hook::OnResult => completed::<P>(&config, call),
        };
        match ran {
            Ok(ran) => self.expect.differences(&ran, self.hook),
            Err(errors) => vec![format!("the configuration is refused: {errors:?}")],
        }
    }
}

impl Expect {
    fn differences(self, ran: &Ran, hook: Hook) -> Vec<String> {
        let mut wrong = Vec::new();
        let failed = match &ran.next {
            Some(Next::Fail(rejection)) => Some(rejection),
            _ => None,
        };
        match (&self.rejection, ran.rejection.as_ref().or(failed)) {
            (None, None) => {}
            (Some(expected), Some(found)) => wrong.extend(expected.differs(found)),
            (None, Some(found)) => wrong.push(format!("it is rejected: {found:?}")),
            (Some(_), None) => wrong.push("it is not rejected".into()),
        }
        let next = ran.next.as_ref().map(|next| match next {
            Next::Accept => ExpectedNext::Accept,
            Next::Again => ExpectedNext::Again,
            Next::Fail(_) => ExpectedNext::Fail,
        });
        if self.next.is_some() && self.next != next {
            wrong.push(format!("next is {next:?}, not {:?}", self.next));
        }
        if let Some(expected) = self.route {
            wrong.extend(fields::<RouteForm>("route", expected, RouteForm::of(&ran.route)));
        }
        if let Some(expected) = self.terms {
            wrong.extend(fields::<TermsForm>("terms", expected, TermsForm::of(&ran.terms)));
        }
        let notes = if hook == Hook::OnWorker { &ran.terms.notes } else { &ran.route.notes };
        if let Some(expected) = &self.notes
            && expected != notes
        {
            wrong.push(format!("notes are {notes:?}, not {expected:?}"));
        }
        for (key, expected) in &self.stored {
            let found = ran.stored.get(key).map(|value| String::from_utf8_lossy(value));
            if expected.as_deref() != found.as_deref() {
                wrong.push(format!("stored under {key:?} is {found:?}, not {expected:?}"));
            }
        }
        wrong
    }
}

/// Compares the named fields. What is expected is read as a whole one first, so that a mistake in it is found.
fn fields<T>(what: &str, expected: Map<String, Value>, found: T) -> Vec<String>
where
    T: serde::Serialize + serde::de::DeserializeOwned,
{
    let names: Vec<String> = expected.keys().cloned().collect();
    let whole: T = match serde_json::from_value(Value::Object(expected)) {
        Ok(whole) => whole,
        Err(error) => return vec![format!("what is expected of the {what} can't be read: {error}")],
    };
    let [expected, found] = [whole, found].map(|form| serde_json::to_value(form).unwrap_or_default());
    let differs = |name: &String| {
        let (expected, found) = (&expected[name], &found[name]);
        (expected != found).then(|| format!("{what}.{name} is {found}, not {expected}"))
    };
    names.iter().filter_map(differs).collect()
}
