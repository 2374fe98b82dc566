//! The effective configuration, in the form of a file that says the same.

use std::collections::BTreeMap;

use super::checked::{Config, HostKey, Matching, PlatformValues, Pool, RemoteStorage, Values};
use super::checked_policy::{NewVersions, Policy, PolicyLink};
use super::raw::{
    Raw, RawActionCache, RawAttempts, RawEmbedded, RawHttp, RawLimits, RawPlatformValues, RawPool, RawRemote,
    RawSizes, RawStorage, RawTimers, RawWorker,
};
use super::raw_policy::{RawLink, RawPolicy, RawProbation};
use super::units::{RawDuration, RawSize};

impl Config {
    /// This configuration as JSON (so as JSON5, too) with every key spelled out. Reading it back gives the same.
    pub fn to_json(&self) -> serde_json::Value {
        // Strings, numbers and string keys only: there is nothing that JSON could refuse.
        serde_json::to_value(spell_out(self)).unwrap_or_default()
    }
}

fn spell_out(values: &Values) -> Raw {
    // The other kind refuses what it has no use for.
    let typed = values.matching == Matching::Typed;
    Raw {
        listen: Some(values.listen),
        http: RawHttp { listen: Some(values.http.listen) },
        services: Some(values.services),
        state_dir: None,
        storage: match &values.remote_storage {
            None => RawStorage { embedded: storage(values), remote: None },
            Some(store) => RawStorage { remote: Some(remote(store)), ..RawStorage::default() },
        },
        action_cache: RawActionCache {
            look_again_after: Some(RawDuration(values.action_cache.look_again_after)),
            write_results: Some(values.action_cache.write_results),
        },
        supported_platform_properties: typed.then(|| values.platform_properties.clone()),
        matching: Some(values.matching),
        unknown_property: typed.then_some(values.unknown_property),
        host_key: match &values.host_key {
            HostKey::AllButThread => None,
            HostKey::Only(keys) => Some(keys.clone()),
        },
        pools: values.pools.iter().map(pool).collect(),
        timers: timers(values),
        max_attempts: Some(values.max_attempts),
        attempts: attempts(values),
        sizes: RawSizes { rerun: Some(values.sizes.rerun.clone()) },
        quarantine_after: Some(values.quarantine_after),
        reserved_percent: Some(values.reserved_percent),
        placement: Some(values.placement),
        priority_step: Some(RawDuration(values.priority_step)),
        limits: limits(values),
        learning: (&values.learning).into(),
        packing: (&values.packing).into(),
        policy: policy(&values.policy),
        policies: values.policy.links.iter().map(|(name, link)| (name.clone(), raw_link(link))).collect(),
        chains: values.policy.chains.clone(),
        decision_log: (&values.decision_log).into(),
        worker: worker(values),
        worker_match_logging_interval_s: Some(
            values.worker_match_logging_interval.map_or(0, |every| every.as_secs().cast_signed()),
        ),
        schedulers: Vec::new(),
    }
}

fn remote(store: &RemoteStorage) -> RawRemote {
    RawRemote {
        address: Some(store.address.clone()),
        instance_name: store.instance_name.clone(),
        patience: Some(RawDuration(store.patience)),
        small_blob_cache: Some(RawSize(store.small_blob_cache_bytes)),
    }
}

fn storage(values: &Values) -> RawEmbedded {
    RawEmbedded {
        dir: Some(values.storage.dir.clone()),
        max_size: Some(RawSize(values.storage.max_size_bytes)),
        action_cache_entries: Some(values.storage.action_cache_entries_max),
        small_blob_cache: Some(RawSize(values.storage.small_blob_cache_bytes)),
    }
}

fn pool(pool: &Pool) -> RawPool {
    let platform = pool.platform.iter();
    RawPool {
        name: Some(pool.name.clone()),
        platform: platform.map(|(k, v)| (k.clone(), RawPlatformValues::listed(v.clone()))).collect(),
        instance_name_prefix: pool.instance_name_prefix.clone(),
        size_class: pool.size_class,
        strategies: pool.strategies.clone(),
        max_inflight_tasks: Some(pool.max_inflight_tasks),
    }
}

fn timers(values: &Values) -> RawTimers {
    let timers = &values.timers;
    RawTimers {
        heartbeat: Some(RawDuration(timers.heartbeat)),
        heartbeat_max: Some(RawDuration(timers.heartbeat_max)),
        idle_poll: Some(RawDuration(timers.idle_poll)),
        worker_expiry: Some(RawDuration(timers.worker_expiry)),
        abandoned: Some(RawDuration(timers.abandoned)),
        completed_retention: Some(RawDuration(timers.completed_retention)),
        default_action_timeout: Some(RawDuration(timers.default_action_timeout)),
        maximum_action_timeout: Some(RawDuration(timers.maximum_action_timeout)),
        retry_backoff: Some(RawDuration(timers.retry_backoff)),
        retry_backoff_max: Some(RawDuration(timers.retry_backoff_max)),
        exhausted_pause: Some(RawDuration(timers.exhausted_pause)),
        exhausted_pause_max: Some(RawDuration(timers.exhausted_pause_max)),
        quarantine: Some(RawDuration(timers.quarantine)),
        quarantine_max: Some(RawDuration(timers.quarantine_max)),
        reservation_after: Some(RawDuration(timers.reservation_after)),
        reservation_timeout: Some(RawDuration(timers.reservation_timeout)),
        unschedulable_timeout: Some(RawDuration(timers.unschedulable_timeout)),
        shutdown_grace: Some(RawDuration(timers.shutdown_grace)),
    }
}

fn attempts(values: &Values) -> RawAttempts {
    let attempts = &values.attempts;
    RawAttempts {
        lost: Some(attempts.lost_max),
        given_back: Some(attempts.given_back_max),
        reported: Some(attempts.reported_max),
        exhausted_forgiven: Some(attempts.exhausted_forgiven_max),
    }
}

fn limits(values: &Values) -> RawLimits {
    let limits = &values.limits;
    RawLimits {
        queued_actions: Some(limits.queued_actions_max),
        properties_per_action: Some(limits.properties_per_action_max),
        command_size: Some(RawSize(limits.command_size_max_bytes)),
        message_size: Some(RawSize(limits.message_size_max_bytes)),
        streams_per_connection: Some(limits.streams_per_connection_max),
        classes: Some(limits.classes_max),
        demands: Some(limits.demands_max),
        workers: Some(limits.workers_max),
        heartbeats_per_second: Some(limits.heartbeats_per_s_max),
        holds: Some(limits.holds_max),
    }
}

fn worker(values: &Values) -> RawWorker {
    let worker = &values.worker;
    let raw = |values: &PlatformValues| match values {
        PlatformValues::Listed(values) => RawPlatformValues::listed(values.clone()),
        PlatformValues::Queried(query) => {
            RawPlatformValues { query_cmd: Some(query.command().to_owned()), ..RawPlatformValues::default() }
        }
    };
    RawWorker {
        enabled: Some(worker.enabled),
        concurrency: Some(worker.concurrency),
        platform: worker.platform.iter().map(|(key, values)| (key.clone(), raw(values))).collect(),
        strategies: worker.strategies.as_ref().map(|s| s.iter().map(ToString::to_string).collect()),
        query_timeout: Some(RawDuration(worker.query_timeout)),
        dir: Some(worker.dir.clone()),
        cache_size: Some(RawSize(worker.cache_size_bytes)),
        storage_patience: Some(RawDuration(worker.storage_patience)),
    }
}

fn policy(policy: &Policy) -> RawPolicy {
    RawPolicy {
        file: None,
        config: None,
        config_files: BTreeMap::new(),
        dir: Some(policy.dir.clone()),
        fuel: Some(policy.fuel),
        deadline: Some(RawDuration(policy.deadline)),
        memory: Some(RawSize(policy.memory_max_bytes)),
        probation: RawProbation {
            length: Some(RawDuration(policy.probation.length)),
            events: Some(policy.probation.events_min),
            traps: Some(policy.probation.traps_max),
            over_budget: Some(policy.probation.over_budget_max),
            more_rejections: Some(policy.probation.more_rejections_max),
        },
    }
}

fn raw_link(link: &PolicyLink) -> RawLink {
    RawLink {
        file: link.file.clone(),
        config: Some(link.config.clone()),
        config_files: link.config_files.iter().map(|(at, file)| (at.clone(), file.path.clone())).collect(),
        on_error: Some(link.on_error),
        sha256: link.sha256.clone(),
        public_keys: link.public_keys.clone(),
        isolation: Some(link.isolation),
        new_versions: Some(link.new_versions),
        // It would have no effect, and is refused then.
        trial_share: (link.new_versions != NewVersions::InForce).then_some(link.trial_share),
        canary_prefixes: link.canary_prefixes.clone(),
    }
}
