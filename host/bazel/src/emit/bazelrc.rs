//! The fragment of a `.bazelrc`.

use super::names::THIS_HOST;
use super::starlark::comment;
use super::{Site, bazel};
use crate::label::Label;

pub(super) fn fragment(site: &Site) -> String {
    let about = format!("\nIn .bazelrc:\n    import %workspace%/{}/pointsman.bazelrc", site.package);
    let labels: Vec<String> = site.pools.iter().map(|pool| pool.label(&site.package)).collect();
    let mut parts = vec![
        comment(&site.header(&about)),
        format!(
            "{}build --extra_execution_platforms={}\n",
            comment(
                "The first that is compatible is taken. Of several such flags only the last counts, so keep them in one."
            ),
            labels.join(",")
        ),
    ];
    parts.push(if site.version.has_allow_lists() { lists(site, &labels) } else { older(site, &labels) });
    parts.join("\n")
}

/// One list for each platform.
fn lists(site: &Site, labels: &[String]) -> String {
    let line = |label: &str, strategies: &[String]| {
        format!("build --allowed_strategies_by_exec_platform={label}={}\n", strategies.join(","))
    };
    let mut text = comment(
        "What actions of each platform may run by. It takes out of what --spawn_strategy and the like ask for, and adds nothing.",
    );
    for (pool, label) in site.pools.iter().zip(labels) {
        text.push_str(&line(label, &pool.strategies));
    }
    text.push_str(&line(&site.host.platform.to_string(), &site.host.strategies));
    if site.host.platform != Label::host() {
        text.push_str(&format!("build --host_platform={}\n", site.host.platform));
    }
    text
}

/// What Bazel had before there were lists.
fn older(site: &Site, labels: &[String]) -> String {
    let mut text = comment(&format!(
        "Bazel {} has no --allowed_strategies_by_exec_platform, which came with 9.0.0.",
        site.version
    ));
    if bazel::needs_host(site) {
        text.push_str(&comment(
            "Instead, the host's platform is one whose actions are kept from going remote.",
        ));
        text.push_str(&format!("build --host_platform=//{}:{THIS_HOST}\n", site.package));
    } else if site.host.platform != Label::host() {
        text.push_str(&format!("build --host_platform={}\n", site.host.platform));
    }
    let remote: Vec<_> = site
        .pools
        .iter()
        .zip(labels)
        .filter(|(pool, _)| !pool.is_local())
        .map(|(_, label)| label.as_str())
        .collect();
    if !remote.is_empty() {
        text.push('\n');
        let about = format!(
            "No flag keeps actions of {}\nfrom running on this host when remote execution can't run them; the property no-local does \
             not, either.\nFor some mnemonics:\n    build --strategy=CppCompile=remote\nFor single mnemonics that must not go remote, whatever \
             their platform:\n    build --modify_execution_info=Mnemonic=+no-remote-exec\nAnd leave --remote_local_fallback off.",
            remote.join(", ")
        );
        text.push_str(&comment(&about));
    }
    text
}
