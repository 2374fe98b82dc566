//! Names of queues and invocations as Buildbarn's messages have them.

use std::sync::Arc;

use pointsman_proto::buildqueuestate::{InvocationName, PlatformQueueName, SizeClassQueueName};
use pointsman_proto::rev2::RequestMetadata;
use pointsman_proto::unpack;
use pointsman_scheduler::platform_queues::QueueName;
use pointsman_scheduler::route::Property;
use prost::Message as _;
use prost_types::{Any, Value, value::Kind};
use tonic::Status;

use crate::rev2::instance_name;
use crate::routing;

/// Keys of invocations are texts, so each is a `google.protobuf.Value`: every reader of the protocol knows its JSON.
const VALUE: &str = "type.googleapis.com/google.protobuf.Value";

/// A key of an invocation.
pub(super) fn key_message(key: &str) -> Any {
    let value = Value { kind: Some(Kind::StringValue(key.to_owned())) };
    Any { type_url: VALUE.to_owned(), value: value.encode_to_vec() }
}

/// The key that is meant: a `google.protobuf.Value` with a text as we send it, or `RequestMetadata` with nothing but the id of a
/// build, as Buildbarn sends it.
///
/// # Errors
/// It is something else.
pub(super) fn key(id: &Any) -> Result<String, Status> {
    let wrong = |why: String| {
        Status::invalid_argument(format!(
            "an invocation id is {why}: give a google.protobuf.Value with a text, as ListInvocationChildren does, or a \
             build.bazel.remote.execution.v2.RequestMetadata with nothing but tool_invocation_id or \
             correlated_invocations_id"
        ))
    };
    match id.type_url.rsplit('/').next().unwrap_or_default() {
        "google.protobuf.Value" => match Value::decode(&id.value[..]) {
            Ok(Value { kind: Some(Kind::StringValue(key)) }) => Ok(key),
            Ok(_) => Err(wrong("a google.protobuf.Value without a text".to_owned())),
            Err(error) => Err(wrong(format!("no google.protobuf.Value ({error})"))),
        },
        "build.bazel.remote.execution.v2.RequestMetadata" => {
            let metadata: RequestMetadata = unpack(id).map_err(|error| wrong(error.to_string()))?;
            let RequestMetadata { tool_invocation_id: tool, correlated_invocations_id: correlated, .. } =
                &metadata;
            let only = |m: RequestMetadata| m == metadata;
            if !tool.is_empty()
                && only(RequestMetadata { tool_invocation_id: tool.clone(), ..Default::default() })
            {
                Ok(tool.clone())
            } else if !correlated.is_empty()
                && only(RequestMetadata {
                    correlated_invocations_id: correlated.clone(),
                    ..Default::default()
                })
            {
                Ok(correlated.clone())
            } else {
                Err(wrong("a RequestMetadata with more or less than one id".to_owned()))
            }
        }
        other => Err(wrong(format!("a {other:?}"))),
    }
}

/// The queue that is meant.
///
/// # Errors
/// There is none, or it can't be the name of one.
pub(super) fn queue(name: Option<SizeClassQueueName>) -> Result<QueueName, Status> {
    let name = name.ok_or_else(|| Status::invalid_argument("size_class_queue_name is not set"))?;
    let platform_queue = name.platform_queue_name;
    let PlatformQueueName { instance_name_prefix, platform } =
        platform_queue.ok_or_else(|| Status::invalid_argument("platform_queue_name is not set"))?;
    instance_name::validate(&instance_name_prefix)?;
    let platform = platform.unwrap_or_default();
    routing::check_sorted(&platform)
        .map_err(|text| Status::invalid_argument(format!("platform_queue_name.platform: {text}")))?;
    let prefix = Arc::from(instance_name_prefix.as_str());
    Ok(QueueName::new(name.size_class, prefix, routing::properties(&platform)))
}

/// The queue and the path of keys that are meant.
///
/// # Errors
/// As [`queue`] and [`key`].
pub(super) fn invocation(name: Option<InvocationName>) -> Result<(QueueName, Vec<String>), Status> {
    let name = name.ok_or_else(|| Status::invalid_argument("invocation_name is not set"))?;
    let keys: Result<_, _> = name.ids.iter().map(key).collect();
    Ok((queue(name.size_class_queue_name)?, keys?))
}

/// A queue of all size classes.
pub(super) fn platform_message(queue: &QueueName) -> PlatformQueueName {
    PlatformQueueName {
        instance_name_prefix: queue.prefix.to_string(),
        platform: Some(routing::platform(&queue.platform)),
    }
}

/// A queue.
pub(super) fn queue_message(queue: &QueueName) -> SizeClassQueueName {
    SizeClassQueueName { platform_queue_name: Some(platform_message(queue)), size_class: queue.size_class }
}

/// How a queue is called in errors.
pub(super) fn described(queue: &QueueName) -> String {
    let platform = platform_json(&queue.platform);
    format!(
        "of instance name prefix '{}', platform {platform} and size class {}",
        queue.prefix, queue.size_class
    )
}

/// A platform as canonical protobuf JSON, on one line without spaces: what is empty is left out.
pub fn platform_json(platform: &[Property]) -> String {
    let property = |p: &Property| {
        let fields =
            [("name", &p.name), ("value", &p.value)].into_iter().filter(|(_, text)| !text.is_empty());
        fields
            .map(|(key, text)| (key.to_owned(), serde_json::Value::from(&**text)))
            .collect::<serde_json::Map<_, _>>()
    };
    match platform {
        [] => "{}".to_owned(),
        _ => {
            serde_json::json!({ "properties": platform.iter().map(property).collect::<Vec<_>>() }).to_string()
        }
    }
}

#[cfg(test)]
mod tests {
    use pointsman_proto::pack;

    use super::*;

    #[test]
    fn keys_come_back_as_they_were_sent() {
        for text in ["", "user:alice", "ünï \"code\""] {
            assert_eq!(key(&key_message(text)).unwrap(), text);
        }
    }

    #[test]
    fn what_buildbarn_groups_by_is_understood_and_nothing_else() {
        let metadata = |tool: &str, correlated: &str, target: &str| {
            key(&pack(&RequestMetadata {
                tool_invocation_id: tool.to_owned(),
                correlated_invocations_id: correlated.to_owned(),
                target_id: target.to_owned(),
                ..RequestMetadata::default()
            }))
        };
        assert_eq!(metadata("t", "", "").unwrap(), "t");
        assert_eq!(metadata("", "c", "").unwrap(), "c");
        for (tool, correlated, target) in [("", "", ""), ("t", "c", ""), ("t", "", "//a")] {
            let status = metadata(tool, correlated, target).unwrap_err();
            assert!(status.message().contains("more or less than one id"), "{status}");
        }
        let status = key(&Any { type_url: "x/y.Z".to_owned(), value: Vec::new() }).unwrap_err();
        assert!(status.message().contains("a \"y.Z\": give a google.protobuf.Value"), "{status}");
    }

    #[test]
    fn platforms_are_canonical_json() {
        let properties = |list: &[(&str, &str)]| {
            platform_json(&list.iter().map(|(k, v)| Property::new(*k, *v)).collect::<Vec<_>>())
        };
        assert_eq!(properties(&[]), "{}");
        assert_eq!(
            properties(&[("a", "say \"x\""), ("b", "")]),
            r#"{"properties":[{"name":"a","value":"say \"x\""},{"name":"b"}]}"#
        );
    }
}
