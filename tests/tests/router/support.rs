//! A CAS, routers before it, and actions as clients send them.

use std::net::SocketAddr;
use std::time::Duration;

use pointsman::config::Config;
use pointsman::serve::Server;
use pointsman_proto::rev2::{Action, Command, Digest, Platform, platform::Property};
use pointsman_tests::fake_client::{FakeClient, digest_of};
use pointsman_tests::harness::RouterProcess;
use prost::Message as _;

use crate::scheduler::Scheduler;

/// Another Pointsman, which stores blobs.
pub(crate) struct Cas {
    pub(crate) address: SocketAddr,
    _server: Server,
    _folder: tempfile::TempDir,
}

impl Cas {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "{{ listen: '127.0.0.1:0', http: {{ listen: 'off' }}, state_dir: '{}', services: 'cache' }}",
            folder.path().display()
        );
        let server = Server::start(&Config::parse(&text, "cas.json5").unwrap()).await.unwrap();
        Self { address: server.address, _server: server, _folder: folder }
    }

    pub(crate) async fn client(&self) -> FakeClient {
        FakeClient::connect(self.address).await.unwrap()
    }

    /// Stores a Command and gives an Action that names it.
    pub(crate) async fn action(&self, command: &Command) -> Action {
        self.client().await.upload([command.encode_to_vec().into()]).await.unwrap();
        action_of(command)
    }

    /// A router that has its Commands from here, and these keys of the configuration besides.
    pub(crate) async fn router(&self, keys: &str) -> RouterProcess {
        router(self.address, keys).await
    }
}

/// A router with its Commands from there.
pub(crate) async fn router(cas: SocketAddr, keys: &str) -> RouterProcess {
    RouterProcess::start(&config(cas, keys), &[]).await.unwrap()
}

pub(crate) fn config(cas: SocketAddr, keys: &str) -> String {
    format!("{{ storage: {{ remote: {{ address: 'grpc://{cas}' }} }}, {keys} }}")
}

/// A scheduler that asks that router.
pub(crate) async fn scheduler(router: &RouterProcess) -> Scheduler {
    Scheduler::new(router.client().await.unwrap())
}

pub(crate) fn properties(pairs: &[(&str, &str)]) -> Platform {
    let property = |(name, value): &(&str, &str)| Property { name: (*name).into(), value: (*value).into() };
    Platform { properties: pairs.iter().map(property).collect() }
}

pub(crate) fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// A Command as Buck2 sends it: the platform is here, sorted by nobody.
#[allow(deprecated, reason = "that is what it does")]
pub(crate) fn buck2(argument: &str, platform: &[(&str, &str)]) -> Command {
    Command {
        arguments: vec!["gcc".into(), argument.into()],
        output_paths: vec!["buck-out/out".into()],
        platform: Some(properties(platform)),
        ..Command::default()
    }
}

/// The Action of a Command, without a platform of its own.
pub(crate) fn action_of(command: &Command) -> Action {
    Action {
        command_digest: Some(digest_of(&command.encode_to_vec())),
        input_root_digest: Some(Digest { hash: "00".repeat(32), size_bytes: 0 }),
        ..Action::default()
    }
}

/// An Action with a platform of its own, as Bazel sends it.
pub(crate) fn bazel(argument: &str, platform: &[(&str, &str)]) -> Action {
    Action { platform: Some(properties(platform)), ..action_of(&buck2(argument, platform)) }
}

/// The future's output, which is overdue after so long.
pub(crate) async fn within<T>(time: Duration, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(time, future).await.unwrap_or_else(|_| panic!("nothing happened for {time:?}"))
}
