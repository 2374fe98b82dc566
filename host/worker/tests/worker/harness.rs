//! A worker with its servers, and actions to give it.
#![allow(deprecated)]
use crate::{scheduler::Scheduler, storage::Storage};
use pointsman_proto::{
    bytestream::byte_stream_server::ByteStreamServer,
    remoteworker::{desired_state, operation_queue_server::OperationQueueServer},
    rev2::{
        action_cache_server::ActionCacheServer, capabilities_server::CapabilitiesServer,
        command::EnvironmentVariable, content_addressable_storage_server::ContentAddressableStorageServer, *,
    },
};
use pointsman_worker::{WorkerConfig, WorkerError};
use prost::Message as _;
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, SystemTime},
};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) struct Harness {
    pub(crate) scheduler: Scheduler,
    pub(crate) storage: Storage,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) shutdown: CancellationToken,
    worker: JoinHandle<Result<(), WorkerError>>,
    _server: DropGuard,
}

impl Harness {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut WorkerConfig)) -> Self {
        let (scheduler, storage) = (Scheduler::default(), Storage::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let server = tonic::transport::Server::builder()
            .add_service(OperationQueueServer::new(scheduler.clone()).max_decoding_message_size(64 << 20))
            .add_service(
                ContentAddressableStorageServer::new(storage.clone()).max_decoding_message_size(64 << 20),
            )
            .add_service(ByteStreamServer::new(storage.clone()))
            .add_service(ActionCacheServer::new(storage.clone()))
            .add_service(CapabilitiesServer::new(storage.clone()));
        let stopped = stop.clone();
        tokio::spawn(async move {
            let incoming = TcpListenerStream::new(listener);
            // Connections end with the test.
            tokio::select! {
                served = server.serve_with_incoming(incoming) => served.unwrap(),
                () = stopped.cancelled() => {}
            }
        });
        let dir = tempfile::tempdir().unwrap();
        let mut config = WorkerConfig::new(format!("grpc://{address}"), dir.path().join("work"));
        config.concurrency = 1;
        config.name = "test".into();
        config.storage_patience = Duration::from_secs(2);
        change(&mut config);
        let shutdown = CancellationToken::new();
        let worker = tokio::spawn(pointsman_worker::run(config, shutdown.clone()));
        Self { scheduler, storage, dir, shutdown, worker, _server: stop.drop_guard() }
    }

    /// Queues an action and waits for its result.
    pub(crate) async fn run(&self, action: Job) -> ExecuteResponse {
        let hash = self.submit(action);
        self.result(&hash).await
    }

    pub(crate) fn submit(&self, action: Job) -> String {
        let desired = action.desired(&self.storage);
        self.submit_desired(desired)
    }

    /// Gives the worker what no client's action can be made into.
    pub(crate) async fn run_desired(&self, desired: desired_state::Executing) -> ExecuteResponse {
        let hash = self.submit_desired(desired);
        self.result(&hash).await
    }

    fn submit_desired(&self, desired: desired_state::Executing) -> String {
        let hash = desired.action_digest.clone().unwrap().hash;
        self.scheduler.with(|inner| inner.queue.push_back(desired));
        hash
    }

    pub(crate) async fn result(&self, hash: &str) -> ExecuteResponse {
        self.scheduler.until("a result", |inner| inner.results.get(hash).cloned()).await
    }

    /// Waits until the action wrote `name` into its captured output directory (its input root).
    pub(crate) async fn marker(&self, name: &str) -> String {
        let path = self.dir.path().join("work/build/0/root").join(name);
        for _ in 0..600 {
            if let Ok(text) = std::fs::read_to_string(&path)
                && text.ends_with('\n')
            {
                return text.trim().to_owned();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("no {name}");
    }

    pub(crate) async fn stop(self) -> Result<(), WorkerError> {
        self.shutdown.cancel();
        tokio::time::timeout(Duration::from_secs(20), self.worker).await.expect("the worker stops").unwrap()
    }

    pub(crate) fn text(&self, digest: &Option<Digest>) -> String {
        let digest = digest.as_ref().unwrap();
        if digest.size_bytes == 0 {
            return String::new();
        }
        String::from_utf8(self.storage.get(digest).to_vec()).unwrap()
    }
}

/// An action to be: a shell script with inputs and outputs.
pub(crate) struct Job {
    pub(crate) command: Command,
    pub(crate) files: Vec<(&'static str, Vec<u8>, bool)>,
    pub(crate) links: Vec<(&'static str, &'static str)>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) do_not_cache: bool,
    pub(crate) suffix: &'static str,
    pub(crate) digest_function: i32,
    pub(crate) forget: Vec<Vec<u8>>,
    pub(crate) edit_root: Option<fn(&mut Directory)>,
    /// More auxiliary metadata.
    pub(crate) told: Vec<prost_types::Any>,
}

pub(crate) fn sh(script: &str) -> Job {
    static SALT: AtomicU32 = AtomicU32::new(0);
    let salt = SALT.fetch_add(1, Ordering::Relaxed);
    let command = Command {
        arguments: vec!["/bin/sh".into(), "-c".into(), script.into(), format!("salt{salt}")],
        ..Default::default()
    };
    Job {
        command,
        files: Vec::new(),
        links: Vec::new(),
        timeout: Some(Duration::from_secs(60)),
        do_not_cache: false,
        suffix: "",
        digest_function: digest_function::Value::Sha256 as i32,
        forget: Vec::new(),
        edit_root: None,
        told: Vec::new(),
    }
}

impl Job {
    pub(crate) fn outputs(mut self, paths: &[&str]) -> Self {
        self.command.output_paths = paths.iter().map(|p| (*p).to_owned()).collect();
        self
    }

    pub(crate) fn input(mut self, path: &'static str, data: impl AsRef<[u8]>) -> Self {
        self.files.push((path, data.as_ref().to_vec(), true));
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command
            .environment_variables
            .push(EnvironmentVariable { name: name.into(), value: value.into() });
        self
    }

    pub(crate) fn args(mut self, arguments: &[&str]) -> Self {
        self.command.arguments = arguments.iter().map(|a| (*a).to_owned()).collect();
        self
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    pub(crate) fn desired(self, storage: &Storage) -> desired_state::Executing {
        let mut root = Node::default();
        for (path, data, executable) in &self.files {
            root.at(path, |node, name| {
                let digest = Some(storage.put(data.clone()));
                let file =
                    FileNode { name: name.into(), digest, is_executable: *executable, node_properties: None };
                node.directory.files.push(file);
            });
        }
        for (path, target) in &self.links {
            root.at(path, |node, name| {
                let link = SymlinkNode { name: name.into(), target: (*target).into(), node_properties: None };
                node.directory.symlinks.push(link);
            });
        }
        if let Some(edit) = self.edit_root {
            edit(&mut root.directory);
        }
        let action = Action {
            command_digest: Some(storage.put(self.command.encode_to_vec())),
            input_root_digest: Some(root.store(storage)),
            timeout: self.timeout.map(|t| t.try_into().unwrap()),
            do_not_cache: self.do_not_cache,
            ..Default::default()
        };
        for blob in &self.forget {
            storage.0.lock().unwrap().blobs.remove(&crate::storage::digest_of(blob).hash);
        }
        desired_state::Executing {
            action_digest: Some(crate::storage::digest_of(&action.encode_to_vec())),
            action: Some(action),
            queued_timestamp: Some(SystemTime::now().into()),
            instance_name_suffix: self.suffix.into(),
            digest_function: self.digest_function,
            auxiliary_metadata: [pointsman_proto::pack(&RequestMetadata {
                action_mnemonic: "Sent".into(),
                ..Default::default()
            })]
            .into_iter()
            .chain(self.told)
            .collect(),
            ..Default::default()
        }
    }
}

#[derive(Default)]
struct Node {
    directory: Directory,
    children: BTreeMap<String, Node>,
}

impl Node {
    fn at(&mut self, path: &str, f: impl FnOnce(&mut Self, &str)) {
        match path.split_once('/') {
            Some((first, rest)) => self.children.entry(first.into()).or_default().at(rest, f),
            None => f(self, path),
        }
    }

    fn store(mut self, storage: &Storage) -> Digest {
        for (name, child) in self.children {
            self.directory.directories.push(DirectoryNode { name, digest: Some(child.store(storage)) });
        }
        self.directory.files.sort_by(|a, b| a.name.cmp(&b.name));
        storage.put(self.directory.encode_to_vec())
    }
}
