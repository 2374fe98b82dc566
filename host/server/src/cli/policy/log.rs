//! `pointsman policy log`.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use pointsman_proto::v1::LogRequest;
use pointsman_proto::v1::policies_client::PoliciesClient;
use serde_json::Value;

use super::{read, record};
use crate::cli::admin::Target;
use crate::cli::admin::client::{channel, refused};
use crate::cli::{Failure, Output, print};
use crate::decisions::{self, Filter};

#[derive(Debug, Args)]
pub(in crate::cli) struct LogArgs {
    /// Go on with decisions to come.
    #[arg(long, short)]
    follow: bool,
    /// Records at most, the latest ones [default: 100 of a scheduler's, all of a file's].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Only about the action of this digest; its beginning will do.
    #[arg(long, value_name = "DIGEST", default_value = "", hide_default_value = true)]
    action: String,
    /// Only of this instance name, or below it.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    instance: String,
    /// Only about actions of this mnemonic.
    #[arg(long, default_value = "", hide_default_value = true)]
    mnemonic: String,
    /// Only where this policy was asked: its name, its name in the configuration, or the beginning of its SHA-256.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    policy: String,
    /// Only what was refused; with --failed, either.
    #[arg(long)]
    rejected: bool,
    /// Only what some policy failed at.
    #[arg(long)]
    failed: bool,
    /// Read these files of a decision log instead of asking a scheduler; the oldest first.
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "follow")]
    file: Vec<PathBuf>,
    #[command(flatten)]
    target: Target,
}

impl LogArgs {
    fn filter(&self) -> Filter {
        Filter {
            action: self.action.clone(),
            instance_name: self.instance.clone(),
            mnemonic: self.mnemonic.clone(),
            policy: self.policy.clone(),
            rejected: self.rejected,
            failed: self.failed,
        }
    }
}

pub(super) fn run(args: LogArgs) -> Result<(), Failure> {
    if !args.file.is_empty() {
        return files(&args);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("the runtime can't be started")?.block_on(ask(args))
}

fn show(record: &Value, output: Output) -> Result<(), Failure> {
    match output {
        Output::Json => print(&record.to_string()),
        Output::Table => print(&record::block(record)),
    }
}

// === A scheduler's ===

async fn ask(args: LogArgs) -> Result<(), Failure> {
    let output = args.target.output;
    let mut client = PoliciesClient::new(channel(&args.target).await?).max_decoding_message_size(usize::MAX);
    let request = LogRequest {
        follow: args.follow,
        limit: args.limit.unwrap_or_default(),
        action: args.action,
        instance_name: args.instance,
        mnemonic: args.mnemonic,
        policy: args.policy,
        rejected: args.rejected,
        failed: args.failed,
    };
    let mut records = client.log(request).await.map_err(refused)?.into_inner();
    while let Some(answer) = records.message().await.map_err(refused)? {
        if answer.left_out > 0 {
            eprintln!("{} records are left out: this program was too slow for them", answer.left_out);
        }
        let record: Value = serde_json::from_str(&answer.record).context("the scheduler sent no record")?;
        show(&record, output)?;
    }
    Ok(())
}

// === A file's ===

fn files(args: &LogArgs) -> Result<(), Failure> {
    let filter = args.filter();
    let mut kept = VecDeque::new();
    let mut wrong = Vec::new();
    let limit = args.limit.map_or(usize::MAX, |limit| limit as usize);
    for file in &args.file {
        wrong.extend(records(file, |record| {
            if filter.lets_through(&record) {
                if kept.len() == limit {
                    kept.pop_front();
                }
                kept.push_back(record);
            }
        })?);
    }
    for record in &kept {
        show(record, args.target.output)?;
    }
    if wrong.is_empty() { Ok(()) } else { Err(Failure::Refused(wrong.join("\n"))) }
}

/// Hands over the records of a file; returns what of it is none.
fn records(file: &Path, mut take: impl FnMut(Value)) -> Result<Vec<String>, Failure> {
    let content = read(file)?;
    let name = file.display();
    let mut other = 0;
    let damages = decisions::read(&content, |line| match serde_json::from_str(line) {
        Ok(record @ Value::Object(_)) => take(record),
        _ => other += 1,
    });
    let place = |damage: decisions::Damage| {
        let decisions::Damage { offset, bytes, text } = damage;
        format!("{name}: {bytes} of {} bytes can't be read, from byte {offset} on: {text}", content.len())
    };
    let mut wrong: Vec<String> = damages.into_iter().map(place).collect();
    if other > 0 {
        wrong.push(format!("{name}: {other} lines are no records of decisions"));
    }
    Ok(wrong)
}
