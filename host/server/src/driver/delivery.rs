//! What a step brings about: looked up under the lock, done without it.

use std::sync::Arc;

use pointsman_proto::{pack, rev2, rpc};
use pointsman_scheduler::effect::{Effect, End, HostNews, OperationStage, Reply};
use pointsman_scheduler::ids::{OperationId, TaskId};
use prost_types::Any;
use tokio::sync::oneshot;

use super::payload::{Progress, Snapshot};
use super::{Cell, Core, Driver, PollAnswer, Shown, failed};

/// What is delivered without the lock.
#[derive(Debug)]
pub(super) enum Delivery {
    Show { cell: Arc<Cell>, sequence: u64, name: Arc<str>, shown: Arc<Shown>, what: What },
    Answer(oneshot::Sender<PollAnswer>, PollAnswer),
    Log { host: Arc<str>, news: HostNews },
    Retried(TaskId),
}

#[derive(Debug)]
pub(super) enum What {
    Stage(OperationStage),
    End(End),
}

impl Driver {
    /// Does what is done without the lock.
    pub(super) fn deliver(&self, deliveries: Vec<Delivery>, response: Option<&rev2::ExecuteResponse>) {
        // Encoded once for all operations that share the execution.
        let mut reported: Option<Arc<Any>> = None;
        for delivery in deliveries {
            match delivery {
                Delivery::Log { host, news } => match news {
                    HostNews::Paused { .. } | HostNews::Quarantined { .. } => {
                        tracing::warn!(host = &*host, "{news}");
                    }
                    HostNews::Resumed | HostNews::OnTrial | HostNews::Released => {
                        tracing::info!(host = &*host, "{news}");
                    }
                },
                Delivery::Retried(task) => {
                    // Where there is no room it stays where it is.
                    _ = self.retried.get().map(|to| to.try_send(task));
                }
                Delivery::Answer(to, answer) => {
                    // Its caller may have gone; the core hears of that from the guard.
                    _ = to.send(answer);
                }
                Delivery::Show { cell, sequence, name, shown, what } => {
                    let progress = match what {
                        What::Stage(stage) => Progress::Ongoing(stage),
                        What::End(End::Reported) => {
                            let response = || Arc::new(response.map(pack).unwrap_or_default());
                            Progress::Done(reported.get_or_insert_with(response).clone())
                        }
                        What::End(end) => Progress::Done(Arc::new(pack(&ended(&end)))),
                    };
                    cell.show(sequence, Snapshot { name, shown, progress });
                }
            }
        }
    }
}

impl Core {
    /// Looks up what the effects speak of, while it is still there.
    pub(super) fn deliveries(&mut self, effects: &[Effect]) -> Vec<Delivery> {
        let mut deliveries = Vec::with_capacity(effects.len());
        for effect in effects {
            match effect {
                Effect::Submitted { .. } | Effect::Refused(_) | Effect::Hold { .. } => {}
                Effect::Retried(task) => deliveries.push(Delivery::Retried(*task)),
                Effect::Stage { operation, task, sequence, stage } => {
                    deliveries.extend(self.show(*operation, *task, *sequence, What::Stage(stage.clone())));
                }
                Effect::Finished { operation, task, sequence, end } => {
                    let end = match self.ended_by_operator.take_if(|ended| ended == operation) {
                        Some(_) => End::Refused(ENDED_BY_OPERATOR.into()),
                        None => end.clone(),
                    };
                    deliveries.extend(self.show(*operation, *task, *sequence, What::End(end)));
                }
                Effect::Forgotten(operation) => _ = self.cells.remove(*operation),
                Effect::Dropped(task) => _ = self.payloads.remove(*task),
                Effect::Host { host, news } => {
                    deliveries.push(Delivery::Log { host: host.clone(), news: news.clone() });
                }
                Effect::Reply { poll, reply } => {
                    let heartbeat = self.scheduler.heartbeat();
                    let answer = match reply {
                        Reply::Execute(task) => match self.payloads.get(*task) {
                            Some(payload) => {
                                let strategy = self.scheduler.strategy_of(*task).cloned();
                                PollAnswer::Execute { payload: payload.clone(), strategy, heartbeat }
                            }
                            None => PollAnswer::Idle,
                        },
                        Reply::Continue => PollAnswer::Continue { heartbeat },
                        Reply::Idle => PollAnswer::Idle,
                        Reply::Superseded => PollAnswer::Superseded,
                        Reply::TooManyWorkers => PollAnswer::TooManyWorkers,
                    };
                    deliveries.extend(self.polls.remove(poll).map(|to| Delivery::Answer(to, answer)));
                }
            }
        }
        deliveries
    }

    fn show(&self, operation: OperationId, task: TaskId, sequence: u64, what: What) -> Option<Delivery> {
        let cell = self.cells.get(operation)?.clone();
        let shown = self.payloads.get(task)?.shown.clone();
        let name = self.scheduler.operation_by_id(operation)?.name.clone();
        Some(Delivery::Show { cell, sequence, name, shown, what })
    }
}

/// Not CANCELLED, the word for what a client cancels itself: Bazel executes such an action again, five times.
const ENDED_BY_OPERATOR: &str = "an operator ended the operation (pointsman cancel)";

/// The answer when no worker gave one.
fn ended(end: &End) -> rev2::ExecuteResponse {
    match end {
        End::Reported | End::Cancelled => {
            failed(rpc::Code::Cancelled, "the operation was cancelled", Vec::new())
        }
        // Clients retry UNAVAILABLE and INTERNAL: not what an action needs that has used up its attempts.
        End::GaveUp(text) | End::Unschedulable(text) => {
            failed(rpc::Code::FailedPrecondition, &**text, Vec::new())
        }
        End::Refused(text) => failed(rpc::Code::FailedPrecondition, &**text, Vec::new()),
    }
}
