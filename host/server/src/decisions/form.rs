//! A record as a JSON object: one line of the file, and what `pointsman policy log` shows.
//!
//! ```text
//! { at, hook, generation, now, facts | worker, attempt?, candidates?, before?,
//!   steps: [{ link, policy: { name, version, sha256 }, on_trial?, fuel, elapsed_us, asked?, host?,
//!             route? | terms? | next? | order? | rejected? | failed? }], remarks? }
//! ```
//!
//! A step without one of the last six left everything as it found it. What it found is the route or terms of the last
//! step that has some, at first `before`.

use pointsman_policy::json::{HostAnswers, Json, to_value};
use pointsman_policy::{Answer, Asked, Next, Question, Record, Step};
use serde_json::{Map, Value, json};

pub(super) fn form(record: &Record) -> Value {
    let mut form = Map::new();
    form.insert("at".into(), humantime::format_rfc3339_micros(record.at).to_string().into());
    form.insert("hook".into(), record.question.hook().name().into());
    form.insert("generation".into(), record.generation.into());
    let found = question(&record.question, &mut form);
    let mut found = found.unwrap_or_default();
    let steps = record.steps.iter().map(|step| self::step(step, &mut found));
    form.insert("steps".into(), steps.collect());
    if !record.remarks.is_empty() {
        form.insert("remarks".into(), record.remarks.clone().into());
    }
    Value::Object(form)
}

/// Adds what was asked; returns what policies found at first.
fn question(question: &Question, form: &mut Map<String, Value>) -> Option<Value> {
    let mut add = |key: &str, value: Value| _ = form.insert(key.into(), value);
    let now = match question {
        Question::Admit { worker, .. } => worker.now_unix_seconds,
        Question::Route { facts, .. } | Question::Completed { facts, .. } | Question::Rank { facts, .. } => {
            facts.now_unix_seconds
        }
    };
    add("now", now.into());
    let before = match question {
        Question::Route { facts, before } => {
            add("facts", to_value(&**facts));
            to_value(&**before)
        }
        Question::Admit { worker, before } => {
            add("worker", to_value(&**worker));
            to_value(&**before)
        }
        Question::Completed { facts, attempt, before } => {
            add("facts", to_value(&**facts));
            add("attempt", to_value(attempt));
            to_value(&**before)
        }
        Question::Rank { facts, candidates } => {
            add("facts", to_value(&**facts));
            add("candidates", to_value(candidates));
            return None;
        }
    };
    add("before", before.clone());
    Some(before)
}

fn step(step: &Step, found: &mut Value) -> Value {
    let mut form = Map::new();
    let mut add = |key: &str, value: Value| _ = form.insert(key.into(), value);
    add("link", (*step.link).into());
    add("policy", to_value(&*step.policy));
    if step.trial {
        add("on_trial", true.into());
    }
    add("fuel", step.fuel.into());
    add("elapsed_us", u64::try_from(step.elapsed.as_micros()).unwrap_or(u64::MAX).into());
    if !step.asked.is_empty() {
        add("asked", step.asked.iter().map(asked).collect());
    }
    let host = HostAnswers::to(&step.asked);
    if host != HostAnswers::default() {
        // Plain maps and numbers: there is nothing that JSON could refuse.
        add("host", serde_json::to_value(&host).unwrap_or_default());
    }
    match &step.answer {
        Ok(Answer::Route(route)) => add_edited("route", &**route, found, add),
        Ok(Answer::Terms(terms)) => add_edited("terms", &**terms, found, add),
        Ok(Answer::Next(Next::Accept)) => {}
        Ok(Answer::Next(Next::Fail(rejection)) | Answer::Rejected(rejection)) => {
            add("rejected", to_value(rejection));
        }
        Ok(Answer::Next(next)) => add("next", to_value(next)),
        Ok(Answer::Order(order)) if order.is_empty() => {}
        Ok(Answer::Order(order)) => add("order", json!(order)),
        Err(failure) => add("failed", json!({ "kind": failure.kind.name(), "text": failure.text })),
    }
    Value::Object(form)
}

fn add_edited<T: Json>(key: &str, edited: &T, found: &mut Value, mut add: impl FnMut(&str, Value)) {
    let edited = to_value(edited);
    if edited != *found {
        add(key, edited.clone());
        *found = edited;
    }
}

fn asked(asked: &Asked) -> Value {
    match &asked.argument {
        Some(argument) => format!("{}({argument})", asked.function).into(),
        None => asked.function.into(),
    }
}
