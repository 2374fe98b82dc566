//! The size of worker that an action gets: what it asks for by a property, else what the operator's table says, else one
//! for all others, which may be learned.

mod learning_key;
mod sizes;

use pointsman_policy_sdk::{
    Attempt, Code, CommandWhen, Config, Next, Outcome, Rejection, SizeClass, action, route,
};

use crate::condition::Condition;
use crate::{Facts, Part};

use learning_key::LearningKey;
use sizes::Sizes;

/// JSON Schema of its configuration.
pub const SCHEMA: &str = include_str!("../../size-classes/config.schema.json");

/// Names of the parts that learning keys are made of, in the order in which they stand there.
#[cfg(test)]
pub(crate) fn key_parts() -> impl Iterator<Item = &'static str> {
    learning_key::PARTS.iter().map(|(name, _)| *name)
}

/// The part, configured.
#[derive(Clone, Debug)]
pub struct SizeClasses {
    sizes: Sizes,
    /// Property in which an action says its size; `None`: none does.
    property: Option<String>,
    keep_property: bool,
    /// The first entry that means an action counts.
    table: Vec<(Condition, SizeClass)>,
    otherwise: SizeClass,
    learning_key: Option<LearningKey>,
    /// How an attempt has to end to be made again on the next larger class. None by default: the server has such a rule.
    rerun_after: Vec<Outcome>,
}

/// The last word is an older spelling.
const RERUN_AFTER: [(&str, Outcome); 3] =
    [("killed", Outcome::Killed), ("timed_out", Outcome::TimedOut), ("timed-out", Outcome::TimedOut)];

impl Part for SizeClasses {
    fn read(config: &mut Config) -> Self {
        let sizes = Sizes::read(config);
        let property = config.name("property");
        let keep_property = config.bool("keep_property", false);
        let mut table = Vec::new();
        for mut entry in config.objects("table").unwrap_or_default() {
            let size = sizes.required(&mut entry, "size");
            let condition = Condition::read(&mut entry);
            if condition.is_always() {
                let text =
                    "means all actions; say which, or use `otherwise` for all that the table does not name";
                entry.error(entry.path().to_owned(), text);
            }
            config.close(entry);
            table.push((condition, size));
        }
        let otherwise = sizes.optional(config, "otherwise").unwrap_or(SizeClass::Learned);
        let learning_key = config.object("learning_key").map(|mut inner| {
            let key = LearningKey::read(&mut inner);
            config.close(inner);
            key
        });
        let rerun_after = config.words("rerun_after", &RERUN_AFTER).unwrap_or_default();
        if !rerun_after.is_empty() && sizes.larger_than(0).is_none() {
            let text = "has no effect without `classes`, which say what is larger than what";
            config.error(config.path_of("rerun_after"), text);
        }
        Self { sizes, property, keep_property, table, otherwise, learning_key, rerun_after }
    }

    fn commands(&self) -> Option<CommandWhen> {
        let of_key = self.learning_key.as_ref().and_then(LearningKey::commands);
        of_key.or_else(|| self.table.iter().find_map(|(condition, _)| condition.commands()))
    }

    fn route(&self, facts: &Facts) -> Result<(), Rejection> {
        // Before the property goes: entries of the table may look at it.
        let size = match self.asked(facts)? {
            Some(size) => size,
            None => {
                let entry = self.table.iter().find(|(condition, _)| condition.holds(facts));
                entry.map_or(self.otherwise, |(_, size)| *size)
            }
        };
        if let Some(name) = self.property.as_ref().filter(|_| !self.keep_property) {
            facts.remove_property(name);
        }
        route::set_size(self.after_attempts(size));
        if let Some(key) = &self.learning_key {
            route::set_learning_key(&key.of(facts));
        }
        Ok(())
    }
}

impl SizeClasses {
    /// What the action asks for by its property.
    fn asked(&self, facts: &Facts) -> Result<Option<SizeClass>, Rejection> {
        let Some(name) = &self.property else { return Ok(None) };
        let Some(value) = facts.property(name).filter(|value| !value.is_empty()) else { return Ok(None) };
        let unknown = || {
            let text = format!("the property {name} asks for the size {value:?}{}", self.sizes.hint(&value));
            Rejection::new(Code::InvalidArgument, text)
                .help(format!("ask for a size that there is, or leave {name} out"))
        };
        self.sizes.named(&value).map(Some).ok_or_else(unknown)
    }

    /// What was too small before must not be chosen again, be it that another policy comes into force meanwhile.
    fn after_attempts(&self, size: SizeClass) -> SizeClass {
        let SizeClass::Exactly(class) = size else { return size };
        if self.rerun_after.is_empty() {
            return size;
        }
        let too_small =
            action::attempts().into_iter().filter(|attempt| self.rerun_after.contains(&attempt.outcome));
        let larger = too_small.filter_map(|attempt| self.sizes.larger_than(attempt.size_class)).max();
        SizeClass::Exactly(larger.map_or(class, |larger| larger.max(class)))
    }

    /// Does it say anything about results? Then it has to be asked about them.
    pub fn is_about_results(&self) -> bool {
        !self.rerun_after.is_empty()
    }

    /// What happens after an attempt: again on the next larger class, if it ended in a way that a larger one may help
    /// against. To be called in `completed`.
    pub fn completed(&self, attempt: &Attempt) -> Next {
        if !self.rerun_after.contains(&attempt.outcome) {
            return Next::Accept;
        }
        let Some(class) = self.sizes.larger_than(attempt.size_class) else { return Next::Accept };
        route::set_size(SizeClass::Exactly(class));
        let how = if attempt.outcome == Outcome::Killed { "killed" } else { "timed out" };
        route::note(&format!("{how} on size class {}, so once more on {class}", attempt.size_class));
        Next::Again
    }
}
