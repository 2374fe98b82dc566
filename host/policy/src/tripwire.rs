//! Notices when a version that is new, or on trial, does worse than it may, and says so to whoever can roll it back.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::generation::Link;
use crate::policy::Policy;
use crate::probation::ProbationRules;

/// A version that has to go.
#[derive(Clone, Debug)]
pub(crate) struct Tripped {
    pub(crate) link: Arc<str>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) why: String,
}

type Listener = Box<dyn Fn(Tripped) + Send + Sync>;

/// Looked at after each failure and rejection of a watched version; all other calls pay nothing.
#[derive(Default)]
pub(crate) struct Tripwire {
    rules: Mutex<ProbationRules>,
    listener: OnceLock<Listener>,
}

impl Tripwire {
    /// From now on `listener` hears of it. It must not wait.
    pub(crate) fn listen(&self, sender: Sender<Tripped>) {
        // Fails when somebody listens already: there is one manager per runtime.
        let _ = self.listener.set(Box::new(move |tripped| {
            // Fails only when the manager has gone, and then nobody rolls back.
            let _ = sender.send(tripped);
        }));
    }

    pub(crate) fn set_rules(&self, rules: ProbationRules) {
        *self.rules.lock().unwrap_or_else(PoisonError::into_inner) = rules;
    }

    pub(crate) fn rules(&self) -> ProbationRules {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Judges a version that has just failed or rejected something.
    pub(crate) fn look(&self, link: &Link, policy: &Arc<Policy>) {
        if !policy.probation.is_watched() {
            return;
        }
        let before = match Arc::ptr_eq(policy, &link.active) {
            true => link.previous.as_ref(),
            false => Some(&link.active),
        };
        let before = before.map(|before| before.tally());
        let Some(why) = self.rules().verdict(&policy.tally(), before.as_ref()) else { return };
        if policy.probation.speak()
            && let Some(listener) = self.listener.get()
        {
            listener(Tripped { link: link.name.clone(), policy: policy.clone(), why });
        }
    }
}
