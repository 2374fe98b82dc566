//! What a worker needs to know, and what it can tell about its machine.
use crate::{error::WorkerError, query::PlatformQuery, strategy::Strategy};
use pointsman_proto::rev2::{Platform, platform::Property};
use std::{collections::BTreeMap, path::PathBuf, time::Duration};
use tonic::transport::{Endpoint, Uri};

/// Most threads that one worker may have. A running command holds one of the runtime's blocking threads (512
/// unless configured), and at least as many must be left for inputs and outputs.
pub const CONCURRENCY_MAX: usize = 256;

/// Settings of a worker. Start from [`WorkerConfig::new`] and change what differs.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// Address of the scheduler: `HOST:PORT`, `grpc://HOST:PORT` or `http://HOST:PORT`.
    pub scheduler: String,
    /// Address of content store and action cache, in the same form; `None` is the scheduler's.
    pub storage: Option<String>,
    /// Name of this machine or container; the `hostname` of the worker id. Threads of workers with the same
    /// name are taken for one host.
    pub name: String,
    /// Instance names served: this one and those below it. Empty serves all.
    pub instance_name_prefix: String,
    /// Platform properties offered, as name and value; a name may repeat. Sorted before use.
    pub platform: Vec<(String, String)>,
    /// Commands that tell further properties, run when the worker starts.
    pub platform_queries: Vec<PlatformQuery>,
    /// How long each of them may take.
    pub query_timeout: Duration,
    /// Size class among workers of the same platform; 0 where none are used.
    pub size_class: u32,
    /// How actions may be run; the first where an action's route names no strategy. `None`: `local`, and `sandboxed` where
    /// bubblewrap works.
    pub strategies: Option<Vec<Strategy>>,
    /// Actions that run at the same time, 1 to [`CONCURRENCY_MAX`]: each is one worker to the scheduler.
    pub concurrency: usize,
    /// Directory of this worker alone, for build directories and the file cache. Created with mode 0700.
    pub work_dir: PathBuf,
    /// Bytes of input files kept for later actions. What running actions need may exceed it for a while.
    pub cache_max_bytes: u64,
    /// Bytes of encoded input directories kept in memory.
    pub directory_cache_max_bytes: u64,
    /// Bytes of the largest gRPC message that is accepted or sent, at least 65,536. Blobs that fit less
    /// often go through `ByteStream`. Servers that allow smaller batches say so in their capabilities.
    pub message_max_bytes: usize,
    /// Digest transfers at the same time, at least 1, of all threads together.
    pub transfers_max: usize,
    /// How long a call to the storage is repeated while the storage can't be reached, before the action is
    /// given back with `UNAVAILABLE`.
    pub storage_patience: Duration,
}

impl WorkerConfig {
    /// Settings for this machine: as many threads as processors, the properties of [`host_platform`], the
    /// machine's host name, 10 GiB of input files.
    pub fn new(scheduler: impl Into<String>, work_dir: impl Into<PathBuf>) -> Self {
        Self {
            scheduler: scheduler.into(),
            storage: None,
            name: host_name(),
            instance_name_prefix: String::new(),
            platform: host_platform(),
            platform_queries: Vec::new(),
            query_timeout: Duration::from_secs(10),
            size_class: 0,
            strategies: None,
            concurrency: processors(),
            work_dir: work_dir.into(),
            cache_max_bytes: 10 << 30,
            directory_cache_max_bytes: 64 << 20,
            message_max_bytes: 4 << 20,
            transfers_max: 16,
            storage_patience: Duration::from_secs(30),
        }
    }

    pub(crate) fn check(&self) -> Result<(), WorkerError> {
        let setting = |key, value: String, wanted| Err(WorkerError::Setting { key, value, wanted });
        if !(1..=CONCURRENCY_MAX).contains(&self.concurrency) {
            return setting("concurrency", self.concurrency.to_string(), "between 1 and 256");
        }
        if self.transfers_max == 0 {
            return setting("transfers_max", "0".into(), "at least 1");
        }
        if self.message_max_bytes < 1 << 16 {
            return setting("message_max_bytes", self.message_max_bytes.to_string(), "at least 65536");
        }
        if self.name.is_empty() {
            return setting("name", "empty".into(), "a name for this machine");
        }
        if self.strategies.as_ref().is_some_and(Vec::is_empty) {
            return setting("strategies", "empty".into(), "at least one strategy");
        }
        let prefix = &self.instance_name_prefix;
        if !prefix.is_empty() && prefix.split('/').any(str::is_empty) {
            return setting(
                "instance_name_prefix",
                format!("{prefix:?}"),
                "an instance name (no slash at either end, no two together)",
            );
        }
        Ok(())
    }

    /// Sorted by name, then value, and without duplicates, as schedulers demand.
    pub(crate) fn sorted_platform(&self) -> Platform {
        let mut pairs = self.platform.clone();
        pairs.sort();
        pairs.dedup();
        let property = |(name, value)| Property { name, value };
        Platform { properties: pairs.into_iter().map(property).collect() }
    }

    /// Id of thread `index`. With several threads each carries its zero-padded number, as Buildbarn's do.
    pub(crate) fn worker_id(&self, index: usize) -> BTreeMap<String, String> {
        let mut id = BTreeMap::from([("hostname".to_owned(), self.name.clone())]);
        if self.concurrency > 1 {
            let width = (self.concurrency - 1).to_string().len();
            id.insert("thread".into(), format!("{index:0width$}"));
        }
        id
    }
}

/// What this machine offers under the keys of the server's default schema: `OSFamily` (`linux`), `ISA` (as
/// `x86-64`), `Arch` (as `x86_64`), an empty `container-image`, `Pool` `default`, `cpu_count` (processors
/// this process may use) and `memory` (**MiB** of RAM).
pub fn host_platform() -> Vec<(String, String)> {
    let isa = match std::env::consts::ARCH {
        "x86_64" => "x86-64",
        "aarch64" => "arm-a64",
        other => other,
    };
    let mut pairs = vec![
        ("Arch", std::env::consts::ARCH.to_owned()),
        ("ISA", isa.to_owned()),
        ("OSFamily", std::env::consts::OS.to_owned()),
        ("Pool", "default".to_owned()),
        ("container-image", String::new()),
        ("cpu_count", processors().to_string()),
    ];
    if let Some(mib) = memory_mib() {
        pairs.push(("memory", mib.to_string()));
    }
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(CONCURRENCY_MAX)
}

fn memory_mib() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib / 1024)
}

fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "localhost".into() } else { name }
}

/// An endpoint for one of the two servers.
///
/// A connection that the peer no longer has is found by TCP keep-alive probes: HTTP/2 pings at this pace
/// would be answered by some schedulers (grpc-go's defaults) with the end of the connection.
pub(crate) fn endpoint(role: &'static str, address: &str) -> Result<Endpoint, WorkerError> {
    let fail = |reason: String| WorkerError::Address { role, address: address.to_owned(), reason };
    let plain = match address.split_once("://") {
        None => format!("http://{address}"),
        Some(("grpc" | "http", rest)) => format!("http://{rest}"),
        Some((scheme, _)) => return Err(fail(format!("scheme {scheme:?} is not served"))),
    };
    let uri: Uri = plain.parse().map_err(|e: tonic::codegen::http::uri::InvalidUri| fail(e.to_string()))?;
    if uri.host().is_none_or(str::is_empty) || uri.port_u16().is_none() {
        return Err(fail("it lacks a host or a port".into()));
    }
    Ok(Endpoint::from(uri)
        .user_agent(concat!("pointsman-worker/", env!("CARGO_PKG_VERSION")))
        .map_err(|e| fail(e.to_string()))?
        .connect_timeout(Duration::from_secs(10))
        .tcp_nodelay(true)
        .tcp_keepalive(Some(Duration::from_secs(20)))
        .tcp_keepalive_interval(Some(Duration::from_secs(10)))
        .tcp_keepalive_retries(Some(3))
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(8 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platform_is_sorted_by_bytes_without_duplicates() {
        let mut config = WorkerConfig::new("127.0.0.1:1", "w");
        config.platform = [("b", "2"), ("a", "x"), ("b", "1"), ("b", "2"), ("B", "")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .to_vec();
        let sorted: Vec<_> =
            config.sorted_platform().properties.into_iter().map(|p| p.name + "=" + &p.value).collect();
        assert_eq!(sorted, ["B=", "a=x", "b=1", "b=2"]);
    }

    #[test]
    fn threads_are_numbered_only_when_there_are_several() {
        let mut config = WorkerConfig::new("127.0.0.1:1", "w");
        config.name = "n".into();
        config.concurrency = 1;
        assert_eq!(config.worker_id(0), BTreeMap::from([("hostname".into(), "n".into())]));
        config.concurrency = 11;
        assert_eq!(config.worker_id(3)["thread"], "03");
    }

    #[test]
    fn this_machine_has_all_default_keys() {
        let keys: Vec<_> = host_platform().into_iter().map(|(k, _)| k).collect();
        assert_eq!(keys, ["Arch", "ISA", "OSFamily", "Pool", "container-image", "cpu_count", "memory"]);
    }

    #[test]
    fn addresses() {
        for good in ["127.0.0.1:80", "grpc://h:1", "http://[::1]:5"] {
            assert!(endpoint("scheduler", good).is_ok(), "{good}");
        }
        for bad in ["", "h", "grpcs://h:1", "http://h", "http://:5"] {
            assert!(endpoint("scheduler", bad).is_err(), "{bad}");
        }
    }
}
