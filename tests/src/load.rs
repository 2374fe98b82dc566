//! Load generator: many clients and workers that do nothing but talk, against a server in a process of its
//! own, so that the server's processor time can be told from ours.
//!
//! The yardstick is [`echo`]: the same messages over the same library, and no scheduling at all. Clients form
//! a closed loop: each has one action under way. Workers complete at once, or after a set time. Besides,
//! actions that no worker can run may wait, and workers that no action asks for: a scheduler should not care.
mod aim;
mod clients;
pub mod echo;
mod measure;
mod process;
mod report;
mod route;
mod server;
mod settings;
mod starts;
mod suite;
mod waiting;
mod workers;

pub use aim::Aim;
pub use measure::{Measurement, measure};
pub use process::{CpuClock, OWN_PROCESS, resident_bytes};
pub use report::{Group, Row, json, table};
pub use route::{Round, RouteSettings, Seen, route, route_json, route_table};
pub use server::Server;
pub use settings::Settings;
pub use suite::{Kind, Plan, PlannedGroup, suite};
