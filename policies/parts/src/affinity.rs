//! Affinity: an action waits a little for the worker that last ran one like it, since that still has the inputs, or a
//! compiler that is warm.

use pointsman_policy_sdk::{CommandWhen, Config, Rejection, command, route};

use crate::condition::Condition;
use crate::{Facts, Part, package};

/// JSON Schema of its configuration.
pub const SCHEMA: &str = include_str!("../../affinity/config.schema.json");

/// Property in which Bazel sends the key of a persistent worker (`--experimental_remote_mark_tool_inputs`).
const BAZEL_WORKER_KEY: &str = "persistentWorkerKey";

/// How long is waited where nothing is said, in milliseconds: about what fetching inputs anew takes.
const WAIT_MS: u32 = 1_000;

/// The part, configured: of its rules the first one that gives a key counts.
#[derive(Clone, Debug)]
pub struct Affinity {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    when: Condition,
    by: By,
    wait_ms: u32,
}

/// What actions must have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
enum By {
    Target,
    Package,
    FirstOutput,
    /// Value of a property, which may be taken out of the platform.
    Property {
        name: String,
        keep: bool,
    },
    /// They have no affinity, and later rules are not asked.
    Nothing,
}

const BY: [(&str, By); 4] = [
    ("target", By::Target),
    ("package", By::Package),
    ("first_output", By::FirstOutput),
    ("nothing", By::Nothing),
];

impl Part for Affinity {
    fn read(config: &mut Config) -> Self {
        if !config.has("rules") {
            let text = "is needed: which actions go by what, as in [{ \"by\": \"target\" }]";
            config.error(config.path_of("rules"), text);
        }
        let items = config.objects("rules").unwrap_or_default();
        let count = items.len();
        let mut rules = Vec::new();
        for (index, mut item) in items.into_iter().enumerate() {
            let rule = Rule::read(&mut item);
            let at = item.path().to_owned();
            config.close(item);
            // Without such a key an action goes on to the next rule; `nothing` always ends it.
            if rule.when.is_always() && rule.by == By::Nothing && index + 1 < count {
                config.error(at, "means all actions, so later rules are never asked; move it to the end");
            }
            rules.push(rule);
        }
        Self { rules }
    }

    fn commands(&self) -> Option<CommandWhen> {
        let first_output = |rule: &Rule| rule.by == By::FirstOutput;
        let of_rule = |rule: &Rule| rule.when.commands().is_some() || first_output(rule);
        self.rules.iter().any(of_rule).then_some(CommandWhen::Always)
    }

    fn route(&self, facts: &Facts) -> Result<(), Rejection> {
        let mut found = None;
        for rule in self.rules.iter().filter(|rule| rule.when.holds(facts)) {
            found = rule.key(facts).map(|key| (key, rule.wait_ms));
            if found.is_some() || rule.by == By::Nothing {
                break;
            }
        }
        if let Some((key, wait_ms)) = found {
            route::set_affinity(&key, wait_ms);
        }
        // Also from actions of rules that were not asked: no worker has it, so they would wait for ever.
        for rule in &self.rules {
            if let By::Property { name, keep: false } = &rule.by
                && facts.property(name).is_some()
            {
                facts.remove_property(name);
            }
        }
        Ok(())
    }
}

impl Rule {
    fn read(config: &mut Config) -> Self {
        let when = Condition::under(config, "when").unwrap_or_default();
        let wait_ms = config.duration_ms("wait").unwrap_or(WAIT_MS);
        let named = config.has("property");
        let property = config.name("property");
        let persistent = config.bool("persistent_worker", false);
        let keep = config.bool("keep_property", false);
        let by = config.word("by", &BY);
        let given = usize::from(by.is_some()) + usize::from(named) + usize::from(persistent);
        if given != 1 {
            let text = "needs one of `by` (target, package, first_output or nothing), `property` (its name) and \
                        `persistent_worker` (true)";
            config.error(config.path().to_owned(), text);
        }
        let property = property.or_else(|| persistent.then(|| BAZEL_WORKER_KEY.to_owned()));
        let by = match property {
            Some(name) => By::Property { name, keep },
            None => by.unwrap_or(By::Target),
        };
        Self { when, by, wait_ms }
    }

    /// What says that two actions belong together; `None` when this one lacks it.
    fn key(&self, facts: &Facts) -> Option<String> {
        let labelled = |label: &str, value: &str| (!value.is_empty()).then(|| format!("{label}={value}"));
        match &self.by {
            By::Target => labelled("target", facts.target()),
            By::Package => labelled("package", package(facts.target())),
            By::FirstOutput => {
                labelled("output", &command::output_paths().into_iter().next().unwrap_or_default())
            }
            By::Property { name, .. } => labelled(name, &facts.property(name).unwrap_or_default()),
            By::Nothing => None,
        }
    }
}
