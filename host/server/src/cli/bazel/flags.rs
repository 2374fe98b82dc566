//! `pointsman bazel flags`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use pointsman_bazel::emit::{self, Emitted, File, Host, Property, Site};
use pointsman_bazel::{Label, Version};

use super::super::{Failure, print};
use super::rc_args::version;
use crate::config::{Config, Overrides, Pool, PropertyType};

/// Where platforms go if nobody says otherwise.
pub(super) const PACKAGE: &str = "//platforms";

/// How a file begins that may be written again.
const OURS: &str = "# Written by `pointsman bazel flags`";

#[derive(Debug, Args)]
pub(in crate::cli) struct FlagsArgs {
    /// The scheduler's configuration, which declares the pools.
    #[arg(long, short, value_name = "FILE")]
    config: PathBuf,
    /// The version of Bazel [default: that of .bazelversion in the output folder, else 9.0.0]. Before 9.0.0 there were no lists of strategies
    /// by platform, and what comes closest is written.
    #[arg(long, value_name = "VERSION")]
    bazel: Option<Version>,
    /// The package of the platforms.
    #[arg(long, value_name = "//PACKAGE", default_value = PACKAGE, value_parser = package)]
    package: String,
    /// The top of the workspace, where the files are written; without it they are printed. Files of others are not touched.
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// Where Buck2 finds the scheduler, as HOST:PORT [default: what the configuration listens on].
    #[arg(long, value_name = "HOST:PORT")]
    server: Option<String>,
}

pub(super) fn run(args: &FlagsArgs) -> Result<(), Failure> {
    let config = Config::load(&args.config, &Overrides::default())?;
    let mut site = Site {
        version: version(args.bazel, args.output_dir.as_deref()),
        ..site(&config, &args.config, &args.package)
    };
    if let Some(server) = &args.server {
        site.address.clone_from(server);
    }
    let Emitted { files, warnings } = emit::emit(&site).map_err(|error| Failure::Usage(error.to_string()))?;
    for warning in warnings {
        eprintln!("warning: {warning}");
    }
    match &args.output_dir {
        Some(folder) => write(folder, &files),
        None => print(files.iter().map(printed).collect::<Vec<_>>().join("\n").trim_end()),
    }
}

fn printed(file: &File) -> String {
    format!("==> {} <==\n{}", file.path, file.text)
}

/// Writes all of the files, or none where one is somebody else's.
fn write(folder: &Path, files: &[File]) -> Result<(), Failure> {
    for file in files {
        let path = folder.join(&file.path);
        if std::fs::read_to_string(&path).is_ok_and(|text| !text.starts_with(OURS)) {
            return Err(Failure::Usage(format!(
                "{} is there and was not written by this command, so nothing is written; move it, or choose another --package",
                path.display()
            )));
        }
    }
    for file in files {
        let path = folder.join(&file.path);
        let parent = path.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent).with_context(|| format!("{} can't be made", parent.display()))?;
        std::fs::write(&path, &file.text).with_context(|| format!("{} can't be written", path.display()))?;
        print(&path.display().to_string())?;
    }
    Ok(())
}

/// What the configuration says of the build's side, for the newest Bazel.
pub(super) fn site(config: &Config, file: &Path, package: &str) -> Site {
    let name = file.file_name().map_or_else(|| file.display().to_string(), |name| name.display().to_string());
    Site {
        source: name,
        version: Version::ALLOW_LISTS,
        package: package.to_owned(),
        address: config.listen.to_string(),
        pools: config.pools.iter().map(|one| pool(config, one)).collect(),
        host: Host {
            platform: config.bazel.host.platform.clone(),
            strategies: config.bazel.host.strategies.clone(),
        },
    }
}

fn pool(config: &Config, pool: &Pool) -> emit::Pool {
    let property = |(key, values): (&String, &Vec<String>)| Property {
        key: key.clone(),
        values: values.clone(),
        is_amount: config.platform_properties.get(key) == Some(&PropertyType::Minimum),
    };
    let class = pool.size_class.map(|class| {
        format!("Only workers of size class {class} are of this pool, and no platform asks for one: a policy does.")
    });
    let instance = pool.instance_name_prefix.as_ref().map(|prefix| {
        format!("Only builds with --remote_instance_name={prefix} reach its workers; no platform can ask for that.")
    });
    emit::Pool {
        name: pool.name.clone(),
        properties: pool
            .platform
            .iter()
            .map(property)
            .filter(|property| !property.values.is_empty())
            .collect(),
        platform: pool.bazel.platform.clone(),
        strategies: pool.bazel.strategies.clone(),
        constraint_values: pool.bazel.constraint_values.clone(),
        notes: class.into_iter().chain(instance).collect(),
    }
}

/// A package of the main repository, without its slashes.
pub(super) fn package(text: &str) -> Result<String, String> {
    let package = text.strip_prefix("//").unwrap_or(text);
    let label = Label::parse(&format!("//{package}:x"))?;
    let is_path = package.split('/').all(|part| !part.is_empty() && part.chars().any(|c| c != '.'));
    if !is_path || label.package() != package {
        return Err("give a package below the top of the workspace, such as //platforms".to_owned());
    }
    Ok(package.to_owned())
}
