//! Asks versions in shadow, on a thread of its own and with at most a quarter of a core, so that nobody waits for it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use pointsman_scheduler::route::Route;

use crate::decision::{Hook, Rejection};
use crate::facts::ActionFacts;
use crate::generation::Link;
use crate::trial::{Said, Trial};
use crate::tripwire::Tripwire;

/// One action to ask about, and what the version in force said.
pub(crate) struct Job {
    pub(crate) link: Arc<Link>,
    pub(crate) trial: Arc<Trial>,
    pub(crate) facts: Arc<ActionFacts>,
    /// The route before the link.
    pub(crate) found: Arc<Route>,
    /// The route after it.
    pub(crate) route: Arc<Route>,
    pub(crate) rejection: Option<Rejection>,
    /// What the version in force took.
    pub(crate) elapsed: Duration,
}

/// Actions that may wait to be compared; further ones are counted and left out.
const QUEUE: usize = 1024;
/// Work between two rests.
const STRETCH: Duration = Duration::from_millis(2);
/// Rests are so many times as long as the work before them.
const REST: u32 = 3;

/// The thread's end of the queue; it ends when the last owner of this has gone.
pub(crate) struct Shadow {
    queue: SyncSender<Job>,
}

impl Shadow {
    pub(crate) fn start(tripwire: Arc<Tripwire>) -> Result<Self, String> {
        let (queue, inbox) = sync_channel(QUEUE);
        std::thread::Builder::new()
            .name("policy-shadow".into())
            .spawn(move || run(&inbox, &tripwire))
            .map_err(|error| format!("can't start the thread that asks policies in shadow: {error}"))?;
        Ok(Self { queue })
    }

    /// Has a version asked about an action, if there is time.
    pub(crate) fn offer(&self, job: Job) {
        if let Err(error) = self.queue.try_send(job) {
            let (std::sync::mpsc::TrySendError::Full(job) | std::sync::mpsc::TrySendError::Disconnected(job)) =
                error;
            job.trial.no_time();
        }
    }
}

fn run(inbox: &Receiver<Job>, tripwire: &Tripwire) {
    let mut worked = Duration::ZERO;
    for job in inbox {
        let started = Instant::now();
        ask(&job, tripwire);
        worked += started.elapsed();
        if worked >= STRETCH {
            std::thread::sleep(worked * REST);
            worked = Duration::ZERO;
        }
    }
}

fn ask(job: &Job, tripwire: &Tripwire) {
    let Job { link, trial, facts, found, .. } = job;
    let policy = &trial.policy;
    if !policy.hooks().contains(&Hook::OnAction) {
        // It leaves all as it found it.
        let said = Said { route: found, rejection: None, elapsed: Duration::ZERO };
        return trial.compare(facts, &in_force(job), &said);
    }
    let ended =
        policy.call(Hook::OnAction, |instance| instance.route_action(facts, (**found).clone(), false));
    match ended.result {
        Ok(called) => {
            let (route, rejection) = called.answer;
            if rejection.is_some() {
                policy.tally.rejection();
                tripwire.look(link, policy);
            }
            let said = Said { route: &route, rejection: rejection.as_ref(), elapsed: ended.elapsed };
            trial.compare(facts, &in_force(job), &said);
        }
        Err(failure) => {
            if let Some(held_back) = policy.warnings.pass() {
                tracing::warn!(
                    link = &*link.name,
                    policy = %policy.policy(),
                    action = &*facts.digest,
                    like_this_not_logged = held_back,
                    "policy failed in shadow, where it decides nothing: {failure}"
                );
            }
            tripwire.look(link, policy);
        }
    }
}

fn in_force(job: &Job) -> Said<'_> {
    Said { route: &job.route, rejection: job.rejection.as_ref(), elapsed: job.elapsed }
}
