//! One action by any of the clients, and what it does when that fails.

use pointsman_tests::harness::{BazelVersion, Clients, FaultProxy, Finished, Running, Server};

use crate::pants::Pants;
use crate::recc::{GREET, Recc, slow_compiler};
use crate::support::HELD;
use crate::trexe::Trexe;

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    Bazel(BazelVersion),
    Trexe,
    Recc { retries: bool },
    Pants,
}

/// What a client is to do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Job {
    /// One action that ends at once.
    Quick,
    /// One that takes as long as there is a [`crate::support::Hold`].
    Held,
    /// One that never ends, with so many seconds as its limit. recc has no such thing.
    Endless(u32),
}

impl Client {
    pub(super) const ALL: [Self; 6] = [
        Self::Bazel(BazelVersion::Seven),
        Self::Bazel(BazelVersion::Two),
        Self::Trexe,
        Self::Recc { retries: false },
        Self::Recc { retries: true },
        Self::Pants,
    ];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Bazel(BazelVersion::Seven) => "Bazel 7.7.1",
            Self::Bazel(BazelVersion::Two) => "Bazel 2.1.0",
            Self::Trexe => "trexe 1.4.16",
            Self::Recc { retries: false } => "recc 1.4.16",
            Self::Recc { retries: true } => "recc with RECC_RETRY_LIMIT=3",
            Self::Pants => "Pants 2.17.1",
        }
    }

    /// In names of tests.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bazel(version) => version.client(),
            Self::Trexe => "trexe",
            Self::Recc { retries: false } => "recc",
            Self::Recc { retries: true } => "recc_with_retries",
            Self::Pants => "pants",
        }
    }

    /// What `clients.sh` must have set up.
    pub(super) fn needs(self) -> &'static str {
        match self {
            Self::Bazel(version) => version.client(),
            Self::Trexe | Self::Recc { .. } => "buildbox",
            Self::Pants => "pants",
        }
    }

    /// One of each kind is enough for each run.
    pub(super) fn is_often_run(self) -> bool {
        matches!(self, Self::Bazel(BazelVersion::Seven) | Self::Trexe)
    }

    /// Starts it against the proxy; `server` is what is behind that.
    pub(super) async fn start(
        self,
        clients: &Clients,
        server: &Server,
        proxy: &FaultProxy,
        job: Job,
    ) -> anyhow::Result<Running> {
        let address = proxy.address();
        match self {
            Self::Bazel(version) => {
                let bazel = clients.bazel(version).await?;
                match job {
                    Job::Quick => bazel.start(&address, &["build", "//:link0"]),
                    Job::Held => bazel.start(&address, &["build", "//:held"]),
                    Job::Endless(limit) => {
                        let limit = format!("--test_timeout={limit}");
                        bazel.start(&address, &["test", "//:hang_test", &limit])
                    }
                }
            }
            Self::Trexe => {
                let trexe = Trexe::at(clients, &address);
                match job {
                    Job::Quick => trexe.start(&[], "true"),
                    Job::Held => trexe.start(&[], HELD),
                    Job::Endless(limit) => trexe.start(&[&format!("--exec-timeout={limit}")], "sleep 600"),
                }
            }
            Self::Recc { retries } => {
                let variables: &[&str] = if retries { &["RECC_RETRY_LIMIT=3"] } else { &[] };
                let slow = matches!(job, Job::Held).then(|| slow_compiler(server)).transpose()?;
                let compiler = slow.as_deref().unwrap_or(GREET[0]);
                Recc::at(clients, address).await?.start(variables, &[&[compiler], &GREET[1..]].concat())
            }
            Self::Pants => {
                let target = if matches!(job, Job::Held) { "//:held" } else { "//:copy" };
                Pants::new(clients, &address).await?.start(&["export-codegen", target])
            }
        }
    }
}

/// What a client did about its action after the first `Execute`, each call once in a row, and how that ended: `ok`,
/// `times out` when it says that of the action, else `fails`. With that, what it wrote.
pub(super) async fn outcome(
    client: Client,
    run: Running,
    proxy: &FaultProxy,
) -> anyhow::Result<(String, String)> {
    let run = run.finish().await?;
    let mut calls = proxy.calls_for_first_action();
    anyhow::ensure!(!calls.is_empty(), "nothing was executed:\n{}", run.text);
    calls.remove(0);
    calls.dedup();
    calls.push(end(client, &run));
    Ok((calls.join(", "), run.text))
}

fn end(client: Client, run: &Finished) -> &'static str {
    let timed_out = ["TIMEOUT", "(Timeout)"].iter().any(|word| run.text.contains(word));
    match client {
        _ if run.code() == 0 => "ok",
        Client::Bazel(_) if timed_out => "times out",
        _ => "fails",
    }
}
