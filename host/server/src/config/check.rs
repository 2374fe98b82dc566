//! From the raw configuration to the checked one: defaults filled in, contradictions found.

mod policies;
mod pools;
mod remote_storage;
mod scheduling;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::checked::{
    ActionCache, Config, EmbeddedStorage, HostKey, Matching, PropertyType, Services, Sizes, TooSmall,
    UnknownProperty, Values,
};
use super::config_files::Seen;
use super::error::{At, ConfigError, Problem, Unplaced};
use super::locate::locate;
use super::overrides::Overrides;
use super::path::{KeyPath, Segment};
use super::raw::{Raw, RawEmbedded, RawScheduler, RawSimple};
use super::state_dir::default_state_dir;
use super::units::{RawDuration, RawSize};

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The keys that the bundled worker advertises, so that builds which ask for the usual ones run without a file.
const DEFAULT_PROPERTIES: [(&str, PropertyType); 7] = [
    ("Arch", PropertyType::Priority),
    ("ISA", PropertyType::Priority),
    ("OSFamily", PropertyType::Priority),
    ("Pool", PropertyType::Priority),
    ("container-image", PropertyType::Priority),
    ("cpu_count", PropertyType::Minimum),
    ("memory", PropertyType::Minimum),
];

/// What a configuration is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// `pointsman serve`.
    Server,
    /// `pointsman router`.
    Router,
}

/// Checks a file's text with the flags over it.
pub(super) fn from_text(
    text: &str,
    file: &Path,
    overrides: &Overrides,
    used: Use,
) -> Result<Config, ConfigError> {
    let name = file.display().to_string();
    let tree = super::tree::parse(text).map_err(|problem| ConfigError::new(&name, text, vec![problem]))?;
    let written = (used == Use::Router).then(|| tree.clone());
    let (mut raw, mut problems) = super::read::read(tree);
    rebase(&mut raw, file.parent().unwrap_or(Path::new("")));
    overrides.apply(&mut raw);
    let (values, contradictions, seen) = check(raw, Some(file.to_owned()));
    // What could not be read was replaced by its default, which may contradict what is there: say that once only.
    if problems.is_empty() {
        problems = contradictions;
    }
    if let Some(tree) = &written {
        problems.extend(super::router::problems(tree, &values));
    }
    if problems.is_empty() {
        return Ok(Config { values });
    }
    let placed = problems.into_iter().map(|problem| place(text, problem)).collect();
    Err(ConfigError::new(&name, text, placed).with_seen(seen))
}

/// Checks the flags alone.
pub(super) fn without_file(overrides: &Overrides) -> Result<Config, ConfigError> {
    let mut raw = Raw::default();
    overrides.apply(&mut raw);
    let (values, problems, _) = check(raw, None);
    if problems.is_empty() {
        return Ok(Config { values });
    }
    let placed = problems.into_iter().map(|problem| place("", problem)).collect();
    Err(ConfigError::new("command line", "", placed))
}

fn place(text: &str, problem: Unplaced) -> Problem {
    let (line, column) = locate(text, &problem.path, problem.at).unwrap_or_default();
    Problem { line, column, key: problem.path.to_string(), text: problem.text }
}

/// Relative paths of a file start from its folder, wherever the program was started.
fn rebase(raw: &mut Raw, folder: &Path) {
    let paths = [
        &mut raw.state_dir,
        &mut raw.storage.embedded.dir,
        &mut raw.policy.file,
        &mut raw.policy.dir,
        &mut raw.decision_log.file,
        &mut raw.learning.dir,
        &mut raw.worker.dir,
    ];
    let links = raw.policies.values_mut().map(|link| &mut link.file);
    for path in paths.into_iter().chain(links).flatten() {
        *path = folder.join(&*path);
    }
    let of_links = raw.policies.values_mut().flat_map(|link| link.config_files.values_mut());
    for path in of_links.chain(raw.policy.config_files.values_mut()) {
        *path = folder.join(&*path);
    }
}

/// The values, what is wrong with them, and the files that policies have parts of their configurations in.
fn check(mut raw: Raw, file: Option<PathBuf>) -> (Values, Vec<Unplaced>, Vec<Seen>) {
    let mut checker = Checker::default();
    let state_dir = raw.state_dir.take().unwrap_or_else(default_state_dir);
    let simple = checker.scheduler(std::mem::take(&mut raw.schedulers));
    let properties = raw.supported_platform_properties.take();
    let properties =
        checker.one_of("supported_platform_properties", properties, simple.supported_platform_properties);
    let matching = raw.matching.unwrap_or_default();
    let platform_properties = match matching {
        Matching::Typed => checker.properties(properties),
        Matching::ExactSet => checker.no_properties(properties, raw.unknown_property),
    };
    let logging = raw.worker_match_logging_interval_s;
    let logging =
        checker.one_of("worker_match_logging_interval_s", logging, simple.worker_match_logging_interval_s);
    let unknown_default = match matching {
        Matching::Typed if file.is_some() => UnknownProperty::Reject,
        _ => UnknownProperty::Ignore,
    };
    let max_attempts = checker.positive("max_attempts", raw.max_attempts, 3);
    let listen = raw.listen.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 8980)));
    let known = (matching == Matching::Typed).then_some(&platform_properties);
    let values = Values {
        file,
        listen,
        http: checker.http(&raw.http, listen),
        services: checker.services(raw.services.unwrap_or_default(), raw.worker.enabled),
        remote_storage: checker.remote_storage(raw.storage.remote, &raw.storage.embedded, listen),
        storage: checker.storage(raw.storage.embedded, &state_dir),
        action_cache: ActionCache {
            // 0 is allowed: it is looked up each time.
            look_again_after: Checker::optional_timer(raw.action_cache.look_again_after, SECOND),
            write_results: raw.action_cache.write_results.unwrap_or(false),
        },
        matching,
        unknown_property: raw.unknown_property.unwrap_or(unknown_default),
        host_key: checker.host_key(raw.host_key),
        pools: checker.pools(raw.pools, known),
        timers: checker.timers(&raw.timers),
        max_attempts,
        attempts: checker.attempts(&raw.attempts, max_attempts),
        sizes: Sizes { rerun: raw.sizes.rerun.unwrap_or_else(|| vec![TooSmall::Killed, TooSmall::TimedOut]) },
        // 0 is allowed: no host is ever in quarantine then.
        quarantine_after: raw.quarantine_after.unwrap_or(5),
        reserved_percent: checker.reserved_percent(raw.reserved_percent),
        placement: raw.placement.unwrap_or_default(),
        priority_step: raw.priority_step.map_or(60 * SECOND, |step| step.0),
        limits: checker.limits(&raw.limits),
        learning: checker.learning(raw.learning, &state_dir, known),
        packing: checker.packing(raw.packing, known),
        policy: checker.policy(raw.policy, raw.policies, raw.chains, &state_dir),
        decision_log: checker.decision_log(raw.decision_log),
        router: checker.router(&raw.router),
        bazel: checker.bazel(raw.bazel),
        worker: checker.worker(raw.worker, &state_dir, known),
        worker_match_logging_interval: checker.logging(logging),
        platform_properties,
    };
    (values, checker.problems, checker.seen)
}

/// Gathers problems while defaults are filled in.
#[derive(Default)]
pub(super) struct Checker {
    problems: Vec<Unplaced>,
    seen: Vec<Seen>,
}

/// A value that the file may have in two places, and the place where it was.
type Found<T> = Option<(T, KeyPath)>;

impl Checker {
    pub(super) fn complain(&mut self, path: KeyPath, at: At, text: impl Into<String>) {
        self.problems.push(Unplaced { path, at, text: text.into() });
    }

    pub(super) fn wrong(&mut self, path: &str, text: impl Into<String>) {
        self.complain(KeyPath::of(path), At::Value, text);
    }

    fn positive<T: Default + PartialEq>(&mut self, path: &str, given: Option<T>, default: T) -> T {
        if given.as_ref() == Some(&T::default()) {
            self.wrong(path, "must not be 0");
        }
        given.unwrap_or(default)
    }

    pub(super) fn timer(&mut self, path: &str, given: Option<RawDuration>, default: Duration) -> Duration {
        self.positive(path, given.map(|given| given.0), default)
    }

    /// A time that may be 0, which switches off what it is for.
    pub(super) fn optional_timer(given: Option<RawDuration>, default: Duration) -> Duration {
        given.map_or(default, |given| given.0)
    }

    pub(super) fn size(&mut self, path: &str, given: Option<RawSize>, default: u64) -> u64 {
        self.positive(path, given.map(|given| given.0), default)
    }

    // === NativeLink's form ===

    /// The one scheduler of a list of them, as NativeLink's files have it.
    fn scheduler(&mut self, list: Vec<RawScheduler>) -> RawSimple {
        let at = |index| KeyPath(vec![Segment::Key("schedulers".to_owned()), Segment::Index(index)]);
        if list.len() > 1 {
            let text =
                format!("{} schedulers are listed, but one server is one scheduler; leave one", list.len());
            self.complain(at(1), At::Value, text);
        }
        let Some(scheduler) = list.into_iter().next() else { return RawSimple::default() };
        scheduler.simple.unwrap_or_else(|| {
            self.complain(
                at(0),
                At::Value,
                "has no \"simple\", the only kind of scheduler that is known here",
            );
            RawSimple::default()
        })
    }

    fn one_of<T>(&mut self, key: &str, top: Option<T>, nested: Option<T>) -> Found<T> {
        let segments =
            [Segment::Key("schedulers".to_owned()), Segment::Index(0), Segment::Key("simple".to_owned())];
        let nested_at = KeyPath(segments.to_vec()).key(key);
        if top.is_some() && nested.is_some() {
            self.complain(
                nested_at.clone(),
                At::Key,
                "is also given at the top of the file; keep one of the two",
            );
        }
        match nested {
            Some(value) => Some((value, nested_at)),
            None => top.map(|value| (value, KeyPath::of(key))),
        }
    }

    fn properties(&mut self, given: Found<BTreeMap<String, PropertyType>>) -> BTreeMap<String, PropertyType> {
        let Some((table, at)) = given else {
            return DEFAULT_PROPERTIES.iter().map(|(key, kind)| ((*key).to_owned(), *kind)).collect();
        };
        if table.contains_key("") {
            self.complain(at.key(""), At::Key, "a platform property has a name");
        }
        table
    }

    /// Whoever matches whole lists has no use for types: they would be believed to have an effect.
    fn no_properties(
        &mut self,
        given: Found<BTreeMap<String, PropertyType>>,
        unknown: Option<UnknownProperty>,
    ) -> BTreeMap<String, PropertyType> {
        let text = "has no effect with matching: \"exact_set\"; leave one of the two out";
        if let Some((_, at)) = given {
            self.complain(at, At::Key, text);
        }
        if unknown.is_some() {
            self.complain(KeyPath::of("unknown_property"), At::Key, text);
        }
        BTreeMap::new()
    }

    fn logging(&mut self, given: Found<i64>) -> Option<Duration> {
        let Some((seconds, at)) = given else { return Some(10 * SECOND) };
        if seconds < -1 {
            let text = format!("{seconds} s is no interval; give seconds, or -1 or 0 to switch the log off");
            self.complain(at, At::Value, text);
        }
        u64::try_from(seconds).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
    }

    // === our sections ===

    fn storage(&mut self, raw: RawEmbedded, state_dir: &Path) -> EmbeddedStorage {
        let storage = EmbeddedStorage {
            dir: raw.dir.unwrap_or_else(|| state_dir.join("storage")),
            max_size_bytes: self.size("storage.embedded.max_size", raw.max_size, 10 * GIB),
            action_cache_entries_max: self.positive(
                "storage.embedded.action_cache_entries",
                raw.action_cache_entries,
                1_000_000,
            ),
            // 0 is allowed: the kernel's page cache does the work then.
            small_blob_cache_bytes: raw.small_blob_cache.map_or(64 * MIB, |size| size.0),
        };
        if storage.small_blob_cache_bytes > storage.max_size_bytes {
            let key = if raw.small_blob_cache.is_some() { "small_blob_cache" } else { "max_size" };
            self.wrong(
                &format!("storage.embedded.{key}"),
                format!(
                    "small_blob_cache ({} bytes) is larger than max_size ({} bytes), all that is kept; lower it or \
                     raise max_size",
                    storage.small_blob_cache_bytes, storage.max_size_bytes
                ),
            );
        }
        storage
    }

    fn services(&mut self, services: Services, worker: Option<bool>) -> Services {
        if services != Services::All && worker == Some(true) {
            self.wrong(
                "worker.enabled",
                "needs services: \"all\", since this worker gets actions and blobs from its own server; run \
                 `pointsman worker --scheduler … --storage …` instead",
            );
        }
        services
    }

    fn host_key(&mut self, given: Option<Vec<String>>) -> HostKey {
        let Some(keys) = given else { return HostKey::AllButThread };
        if keys.is_empty() {
            self.wrong(
                "host_key",
                "is empty, which would make one host of all workers; name the keys of worker_id that tell hosts \
                 apart, or leave it out for all but \"thread\"",
            );
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = keys.iter().find(|key| !seen.insert(*key)) {
            self.wrong("host_key", format!("names {twice:?} twice"));
        }
        HostKey::Only(keys)
    }
}
