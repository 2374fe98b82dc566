//! The rows of the table, and what a client has to say to each.

use std::pin::Pin;

use pointsman_tests::harness::Clients;

/// Something that a client can want of a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feature {
    Builds,
    ExitCodes,
    FailureShown,
    Cached,
    NotCached,
    Directories,
    BigFiles,
    Compressed,
    InlineOutputs,
    Sha1,
    InstanceName,
    Platform,
    UnknownProperty,
    Priority,
    Timeout,
    Interrupt,
    CutConnection,
    Detached,
    Cancel,
}

impl Feature {
    pub(crate) const ALL: [Self; 19] = [
        Self::Builds,
        Self::ExitCodes,
        Self::FailureShown,
        Self::Cached,
        Self::NotCached,
        Self::Directories,
        Self::BigFiles,
        Self::Compressed,
        Self::InlineOutputs,
        Self::Sha1,
        Self::InstanceName,
        Self::Platform,
        Self::UnknownProperty,
        Self::Priority,
        Self::Timeout,
        Self::Interrupt,
        Self::CutConnection,
        Self::Detached,
        Self::Cancel,
    ];

    /// Its line of the table; with underscores it is the name of the test.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Builds => "everything is built remotely",
            Self::ExitCodes => "exit codes of tests and commands",
            Self::FailureShown => "output of a failing action is shown",
            Self::Cached => "nothing is run a second time",
            Self::NotCached => "uncached actions run each time",
            Self::Directories => "directories and symbolic links",
            Self::BigFiles => "files of 5 MB both ways",
            Self::Compressed => "zstd",
            Self::InlineOutputs => "outputs inline",
            Self::Sha1 => "digests by SHA-1",
            Self::InstanceName => "instance name",
            Self::Platform => "platform property chooses the worker",
            Self::UnknownProperty => "mistyped property is told",
            Self::Priority => "priority overtakes",
            Self::Timeout => "timeout of an action",
            Self::Interrupt => "interrupt and start again",
            Self::CutConnection => "connection cut in an action",
            Self::Detached => "leave and ask later",
            Self::Cancel => "cancel by name",
        }
    }
}

type Running = Pin<Box<dyn Future<Output = anyhow::Result<()>>>>;

/// What is done to see that a feature works.
pub(crate) type Check = Box<dyn FnOnce(Clients) -> Running + Send>;

/// One client and one feature.
pub(crate) enum Cell {
    /// Checked in each run.
    Offered(Check),
    /// Checked only with `--include-ignored`: it takes long, and tells little that others don't.
    OnDemand(Check),
    /// The client has no such thing; why.
    NotOffered(&'static str),
}

/// A cell that is checked by `check`.
pub(crate) fn offered<R>(check: impl FnOnce(Clients) -> R + Send + 'static) -> Cell
where
    R: Future<Output = anyhow::Result<()>> + 'static,
{
    Cell::Offered(Box::new(|clients| Box::pin(check(clients))))
}

impl Cell {
    /// The same, but only on demand.
    pub(crate) fn on_demand(self) -> Self {
        match self {
            Self::Offered(check) => Self::OnDemand(check),
            other => other,
        }
    }
}
