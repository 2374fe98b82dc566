//! `pointsman policy status`, `history`, `push`, `promote`, `rollback`.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use pointsman_policy::signature::signature_path;
use pointsman_proto::v1::policies_client::PoliciesClient;
use pointsman_proto::v1::push_policy_request::Rollout;
use pointsman_proto::v1::{
    CanaryPrefixes, PolicyLinkRequest, PolicyStatusRequest, PolicyStatusResponse, PushPolicyRequest,
};
use serde_json::json;
use tonic::transport::Channel;

use super::{read, tables};
use crate::cli::admin::Target;
use crate::cli::admin::client::{channel, refused};
use crate::cli::{Failure, Output, print};

/// A link of a scheduler.
#[derive(Debug, Args)]
pub(in crate::cli) struct LinkArgs {
    /// Name of the policy in the configuration; not needed when there is only one.
    #[arg(default_value = "", hide_default_value = true)]
    link: String,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct RollbackArgs {
    /// Only end the trial of a shadow or canary; what is in force stays.
    #[arg(long)]
    trial: bool,
    #[command(flatten)]
    link: LinkArgs,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct PushArgs {
    /// The component, or a core module.
    file: PathBuf,
    /// Name of the policy in the configuration; not needed when there is only one.
    #[arg(long, default_value = "", hide_default_value = true)]
    link: String,
    /// Its signature by minisign [default: FILE.minisig, if that is there].
    #[arg(long, value_name = "FILE")]
    signature: Option<PathBuf>,
    /// Put it in force at once, though the configuration says that new versions are tried out.
    #[arg(long, group = "rollout")]
    in_force: bool,
    /// Only compare what it says with what the version in force says, on this share of actions.
    #[arg(
        long,
        value_name = "SHARE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        group = "rollout"
    )]
    shadow: Option<f64>,
    /// Let it decide about this share of invocations.
    #[arg(
        long,
        value_name = "SHARE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "0.1",
        group = "rollout"
    )]
    canary: Option<f64>,
    /// Let it decide about instance names that begin with this path; may be repeated.
    #[arg(long, value_name = "PATH", group = "rollout")]
    canary_prefix: Vec<String>,
    /// Also when this version was rolled back before.
    #[arg(long)]
    again: bool,
    #[command(flatten)]
    target: Target,
}

type Client = PoliciesClient<Channel>;

/// Runs one call to a scheduler.
fn with<T>(target: &Target, call: impl AsyncFnOnce(Client) -> Result<T, Failure>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("the runtime can't be started")?.block_on(async {
        let client = PoliciesClient::new(channel(target).await?);
        call(client.max_decoding_message_size(usize::MAX).max_encoding_message_size(usize::MAX)).await
    })
}

pub(super) fn status(args: LinkArgs) -> Result<(), Failure> {
    let answer = ask(&args, false)?;
    match args.target.output {
        Output::Json => print(&format!("{:#}", json!(answer))),
        Output::Table => print(&tables::status(&answer)),
    }
}

pub(super) fn history(args: LinkArgs) -> Result<(), Failure> {
    let answer = ask(&args, true)?;
    match args.target.output {
        Output::Json => print(&format!("{:#}", json!(answer))),
        Output::Table => print(&tables::history(&answer)),
    }
}

fn ask(args: &LinkArgs, history: bool) -> Result<PolicyStatusResponse, Failure> {
    let request = PolicyStatusRequest { link: args.link.clone(), history };
    with(&args.target, async |mut client| Ok(client.status(request).await.map_err(refused)?.into_inner()))
}

pub(super) fn promote(args: LinkArgs) -> Result<(), Failure> {
    let request = PolicyLinkRequest { link: args.link };
    let answer = with(&args.target, async |mut client| client.promote(request).await.map_err(refused))?;
    said(&answer.into_inner().text, args.target.output)
}

pub(super) fn rollback(args: RollbackArgs) -> Result<(), Failure> {
    let RollbackArgs { trial, link: LinkArgs { link, target } } = args;
    let request = PolicyLinkRequest { link };
    let answer = with(&target, async |mut client| match trial {
        true => client.end_trial(request).await.map_err(refused),
        false => client.rollback(request).await.map_err(refused),
    })?;
    said(&answer.into_inner().text, target.output)
}

pub(super) fn push(args: PushArgs) -> Result<(), Failure> {
    let rollout = match (args.in_force, args.shadow, args.canary, args.canary_prefix) {
        (true, ..) => Some(Rollout::InForce(true)),
        (_, Some(share), ..) => Some(Rollout::Shadow(share)),
        (_, _, Some(share), _) => Some(Rollout::Canary(share)),
        (.., prefixes) if prefixes.is_empty() => None,
        (.., prefixes) => Some(Rollout::CanaryPrefixes(CanaryPrefixes { instance_name_prefixes: prefixes })),
    };
    let signature = match args.signature {
        Some(file) => Some(read(&file)?),
        None => std::fs::read(signature_path(&args.file)).ok(),
    };
    let request = PushPolicyRequest {
        link: args.link,
        component: read(&args.file)?.into(),
        signature: String::from_utf8_lossy(&signature.unwrap_or_default()).into_owned(),
        rollout,
        again: args.again,
    };
    let answer = with(&args.target, async |mut client| client.push(request).await.map_err(refused))?;
    said(&answer.into_inner().text, args.target.output)
}

fn said(text: &str, output: Output) -> Result<(), Failure> {
    match output {
        Output::Json => print(&json!({ "text": text }).to_string()),
        Output::Table => print(text),
    }
}
