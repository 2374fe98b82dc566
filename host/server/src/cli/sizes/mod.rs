//! `pointsman sizes`: what was learned of how much actions need, and on which size class they belong.

mod table;
mod text;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use pointsman_proto::v1::sizes_client::SizesClient;
use pointsman_proto::v1::{ListSizesRequest, ListSizesResponse};

use super::admin::client::{channel, refused};
use super::admin::{Target, show};
use super::{Failure, one_line, print};

#[derive(Debug, Subcommand)]
pub(super) enum SizesCommand {
    /// List learning keys with what is known of them, those with the most running time first.
    List(ListArgs),
    /// Show all that is known of one learning key.
    Show {
        /// The key, as `list` and the notes of decisions have it.
        key: String,
        #[command(flatten)]
        target: Target,
    },
    /// Say which learning keys belong on which size class, and why; and what share of all runs that is.
    Suggest(SuggestArgs),
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Keys at most.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
pub(super) struct SuggestArgs {
    /// Keys at most.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Print what belongs on more than the smallest class as a table for the policy `size-classes`. It takes keys that are
    /// made of instance, tool, mnemonic, target, package, executable and first output, and says on standard error which it
    /// leaves out, as no entry would mean the same actions.
    #[arg(long, conflicts_with = "output")]
    table: bool,
    #[command(flatten)]
    target: Target,
}

/// What ten thousand keys take, with room.
const ANSWER_MAX_BYTES: usize = 64 << 20;

/// Runs a command to its end.
pub(super) fn run(command: SizesCommand) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("the runtime can't be started")?.block_on(ask(command))
}

async fn ask(command: SizesCommand) -> Result<(), Failure> {
    match command {
        SizesCommand::List(ListArgs { limit, target }) => {
            let answer = list(&target, String::new(), limit).await?;
            show(&target, &answer, text::list)
        }
        SizesCommand::Show { key, target } => {
            let answer = list(&target, key, 1).await?;
            show(&target, &answer, text::show)
        }
        SizesCommand::Suggest(SuggestArgs { limit, table, target }) => {
            let answer = list(&target, String::new(), limit).await?;
            if !table {
                return show(&target, &answer, text::suggest);
            }
            let table::Table { entries, left_out } = table::of(&answer);
            for line in table::told(&left_out, &answer) {
                eprintln!("{}", one_line(&line));
            }
            print(&serde_json::to_string_pretty(&entries).context("the table has no JSON form")?)
        }
    }
}

async fn list(target: &Target, key: String, limit: u32) -> Result<ListSizesResponse, Failure> {
    let mut client = SizesClient::new(channel(target).await?).max_decoding_message_size(ANSWER_MAX_BYTES);
    Ok(client.list_sizes(ListSizesRequest { key, limit }).await.map_err(refused)?.into_inner())
}
