//! What Buildbarn's scheduler does with a router: how it asks, and what it refuses of an answer.

use std::time::Duration;

use bytes::Bytes;
use pointsman_proto::action_router::{RouteActionRequest, RouteActionResponse};
use pointsman_proto::remoteactionrouter::action_router_client::ActionRouterClient;
use pointsman_proto::rev2::{Action, RequestMetadata, digest_function};
use prost::Message as _;
use prost_types::{Any, value};
use serde_json::{Value, json};
use tonic::transport::Channel;
use tonic::{Code, Status};

/// The longest time limit that this scheduler takes (`maximumExecutionTimeout`).
pub(crate) const MAXIMUM_TIMEOUT: Duration = Duration::from_secs(7200);

/// A scheduler that has a router.
#[derive(Clone)]
pub(crate) struct Scheduler {
    router: ActionRouterClient<Channel>,
    instance_name: String,
    function: digest_function::Value,
    metadata: Option<RequestMetadata>,
}

/// An answer that was taken.
#[derive(Clone, Debug)]
pub(crate) struct Routed {
    /// The Action that workers would get.
    pub(crate) action: Action,
    /// The same as it came.
    pub(crate) bytes: Bytes,
    /// Its platform: the name of the queue.
    pub(crate) platform: Vec<(String, String)>,
    /// As the scheduler compares them.
    pub(crate) keys: Vec<Value>,
    /// What the router says of itself, which the scheduler does not look at.
    pub(crate) degraded: Option<String>,
}

impl Scheduler {
    pub(crate) fn new(router: ActionRouterClient<Channel>) -> Self {
        Self {
            router,
            instance_name: String::new(),
            function: digest_function::Value::Sha256,
            metadata: None,
        }
    }

    pub(crate) fn with_instance_name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.instance_name);
        self
    }

    pub(crate) fn with_function(self, function: digest_function::Value) -> Self {
        Self { function, ..self }
    }

    pub(crate) fn with_metadata(mut self, metadata: RequestMetadata) -> Self {
        self.metadata = Some(metadata);
        self
    }

    /// As for a client whose tool has that invocation id.
    pub(crate) fn of_invocation(self, id: &str) -> Self {
        self.with_metadata(RequestMetadata { tool_invocation_id: id.into(), ..RequestMetadata::default() })
    }

    /// An Execute of this Action: what comes of it, or what its client is told.
    pub(crate) async fn execute(&self, action: &Action) -> Result<Routed, Status> {
        self.execute_bytes(action.encode_to_vec().into()).await
    }

    pub(crate) async fn execute_bytes(&self, action: Bytes) -> Result<Routed, Status> {
        let response = self.ask(action.clone(), None).await?;
        let degraded = response.metadata().get("pointsman-degraded");
        let degraded = degraded.map(|how| how.to_str().unwrap().to_owned());
        Ok(Routed { degraded, ..taken(&action, response.into_inner())? })
    }

    /// The answer as it came. `deadline`: of the client's Execute, if it has one.
    pub(crate) async fn ask(
        &self,
        action: Bytes,
        deadline: Option<Duration>,
    ) -> Result<tonic::Response<RouteActionResponse>, Status> {
        let mut request = tonic::Request::new(RouteActionRequest {
            instance_name: self.instance_name.clone(),
            digest_function: self.function.into(),
            action: Some(action),
            request_metadata: self.metadata.clone(),
        });
        if let Some(deadline) = deadline {
            request.set_timeout(deadline);
        }
        let mut router = self.router.clone();
        router.route_action(request).await.map_err(|status| {
            let text = format!(
                "Failed to route action: Failed to route action via remote service: {}",
                status.message()
            );
            Status::with_details(status.code(), text, Bytes::copy_from_slice(status.details()))
        })
    }
}

/// All that the scheduler looks at in an answer, and one thing that it trusts in: that nothing else was touched.
fn taken(asked: &Bytes, response: RouteActionResponse) -> Result<Routed, Status> {
    let malformed = |text: String| Status::new(Code::Internal, format!("Failed to route action: {text}"));
    let bytes = response.action.ok_or_else(|| malformed("the reply has no action".into()))?;
    let action = Action::decode(&bytes[..]).map_err(|error| malformed(error.to_string()))?;
    let Some(platform) = &action.platform else {
        return Err(malformed("the reply's action has no platform".into()));
    };
    let properties: Vec<_> = platform.properties.iter().map(|p| (p.name.clone(), p.value.clone())).collect();
    if !properties.is_sorted_by(|a, b| a < b) {
        return Err(malformed(format!("the reply's platform is not sorted: {properties:?}")));
    }
    if let Some(timeout) = action.timeout {
        let timeout = Duration::try_from(timeout).map_err(|_| malformed("a negative timeout".into()))?;
        if timeout > MAXIMUM_TIMEOUT {
            return Err(malformed(format!("a timeout of {timeout:?}")));
        }
    }
    if response.invocation_keys.is_empty() {
        return Err(malformed("the reply has no invocation keys".into()));
    }
    let keys = response.invocation_keys.iter().map(rendered).collect::<Result<_, _>>().map_err(malformed)?;
    assert_eq!(other_fields(&bytes), other_fields(asked), "something was touched that must not be");
    Ok(Routed { action, bytes: bytes.clone(), platform: properties, keys, degraded: None })
}

/// A key in JSON, if its type is linked into the scheduler.
fn rendered(key: &Any) -> Result<Value, String> {
    match key.type_url.strip_prefix("type.googleapis.com/") {
        Some("build.bazel.remote.execution.v2.RequestMetadata") => {
            let metadata = RequestMetadata::decode(&key.value[..]).map_err(|error| error.to_string())?;
            let texts = [
                ("toolInvocationId", &metadata.tool_invocation_id),
                ("correlatedInvocationsId", &metadata.correlated_invocations_id),
                ("actionMnemonic", &metadata.action_mnemonic),
                ("targetId", &metadata.target_id),
                ("actionId", &metadata.action_id),
                ("configurationId", &metadata.configuration_id),
            ];
            assert!(metadata.tool_details.is_none(), "whatever is in a key makes groups");
            Ok(texts
                .into_iter()
                .filter(|(_, text)| !text.is_empty())
                .map(|(k, v)| (k.to_owned(), json!(v)))
                .collect())
        }
        Some("google.protobuf.Value") => {
            let value = prost_types::Value::decode(&key.value[..]).map_err(|error| error.to_string())?;
            match value.kind {
                Some(value::Kind::StringValue(text)) => Ok(json!({ "value": text })),
                other => Err(format!("a value that is no text: {other:?}")),
            }
        }
        _ => Err(format!("Malformed invocation key: unable to resolve {:?}", key.type_url)),
    }
}

/// All fields but those that a router may edit, as they are on the wire and in their order.
fn other_fields(action: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = action;
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let field = rest;
        let (number, wire_type) = prost::encoding::decode_key(&mut rest).unwrap();
        prost::encoding::skip_field(wire_type, number, &mut rest, Default::default()).unwrap();
        if ![6, 7, 10].contains(&number) {
            fields.push(field[..field.len() - rest.len()].to_vec());
        }
    }
    fields
}
