//! The Bazel package: a constraint that tells pools apart, and a platform for each.

use super::names::{SETTING, THIS_HOST, constraint, sanitised};
use super::starlark::{call, comment, dict, list, string};
use super::{Pool, Site, constraints};

/// What keeps a platform's actions from going remote, also where there are no lists of strategies.
const NO_REMOTE: &str = "no-remote-exec";

pub(super) fn package(site: &Site) -> String {
    let first = &site.pools[0];
    let about = format!(
        "\nA target asks for a pool by its constraint:\n    exec_compatible_with = [\"//{}:{}\"],\nWhat asks for none goes to the first \
         platform of pointsman.bazelrc that its toolchains can run on.",
        site.package,
        constraint(&sanitised(&first.name)),
    );
    let mut parts = vec![
        comment(&site.header(&about)),
        "package(default_visibility = [\"//visibility:public\"])\n".to_owned(),
        format!("constraint_setting(name = {})\n", string(SETTING)),
    ];
    parts.extend(site.pools.iter().map(pool));
    if needs_host(site) {
        parts.push(host(site));
    }
    parts.join("\n")
}

/// Whether the host has a platform of its own here: where Bazel has no list that would keep its actions from going remote.
pub(super) fn needs_host(site: &Site) -> bool {
    let remote =
        site.host.strategies.iter().any(|strategy| strategy == "remote" || strategy.starts_with("dynamic"));
    !site.version.has_allow_lists() && !remote
}

fn pool(pool: &Pool) -> String {
    let name = sanitised(&pool.name);
    let value = constraint(&name);
    let mut text = call(
        "constraint_value",
        &[("name", string(&value)), ("constraint_setting", string(&format!(":{SETTING}")))],
    );
    text.push('\n');
    if let Some(label) = &pool.platform {
        let about = format!(
            "The pool {:?} has the platform {label}, which this workspace has already.\nAdd \":{value}\" to its constraint_values.",
            pool.name
        );
        text.push_str(&comment(&about));
        return text;
    }
    for remark in pool.remarks() {
        text.push_str(&comment(&remark));
    }
    let own = constraints::bazel(pool);
    let values: Vec<String> = std::iter::once(format!(":{value}")).chain(own.iter().cloned()).collect();
    let mut arguments = vec![("name", string(&name))];
    if own.is_empty() {
        text.push_str(&comment("Nothing says what its workers are, so they are taken to be as this host; else give bazel: { constraint_values: [ … ] }."));
        arguments.push(("parents", list(&["@platforms//host:host"])));
    }
    arguments.push(("constraint_values", list(&values)));
    let asked = pool.asked();
    if !asked.is_empty() {
        arguments.push(("exec_properties", dict(&asked)));
    }
    text.push_str(&call("platform", &arguments));
    text
}

fn host(site: &Site) -> String {
    let about = format!(
        "Bazel {} has no lists of strategies. This property keeps what runs on the host from going remote.",
        site.version
    );
    let property = [(NO_REMOTE.to_owned(), "1".to_owned())];
    let arguments = [
        ("name", string(THIS_HOST)),
        ("parents", list(&[site.host.platform.to_string()])),
        ("exec_properties", dict(&property)),
    ];
    comment(&about) + &call("platform", &arguments)
}
