//! Messages of `buildbarn.remoteactionrouter`, with the Action as the bytes that it came in.
//!
//! Whoever routes an action changes a field or two of it and hands the rest on. A decoded Action would lose the fields that
//! this program's definition doesn't have, so it is not decoded here; on the wire it is the same.

use bytes::Bytes;
use prost::Message;
use prost_types::Any;

use crate::rev2::{RequestMetadata, digest_function};

/// An action that is to be queued.
#[derive(Clone, PartialEq, Message)]
pub struct RouteActionRequest {
    /// As the client gave it.
    #[prost(string, tag = "1")]
    pub instance_name: String,
    /// By which the action's digests are made.
    #[prost(enumeration = "digest_function::Value", tag = "2")]
    pub digest_function: i32,
    /// `build.bazel.remote.execution.v2.Action`, encoded.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub action: Option<Bytes>,
    /// `None` if the client said nothing of itself.
    #[prost(message, optional, tag = "4")]
    pub request_metadata: Option<RequestMetadata>,
}

/// Where it goes.
#[derive(Clone, PartialEq, Message)]
pub struct RouteActionResponse {
    /// `build.bazel.remote.execution.v2.Action`, encoded.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub action: Option<Bytes>,
    /// Coarsest first; one at least.
    #[prost(message, repeated, tag = "4")]
    pub invocation_keys: Vec<Any>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::rev2::{Action, Digest};

    /// As the definition has them.
    #[derive(Clone, PartialEq, Message)]
    struct Typed {
        #[prost(string, tag = "1")]
        instance_name: String,
        #[prost(enumeration = "digest_function::Value", tag = "2")]
        digest_function: i32,
        #[prost(message, optional, tag = "3")]
        action: Option<Action>,
        #[prost(message, optional, tag = "4")]
        request_metadata: Option<RequestMetadata>,
    }

    #[test]
    fn bytes_and_messages_are_the_same_on_the_wire() {
        let digest = Digest { hash: "ab".into(), size_bytes: 1 };
        let action = Action { command_digest: Some(digest), do_not_cache: true, ..Action::default() };
        let typed = Typed {
            instance_name: "main".into(),
            digest_function: digest_function::Value::Sha256.into(),
            action: Some(action.clone()),
            request_metadata: Some(RequestMetadata { tool_invocation_id: "i".into(), ..Default::default() }),
        };
        let ours = RouteActionRequest::decode(&typed.encode_to_vec()[..]).unwrap();
        assert_eq!(ours.action.as_deref(), Some(&action.encode_to_vec()[..]));
        assert_eq!(Typed::decode(&ours.encode_to_vec()[..]).unwrap(), typed);
    }
}
