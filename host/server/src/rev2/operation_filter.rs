//! The filter of `ListOperations`: `FIELD=VALUE` terms joined by `AND`.

use pointsman_proto::longrunning::Operation;
use pointsman_proto::rev2::{ExecuteOperationMetadata, execution_stage};
use pointsman_proto::{unpack, v1};
use tonic::Status;

/// Longest filter, in bytes.
const MAX_BYTES: usize = 4096;

/// What operations have to be like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Filter(Vec<Term>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Term {
    Stage(execution_stage::Value),
    Done(bool),
    /// `HASH` or `HASH/SIZE`.
    Action(String),
    /// One of the keys that the operation is shared out by.
    Invocation(String),
}

impl Filter {
    /// Reads a filter; the empty one takes all.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` that says what can be asked for.
    pub(super) fn parse(text: &str) -> Result<Self, Status> {
        if text.len() > MAX_BYTES {
            let text = format!("filter has {} bytes, at most {MAX_BYTES} are allowed", text.len());
            return Err(Status::invalid_argument(text));
        }
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        text.split(" AND ").map(|term| Term::parse(term.trim())).collect::<Result<_, _>>().map(Self)
    }

    /// Whether an operation is like that.
    pub(super) fn takes(&self, operation: &Operation) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let metadata = operation.metadata.as_ref().and_then(|any| unpack(any).ok()).unwrap_or_default();
        self.0.iter().all(|term| term.takes(operation, &metadata))
    }
}

impl Term {
    fn parse(text: &str) -> Result<Self, Status> {
        let wrong = || {
            Status::invalid_argument(format!(
                "filter term {text:?} is unknown: give stage=QUEUED|EXECUTING|COMPLETED, done=true|false, \
                 action=HASH or invocation=KEY, joined by \" AND \""
            ))
        };
        let (field, value) = text.split_once('=').ok_or_else(wrong)?;
        let value = value.trim().trim_matches('"');
        match field.trim() {
            "stage" => execution_stage::Value::from_str_name(&value.to_ascii_uppercase()).map(Self::Stage),
            "done" => value.parse().ok().map(Self::Done),
            "action" => Some(Self::Action(value.to_owned())),
            "invocation" => Some(Self::Invocation(value.to_owned())),
            _ => None,
        }
        .ok_or_else(wrong)
    }

    fn takes(&self, operation: &Operation, metadata: &ExecuteOperationMetadata) -> bool {
        match self {
            Self::Stage(stage) => metadata.stage() == *stage,
            Self::Done(done) => operation.done == *done,
            Self::Action(action) => metadata.action_digest.as_ref().is_some_and(|digest| {
                let (hash, size) = action.split_once('/').unwrap_or((action, ""));
                digest.hash == hash && (size.is_empty() || size == digest.size_bytes.to_string())
            }),
            Self::Invocation(key) => {
                let auxiliary =
                    metadata.partial_execution_metadata.iter().flat_map(|m| &m.auxiliary_metadata);
                let mut decisions = auxiliary.filter_map(|any| unpack::<v1::RoutingDecision>(any).ok());
                decisions.any(|decision| decision.invocation_keys.contains(key))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_terms_and_says_which_there_are() {
        assert_eq!(Filter::parse("  ").unwrap(), Filter::default());
        let filter = Filter::parse("stage=executing AND done = false AND action=\"ab/3\"").unwrap();
        let stage = Term::Stage(execution_stage::Value::Executing);
        assert_eq!(filter, Filter(vec![stage, Term::Done(false), Term::Action("ab/3".to_owned())]));
        for wrong in ["stage", "stage=GONE", "done=maybe", "worker=h7", "done=true AND"] {
            let status = Filter::parse(wrong).unwrap_err();
            assert!(status.message().contains("give stage=QUEUED"), "{wrong}: {status}");
        }
        assert!(Filter::parse(&"x".repeat(5000)).is_err());
    }
}
