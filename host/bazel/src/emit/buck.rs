//! The same for Buck2: a package, the rules that it is made of, and lines of a `.buckconfig`.

use super::names::{REGISTRATION, SETTING, THIS_HOST, constraint, sanitised};
use super::starlark::{call, comment, dict, list, string};
use super::{Pool, Site, constraints};

const PUBLIC: &str = "[\"PUBLIC\"]";

pub(super) fn package(site: &Site) -> String {
    let first = constraint(&sanitised(&site.pools[0].name));
    let about = format!(
        "\nA target asks for a pool by its constraint:\n    exec_compatible_with = [\"root//{}:{first}\"],\nWhat asks for none goes to the first \
         platform of {REGISTRATION} that it can run on.",
        site.package,
    );
    let mut parts = vec![
        comment(&site.header(&about)),
        "load(\"@prelude//platforms:defs.bzl\", \"host_configuration\")\nload(\":defs.bzl\", \"execution_platforms\", \"pool_platform\")\n".to_owned(),
        call("constraint_setting", &[("name", string(SETTING)), ("visibility", PUBLIC.to_owned())]),
    ];
    parts.extend(site.pools.iter().map(pool));
    parts.push(host());
    let platforms = site.pools.iter().map(|pool| format!(":{}", sanitised(&pool.name)));
    let platforms: Vec<String> = platforms.chain([format!(":{THIS_HOST}")]).collect();
    let arguments =
        [("name", string(REGISTRATION)), ("platforms", list(&platforms)), ("visibility", PUBLIC.to_owned())];
    parts.push(comment("In the order in which they are tried.") + &call("execution_platforms", &arguments));
    parts.join("\n")
}

fn pool(pool: &Pool) -> String {
    let name = sanitised(&pool.name);
    let value = constraint(&name);
    let arguments = [
        ("name", string(&value)),
        ("constraint_setting", string(&format!(":{SETTING}"))),
        ("visibility", PUBLIC.to_owned()),
    ];
    let mut text = call("constraint_value", &arguments);
    text.push('\n');
    for remark in pool.remarks() {
        text.push_str(&comment(&remark));
    }
    let (own, unknown) = constraints::buck(pool);
    for value in unknown {
        text.push_str(&comment(&format!("{value} has no counterpart here.")));
    }
    let mut values =
        list(&std::iter::once(format!(":{value}")).chain(own.iter().cloned()).collect::<Vec<_>>());
    if own.is_empty() {
        text.push_str(&comment("Nothing says what its workers are, so they are taken to be as this host."));
        values.push_str(" + [\n        host_configuration.cpu,\n        host_configuration.os,\n    ]");
    }
    let arguments = [
        ("name", string(&name)),
        ("constraint_values", values),
        ("local", flag(pool.is_local())),
        ("properties", dict(&pool.asked())),
        ("remote", flag(pool.is_remote())),
        ("visibility", PUBLIC.to_owned()),
    ];
    text.push_str(&call("pool_platform", &arguments));
    text
}

fn flag(on: bool) -> String {
    if on { "True".to_owned() } else { "False".to_owned() }
}

fn host() -> String {
    let values = "[\n        host_configuration.cpu,\n        host_configuration.os,\n    ]".to_owned();
    let arguments = [
        ("name", string(THIS_HOST)),
        ("constraint_values", values),
        ("local", flag(true)),
        ("remote", flag(false)),
        ("visibility", PUBLIC.to_owned()),
    ];
    call("pool_platform", &arguments)
}

/// The two rules.
pub(super) fn rules(site: &Site) -> String {
    comment(&site.header("Rules for Buck2; Bazel has no use for them.")) + RULES
}

const RULES: &str = r#"
def _pool_platform(ctx):
    constraints = {}
    for value in ctx.attrs.constraint_values:
        constraints.update(value[ConfigurationInfo].constraints)
    if ctx.attrs.remote:
        executor = CommandExecutorConfig(
            local_enabled = ctx.attrs.local,
            remote_enabled = True,
            use_limited_hybrid = ctx.attrs.local,
            remote_execution_properties = ctx.attrs.properties,
            remote_execution_use_case = "buck2-default",
            remote_output_paths = "output_paths",
        )
    else:
        executor = CommandExecutorConfig(local_enabled = True, remote_enabled = False)
    return [
        DefaultInfo(),
        ExecutionPlatformInfo(
            label = ctx.label.raw_target(),
            configuration = ConfigurationInfo(constraints = constraints, values = {}),
            executor_config = executor,
        ),
    ]

pool_platform = rule(
    impl = _pool_platform,
    attrs = {
        "constraint_values": attrs.list(attrs.dep(providers = [ConfigurationInfo])),
        "local": attrs.bool(),
        "properties": attrs.dict(key = attrs.string(), value = attrs.string(), default = {}),
        "remote": attrs.bool(),
    },
)

def _execution_platforms(ctx):
    return [
        DefaultInfo(),
        ExecutionPlatformRegistrationInfo(
            platforms = [platform[ExecutionPlatformInfo] for platform in ctx.attrs.platforms],
        ),
    ]

execution_platforms = rule(
    impl = _execution_platforms,
    attrs = {
        "platforms": attrs.list(attrs.dep(providers = [ExecutionPlatformInfo])),
    },
)
"#;

/// The lines of a `.buckconfig`.
pub(super) fn config(site: &Site) -> String {
    let about = format!("In .buckconfig:\n    <file:{}/pointsman.buckconfig>", site.package);
    let address = &site.address;
    format!(
        "{}\n[build]\nexecution_platforms = root//{}:{REGISTRATION}\n\n[buck2]\ndigest_algorithms = SHA256\n\n[buck2_re_client]\n\
         engine_address = grpc://{address}\naction_cache_address = grpc://{address}\ncas_address = grpc://{address}\ntls = false\n",
        comment(&site.header(&about)),
        site.package,
    )
}
