//! Actions made up for tests.
use bytes::Bytes;
use pointsman_proto::rev2::{
    Action, Command, Digest, Directory, Platform, command::EnvironmentVariable, platform::Property,
};
use pointsman_storage::DigestFunction;
use prost::Message as _;
use std::time::Duration;

/// What an action is made of; the default is a cacheable `true` without inputs, outputs or platform.
#[derive(Clone, Debug)]
pub struct ActionSpec {
    /// Argument vector of the command.
    pub arguments: Vec<String>,
    /// Environment, in any order.
    pub environment: Vec<(String, String)>,
    /// Outputs, relative to the input root.
    pub output_paths: Vec<String>,
    /// Properties of action and command, in any order; absent in both when empty.
    pub platform: Vec<(String, String)>,
    /// Like clients before API 2.2: properties in the command only.
    pub platform_in_command_only: bool,
    /// `None` leaves it to the server.
    pub timeout: Option<Duration>,
    /// Neither cached nor shared.
    pub do_not_cache: bool,
    /// Makes actions differ that are otherwise equal.
    pub salt: Bytes,
    /// Input root.
    pub input_root: Directory,
}

impl Default for ActionSpec {
    fn default() -> Self {
        Self {
            arguments: vec!["true".into()],
            environment: Vec::new(),
            output_paths: Vec::new(),
            platform: Vec::new(),
            platform_in_command_only: false,
            timeout: None,
            do_not_cache: false,
            salt: Bytes::new(),
            input_root: Directory::default(),
        }
    }
}

impl ActionSpec {
    /// The default with these arguments.
    pub fn new<S: Into<String>>(arguments: impl IntoIterator<Item = S>) -> Self {
        Self { arguments: arguments.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Adds a platform property.
    pub fn with_property(mut self, name: &str, value: &str) -> Self {
        self.platform.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Serialised input root, command and action, in this order.
    pub fn blobs(&self) -> [Bytes; 3] {
        self.blobs_by(DigestFunction::Sha256)
    }

    /// The same with digests by another function.
    pub fn blobs_by(&self, function: DigestFunction) -> [Bytes; 3] {
        let digest_of = |blob: &[u8]| pointsman_storage::Digest::of(function, blob).to_proto();
        let input_root: Bytes = self.input_root.encode_to_vec().into();
        let command: Bytes = self.command().encode_to_vec().into();
        let action = Action {
            command_digest: Some(digest_of(&command)),
            input_root_digest: Some(digest_of(&input_root)),
            timeout: self.timeout.and_then(|t| t.try_into().ok()),
            do_not_cache: self.do_not_cache,
            salt: self.salt.clone(),
            platform: if self.platform_in_command_only { None } else { self.sorted_platform() },
        };
        [input_root, command, action.encode_to_vec().into()]
    }

    #[allow(deprecated, reason = "clients still send Command.platform")]
    fn command(&self) -> Command {
        let mut environment = self.environment.clone();
        environment.sort();
        let environment = environment.into_iter().map(|(name, value)| EnvironmentVariable { name, value });
        let mut output_paths = self.output_paths.clone();
        output_paths.sort();
        Command {
            arguments: self.arguments.clone(),
            environment_variables: environment.collect(),
            output_paths,
            platform: self.sorted_platform(),
            ..Default::default()
        }
    }

    fn sorted_platform(&self) -> Option<Platform> {
        (!self.platform.is_empty()).then(|| platform(&self.platform))
    }
}

/// A platform in the order that the protocol demands.
pub(crate) fn platform(properties: &[(String, String)]) -> Platform {
    let mut sorted = properties.to_vec();
    sorted.sort();
    Platform { properties: sorted.into_iter().map(|(name, value)| Property { name, value }).collect() }
}

/// The SHA-256 digest of a blob.
pub fn digest_of(blob: &[u8]) -> Digest {
    pointsman_storage::Digest::of(DigestFunction::Sha256, blob).to_proto()
}
