//! Which records somebody wants to see.

use pointsman_proto::v1::LogRequest;
use pointsman_scheduler::is_path_prefix;
use serde_json::Value;

/// What is empty or false leaves none out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The action's digest, or how it begins.
    pub action: String,
    /// Instance names (of workers: prefixes) that are this, or below it.
    pub instance_name: String,
    /// The action's mnemonic.
    pub mnemonic: String,
    /// A policy that was asked: its name, its link, or how its SHA-256 begins.
    pub policy: String,
    /// Only what was refused.
    pub rejected: bool,
    /// Only what some policy failed at; with `rejected`, either.
    pub failed: bool,
}

impl From<LogRequest> for Filter {
    fn from(request: LogRequest) -> Self {
        let LogRequest { action, instance_name, mnemonic, policy, rejected, failed, .. } = request;
        Self { action, instance_name, mnemonic, policy, rejected, failed }
    }
}

impl Filter {
    /// A record, in JSON, is wanted.
    pub fn lets_through(&self, record: &Value) -> bool {
        let text = |pointer: &str| record.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let instance = match record.get("worker") {
            Some(_) => text("/worker/instance_name_prefix"),
            None => text("/facts/instance_name"),
        };
        text("/facts/digest").starts_with(&self.action)
            && (self.mnemonic.is_empty() || text("/facts/mnemonic") == self.mnemonic)
            && is_path_prefix(&self.instance_name, instance)
            && self.knows(record)
            && self.is_notable(record)
    }

    fn knows(&self, record: &Value) -> bool {
        self.policy.is_empty()
            || steps(record).any(|step| {
                let policy = &step["policy"];
                let is_digest = policy["sha256"].as_str().is_some_and(|d| d.starts_with(&self.policy));
                step["link"] == *self.policy || policy["name"] == *self.policy || is_digest
            })
    }

    fn is_notable(&self, record: &Value) -> bool {
        let has = |what: &str| steps(record).any(|step| step.get(what).is_some());
        match (self.rejected, self.failed) {
            (false, false) => true,
            (rejected, failed) => rejected && has("rejected") || failed && has("failed"),
        }
    }
}

fn steps(record: &Value) -> impl Iterator<Item = &Value> {
    record["steps"].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_condition_leaves_out_what_does_not_meet_it() {
        let record = json!({
            "facts": { "digest": "abcd/12", "instance_name": "a/b", "mnemonic": "CppCompile" },
            "steps": [
                { "link": "main", "policy": { "name": "steer", "sha256": "123456" }, "failed": {} },
                { "link": "last", "policy": { "name": "default", "sha256": "ff" } },
            ],
        });
        let none = Filter::default();
        let filter = |change: fn(&mut Filter)| {
            let mut filter = none.clone();
            change(&mut filter);
            filter.lets_through(&record)
        };
        assert!(filter(|_| {}));
        assert!(filter(|f| f.action = "abc".into()) && !filter(|f| f.action = "bcd".into()));
        assert!(filter(|f| f.instance_name = "a".into()) && filter(|f| f.instance_name = "a/b".into()));
        assert!(!filter(|f| f.instance_name = "a/".into()) && !filter(|f| f.instance_name = "b".into()));
        assert!(filter(|f| f.mnemonic = "CppCompile".into()) && !filter(|f| f.mnemonic = "Cpp".into()));
        assert!(filter(|f| f.policy = "last".into()) && filter(|f| f.policy = "1234".into()));
        assert!(filter(|f| f.policy = "steer".into()) && !filter(|f| f.policy = "ste".into()));
        assert!(filter(|f| f.failed = true) && !filter(|f| f.rejected = true));
        assert!(filter(|f| (f.failed, f.rejected) = (true, true)));
    }

    #[test]
    fn workers_are_of_their_prefix() {
        let record = json!({ "worker": { "instance_name_prefix": "gpu" }, "steps": [] });
        assert!(Filter { instance_name: "gpu".into(), ..Filter::default() }.lets_through(&record));
        assert!(!Filter { instance_name: "cpu".into(), ..Filter::default() }.lets_through(&record));
        assert!(!Filter { mnemonic: "x".into(), ..Filter::default() }.lets_through(&record));
    }
}
