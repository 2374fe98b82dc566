//! A worker that does what Buildbarn's does, in order and out of order.

use std::sync::Arc;
use std::time::Duration;

use pointsman_scheduler::event::{Poll, Report, Stage, Verdict, WorkerSpec};
use pointsman_scheduler::ids::{ActionDigest, PollId};
use pointsman_scheduler::task_metrics::Outcome;
use pointsman_scheduler::time::Time;

use super::rng::Rng;

const HEARTBEAT: Duration = Duration::from_secs(10);

/// What it does.
#[derive(Clone, Debug)]
pub enum Doing {
    Nothing,
    Executing { digest: ActionDigest, stage: Stage, until: Time },
    Done { digest: ActionDigest, verdict: Verdict },
}

#[derive(Clone, Debug)]
pub struct Bot {
    pub key: Arc<str>,
    pub spec: Arc<WorkerSpec>,
    pub doing: Doing,
    /// The call whose answer it waits for.
    pub call: Option<PollId>,
    /// When it calls next, unless it waits for an answer.
    pub next_call: Time,
    /// The scheduler may think that it executes.
    in_doubt: bool,
    /// It shuts down: it wants no more work.
    pub leaving: bool,
    /// It has shut down.
    pub gone: bool,
    /// It sometimes says what isn't so.
    pub liar: bool,
    /// Some of what it does fails.
    pub flaky: bool,
}

impl Bot {
    pub fn new(key: Arc<str>, spec: Arc<WorkerSpec>, now: Time) -> Self {
        Self {
            key,
            spec,
            doing: Doing::Nothing,
            call: None,
            next_call: now,
            in_doubt: false,
            leaving: false,
            gone: false,
            liar: false,
            flaky: false,
        }
    }

    /// When it wants to call; `None` while it waits for an answer.
    pub fn due(&self) -> Option<Time> {
        if self.gone || self.call.is_some() {
            return None;
        }
        match &self.doing {
            // It also calls when it is done, but not while it is silent.
            Doing::Executing { until, .. } if *until + HEARTBEAT > self.next_call => {
                Some(self.next_call.min(*until))
            }
            _ => Some(self.next_call),
        }
    }

    pub fn call(&mut self, poll: PollId, now: Time, rng: &mut Rng) -> Poll {
        if let Doing::Executing { digest, stage, until } = &mut self.doing {
            // Once it uploads it doesn't run again.
            if *stage != Stage::UploadingOutputs {
                *stage = if rng.percent(30) { Stage::UploadingOutputs } else { Stage::Running };
            }
            if *until <= now {
                let verdict = match rng.below(10) {
                    0..4 if self.flaky => Verdict::Failed("bad disk".into()),
                    4..6 if self.flaky => Verdict::Exhausted("no memory".into()),
                    _ => Verdict::Answer,
                };
                self.doing = Doing::Done { digest: digest.clone(), verdict };
            }
        }
        let report = match &self.doing {
            Doing::Nothing => Report::Idle,
            Doing::Executing { digest, stage, .. } => Report::Executing(digest.clone(), *stage),
            Doing::Done { digest, verdict } => Report::Completed(digest.clone(), verdict.clone()),
        };
        let failed = matches!(report, Report::Completed(_, Verdict::Failed(_) | Verdict::Exhausted(_)));
        self.call = Some(poll);
        Poll {
            poll,
            worker: self.key.clone(),
            spec: self.spec.clone(),
            prefer_idle: self.leaving || failed || (self.in_doubt && report == Report::Idle),
            report,
            outcome: Outcome::default(),
            wait_until: now + rng.within(120),
        }
    }

    // === Answers ===

    pub fn execute(&mut self, digest: ActionDigest, now: Time, heartbeat: Duration, rng: &mut Rng) {
        let until = now + rng.within(60);
        self.doing = Doing::Executing { digest, stage: Stage::Started, until };
        self.answered(now + heartbeat);
        self.in_doubt = true;
    }

    pub fn go_on(&mut self, now: Time, heartbeat: Duration) {
        self.answered(now + heartbeat);
    }

    pub fn do_nothing(&mut self, now: Time, rng: &mut Rng) {
        // What it executes takes a while to die, and meanwhile it doesn't call.
        let dying = matches!(self.doing, Doing::Executing { .. });
        let after = if dying { rng.within(3) } else { Duration::from_millis(1) };
        self.doing = Doing::Nothing;
        self.answered(now + after);
        self.in_doubt = false;
        self.gone = self.leaving;
    }

    /// The answer didn't come, or was an error.
    pub fn failed_call(&mut self, now: Time, rng: &mut Rng) {
        self.answered(now + Duration::from_millis(1) + rng.within(5));
        self.in_doubt = true;
    }

    fn answered(&mut self, next_call: Time) {
        self.call = None;
        self.next_call = next_call;
    }

    // === Misfortunes ===

    /// It dies, and is there again with the same name and no memory.
    pub fn crash(&mut self, back: Time) {
        self.doing = Doing::Nothing;
        self.in_doubt = false;
        self.answered(back);
    }

    pub fn silent_until(&mut self, until: Time) {
        self.next_call = self.next_call.max(until);
    }
}
