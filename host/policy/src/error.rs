//! Why a policy could not be loaded, and why a runtime could not be made.

use crate::failure::Failure;
use crate::golden::GoldenError;
use crate::interface::ConfigProblem;

/// A policy that can't be put in force.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file is larger than a policy may be.
    #[error("the policy has {bytes} bytes, allowed are {limit}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The bytes are no component.
    #[error("it is not a WebAssembly component: {0}")]
    NotAComponent(String),
    /// It imports what is not offered, or does not export what is called.
    #[error("it does not fit the policy interface: {}", .differences.join("; "))]
    Interface {
        /// All differences.
        differences: Vec<String>,
    },
    /// It does not accept its configuration.
    #[error("it refuses its configuration: {}", listed(.problems))]
    Config {
        /// All problems, each with its place.
        problems: Vec<ConfigProblem>,
    },
    /// It failed while it was started or configured.
    #[error("it failed while it was configured: {0}")]
    Failed(Failure),
    /// Only one version is let in, and this is another.
    #[error(
        "its sha256 is {found}, and the configuration pins {pinned} (`sha256`); change or remove the pin to let it in"
    )]
    Pinned {
        /// The digest that is let in.
        pinned: String,
        /// The digest of this one.
        found: String,
    },
    /// It is not signed as it has to be.
    #[error("its signature is not accepted: {0}")]
    Signature(String),
    /// Its golden cases can't be read, or it decides otherwise than they say.
    #[error(transparent)]
    Golden(#[from] GoldenError),
    /// It decides what this server can't carry out.
    #[error("its golden case {case:?} {edit}")]
    Unserved {
        /// The case that shows it.
        case: String,
        /// What it does, and why that is of no use.
        edit: String,
    },
    /// It does not say who it is.
    #[error("its manifest can't be used: {0}")]
    Manifest(String),
}

/// A policy may find more mistakes, and say more about each, than anybody wants to read in a log.
pub(crate) fn listed(problems: &[ConfigProblem]) -> String {
    const SHOWN: usize = 10;
    const CHARS: usize = 500;
    let cut = |text: &str| text.chars().take(CHARS).collect::<String>();
    let place = |problem: &ConfigProblem| {
        let path = match &*problem.path {
            "" => "(whole configuration)".to_owned(),
            path => cut(path),
        };
        problem.place.as_ref().map_or_else(|| path.clone(), |place| format!("{place}: {path}"))
    };
    let shown = problems.iter().take(SHOWN);
    let mut lines: Vec<String> =
        shown.map(|problem| format!("{}: {}", place(problem), cut(&problem.message))).collect();
    if problems.len() > SHOWN {
        lines.push(format!("and {} more", problems.len() - SHOWN));
    }
    lines.join("; ")
}

/// A runtime that can't be made.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The Wasm engine does not work on this machine.
    #[error("can't start the policy engine: {0}")]
    Engine(String),
    /// The state folder can't be used.
    #[error("can't use the state folder of policies: {0}")]
    State(String),
    /// The default policy does not load; its configuration is the usual reason.
    #[error("can't load the built-in default policy: {0}")]
    Default(#[source] LoadError),
}
