//! The scheduling core of Pointsman: pure and deterministic, without clock, I/O or async.
//!
//! | Module | What |
//! | --- | --- |
//! | [`scheduler`] | `step(now, event) → effects + changes`: the main path |
//! | [`event`], [`effect`] | what can happen, and what is to be done |
//! | `clients`, `polls` | what clients and policies want; what workers say |
//! | `lifecycle`, [`attempts`] | the way of a task through queues and failed tries to its end |
//! | `unschedulable`, [`declared`] | the end of what nobody could ever run; pools whose workers come and go |
//! | [`route`] | what a policy decides, as plain data |
//! | [`holds`], `health` | drains and pauses by operators; pauses and quarantine by how a host does |
//! | [`properties`] | the schema and its four types |
//! | `classes`, `shapes`, `lanes` | who can serve whom |
//! | `sharing` | which task an equal submission joins |
//! | `queue`, `fairness` | in which order tasks wait, and invocations get workers |
//! | `workers`, [`placement`] | who is there, what is free, who runs what |
//! | [`candidates`] | hosts that a policy may put in order for an arriving task |
//! | `larger` | whether there is a larger size class for what was too large |
//! | `affinity` | tasks that wait a while for the host that last ran their key |
//! | `choice` | which task is next for a worker |
//! | [`task`], `timers` | tasks, operations, deadlines |
//! | [`records`] | what must survive, and how to come back from it |
//! | [`explain`] | why a task is still queued, as data and in words |
//! | [`views`], [`invariants`] | looks at the state; what must always hold |
//! | [`platform_queues`], [`queue_views`] | queues as Buildbarn has them, for front ends that show those |
//! | [`metrics`], [`task_metrics`] | running counts, for monitoring |
//!
//! # Invariants
//! - No accepted action is lost or answered twice.
//! - A task is on one worker at most; a host never runs one digest twice at a time.
//! - What is free on a host follows from what runs there, is never negative, and is all of it when nothing runs.
//! - No worker waits while a task is queued that it may run.
//! - No worker passes over an invocation with a smaller score that has something for it.
//! - Same events at the same times, same history: maps with hash order are looked up, never iterated.

mod affinity;
pub mod attempts;
pub mod candidates;
pub mod capacities;
mod choice;
mod choice_check;
mod classes;
mod clients;
pub mod declared;
pub mod effect;
pub mod event;
pub mod explain;
pub mod explain_text;
mod fairness;
mod health;
pub mod holds;
pub mod ids;
pub mod invariants;
mod lanes;
mod larger;
mod lifecycle;
pub mod metrics;
pub mod placement;
pub mod platform_queues;
mod polls;
pub mod properties;
mod queue;
pub mod queue_views;
mod reasons;
pub mod records;
mod reservations;
pub mod route;
pub mod scheduler;
mod shapes;
mod sharing;
pub mod task;
pub mod task_metrics;
pub mod time;
mod timers;
mod together;
mod unschedulable;
pub mod views;
mod workers;

pub use shapes::is_path_prefix;
