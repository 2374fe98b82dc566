//! Who may be given something new, as an onlooker knows it: by what operators have said, and by what the core has said
//! of hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pointsman_scheduler::effect::HostNews;
use pointsman_scheduler::event::{Event, Report, Verdict, WorkerSpec};
use pointsman_scheduler::holds::{Hold, HoldOutcome, Pattern};
use pointsman_scheduler::ids::TaskId;
use pointsman_scheduler::platform_queues::QueueName;
use pointsman_scheduler::scheduler::Config;
use pointsman_scheduler::task::Task;
use pointsman_scheduler::time::Time;

use super::model::Checked;

#[derive(Clone, Debug)]
enum Quarantine {
    Closed,
    Trial(Option<TaskId>),
}

#[derive(Clone, Debug, Default)]
pub struct Gates {
    pub holds: BTreeSet<(Hold, Pattern)>,
    /// Workers that were told to go.
    terminating: BTreeSet<Arc<str>>,
    paused: BTreeMap<Arc<str>, Time>,
    quarantined: BTreeMap<Arc<str>, Quarantine>,
}

impl Gates {
    pub fn held(&mut self, hold: Hold, pattern: &Pattern, outcome: HoldOutcome) -> Checked {
        let key = (hold, pattern.clone());
        let right = match outcome {
            HoldOutcome::Added(_) => self.holds.insert(key),
            HoldOutcome::Already(_) => self.holds.contains(&key),
            HoldOutcome::Removed(_) => self.holds.remove(&key),
            HoldOutcome::Unknown | HoldOutcome::TooMany(_) => !self.holds.contains(&key),
        };
        if right {
            Ok(())
        } else {
            Err(format!("{outcome:?} of {hold:?} {pattern}, and there were {:?}", self.holds))
        }
    }

    pub fn is_held(&self, worker: &str, spec: &WorkerSpec, hold: Hold) -> bool {
        let goes = hold == Hold::Drain && self.terminating.contains(worker);
        goes || self.holds.iter().any(|(h, p)| *h == hold && is_meant(p, spec))
    }

    /// A worker is told to go.
    pub fn terminates(&mut self, worker: &Arc<str>) {
        self.terminating.insert(worker.clone());
    }

    /// A worker comes that was not there.
    pub fn came(&mut self, worker: &str) {
        self.terminating.remove(worker);
    }

    /// It takes tasks, now or when it is free, and no operator need do anything.
    pub fn serves(&self, worker: &str, spec: &WorkerSpec) -> bool {
        !self.is_held(worker, spec, Hold::Drain)
            && !self.is_held(worker, spec, Hold::Pause)
            && !self.quarantined.contains_key(&spec.host)
    }

    /// The core says something of a host; what it is called in counts.
    pub fn news(
        &mut self,
        now: Time,
        event: &Event,
        host: &Arc<str>,
        news: &HostNews,
    ) -> Result<&'static str, String> {
        let completed = matches!(event, Event::Poll(poll) if poll.spec.host == *host
            && matches!(poll.report, Report::Completed(_, Verdict::Answer | Verdict::Again(_))))
            || matches!(event, Event::Release(_));
        let was = self.quarantined.get(host);
        let (right, what) = match news {
            HostNews::Paused { length, .. } => {
                (self.paused.insert(host.clone(), now + *length).is_none(), "paused")
            }
            HostNews::Resumed => {
                let until = self.paused.remove(host);
                (until.is_some_and(|until| until <= now || completed), "resumed")
            }
            HostNews::Quarantined { times, .. } => {
                let right =
                    if *times == 1 { was.is_none() } else { matches!(was, Some(Quarantine::Trial(_))) };
                self.quarantined.insert(host.clone(), Quarantine::Closed);
                (right, "quarantined")
            }
            HostNews::OnTrial => {
                let right = matches!(was, Some(Quarantine::Closed));
                self.quarantined.insert(host.clone(), Quarantine::Trial(None));
                (right, "on trial")
            }
            HostNews::Released => (self.quarantined.remove(host).is_some() && completed, "released"),
        };
        if right { Ok(what) } else { Err(format!("{host} is {news:?} by {event:?}")) }
    }

    /// A worker is given a task that it didn't have.
    pub fn given(
        &mut self,
        now: Time,
        (worker, spec): (&str, &WorkerSpec),
        id: TaskId,
        task: &Task,
        runs: impl Fn(TaskId) -> bool,
        config: &Config,
    ) -> Checked {
        let host = &spec.host;
        for hold in [Hold::Drain, Hold::Pause] {
            if self.is_held(worker, spec, hold) {
                return Err(format!("a worker of {host} is given something under a {}", hold.name()));
            }
        }
        if self.paused.contains_key(host) {
            return Err(format!("{host} is paused and is given something"));
        }
        match self.quarantined.get_mut(host) {
            None => {}
            Some(Quarantine::Closed) => {
                return Err(format!("{host} is in quarantine and is given something"));
            }
            Some(Quarantine::Trial(Some(trial))) if runs(*trial) => {
                return Err(format!("{host} is on trial and is given a second task"));
            }
            Some(Quarantine::Trial(trial)) => *trial = Some(id),
        }
        let failed: Vec<_> = task.attempts.iter().filter(|a| a.has_failed()).collect();
        let rested = failed.last().is_none_or(|last| {
            let doublings = failed.len() as u32 - 1;
            let rest = config.retry_backoff * 2_u32.pow(doublings);
            now.since(last.ended) >= rest.min(config.retry_backoff_max)
        });
        if !rested && failed.iter().any(|a| a.host == *host) {
            return Err(format!("task {} goes back to {host} without a rest", task.sequence));
        }
        Ok(())
    }

    /// Another core: what operators have said survives, what hosts have done doesn't.
    pub fn restarted(&mut self) {
        self.terminating.clear();
        self.paused.clear();
        self.quarantined.clear();
    }

    /// When the core must do something by time alone.
    pub fn due(&self) -> Option<Time> {
        self.paused.values().copied().min()
    }
}

/// Shorter than anybody would want them, so that much happens.
pub fn limits(config: Config, random: impl Fn(u64) -> u64) -> Config {
    Config {
        retry_backoff: Duration::from_secs(random(3) * 6),
        retry_backoff_max: Duration::from_secs(20),
        exhausted_pause: Duration::from_secs(random(4)),
        exhausted_pause_max: Duration::from_secs(10),
        exhausted_max: 2,
        quarantine_after: random(4) as usize,
        quarantine: Duration::from_secs(10),
        quarantine_max: Duration::from_secs(50),
        holds_max: 3,
        ..config
    }
}

/// Said once more, not as the core says it.
pub fn is_meant(pattern: &Pattern, spec: &WorkerSpec) -> bool {
    let queue = |q: &QueueName| {
        let mut properties = spec.properties.clone();
        properties.sort();
        (q.size_class, &q.prefix, &q.platform) == (spec.size_class, &spec.instance_name_prefix, &properties)
    };
    pattern.entries().iter().all(|e| spec.id.contains(e)) && pattern.queue().is_none_or(|q| queue(q))
}
