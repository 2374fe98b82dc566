//! The second table: what each client makes of each fault of `Execute`, by a proxy that answers in the server's place, or
//! by the server itself.

mod client;
mod raised;
mod rows;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use libtest_mimic::{Failed, Trial};
use pointsman_tests::harness::{Clients, Fault, FaultProxy};

use super::perform;
use super::support::serve;
use client::{Client, Job, outcome};
use raised::Raised;
use rows::rows;

/// What is done to `Execute`.
#[derive(Clone, Debug)]
enum Cause {
    /// By the proxy: to so many calls of a method.
    Injected(Vec<(&'static str, usize, Fault)>),
    /// By the server.
    Raised(Raised),
}

/// One fault and what each client is known to make of it.
struct Row {
    title: String,
    cause: Cause,
    /// By [`Client`], as [`outcome`] tells it; empty where it is not looked at.
    outcomes: [&'static str; Client::ALL.len()],
    /// Whether it is left to those who ask for it, as it tells little that others don't.
    on_demand: bool,
}

/// What came of each row and client so far.
pub(crate) type Observed = Arc<Mutex<BTreeMap<(usize, usize), String>>>;

/// One test per row and client.
pub(crate) fn trials(observed: &Observed) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (number, row) in rows().into_iter().enumerate() {
        for (column, client) in Client::ALL.into_iter().enumerate() {
            let wanted = row.outcomes[column];
            if wanted.is_empty() {
                continue;
            }
            let name = format!("{}::fault::{}", client.name(), row.title.replace([' ', ','], "_"));
            let (suite, cause, observed) = (name.clone(), row.cause.clone(), observed.clone());
            let run = move || {
                let check = |clients| async move { what_comes_of(&clients, client, cause).await };
                let came = perform(&suite, client.needs(), check, &mut Instant::now());
                let Some((came, output)) = came.map_err(|error| Failed::from(format!("{error:?}")))? else {
                    return Ok(());
                };
                if let Ok(mut observed) = observed.lock() {
                    observed.insert((number, column), came.clone());
                }
                match came == wanted {
                    true => Ok(()),
                    false => Err(format!("observed: {came}; known: {wanted}; it wrote:\n{output}").into()),
                }
            };
            let on_demand = row.on_demand || !client.is_often_run();
            trials.push(Trial::test(name, run).with_ignored_flag(on_demand));
        }
    }
    trials
}

/// The [`outcome`].
async fn what_comes_of(clients: &Clients, client: Client, cause: Cause) -> anyhow::Result<(String, String)> {
    match cause {
        Cause::Raised(raised) => raised.run(clients, client).await,
        Cause::Injected(faults) => {
            let server = serve(clients).await?;
            let proxy = FaultProxy::start(server.address()).await?;
            for (method, calls, fault) in faults {
                proxy.inject(method, calls, &fault);
            }
            let run = client.start(clients, &server, &proxy, Job::Quick).await?;
            outcome(client, run, &proxy).await
        }
    }
}

/// The table of what was observed; what is not known yet is "not run".
pub(crate) fn render(observed: &Observed) -> String {
    let Ok(observed) = observed.lock() else { return String::new() };
    table(|row, column, wanted| match observed.get(&(row, column)) {
        None => "not run".to_owned(),
        Some(came) if came == wanted => came.clone(),
        Some(came) => format!("**{came}** instead of {wanted}"),
    })
}

/// The table of a day on which all is as it is known to be.
pub(crate) fn ideal() -> String {
    table(|_, _, wanted| wanted.to_owned())
}

/// The same faults twice, where a server can have them.
fn table(cell: impl Fn(usize, usize, &str) -> String) -> String {
    let rows = rows();
    let first_raised =
        rows.iter().position(|row| matches!(row.cause, Cause::Raised(_))).unwrap_or(rows.len());
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        match number {
            0 => text += &heading("by the proxy"),
            _ if number == first_raised => text += &format!("\n{}", heading("by the server")),
            _ => {}
        }
        let _ = write!(text, "| {} |", row.title);
        for (column, wanted) in row.outcomes.iter().enumerate() {
            let cell = if wanted.is_empty() { "–".to_owned() } else { cell(number, column, wanted) };
            let _ = write!(text, " {cell} |");
        }
        text.push('\n');
    }
    text
}

fn heading(caused: &str) -> String {
    let titles: String = Client::ALL.map(|client| format!(" {} |", client.title())).concat();
    format!("| {caused} |{titles}\n| --- |{}\n", " --- |".repeat(Client::ALL.len()))
}
