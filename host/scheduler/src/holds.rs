//! Drains and pauses: an operator's word that some workers get nothing new.
//!
//! A hold is a pattern, not a list of workers: whoever matches is held, and so is whoever comes later or comes back. A
//! held worker finishes what it runs. Its waiting call stays open, so that it doesn't call in a loop, but it is no
//! candidate for anything.

use std::fmt::{self, Display};

use crate::effect::{Change, Effect, Output};
use crate::ids::{ClassId, HostId, Text, WorkerId};
use crate::records::HoldRecord;
use crate::scheduler::Scheduler;
use crate::time::Time;

/// Part of a worker's id: it matches workers whose id has all of these entries. Empty, it matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern {
    /// Sorted, without doubles.
    entries: Vec<(Text, Text)>,
}

impl Pattern {
    /// A pattern of these entries, in any order. One that has a key twice with different values matches nobody.
    pub fn new(entries: impl IntoIterator<Item = (Text, Text)>) -> Self {
        let mut entries: Vec<_> = entries.into_iter().collect();
        entries.sort_unstable();
        entries.dedup();
        Self { entries }
    }

    /// Its entries, sorted.
    pub fn entries(&self) -> &[(Text, Text)] {
        &self.entries
    }

    /// The worker of that id, whose entries are sorted, is meant.
    pub fn matches(&self, id: &[(Text, Text)]) -> bool {
        self.entries.iter().all(|entry| id.binary_search(entry).is_ok())
    }
}

impl Display for Pattern {
    /// As JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_entries(f, &self.entries)
    }
}

/// Keys and values as JSON, in their order; a key that is there twice is there twice.
pub(crate) fn write_entries(f: &mut impl fmt::Write, entries: &[(Text, Text)]) -> fmt::Result {
    f.write_char('{')?;
    for (i, (key, value)) in entries.iter().enumerate() {
        f.write_str(if i > 0 { "," } else { "" })?;
        write_json(f, key)?;
        f.write_char(':')?;
        write_json(f, value)?;
    }
    f.write_char('}')
}

fn write_json(f: &mut impl fmt::Write, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            c if c < ' ' => write!(f, "\\u{:04x}", c as u32)?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('"')
}

/// Why the workers get nothing. To the core both are the same; to people they are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hold {
    /// They are to go.
    Drain,
    /// They are to go on later.
    Pause,
}

impl Hold {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Pause => "pause",
        }
    }
}

/// What came of adding or removing a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldOutcome {
    /// It is in force, and that many workers that are known match it.
    Added(usize),
    /// It was in force already.
    Already(usize),
    /// It is no longer in force; that many workers match it.
    Removed(usize),
    /// It was not in force.
    Unknown,
    /// Nothing is changed: as many are in force as may be.
    TooMany(usize),
}

impl Display for HoldOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added(0) => f.write_str("added; no worker that is known now matches: it holds those that come"),
            Self::Added(n) => write!(f, "added; workers that match: {n}"),
            Self::Already(n) => write!(f, "already in force; workers that match: {n}"),
            Self::Removed(n) => write!(f, "removed; workers that match: {n}"),
            Self::Unknown => f.write_str(
                "no such pattern is in force; a pattern is removed with exactly the entries it was added with",
            ),
            Self::TooMany(n) => write!(
                f,
                "{n} drains and pauses are in force, which is as many as there may be; remove one, use a pattern \
                 that matches more workers, or raise limits.holds"
            ),
        }
    }
}

impl Scheduler {
    pub(crate) fn add_hold(&mut self, hold: Hold, pattern: Pattern, out: &mut Output) {
        let matching = self.workers_matching(&pattern);
        let outcome = if self.holds.contains_key(&(hold, pattern.clone())) {
            HoldOutcome::Already(matching.len())
        } else if self.holds.len() >= self.config.holds_max {
            HoldOutcome::TooMany(self.holds.len())
        } else {
            HoldOutcome::Added(matching.len())
        };
        out.effects.push(Effect::Hold { hold, pattern: pattern.clone(), outcome });
        if matches!(outcome, HoldOutcome::Added(_)) {
            self.holds.insert((hold, pattern.clone()), self.now);
            out.changes.push(Change::PutHold(hold, pattern));
            let mut hosts: Vec<Text> = Vec::new();
            let mut moved = Vec::new();
            for worker in matching {
                moved.extend(self.hold_worker(worker));
                let host = &self.fleet.hosts[self.fleet.workers[worker].host].key;
                if hosts.last() != Some(host) {
                    hosts.push(host.clone());
                }
            }
            hosts.iter().for_each(|host| self.return_what_waits_for(host, out));
            self.let_others_choose(&moved, out);
            // Tasks that failed elsewhere may have waited for these.
            self.offer_what_was_avoided(out);
        }
    }

    pub(crate) fn remove_hold(&mut self, hold: Hold, pattern: Pattern, out: &mut Output) {
        let key = (hold, pattern);
        let removed = self.holds.remove(&key).is_some();
        let matching = if removed { self.workers_matching(&key.1) } else { Vec::new() };
        let outcome = if removed { HoldOutcome::Removed(matching.len()) } else { HoldOutcome::Unknown };
        out.effects.push(Effect::Hold { hold, pattern: key.1.clone(), outcome });
        if !removed {
            return;
        }
        out.changes.push(Change::DeleteHold(hold, key.1));
        let mut hosts: Vec<HostId> = Vec::new();
        for worker in matching {
            // What moves to it goes there below.
            self.hold_worker(worker);
            let host = self.fleet.workers[worker].host;
            if hosts.last() != Some(&host) {
                hosts.push(host);
            }
        }
        for host in hosts {
            self.offer(host, out);
        }
    }

    pub(crate) fn release(&mut self, pattern: &Pattern, out: &mut Output) {
        let mut hosts: Vec<HostId> =
            self.workers_matching(pattern).iter().map(|w| self.fleet.workers[*w].host).collect();
        hosts.dedup();
        for host in &hosts {
            self.host_is_well(*host, out);
        }
        for host in hosts {
            self.offer(host, out);
        }
    }

    /// By host, so that no host is offered work before all its workers are let go.
    fn workers_matching(&self, pattern: &Pattern) -> Vec<WorkerId> {
        let all = self.fleet.workers.iter().filter(|(_, w)| pattern.matches(&w.spec.id));
        let mut workers: Vec<_> = all.map(|(id, w)| (w.host, id)).collect();
        workers.sort_unstable();
        workers.into_iter().map(|(_, id)| id).collect()
    }

    /// Holds a worker, or lets it go, by the patterns in force. Returned: classes for which other workers are meant since.
    pub(crate) fn hold_worker(&mut self, id: WorkerId) -> Vec<ClassId> {
        let worker_id = &self.fleet.workers[id].spec.id;
        let is = |hold: Hold| self.holds.keys().any(|(h, p)| *h == hold && p.matches(worker_id));
        let (drained, paused) = (is(Hold::Drain), is(Hold::Pause));
        self.fleet.hold(&mut self.index, id, drained, paused)
    }

    /// Drains and pauses in force.
    pub fn holds(&self) -> impl Iterator<Item = HoldRecord> + '_ {
        self.holds.iter().map(|((hold, pattern), since)| HoldRecord {
            hold: *hold,
            pattern: pattern.clone(),
            since: *since,
        })
    }

    /// The record of a drain or pause that is in force.
    pub fn hold_record(&self, hold: Hold, pattern: &Pattern) -> Option<HoldRecord> {
        let since: Time = *self.holds.get(&(hold, pattern.clone()))?;
        Some(HoldRecord { hold, pattern: pattern.clone(), since })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(list: &[(&str, &str)]) -> Vec<(Text, Text)> {
        list.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect()
    }

    #[test]
    fn a_pattern_is_a_part_of_the_id() {
        let id = entries(&[("hostname", "a"), ("thread", "1")]);
        let meets = |list| Pattern::new(entries(list)).matches(&id);
        assert!(meets(&[]));
        assert!(meets(&[("thread", "1")]));
        assert!(meets(&[("thread", "1"), ("hostname", "a")]));
        assert!(!meets(&[("hostname", "b")]));
        assert!(!meets(&[("rack", "")]));
        assert!(!meets(&[("hostname", "a"), ("hostname", "b")]));
    }

    #[test]
    fn a_pattern_is_shown_as_json() {
        let pattern = Pattern::new(entries(&[("z", "1"), ("a", "say \"x\"\n")]));
        assert_eq!(pattern.to_string(), r#"{"a":"say \"x\"\u000a","z":"1"}"#);
        assert_eq!(Pattern::default().to_string(), "{}");
    }
}
