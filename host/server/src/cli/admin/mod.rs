//! Commands that ask or tell a running scheduler: `why`, `plan`, `queue`, `workers`, `drain`, `pause`,
//! `release`, `cancel`.

pub(super) mod client;
pub(super) mod tables;

use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use pointsman_proto::rev2::platform::Property;
use pointsman_proto::v1::cancel_request::Which;
use pointsman_proto::v1::{self, Explanation, Hold, hold};
use serde::Serialize;
use tonic::Code;

use super::pairs::parse_pair;
use super::{Failure, Output, print};
use client::{connect, refused, refused_operation};

/// Where the scheduler is, and how to print.
#[derive(Debug, Args)]
pub(super) struct Target {
    /// The scheduler's address.
    #[arg(long, env = "POINTSMAN_SERVER", default_value = "grpc://127.0.0.1:8980", value_name = "URL")]
    pub(super) server: String,
    /// How to print.
    #[arg(long, short, value_enum, default_value_t)]
    pub(super) output: Output,
}

#[derive(Debug, Subcommand)]
pub(super) enum AdminCommand {
    /// Say why an action is where it is.
    Why {
        /// The operation's name: what clients print, or `queue` lists.
        operation: String,
        #[command(flatten)]
        target: Target,
    },
    /// Say what would become of an action with these properties. Exits with 0 if it would run now, 1 if it would wait,
    /// 2 if it would never run or be refused, 69 if no scheduler answers.
    Plan {
        /// A platform property; may be repeated.
        #[arg(long, value_name = "KEY=VALUE", value_parser = parse_pair)]
        platform: Vec<(String, String)>,
        /// The client's instance name.
        #[arg(long, default_value = "")]
        instance_name: String,
        /// Only workers of this pool.
        #[arg(long, default_value = "")]
        pool: String,
        /// Only workers of this size class.
        #[arg(long)]
        size_class: Option<u32>,
        #[command(flatten)]
        target: Target,
    },
    /// List what waits, by requirements, with the reason.
    Queue {
        /// Sets of requirements at most.
        #[arg(long, default_value_t = 100)]
        limit: u32,
        #[command(flatten)]
        target: Target,
    },
    /// List the workers.
    Workers {
        #[command(flatten)]
        target: Target,
    },
    /// Let workers finish what they run and give them nothing more, also after they have started anew.
    Drain(HoldArgs),
    /// Give workers nothing more for now.
    Pause(HoldArgs),
    /// Let hosts out of quarantine, and end pauses that they asked for themselves.
    Release {
        /// An entry that a worker's id must have; may be repeated. `workers` lists ids.
        #[arg(value_name = "KEY=VALUE", value_parser = parse_pair, required_unless_present = "all")]
        pattern: Vec<(String, String)>,
        /// Hosts of all workers.
        #[arg(long, conflicts_with = "pattern")]
        all: bool,
        #[command(flatten)]
        target: Target,
    },
    /// End operations; their clients get FAILED_PRECONDITION, which they don't try again.
    Cancel {
        #[command(flatten)]
        which: CancelWhich,
        #[command(flatten)]
        target: Target,
    },
}

#[derive(Debug, Args)]
pub(super) struct HoldArgs {
    /// An entry that a worker's id must have; may be repeated. `workers` lists ids.
    #[arg(value_name = "KEY=VALUE", value_parser = parse_pair, required_unless_present_any = ["all", "list"])]
    pattern: Vec<(String, String)>,
    /// All workers.
    #[arg(long, conflicts_with = "pattern")]
    all: bool,
    /// End it instead.
    #[arg(long)]
    remove: bool,
    /// List what is held, change nothing.
    #[arg(long, conflicts_with_all = ["pattern", "all", "remove"])]
    list: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct CancelWhich {
    /// This one.
    #[arg(long)]
    operation: Option<String>,
    /// Those with this invocation key (the client's invocation id, by the default policy).
    #[arg(long)]
    invocation: Option<String>,
    /// Those that wait with the same requirements as this one.
    #[arg(long)]
    like: Option<String>,
}

/// Runs a command to its end.
pub(super) fn run(command: AdminCommand) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("the runtime can't be started")?.block_on(ask(command))
}

async fn ask(command: AdminCommand) -> Result<ExitCode, Failure> {
    match command {
        AdminCommand::Why { operation, target } => {
            let mut client = connect(&target).await?;
            let request = v1::ExplainRequest { operation_name: operation };
            let answer = client.explain(request).await.map_err(refused_operation)?.into_inner();
            show(&target, &answer, tables::why)?;
        }
        AdminCommand::Plan { platform, instance_name, pool, size_class, target } => {
            let mut client = connect(&target).await?;
            let platform = platform.into_iter().map(|(name, value)| Property { name, value }).collect();
            let request = v1::PlanRequest { instance_name, platform, pool, size_class };
            let answer = match client.plan(request).await {
                Ok(answer) => answer.into_inner(),
                Err(status) => return plan_refused(status),
            };
            show(&target, &answer, |e| e.text.clone())?;
            return Ok(ExitCode::from(plan_code(&answer)));
        }
        AdminCommand::Queue { limit, target } => {
            let mut client = connect(&target).await?;
            let answer =
                client.list_queue(v1::ListQueueRequest { limit }).await.map_err(refused)?.into_inner();
            show(&target, &answer, tables::queue)?;
        }
        AdminCommand::Workers { target } => {
            let mut client = connect(&target).await?;
            let answer = client.list_workers(v1::ListWorkersRequest {}).await.map_err(refused)?.into_inner();
            show(&target, &answer, tables::workers)?;
        }
        AdminCommand::Drain(args) => hold(hold::Kind::Drain, args).await?,
        AdminCommand::Pause(args) => hold(hold::Kind::Pause, args).await?,
        AdminCommand::Release { pattern, target, .. } => {
            let mut client = connect(&target).await?;
            let request = v1::ReleaseRequest { worker_id_pattern: pattern.into_iter().collect() };
            let answer = client.release(request).await.map_err(refused)?.into_inner();
            show(&target, &answer, |a| tables::released(&a.hosts))?;
        }
        AdminCommand::Cancel { which, target } => {
            let mut client = connect(&target).await?;
            let which = match which {
                CancelWhich { operation: Some(name), .. } => Which::OperationName(name),
                CancelWhich { invocation: Some(key), .. } => Which::InvocationKey(key),
                CancelWhich { like, .. } => Which::LikeOperationName(like.unwrap_or_default()),
            };
            let request = v1::CancelRequest { which: Some(which) };
            let answer = client.cancel(request).await.map_err(refused_operation)?.into_inner();
            show(&target, &answer, |a| tables::cancelled(&a.operation_names))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn hold(kind: hold::Kind, args: HoldArgs) -> Result<(), Failure> {
    let HoldArgs { pattern, remove, list, target, .. } = args;
    let mut client = connect(&target).await?;
    let hold =
        Hold { kind: kind.into(), worker_id_pattern: pattern.into_iter().collect(), ..Hold::default() };
    let hold = Some(hold);
    if list {
        let mut answer = client.list_holds(v1::ListHoldsRequest {}).await.map_err(refused)?.into_inner();
        answer.holds.retain(|held| held.kind() == kind);
        show(&target, &answer, |a| tables::holds(kind, &a.holds))
    } else if remove {
        let answer = client.remove_hold(v1::RemoveHoldRequest { hold }).await.map_err(refused)?.into_inner();
        show(&target, &answer, |a| a.text.clone())
    } else {
        let answer = client.add_hold(v1::AddHoldRequest { hold }).await.map_err(refused)?.into_inner();
        show(&target, &answer, |a| a.text.clone())
    }
}

pub(super) fn show<T: Serialize>(
    target: &Target,
    answer: &T,
    table: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
    let text = match target.output {
        Output::Table => table(answer),
        Output::Json => serde_json::to_string_pretty(answer).context("the answer has no JSON form")?,
    };
    print(&text)
}

const PLAN_WAITS: u8 = 1;
const PLAN_NEVER: u8 = 2;

fn plan_code(plan: &Explanation) -> u8 {
    match plan {
        plan if plan.never => PLAN_NEVER,
        plan if plan.reason == "next" => 0,
        _ => PLAN_WAITS,
    }
}

/// An action that the scheduler would refuse never runs; a scheduler that does not answer says nothing about it.
fn plan_refused(status: tonic::Status) -> Result<ExitCode, Failure> {
    match status.code() {
        Code::FailedPrecondition | Code::InvalidArgument | Code::ResourceExhausted => {
            eprintln!("would be refused: {}", status.message());
            Ok(ExitCode::from(PLAN_NEVER))
        }
        _ => Err(refused(status)),
    }
}
