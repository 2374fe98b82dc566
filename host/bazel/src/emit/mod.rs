//! The files by which Bazel and Buck2 use the pools of a scheduler.

mod bazel;
mod bazelrc;
mod buck;
mod constraints;
mod names;
mod starlark;

use crate::label::Label;
use crate::version::Version;

/// All that the files are made of.
#[derive(Clone, Debug)]
pub struct Site {
    /// The file that says so, for whoever reads the files.
    pub source: String,
    /// Which Bazel.
    pub version: Version,
    /// Where the files go, below the top of the workspace: `platforms`, or `build/platforms`.
    pub package: String,
    /// Where the scheduler is, as HOST:PORT.
    pub address: String,
    /// The pools, the first choice first.
    pub pools: Vec<Pool>,
    /// The host.
    pub host: Host,
}

/// A kind of workers.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// The properties of its workers.
    pub properties: Vec<Property>,
    /// Its platform, where the workspace has one already; then none is written.
    pub platform: Option<Label>,
    /// How its actions may run.
    pub strategies: Vec<String>,
    /// What else its platform is: labels of constraint values. Empty: what follows from the properties.
    pub constraint_values: Vec<String>,
    /// Things that no platform can say.
    pub notes: Vec<String>,
}

/// A property of a pool's workers.
#[derive(Clone, Debug)]
pub struct Property {
    /// Its key.
    pub key: String,
    /// Its values, one at least.
    pub values: Vec<String>,
    /// Actions use it up.
    pub is_amount: bool,
}

/// The host that runs Bazel.
#[derive(Clone, Debug)]
pub struct Host {
    /// Its platform.
    pub platform: Label,
    /// How its actions may run.
    pub strategies: Vec<String>,
}

/// A file to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its path below the top of the workspace.
    pub path: String,
    /// What it holds.
    pub text: String,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Emitted {
    /// The files.
    pub files: Vec<File>,
    /// What the reader should know and the files can't mend.
    pub warnings: Vec<String>,
}

/// Why there are no files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmitError {
    /// Nothing to write.
    #[error(
        "{source_file} declares no pools; add pools: [{{ name: \"…\", platform: {{ … }} }}], one for each kind of worker that builds are to tell apart"
    )]
    NoPools {
        /// The file.
        source_file: String,
    },
    /// Two targets with one name.
    #[error("the pool {pool:?} needs a target {target:?}, which is {other}; give the pool another name")]
    Clash {
        /// The pool.
        pool: String,
        /// The target's name.
        target: String,
        /// Who has it.
        other: String,
    },
}

/// Makes the files.
///
/// # Errors
/// There are no pools, or two of them need a target of one name.
pub fn emit(site: &Site) -> Result<Emitted, EmitError> {
    if site.pools.is_empty() {
        return Err(EmitError::NoPools { source_file: site.source.clone() });
    }
    names::check(site.pools.iter().map(|pool| &*pool.name))?;
    let files = vec![
        File { path: format!("{}/BUILD.bazel", site.package), text: bazel::package(site) },
        File { path: format!("{}/pointsman.bazelrc", site.package), text: bazelrc::fragment(site) },
        File { path: format!("{}/BUCK", site.package), text: buck::package(site) },
        File { path: format!("{}/defs.bzl", site.package), text: buck::rules(site) },
        File { path: format!("{}/pointsman.buckconfig", site.package), text: buck::config(site) },
    ];
    Ok(Emitted { files, warnings: warnings(site) })
}

/// Pools that the scheduler can't tell apart by what their platforms ask for.
fn warnings(site: &Site) -> Vec<String> {
    let mut warnings = Vec::new();
    for (index, pool) in site.pools.iter().enumerate() {
        let same = |before: &&Pool| before.platform.is_none() && before.asked() == pool.asked();
        if let Some(before) = site.pools[..index].iter().find(same).filter(|_| pool.platform.is_none()) {
            warnings.push(format!(
                "the platforms of the pools {:?} and {:?} ask for the same, so the scheduler can't tell their actions apart; give \
                 their workers a property that differs and is no amount, such as Pool",
                before.name, pool.name
            ));
        }
    }
    warnings
}

impl Pool {
    /// What actions of its platform ask for: one value of each property, and no amounts.
    fn asked(&self) -> Vec<(String, String)> {
        let asked = self.properties.iter().filter(|property| !property.is_amount);
        asked.filter_map(|property| Some((property.key.clone(), property.values.first()?.clone()))).collect()
    }

    /// What a reader of its platform should know.
    fn remarks(&self) -> Vec<String> {
        let amounts = self.properties.iter().filter(|property| property.is_amount).map(|property| {
            format!(
                "{} is an amount (its workers have {}), which each action would take all of; ask for some of it by exec_properties of a target.",
                property.key,
                property.values.join(", ")
            )
        });
        let several =
            self.properties.iter().filter(|property| !property.is_amount && property.values.len() > 1);
        let several = several.map(|property| {
            format!(
                "Its workers have several {}: {}. An action can ask for one.",
                property.key,
                property.values.join(", ")
            )
        });
        amounts.chain(several).chain(self.notes.iter().cloned()).collect()
    }

    /// The label of its platform in Bazel.
    pub fn label(&self, package: &str) -> String {
        match &self.platform {
            Some(label) => label.to_string(),
            None => format!("//{package}:{}", names::sanitised(&self.name)),
        }
    }

    fn is_remote(&self) -> bool {
        self.strategies.iter().any(|strategy| strategy == "remote" || strategy.starts_with("dynamic"))
    }

    fn is_local(&self) -> bool {
        self.strategies.iter().any(|strategy| strategy != "remote")
    }
}

impl Site {
    /// Who wrote a file.
    fn header(&self, about: &str) -> String {
        format!("Written by `pointsman bazel flags` from {}: change that, not this.\n{about}", self.source)
    }
}

#[cfg(test)]
mod tests;
