//! Which actions something is about: a test for any fact, and all of those that are given must hold.
//!
//! | Key | Holds when |
//! | --- | --- |
//! | `instance`, `mnemonic`, `target`, `package`, `tool`, `tool_version`, `principal`, `invocation`, `correlated_invocations` | the fact matches the [pattern](crate::pattern); one that the client left out matches none |
//! | `executable` | the program's name without its folder matches |
//! | `argument` | any argument matches |
//! | `argument_at` | `{ "1": P }`: the argument at that place matches, the program being 0 |
//! | `environment` | `{ NAME: P }`: the variable matches; `true`: it is there, `false`: it is not |
//! | `output`, `first_output` | any declared output path, or the first one, matches |
//! | `property` | `{ NAME: P }`: the property matches, as edited so far (if it has several values, one of them); `true` and `false` as above |
//! | `has_platform` | the Action has (`true`) or has not (`false`) a platform of its own |
//! | `priority` | `{ "min": 1, "max": 9 }`: it is within that range |
//! | `all`, `any`, `not` | lists of conditions, and one |

use std::ops::RangeInclusive;

use pointsman_policy_sdk::{CommandWhen, Config, action};
use serde_json::Value;

use crate::pattern::Patterns;
use crate::{Facts, package};

/// Conditions within conditions; deeper ones are refused.
const DEPTH_MAX: usize = 8;

/// Tests that all have to hold; without any it always does.
#[derive(Clone, Debug, Default)]
pub struct Condition {
    tests: Vec<Test>,
}

#[derive(Clone, Debug)]
enum Test {
    Fact(Fact, Patterns),
    Argument(Patterns),
    ArgumentAt(usize, Patterns),
    Output(Patterns),
    Environment(String, Wanted),
    Property(String, Wanted),
    HasPlatform(bool),
    Priority(RangeInclusive<i32>),
    All(Vec<Condition>),
    Any(Vec<Condition>),
    Not(Condition),
}

/// A fact that is one text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fact {
    Instance,
    Mnemonic,
    Target,
    Tool,
    ToolVersion,
    Principal,
    Invocation,
    Correlated,
    Executable,
    Package,
    FirstOutput,
}

impl Fact {
    const ALL: [(&'static str, Self); 11] = [
        ("instance", Self::Instance),
        ("mnemonic", Self::Mnemonic),
        ("target", Self::Target),
        ("tool", Self::Tool),
        ("tool_version", Self::ToolVersion),
        ("principal", Self::Principal),
        ("invocation", Self::Invocation),
        ("correlated_invocations", Self::Correlated),
        ("executable", Self::Executable),
        ("package", Self::Package),
        ("first_output", Self::FirstOutput),
    ];

    fn of(self, facts: &Facts) -> &str {
        match self {
            Self::Instance => facts.instance(),
            Self::Mnemonic => facts.mnemonic(),
            Self::Target => facts.target(),
            Self::Tool => facts.tool(),
            Self::ToolVersion => facts.tool_version(),
            Self::Principal => facts.principal(),
            Self::Invocation => facts.invocation(),
            Self::Correlated => facts.correlated(),
            Self::Executable => facts.executable(),
            Self::Package => package(facts.target()),
            Self::FirstOutput => facts.outputs().first().map_or("", String::as_str),
        }
    }
}

/// What is wanted of something that may be absent.
#[derive(Clone, Debug)]
enum Wanted {
    Present,
    Absent,
    Like(Patterns),
}

impl Wanted {
    fn holds(&self, found: Option<&str>) -> bool {
        match self {
            Self::Present => found.is_some(),
            Self::Absent => found.is_none(),
            Self::Like(patterns) => found.is_some_and(|text| patterns.matches(text)),
        }
    }
}

impl Condition {
    /// Takes the keys of a condition out of an object, which may have others.
    pub fn read(config: &mut Config) -> Self {
        Self::read_at(config, 0)
    }

    /// The condition under a key; `None` when there is none.
    pub fn under(config: &mut Config, key: &'static str) -> Option<Self> {
        let mut inner = config.object(key)?;
        let condition = Self::read(&mut inner);
        config.close(inner);
        Some(condition)
    }

    fn read_at(config: &mut Config, depth: usize) -> Self {
        let mut tests = Vec::new();
        for (key, fact) in Fact::ALL {
            tests.extend(Patterns::read(config, key).map(|patterns| Test::Fact(fact, patterns)));
        }
        tests.extend(Patterns::read(config, "argument").map(Test::Argument));
        tests.extend(arguments_at(config));
        tests.extend(Patterns::read(config, "output").map(Test::Output));
        for (name, wanted) in wanted(config, "environment") {
            tests.push(Test::Environment(name, wanted));
        }
        for (name, wanted) in wanted(config, "property") {
            tests.push(Test::Property(name, wanted));
        }
        if config.has("has_platform") {
            tests.push(Test::HasPlatform(config.bool("has_platform", true)));
        } else {
            config.know("has_platform");
        }
        tests.extend(priority(config, i32::MIN..=i32::MAX).map(Test::Priority));
        tests.extend(several(config, "all", depth).map(Test::All));
        tests.extend(several(config, "any", depth).map(Test::Any));
        if let Some(mut inner) = config.object("not") {
            let condition = Self::read_at(&mut inner, depth + 1);
            if condition.is_always() {
                inner.error(
                    inner.path().to_owned(),
                    "holds always, so its opposite never does; say what is not wanted",
                );
            }
            config.close(inner);
            tests.push(Test::Not(condition));
        }
        if depth > DEPTH_MAX {
            let text = format!("conditions are nested more than {DEPTH_MAX} deep");
            config.error(config.path().to_owned(), text);
        }
        Self { tests }
    }

    /// Does it hold whatever the action is?
    pub fn is_always(&self) -> bool {
        self.tests.is_empty()
    }

    /// Does what it says depend on properties, which may be edited before it is asked?
    pub fn looks_at_properties(&self) -> bool {
        self.any_test(|test| matches!(test, Test::Property(..)))
    }

    /// Which Commands have to be seen to answer it.
    pub fn commands(&self) -> Option<CommandWhen> {
        let of_command = |test: &Test| {
            matches!(
                test,
                Test::Fact(Fact::Executable | Fact::FirstOutput, _)
                    | Test::Argument(_)
                    | Test::ArgumentAt(..)
                    | Test::Output(_)
                    | Test::Environment(..)
            )
        };
        self.any_test(of_command).then_some(CommandWhen::Always)
    }

    fn any_test(&self, is: impl Fn(&Test) -> bool + Copy) -> bool {
        self.tests.iter().any(|test| match test {
            Test::All(inner) | Test::Any(inner) => inner.iter().any(|condition| condition.any_test(is)),
            Test::Not(inner) => inner.any_test(is),
            test => is(test),
        })
    }

    /// Does it hold for this action?
    pub fn holds(&self, facts: &Facts) -> bool {
        self.tests.iter().all(|test| test.holds(facts))
    }
}

impl Test {
    fn holds(&self, facts: &Facts) -> bool {
        match self {
            Self::Fact(fact, patterns) => patterns.matches_fact(fact.of(facts)),
            Self::Argument(patterns) => facts.arguments().iter().any(|text| patterns.matches(text)),
            Self::ArgumentAt(index, patterns) => {
                facts.arguments().get(*index).is_some_and(|text| patterns.matches(text))
            }
            Self::Output(patterns) => facts.outputs().iter().any(|text| patterns.matches(text)),
            Self::Environment(name, wanted) => facts.environment(name, |value| wanted.holds(value)),
            Self::Property(name, Wanted::Like(patterns)) => {
                facts.has_value(name, |value| patterns.matches(value))
            }
            Self::Property(name, wanted) => wanted.holds(facts.property(name).as_deref()),
            Self::HasPlatform(expected) => action::has_platform() == *expected,
            Self::Priority(range) => range.contains(&action::priority()),
            Self::All(conditions) => conditions.iter().all(|condition| condition.holds(facts)),
            Self::Any(conditions) => conditions.iter().any(|condition| condition.holds(facts)),
            Self::Not(condition) => !condition.holds(facts),
        }
    }
}

fn wanted(config: &mut Config, key: &'static str) -> Vec<(String, Wanted)> {
    let mut read = Vec::new();
    for (name, path, value) in config.map(key).unwrap_or_default() {
        let wanted = match &value {
            Value::Bool(true) => Some(Wanted::Present),
            Value::Bool(false) => Some(Wanted::Absent),
            other => Patterns::of(config, &path, other).map(Wanted::Like),
        };
        read.extend(wanted.map(|wanted| (name, wanted)));
    }
    read
}

fn arguments_at(config: &mut Config) -> Vec<Test> {
    let mut tests = Vec::new();
    for (name, path, value) in config.map("argument_at").unwrap_or_default() {
        let Ok(index) = name.parse() else {
            config.error(
                path,
                format!("{name:?} is no place among arguments; give a number, 0 for the program"),
            );
            continue;
        };
        tests.extend(Patterns::of(config, &path, &value).map(|patterns| Test::ArgumentAt(index, patterns)));
    }
    tests
}

/// The range of priorities under `priority`, where an end that is left out is that of `otherwise`.
pub(crate) fn priority(config: &mut Config, otherwise: RangeInclusive<i32>) -> Option<RangeInclusive<i32>> {
    let mut range = config.object("priority")?;
    let limits = i64::from(i32::MIN)..=i64::from(i32::MAX);
    let mut end = |key| range.integer(key, limits.clone()).and_then(|number| i32::try_from(number).ok());
    let least = end("min").unwrap_or(*otherwise.start());
    let most = end("max").unwrap_or(*otherwise.end());
    if least > most {
        let path = range.path().to_owned();
        range.error(path, format!("no priority is at least {least} and at most {most}"));
    }
    config.close(range);
    Some(least..=most)
}

fn several(config: &mut Config, key: &'static str, depth: usize) -> Option<Vec<Condition>> {
    let items = config.objects(key)?;
    if items.is_empty() {
        config.error(config.path_of(key), "an empty list of conditions says nothing; leave it out");
    }
    let read = |mut inner: Config| {
        let condition = Condition::read_at(&mut inner, depth + 1);
        config.close(inner);
        condition
    };
    Some(items.into_iter().map(read).collect())
}
