//! What policies do, by link and version, and what becomes of the records of it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::UNIX_EPOCH;

use pointsman_policy::{
    LATENCY_BUCKETS_US, LinkStatus, Manager, Runtime, TallySnapshot, TrialSnapshot, VersionStatus,
};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::family::{Family, Page, Value};
use crate::decisions::Decisions;

/// Of a version: its link, its name and the beginning of its SHA-256, and whether it is in force or on trial.
const VERSION: &[&str] = &["link", "policy", "digest", "state"];

const GENERATION: Family =
    Family::gauge("policy_generation", "Number of the generation in force; grows with each swap.")
        .ask("changes(pointsman_policy_generation[1h])");
const FALLBACKS: Family = Family::counter(
    "policy_fallbacks",
    "Actions routed without a policy that was to decide, since it failed; on_error says who did.",
)
.ask("increase(pointsman_policy_fallbacks_total[10m]) > 0");
const CALLS: Family = Family::counter("policy_calls", "Calls of a version, failed ones included, by hook.")
    .by(&["link", "policy", "digest", "state", "hook"])
    .ask("sum by (link, hook) (rate(pointsman_policy_calls_total[1m]))");
const OUTCOMES: Family = Family::counter(
    "policy_outcomes",
    "What calls came to: applied, rejected, or how they failed (out_of_fuel, deadline, trap, …).",
)
.by(&["link", "policy", "digest", "state", "outcome"])
.ask("rate(pointsman_policy_outcomes_total{outcome!~\"applied|rejected\"}[5m]) > 0");
const LATENCY: Family = Family::histogram("policy_latency", "How long calls of a version take.")
    .by(VERSION)
    .ask("histogram_quantile(0.99, sum by (le, link) (rate(pointsman_policy_latency_seconds_bucket[5m])))");
const FUEL: Family =
    Family::counter("policy_fuel", "Fuel (Wasm instructions, roughly) of the calls that succeeded.").by(VERSION).ask(
        "rate(pointsman_policy_fuel_total[5m]) / on (link, policy, digest, state) sum without (hook) (rate(pointsman_policy_calls_total[5m]))",
    );
const CIRCUIT: Family =
    Family::gauge("policy_circuit_open", "1 while a version is left alone, as it fails each time.")
        .by(VERSION)
        .ask("pointsman_policy_circuit_open == 1");
const SLOW: Family =
    Family::gauge("policy_slow", "1 while a version takes so long that it is asked on threads of its own.")
        .by(VERSION)
        .ask("pointsman_policy_slow == 1");
const COMPARED: Family = Family::counter(
    "policy_trial_compared",
    "Decisions of a version on trial compared with the one in force.",
)
.by(VERSION)
.ask("pointsman_policy_trial_compared_total");
const DISAGREED: Family = Family::counter(
    "policy_trial_disagreed",
    "Of those, different ones; `pointsman policy status` has samples.",
)
.by(VERSION)
.ask("pointsman_policy_trial_disagreed_total / pointsman_policy_trial_compared_total");
const NOT_COMPARED: Family = Family::counter(
    "policy_trial_not_compared",
    "Decisions that were to be compared and were not, as there was no time.",
)
.by(VERSION)
.ask("rate(pointsman_policy_trial_not_compared_total[5m])");
const RELOAD: Family = Family::gauge(
    "policy_last_reload_success",
    "1 if the last version that was to be let in was, 0 if it was refused; `pointsman policy status` says why.",
)
.by(&["link"])
.ask("pointsman_policy_last_reload_success == 0");
const RELOADED: Family =
    Family::gauge("policy_last_reload_timestamp", "When that was, in seconds since the Unix epoch.")
        .seconds()
        .by(&["link"])
        .ask("time() - pointsman_policy_last_reload_timestamp_seconds");
const PROBATION: Family = Family::gauge(
    "policy_probation_left",
    "How much longer the version in force is on probation; 0: it is not.",
)
.seconds()
.by(&["link"])
.ask("pointsman_policy_probation_left_seconds > 0");
const RECORDS: Family = Family::counter(
    "decision_records",
    "Decision records, by what became of them: recorded (of these written to decision_log.file, not written for want of time, not written as it failed), or not_sampled.",
)
.by(&["became"])
.ask("increase(pointsman_decision_records_total{became=~\"no_time|failed\"}[10m]) > 0");
const BYTES: Family = Family::counter("decision_log", "Compressed bytes written to decision_log.file.")
    .bytes()
    .ask("rate(pointsman_decision_log_bytes_total[5m])");

pub(super) const FAMILIES: &[Family] = &[
    GENERATION,
    FALLBACKS,
    CALLS,
    OUTCOMES,
    LATENCY,
    FUEL,
    CIRCUIT,
    SLOW,
    COMPARED,
    DISAGREED,
    NOT_COMPARED,
    RELOAD,
    RELOADED,
    PROBATION,
    RECORDS,
    BYTES,
];

/// So much of a SHA-256 tells versions apart.
const DIGEST_SHOWN: usize = 12;

/// Where the numbers come from.
#[derive(Debug)]
pub(super) struct PolicyMetrics {
    pub(super) policies: Arc<Runtime>,
    pub(super) manager: Arc<Manager>,
    pub(super) decisions: Option<Arc<Decisions>>,
}

impl Collector for PolicyMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page(encoder);
        page.one(&GENERATION, Value::Level(self.policies.in_force().number() as f64))?;
        page.one(&FALLBACKS, Value::Count(self.policies.counters().fallbacks))?;
        let links = self.manager.status();
        versions(&mut page, &links.iter().flat_map(Version::of).collect::<Vec<_>>())?;
        of_links(&mut page, &links)?;
        self.records(&mut page)
    }
}

impl PolicyMetrics {
    fn records(&self, page: &mut Page<'_>) -> fmt::Result {
        let Some(decisions) = &self.decisions else {
            page.each(&RECORDS, [] as [([&str; 1], Value<'_>); 0])?;
            return page.one(&BYTES, Value::Count(0));
        };
        let counts = decisions.counts();
        let of = |name: &'static str, count: &AtomicU64| ([name], Value::Count(count.load(Relaxed)));
        page.each(
            &RECORDS,
            [
                of("recorded", &counts.recorded),
                of("not_sampled", &counts.not_sampled),
                of("written", &counts.written),
                of("no_time", &counts.no_time),
                of("failed", &counts.failed),
            ],
        )?;
        page.one(&BYTES, Value::Count(counts.written_bytes.load(Relaxed)))
    }
}

/// A version with what it is called in labels.
struct Version<'a> {
    labels: [&'a str; 4],
    status: &'a VersionStatus,
    trial: Option<&'a TrialSnapshot>,
}

impl<'a> Version<'a> {
    fn of(link: &'a LinkStatus) -> impl Iterator<Item = Self> {
        let labels = |version: &'a VersionStatus, state| {
            let digest = &version.id.digest_hex;
            [&*link.name, &*version.id.name, digest.get(..DIGEST_SHOWN).unwrap_or(digest), state]
        };
        let active = Self { labels: labels(&link.active, "active"), status: &link.active, trial: None };
        let trial = link.trial.as_ref().map(|trial| Self {
            labels: labels(&trial.version, "trial"),
            status: &trial.version,
            trial: Some(&trial.results),
        });
        [Some(active), trial].into_iter().flatten()
    }

    fn and(&self, last: &'a str) -> [&'a str; 5] {
        let [link, policy, digest, state] = self.labels;
        [link, policy, digest, state, last]
    }
}

fn versions(page: &mut Page<'_>, versions: &[Version<'_>]) -> fmt::Result {
    page.each(&CALLS, versions.iter().flat_map(by_hook))?;
    page.each(&OUTCOMES, versions.iter().flat_map(outcomes))?;
    let latencies: Vec<_> = versions.iter().map(|v| (v.labels, latency(&v.status.tally))).collect();
    let samples =
        latencies.iter().map(|(labels, (sum, buckets))| (labels, Value::Histogram { sum: *sum, buckets }));
    page.each(&LATENCY, samples)?;
    page.each(&FUEL, versions.iter().map(|v| (v.labels, Value::Count(v.status.tally.fuel))))?;
    page.each(&CIRCUIT, versions.iter().map(|v| (v.labels, flag(v.status.circuit_open))))?;
    page.each(&SLOW, versions.iter().map(|v| (v.labels, flag(v.status.slow))))?;
    let trials = || versions.iter().filter_map(|v| Some((v.labels, v.trial?)));
    page.each(&COMPARED, trials().map(|(labels, trial)| (labels, Value::Count(trial.compared))))?;
    page.each(&DISAGREED, trials().map(|(labels, trial)| (labels, Value::Count(trial.disagreed))))?;
    page.each(&NOT_COMPARED, trials().map(|(labels, trial)| (labels, Value::Count(trial.not_compared))))
}

fn by_hook<'a>(version: &Version<'a>) -> Vec<([&'a str; 5], Value<'a>)> {
    let calls = version.status.tally.calls.iter();
    calls.map(|(hook, count)| (version.and(hook.name()), Value::Count(*count))).collect()
}

fn outcomes<'a>(version: &Version<'a>) -> Vec<([&'a str; 5], Value<'a>)> {
    let tally = &version.status.tally;
    let applied = tally.total().saturating_sub(tally.rejections + tally.failed());
    let answers = [("applied", applied), ("rejected", tally.rejections)];
    let failures = tally.failures.iter().map(|(kind, count)| (kind.name(), *count));
    answers
        .into_iter()
        .chain(failures)
        .map(|(name, count)| (version.and(name), Value::Count(count)))
        .collect()
}

/// The sum, and buckets with their bounds in seconds.
fn latency(tally: &TallySnapshot) -> (f64, Vec<(f64, u64)>) {
    let bounds = LATENCY_BUCKETS_US.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
    (tally.latency_sum.as_secs_f64(), bounds.zip(tally.latency.iter().copied()).collect())
}

fn of_links(page: &mut Page<'_>, links: &[LinkStatus]) -> fmt::Result {
    page.each(&RELOAD, links.iter().map(|link| ([&*link.name], flag(link.last_load.ok))))?;
    let at =
        |link: &LinkStatus| link.last_load.at.duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
    page.each(&RELOADED, links.iter().map(|link| ([&*link.name], Value::Level(at(link)))))?;
    let left = |link: &LinkStatus| link.probation_left.map_or(0.0, |left| left.as_secs_f64());
    page.each(&PROBATION, links.iter().map(|link| ([&*link.name], Value::Level(left(link)))))
}

fn flag(is: bool) -> Value<'static> {
    Value::Level(f64::from(u8::from(is)))
}
