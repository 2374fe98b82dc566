//! What Bazel 7.7.1 makes of the files that are written for it, and of what the lint refuses.

use anyhow::ensure;
use pointsman_tests::harness::{
    Bazel, BazelVersion, Clients, Observed, Server, ServerOptions, cli, finished_operations, start_worker,
};

use super::write;

/// Two targets: one asks for the pool `big`, one for nothing.
const TARGETS: &str = r#"
genrule(name = "any", outs = ["any.txt"], cmd = "date > $@")
genrule(
    name = "big",
    outs = ["big.txt"],
    cmd = "date > $@",
    exec_compatible_with = ["//platforms:pool_big"],
)
"#;

async fn clients() -> anyhow::Result<Option<Clients>> {
    Clients::take("pointsman bazel with Bazel 7", &["bazel7"]).await
}

/// A configuration with these pools; their workers are machines like this one.
fn config(pools: &[&str]) -> String {
    let isa = if cfg!(target_arch = "aarch64") { "aarch64" } else { "x86-64" };
    let pool = |name: &&str| {
        format!(
            "{{ name: '{name}', platform: {{ Pool: '{name}', OSFamily: 'linux', ISA: '{isa}', cpu_count: '1' }} }},"
        )
    };
    let pools: String = pools.iter().map(pool).collect();
    format!(
        "{{ supported_platform_properties: {{ Pool: 'exact', OSFamily: 'exact', ISA: 'exact', cpu_count: 'minimum' }}, pools: [{pools}] }}"
    )
}

/// The sample workspace, with platforms made of these pools and a `.bazelrc` that imports the flags.
async fn workspace<'a>(clients: &'a Clients, pools: &[&str], version: &str) -> anyhow::Result<Bazel<'a>> {
    let bazel = clients.bazel(BazelVersion::Seven).await?;
    let top = bazel.file("");
    let file = write(&top, "pools.json5", &config(pools))?;
    let words =
        ["bazel", "flags", "--config", &file, "--bazel", version, "--output-dir", &top.to_string_lossy()];
    cli(&words).await?.expect_code(0)?;
    write(&top, "on_pools/BUILD", TARGETS)?;
    let rc = std::fs::read_to_string(bazel.file(".bazelrc"))?;
    write(&top, ".bazelrc", &format!("{rc}\nimport %workspace%/platforms/pointsman.bazelrc\n"))?;
    Ok(bazel)
}

/// The execution platform that Bazel gives the actions of a target.
async fn platform_of(bazel: &Bazel<'_>, target: &str) -> anyhow::Result<String> {
    let run = bazel.run(&["aquery", target]).await?.expect_code(0)?;
    let line = run.text.lines().find_map(|line| line.trim().strip_prefix("Execution platform: "));
    line.map(str::to_owned).ok_or_else(|| anyhow::anyhow!("no platform in\n{}", run.text))
}

/// The package is one, the first platform is that of whoever asks for none, and a constraint chooses another.
#[tokio::test]
async fn bazel_chooses_the_platforms_that_are_written() -> anyhow::Result<()> {
    let Some(clients) = clients().await? else { return Ok(()) };
    for (pools, first) in [(["small", "big"], "//platforms:small"), (["big", "small"], "//platforms:big")] {
        let bazel = workspace(&clients, &pools, "7.7.1").await?;
        let targets = bazel.run(&["query", "//platforms:all"]).await?.expect_code(0)?;
        for target in ["pool", "pool_big", "big", "pool_small", "small", "this_host"] {
            ensure!(targets.text.contains(&format!("//platforms:{target}\n")), "{target}:\n{}", targets.text);
        }
        bazel.run(&["build", "--nobuild", "//on_pools:all", "//:hello"]).await?.expect_code(0)?;
        ensure!(platform_of(&bazel, "//on_pools:any").await? == first, "{pools:?}");
        ensure!(platform_of(&bazel, "//on_pools:big").await? == "//platforms:big", "{pools:?}");
    }
    Ok(())
}

/// From pools to a build: what asks for a pool runs there, what asks for none in the first.
#[tokio::test]
async fn actions_run_in_the_pool_that_their_target_asks_for() -> anyhow::Result<()> {
    let Some(clients) = clients().await? else { return Ok(()) };
    let pools = ["small", "big"];
    let server = Server::start_in(&clients, &ServerOptions::default().config(&config(&pools))).await?;
    let isa = if cfg!(target_arch = "aarch64") { "ISA=aarch64" } else { "ISA=x86-64" };
    let worker = |pool: &str| {
        let property = format!("Pool={pool}");
        let words = [
            "--only-given-platform",
            "--platform",
            &property,
            "--platform",
            "OSFamily=linux",
            "--platform",
            isa,
        ];
        start_worker(&clients, &server, pool, &[&words[..], &["--platform", "cpu_count=1"]].concat())
    };
    let _workers = [worker("small")?, worker("big")?];
    let bazel = workspace(&clients, &pools, "7.7.1").await?;
    bazel.remote(&server.address(), &["build", "//on_pools:all"]).await?.expect_code(0)?;
    bazel.expect_spawns("remote")?;
    let done = finished_operations(server.channel()?).await?;
    for (output, pool) in [("any.txt", "small"), ("big.txt", "big")] {
        let made = |operation: &&Observed| operation.outputs.iter().any(|path| path.ends_with(output));
        let Some(operation) = done.iter().find(made) else {
            anyhow::bail!("nobody made {output}: {done:#?}")
        };
        ensure!(operation.worker.contains(&format!("\"hostname\":\"{pool}\"")), "{output}: {operation:#?}");
    }
    Ok(())
}

/// What is on the host's platform is kept from going remote, and `explain` says the same as Bazel.
#[tokio::test]
async fn the_hosts_actions_stay_here() -> anyhow::Result<()> {
    let Some(clients) = clients().await? else { return Ok(()) };
    let server = Server::start_in(&clients, &ServerOptions::with_worker(&[])).await?;
    let bazel = workspace(&clients, &["small", "big"], "7.7.1").await?;
    // With no other platform the host's is the first.
    let words = ["build", "//on_pools:any", "--extra_execution_platforms="];
    bazel.remote(&server.address(), &words).await?.expect_code(0)?;
    let spawns = bazel.spawns()?;
    ensure!(!spawns.is_empty() && spawns.iter().all(|spawn| !spawn.runner.contains("remote")), "{spawns:#?}");

    bazel.run(&["clean"]).await?.expect_code(0)?;
    let run = bazel.remote(&server.address(), &[&words[..], &["--spawn_strategy=remote"]].concat()).await?;
    ensure!(
        run.code() == 1
            && run.text.contains("cannot be executed with any of the available strategies: [remote]"),
        "{}",
        run.text
    );
    let rc = write(&bazel.file(""), "remote.bazelrc", "build --spawn_strategy=remote\n")?;
    let asked = ["bazel", "explain", "--bazelrc", &rc, "--bazel", "7.7.1", "--mnemonic", "Genrule"];
    let host = ["--exec-platform", "//platforms:this_host", "--tag", "no-remote-exec"];
    let told = cli(&[&asked[..], &host].concat()).await?.expect_code(1)?;
    ensure!(told.text.contains("can be run by none of [remote]"), "{}", told.text);
    Ok(())
}

/// Flags that the lint calls errors, and what Bazel says of them.
const REFUSED: [(&str, &str, &str); 10] = [
    ("build --spawn_strategy=remote,,local", "bad-value", "Empty values are not allowed"),
    ("build --spawn_strategy=wroker", "unknown-strategy", "no strategy with that identifier was registered"),
    ("build --spawn_strategy=dynamic", "unknown-strategy", "'dynamic' was requested"),
    ("build --spawn_strategy=docker", "unknown-strategy", "'docker' was requested"),
    ("build --strategy=Genrule=local,", "bad-value", "must not contain empty strings"),
    ("build --remote_local_fallback=perhaps", "bad-value", "is not a boolean"),
    ("build --strategy_regexp=(a=local", "bad-expression", "Failed to build valid regular expression"),
    ("build --allowed_strategies_by_exec_platform=//p:a=remote", "needs-bazel-9", "Unrecognized option"),
    ("build --extra_execution_platforms=//p:", "bad-label", "//p:"),
    ("build --host_platform=//p:h:h", "bad-label", "//p:h:h"),
];

/// The lint speaks of what Bazel does, not of what somebody thinks it does.
#[tokio::test]
async fn bazel_refuses_what_the_lint_refuses() -> anyhow::Result<()> {
    let Some(clients) = clients().await? else { return Ok(()) };
    let bazel = workspace(&clients, &["small"], "7.7.1").await?;
    let top = bazel.file("");
    let rc = std::fs::read_to_string(bazel.file(".bazelrc"))?;
    for (line, code, told) in REFUSED {
        let file = write(&top, ".bazelrc", &format!("{rc}{line}\n"))?;
        let number = rc.lines().count() + 1;
        let lint = cli(&["bazel", "lint", "--bazelrc", &file, "--bazel", "7.7.1"]).await?.expect_code(1)?;
        ensure!(lint.text.contains(&format!("{file}:{number}: error[{code}]")), "{line}: {}", lint.text);
        let build = bazel.run(&["build", "//on_pools:any"]).await?;
        ensure!(build.code() != 0 && build.text.contains(told), "{line}: {}", build.text);
    }
    // And takes what the lint takes.
    let odd = "build --spawn_strategy remote,standalone,processwrapper-sandbox\nbuild --strategy=Genrule= --strategy_regexp=a\\\\,b,-c=local";
    let file = write(&top, ".bazelrc", &format!("{rc}{odd}\n"))?;
    cli(&["bazel", "lint", "--bazelrc", &file, "--bazel", "7.7.1"]).await?.expect_code(0)?;
    bazel.run(&["build", "//on_pools:any"]).await?.expect_code(0)?;
    Ok(())
}
