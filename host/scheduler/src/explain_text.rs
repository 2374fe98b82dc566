//! Explanations in words: for clients and operators in sentences, for the log in lines that operators of other
//! schedulers know.

use std::fmt::{self, Display, Write as _};
use std::time::Duration;

use crate::explain::{
    Explanation, Mismatch, Obstacle, POSITION_MAX, Reason, Shortage, StrategyMismatch, Subject, Unavailable,
};
use crate::properties::PropertyType;

impl Display for Explanation {
    /// One paragraph: what it waits for, since when, what keeps how many workers from it, and what would help.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.subject {
            Subject::Running(host) => {
                return write!(
                    f,
                    "running on {host}, {} after it arrived{}",
                    seconds(self.age),
                    Attempts(self)
                );
            }
            Subject::Queued => write!(f, "queued for {} ", seconds(self.age))?,
            Subject::Planned => f.write_str(self.verdict().words())?,
        }
        write!(f, "({}): {}", self.reason.code(), sentence(self.reason))?;
        if let Some(pool) = &self.declared {
            write!(f, " ({pool})")?;
        }
        if let Some(host) = &self.kept {
            write!(f, " ({host})")?;
        }
        if self.workers > 0 {
            let counts = self.counts.iter().map(|(o, n)| words(*o, *n)).collect::<Vec<_>>();
            let s = if self.workers == 1 { "" } else { "s" };
            write!(f, "; of {} known worker{s} {}", self.workers, counts.join(", "))?;
        }
        for mismatch in &self.mismatches {
            write!(f, "; {mismatch}")?;
        }
        if let Some(strategies) = &self.strategies {
            write!(f, "; {strategies}")?;
        }
        for shortage in &self.shortages {
            write!(f, "; {shortage}")?;
        }
        match self.position {
            0 => {}
            POSITION_MAX => write!(f, "; {POSITION_MAX} or more like it are before it")?,
            n => write!(f, "; {n} like it {} before it", if n == 1 { "is" } else { "are" })?,
        }
        write!(f, "{}", Attempts(self))?;
        match self.remedy() {
            Some(remedy) => write!(f, "; to unblock it: {remedy}"),
            None => Ok(()),
        }
    }
}

/// What would become of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// A worker would get it at once.
    Now,
    /// It would wait for a worker that is known.
    Waits,
    /// No worker that is known could ever run it.
    Never,
}

impl Verdict {
    fn words(self) -> &'static str {
        match self {
            Self::Now => "would run now ",
            Self::Waits => "would wait ",
            Self::Never => "would never run with the workers that are known ",
        }
    }
}

impl Explanation {
    /// What would become of it; of what runs, that it does.
    pub fn verdict(&self) -> Verdict {
        match self.reason {
            Reason::Running | Reason::Next => Verdict::Now,
            reason if reason.is_never() => Verdict::Never,
            _ => Verdict::Waits,
        }
    }

    /// What would let it run, where that is not waiting.
    pub fn remedy(&self) -> Option<String> {
        let list = |items: Vec<String>| items.join(", and ");
        match self.reason {
            Reason::Running
            | Reason::AllBusy
            | Reason::Next
            | Reason::BackingOff
            | Reason::Affinity
            | Reason::Reserved
            | Reason::Exclusive
            | Reason::GroupFull => None,
            Reason::NoStrategy => Some(
                "start a worker that offers one of them (worker.strategies; for workers that can't say, their pool's \
                 strategies), or let the policy allow another"
                    .to_owned(),
            ),
            Reason::NoExclusive => Some(
                "start a worker whose host admits exclusive actions, or let a policy admit one".to_owned(),
            ),
            Reason::Drained => Some("remove the drain, or start another worker like these".to_owned()),
            Reason::Paused => Some("remove the pause, or start another worker like these".to_owned()),
            Reason::Quarantined => {
                Some("repair the hosts in quarantine, or start another worker like these".to_owned())
            }
            Reason::UnknownProperty => Some(
                "correct the action's exec_properties, or declare the key in supported_platform_properties"
                    .to_owned(),
            ),
            Reason::NoWorkerRegistered => Some("start a worker that connects to this scheduler".to_owned()),
            Reason::NoInstanceMatch => {
                Some("start a worker whose instance name prefix begins the action's".to_owned())
            }
            Reason::PoolEmpty => Some(match &self.declared {
                Some(pool) => format!("start a worker of the pool {pool}, or see why none comes by itself"),
                None => "start a worker of that pool".to_owned(),
            }),
            Reason::NoPool => Some("start a worker of that pool".to_owned()),
            Reason::NoSizeClass => Some("start a worker of that size class".to_owned()),
            Reason::NoPropertyMatch => {
                let wanted = |m: &Mismatch| match m.kind {
                    Some(PropertyType::Exact) => format!("{}={}", m.key, m.asked),
                    Some(PropertyType::Minimum) => format!("{} of {} or more", m.key, m.asked),
                    _ => format!("the key {}", m.key),
                };
                Some(format!("start a worker with {}", list(self.mismatches.iter().map(wanted).collect())))
            }
            Reason::NeverFits => {
                let wanted = |s: &Shortage| format!("{} of {} or more", s.key, s.asked);
                let short = self.shortages.iter().filter(|s| s.asked > s.most_total);
                Some(format!("start a worker with {}, or ask for less", list(short.map(wanted).collect())))
            }
        }
    }

    /// Lines for the periodic log, in the words of NativeLink's, which operators search for. Whatever is not about to
    /// be taken has some: there, silence means that typing failed, and so do those lines here.
    pub fn log_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for m in &self.mismatches {
            let asked = Typed(m.kind, &m.asked);
            match m.kind {
                None => {
                    lines.push("Error while running do_try_match".to_owned());
                    lines.push(format!("Unknown platform property '{}'", m.key));
                }
                Some(PropertyType::Exact) if !m.values.iter().any(|(v, _)| *v == m.asked) => {
                    let values: Vec<_> = m.values.iter().map(|(v, _)| format!("Exact({v:?})")).collect();
                    let have = values.join(", ");
                    let key = &m.key;
                    lines.push(format!(
                        "No candidate workers due to a lack of matching '{key}' = {asked}. Workers have: [{have}]"
                    ));
                }
                Some(PropertyType::Priority | PropertyType::Minimum) if m.workers == m.candidates => {
                    let key = &m.key;
                    lines.push(format!(
                        "No candidate workers due to a lack of key '{key}'. Job asked for {asked}"
                    ));
                }
                Some(_) => {}
            }
        }
        for u in &self.unavailable {
            let Unavailable { host, paused, draining, inflight, inflight_max } = u;
            lines.push(format!(
                "Worker {host} cannot accept work: is_paused={paused}, is_draining={draining}, \
                 inflight={inflight}/{inflight_max}"
            ));
        }
        for s in &self.shortages {
            let Shortage { key, asked, most_free, .. } = s;
            lines.push(format!(
                "Property mismatch on worker property {key}. Minimum({most_free}) < Minimum({asked})"
            ));
        }
        let nobody_can = self.reason == Reason::PoolEmpty || self.verdict() == Verdict::Never;
        if nobody_can && lines.is_empty() {
            lines.push("No workers in capability index match required properties".to_owned());
        } else if !nobody_can && self.verdict() == Verdict::Waits && self.shortages.is_empty() {
            lines.push("All workers are fully allocated or cannot accept work".to_owned());
        }
        lines
    }
}

impl Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, asked, workers, .. } = self;
        match self.kind {
            None => return write!(f, "'{key}' is not in supported_platform_properties"),
            Some(PropertyType::Exact) => {
                write!(f, "{key} must be {asked:?}, which {} offer", Dont(*workers))?
            }
            Some(_) => return write!(f, "{} have the key {key}", Dont(*workers)),
        }
        let values: Vec<_> = self.values.iter().map(|(v, n)| format!("{v:?} on {n}")).collect();
        match values.is_empty() {
            true => f.write_str(" (none offers any value)")?,
            false => write!(f, " (offered: {})", values.join(", "))?,
        }
        match &self.nearly {
            Some(nearly) => write!(f, " - {nearly:?} differs only in case or spaces"),
            None => Ok(()),
        }
    }
}

impl Display for StrategyMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, workers, offered, silent } = self;
        let asked = asked.join(", ");
        write!(f, "it may be run by the strategies {asked}, of which {} offer any", Dont(*workers))?;
        let mut offered: Vec<_> = offered.iter().map(|(name, n)| format!("{name} on {n}")).collect();
        if *silent > 0 {
            offered.push(format!("nothing said on {silent}"));
        }
        write!(f, " (offered: {})", offered.join(", "))
    }
}

impl Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, asked, most_free, most_total } = self;
        write!(f, "{key} {asked} is asked for, the most that a host has left is {most_free} of {most_total}")
    }
}

/// So many workers don't.
struct Dont(usize);

impl Display for Dont {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("1 worker doesn't"),
            n => write!(f, "{n} workers don't"),
        }
    }
}

/// A value as NativeLink writes it.
struct Typed<'a>(Option<PropertyType>, &'a str);

impl Display for Typed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(PropertyType::Minimum) => write!(f, "Minimum({})", self.1),
            Some(PropertyType::Exact) => write!(f, "Exact({:?})", self.1),
            Some(PropertyType::Ignore) => write!(f, "Ignore({:?})", self.1),
            Some(PropertyType::Priority) | None => write!(f, "Priority({:?})", self.1),
        }
    }
}

struct Attempts<'a>(&'a Explanation);

impl Display for Attempts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, attempt) in self.0.attempts.iter().enumerate() {
            let what = if attempt.has_failed() { "failed" } else { "is run again" };
            write!(f, "; attempt {} on {} {what}: {}", i + 1, attempt.host, attempt.cause)?;
        }
        Ok(())
    }
}

fn seconds(age: Duration) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    _ = match age.as_secs() {
        s @ 0..120 => write!(text, "{s} s"),
        s @ 120..7200 => write!(text, "{} min", s / 60),
        s => write!(text, "{} h", s / 3600),
    };
    text
}

fn sentence(reason: Reason) -> &'static str {
    match reason {
        Reason::Running => "a worker has it",
        Reason::UnknownProperty => "it asks for a platform property that is not in the schema",
        Reason::NoWorkerRegistered => "no worker is connected",
        Reason::NoInstanceMatch => "no worker serves its instance name",
        Reason::NoPool => "no worker belongs to its pool",
        Reason::NoSizeClass => "no worker has its size class",
        Reason::NoPropertyMatch => "no worker has what it asks for",
        Reason::NeverFits => "it asks for more than any host has in all",
        Reason::PoolEmpty => "a declared pool could run it, and no worker of that pool that can is there now",
        Reason::Drained => "every worker that could run it is drained",
        Reason::Paused => "every worker that could run it is paused or drained",
        Reason::Quarantined => "every worker that could run it is on a host in quarantine, paused or drained",
        Reason::BackingOff => {
            "it failed on every worker that could run it now, and is tried again after a pause"
        }
        Reason::Affinity => "it waits a while for the host that last ran its affinity key",
        Reason::NoStrategy => "no worker that could run it offers an execution strategy that may be used",
        Reason::NoExclusive => {
            "it is exclusive, and every worker that could run it admits no exclusive actions"
        }
        Reason::Reserved => "a host is kept free for it, and what executes there has to end first",
        Reason::Exclusive => {
            "it is exclusive, and on every host that could run it others execute, or it is admitted only later"
        }
        Reason::GroupFull => "as many actions of its group execute as may",
        Reason::AllBusy => "every worker that could run it is busy",
        Reason::Next => "a worker is about to take it, or one before it",
    }
}

/// What keeps so many workers from it.
fn words(obstacle: Obstacle, n: usize) -> String {
    let (one, more, rest) = match obstacle {
        Obstacle::OtherInstance => ("serves", "serve", "other instance names"),
        Obstacle::OtherPool => ("belongs", "belong", "to another pool"),
        Obstacle::OtherSizeClass => ("has", "have", "another size class"),
        Obstacle::PropertyMismatch => ("lacks", "lack", "a property it asks for"),
        Obstacle::NoStrategy => ("offers", "offer", "no execution strategy that may be used"),
        Obstacle::OtherStrategy => {
            ("offers", "offer", "only a strategy that is less wanted than what others offer")
        }
        Obstacle::NeverFits => ("is", "are", "too small"),
        Obstacle::Drained => ("is", "are", "drained"),
        Obstacle::Paused => ("is", "are", "paused"),
        Obstacle::Quarantined => ("is", "are", "on a host in quarantine"),
        Obstacle::FailedThere => ("is", "are", "on a host where it failed"),
        Obstacle::BackingOff => ("is", "are", "on a host where it failed and is tried again after a pause"),
        Obstacle::Affinity => ("is", "are", "not on the host it waits for"),
        Obstacle::NoExclusive => ("admits", "admit", "no exclusive action"),
        Obstacle::Reserved => ("is", "are", "on a host that is kept free for another action"),
        Obstacle::ExclusiveThere => ("is", "are", "on a host where an exclusive action executes"),
        Obstacle::OthersThere => ("is", "are", "on a host where others execute"),
        Obstacle::NotAdmitted => ("is", "are", "on a host that admits an exclusive action only later"),
        Obstacle::GroupFull => ("has", "have", "to wait for others of its group to end"),
        Obstacle::Busy => ("is", "are", "busy"),
        Obstacle::SameActionThere => ("is", "are", "on a host that runs the same action"),
        Obstacle::MaxInflight => ("is", "are", "on a host at its max_inflight_tasks"),
        Obstacle::NotEnoughFree => ("is", "are", "on a host with too little left"),
        Obstacle::NotCalling => ("has", "have", "not called since its last answer"),
        Obstacle::Nothing => ("is", "are", "free"),
    };
    format!("{n} {} {rest}", if n == 1 { one } else { more })
}
