//! A decision record: everything that is needed to understand a decision, and to make it once more.

use std::sync::Arc;
use std::time::SystemTime;

use pointsman_scheduler::route::Route;

use crate::decision::{Hook, Step};
use crate::facts::{ActionFacts, Attempt};
use crate::hooks::{Candidate, Terms, WorkerFacts};

/// One decision.
#[derive(Clone, Debug)]
pub struct Record {
    /// When it was made.
    pub at: SystemTime,
    /// Number of the generation that was in force.
    pub generation: u64,
    /// What was asked.
    pub question: Question,
    /// Each call of a policy, in order. What a step found is what the last successful one before it left, at first what
    /// the question has.
    pub steps: Arc<[Step]>,
    /// What the server has to say of it: edits that it can't carry out.
    pub remarks: Vec<String>,
}

/// What policies were asked.
#[derive(Clone, Debug)]
pub enum Question {
    /// Where an action is to go.
    Route {
        /// The action.
        facts: Arc<ActionFacts>,
        /// The client's wishes.
        before: Arc<Route>,
    },
    /// On what terms a worker joins.
    Admit {
        /// The worker.
        worker: Arc<WorkerFacts>,
        /// What it offers.
        before: Arc<Terms>,
    },
    /// What becomes of a result.
    Completed {
        /// The action.
        facts: Arc<ActionFacts>,
        /// How it ended.
        attempt: Attempt,
        /// The route by which it ran.
        before: Arc<Route>,
    },
    /// Which worker is best.
    Rank {
        /// The action.
        facts: Arc<ActionFacts>,
        /// Workers that could run it.
        candidates: Vec<Candidate>,
    },
}

impl Question {
    /// The hook that answers it.
    pub fn hook(&self) -> Hook {
        match self {
            Self::Route { .. } => Hook::OnAction,
            Self::Admit { .. } => Hook::OnWorker,
            Self::Completed { .. } => Hook::OnResult,
            Self::Rank { .. } => Hook::OnAssignment,
        }
    }

    /// The action it is about, if it is about one.
    pub fn action(&self) -> Option<&Arc<ActionFacts>> {
        match self {
            Self::Route { facts, .. } | Self::Completed { facts, .. } | Self::Rank { facts, .. } => {
                Some(facts)
            }
            Self::Admit { .. } => None,
        }
    }
}
