//! How well a host does: paused while it is out of resources, in quarantine when it fails one task after the other.
//!
//! ```text
//!           N different tasks fail in a row              time passes
//!   well ───────────────────────────────▶ closed ──────────────────────────▶ on trial
//!    ▲                                      ▲                                   │ takes one task
//!    │ any task completes                   │ it fails: longer than before      ▼
//!    └──────────────────────────────────────┴────────────────────────────── trial out
//! ```
//!
//! So a quarantine takes no host away for good, be it the last one, and one task at a time pays for finding out.

use std::time::Duration;

use crate::effect::{Effect, HostNews, Output};
use crate::ids::{HostId, Text, WorkerId};
use crate::scheduler::{Config, Scheduler};
use crate::time::Time;
use crate::timers::Subject;

/// Why a host takes nothing, or less.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health {
    /// Different tasks that failed there since it last completed one; as many as it takes for a quarantine at most.
    failed: Vec<u64>,
    /// How often it was paused since it last completed one.
    exhausted: u32,
    pub(crate) pause: Option<Pause>,
    pub(crate) quarantine: Option<Quarantine>,
    /// When it last failed.
    pub(crate) last: Time,
}

/// It is out of resources.
#[derive(Clone, Debug)]
pub(crate) struct Pause {
    pub(crate) until: Time,
    pub(crate) cause: Text,
}

/// It has failed too often.
#[derive(Clone, Debug)]
pub(crate) struct Quarantine {
    /// When it is tried.
    pub(crate) until: Time,
    /// How often it was closed since it last completed something.
    times: u32,
    /// What went wrong at last.
    pub(crate) cause: Text,
    pub(crate) trial: Trial,
}

/// How far a quarantine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trial {
    /// Nothing runs there.
    Closed,
    /// One task may.
    Open,
    /// This worker has it.
    Out(WorkerId),
}

impl Health {
    /// It may be given something.
    pub(crate) fn accepts(&self) -> bool {
        self.pause.is_none() && !self.is_closed()
    }

    /// It is in quarantine, and not on trial with nothing to do.
    pub(crate) fn is_closed(&self) -> bool {
        self.quarantine.as_ref().is_some_and(|q| q.trial != Trial::Open)
    }

    /// A worker of the host has been given a task.
    pub(crate) fn started(&mut self, worker: WorkerId) {
        if let Some(q) = self.quarantine.as_mut().filter(|q| q.trial == Trial::Open) {
            q.trial = Trial::Out(worker);
        }
    }

    /// It has it no more. What that says of the host is said next, if anything.
    pub(crate) fn stopped(&mut self, worker: WorkerId) {
        if let Some(q) = self.quarantine.as_mut().filter(|q| q.trial == Trial::Out(worker)) {
            q.trial = Trial::Open;
        }
    }

    /// There is something to remember when it goes.
    pub(crate) fn is_noteworthy(&self) -> bool {
        !self.failed.is_empty() || self.quarantine.is_some()
    }

    /// When something changes by time alone.
    fn due(&self) -> Option<Time> {
        let closed = self.quarantine.as_ref().filter(|q| q.trial == Trial::Closed);
        self.pause.iter().map(|p| p.until).chain(closed.map(|q| q.until)).min()
    }

    fn fail(&mut self, task: u64, cause: &Text, now: Time, config: &Config) -> Option<HostNews> {
        self.last = now;
        if !self.failed.contains(&task) && self.failed.len() < config.quarantine_after {
            self.failed.push(task);
        }
        let times = match &self.quarantine {
            // What began before the quarantine or beside the trial says nothing new.
            Some(q) if q.trial != Trial::Open => return None,
            Some(q) => q.times + 1,
            None if config.quarantine_after == 0 || self.failed.len() < config.quarantine_after => {
                return None;
            }
            None => 1,
        };
        let length = doubled(config.quarantine, times, config.quarantine_max);
        let (cause, until) = (cause.clone(), now + length);
        self.quarantine = Some(Quarantine { until, times, cause: cause.clone(), trial: Trial::Closed });
        Some(HostNews::Quarantined { length, times, cause })
    }
}

/// `first`, doubled with every time after the first, up to `max`.
pub(crate) fn doubled(first: Duration, times: u32, max: Duration) -> Duration {
    let factor = 1_u32.checked_shl(times.saturating_sub(1)).unwrap_or(u32::MAX);
    first.saturating_mul(factor).min(max)
}

impl Scheduler {
    /// A task has failed on a host.
    pub(crate) fn host_failed(&mut self, id: HostId, task: u64, cause: &Text, out: &mut Output) {
        let host = &mut self.fleet.hosts[id];
        let Some(news) = host.health.fail(task, cause, self.now, &self.config) else { return };
        out.effects.push(Effect::Host { host: host.key.clone(), news });
        let host = host.key.clone();
        self.health_changed(id);
        self.return_what_waits_for(&host, out);
        // Tasks that failed elsewhere may have waited for this one.
        self.offer_what_was_avoided(out);
    }

    /// A host has completed a task, whatever came of it, or an operator says that it is well.
    pub(crate) fn host_is_well(&mut self, id: HostId, out: &mut Output) {
        let host = &mut self.fleet.hosts[id];
        let health = std::mem::take(&mut host.health);
        if health.quarantine.is_some() {
            out.effects.push(Effect::Host { host: host.key.clone(), news: HostNews::Released });
        }
        if health.pause.is_some() {
            out.effects.push(Effect::Host { host: host.key.clone(), news: HostNews::Resumed });
        }
        self.fleet.count_health(id);
        if !health.accepts() {
            self.health_changed(id);
        }
    }

    /// A host has said that it is out of resources. While it is paused already that is nothing new.
    pub(crate) fn host_exhausted(&mut self, id: HostId, cause: &Text, out: &mut Output) {
        let host = &mut self.fleet.hosts[id];
        if host.health.pause.is_some() {
            return;
        }
        host.health.exhausted += 1;
        let Config { exhausted_pause, exhausted_pause_max, .. } = self.config;
        let length = doubled(exhausted_pause, host.health.exhausted, exhausted_pause_max);
        if length.is_zero() {
            return;
        }
        host.health.pause = Some(Pause { until: self.now + length, cause: cause.clone() });
        let news = HostNews::Paused { length, cause: cause.clone() };
        out.effects.push(Effect::Host { host: host.key.clone(), news });
        self.health_changed(id);
    }

    /// It accepts more or less than before.
    fn health_changed(&mut self, id: HostId) {
        self.fleet.count_health(id);
        self.fleet.relist(&self.index, id);
        self.arm_host(id);
    }

    pub(crate) fn arm_host(&mut self, id: HostId) {
        let host = &mut self.fleet.hosts[id];
        let admits = host.admission.from().filter(|from| *from > self.now);
        if let Some(due) = host.health.due().into_iter().chain(admits).min() {
            self.timers.arm(Subject::Host(id), &mut host.armed, due);
        }
    }

    pub(crate) fn host_due(&mut self, id: HostId, out: &mut Output) {
        let Some(host) = self.fleet.hosts.get_mut(id) else { return };
        host.armed = None;
        let now = self.now;
        if host.health.pause.take_if(|p| p.until <= now).is_some() {
            out.effects.push(Effect::Host { host: host.key.clone(), news: HostNews::Resumed });
        }
        let closed = host.health.quarantine.as_mut().filter(|q| q.trial == Trial::Closed);
        if let Some(q) = closed.filter(|q| q.until <= now) {
            q.trial = Trial::Open;
            out.effects.push(Effect::Host { host: host.key.clone(), news: HostNews::OnTrial });
        }
        self.health_changed(id);
        self.offer(id, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_doubles_stops_at_its_bound() {
        let length = |times| doubled(Duration::from_secs(3), times, Duration::from_secs(100)).as_secs();
        assert_eq!([0, 1, 2, 3, 6, 7, 99].map(length), [3, 3, 6, 12, 96, 100, 100]);
        assert_eq!(doubled(Duration::ZERO, 9, Duration::MAX), Duration::ZERO);
    }
}
