//! `pointsman bazel flags`: from the pools of a configuration to files.

use std::path::Path;

use anyhow::ensure;
use pointsman_tests::harness::cli;

use super::write;

const POOLS: &str = r#"{
  listen: "127.0.0.1:7777",
  supported_platform_properties: { Pool: "exact", OSFamily: "exact", ISA: "exact", cpu_count: "minimum" },
  pools: [
    { name: "small", platform: { Pool: "small", OSFamily: "linux", ISA: "x86-64", cpu_count: "4" } },
    { name: "gpu box", platform: { Pool: "gpu" }, size_class: 4, instance_name_prefix: "ci",
      bazel: { strategies: ["remote", "local"], constraint_values: ["@platforms//os:linux"] } },
    { name: "theirs", platform: { Pool: "theirs" }, bazel: { platform: "//toolchains:theirs" } },
  ],
  bazel: { host: { platform: "//:here", strategies: ["local"] } },
}"#;

#[tokio::test]
async fn pools_become_platforms_in_their_order() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let config = write(folder.path(), "pools.json5", POOLS)?;
    let run =
        cli(&["bazel", "flags", "--config", &config, "--package", "//build/pools"]).await?.expect_code(0)?;
    for part in [
        "==> build/pools/BUILD.bazel <==\n# Written by `pointsman bazel flags` from pools.json5",
        "build --extra_execution_platforms=//build/pools:small,//build/pools:gpu_box,//toolchains:theirs\n",
        "build --allowed_strategies_by_exec_platform=//build/pools:small=remote\n",
        "build --allowed_strategies_by_exec_platform=//build/pools:gpu_box=remote,local\n",
        "build --allowed_strategies_by_exec_platform=//:here=local\nbuild --host_platform=//:here\n",
        "        \"Pool\": \"gpu\",\n",
        "# cpu_count is an amount (its workers have 4)",
        "# Only workers of size class 4 are of this pool",
        "# Only builds with --remote_instance_name=ci",
        "# Add \":pool_theirs\" to its constraint_values.",
        "engine_address = grpc://127.0.0.1:7777\n",
        "execution_platforms = root//build/pools:execution_platforms\n",
    ] {
        ensure!(run.text.contains(part), "{part:?} is not in\n{}", run.text);
    }
    ensure!(!run.text.contains("\"cpu_count\""), "an amount is asked for by each action:\n{}", run.text);
    Ok(())
}

#[tokio::test]
async fn what_is_written_has_nothing_for_the_lint() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let top = folder.path().to_string_lossy().into_owned();
    let config = write(folder.path(), "pools.json5", POOLS)?;
    for version in ["9.0.0", "7.7.1"] {
        let words = ["bazel", "flags", "--config", &config, "--bazel", version, "--output-dir", &top];
        let run = cli(&words).await?.expect_code(0)?;
        ensure!(run.text.lines().count() == 5, "{}", run.text);
        let rc = write(folder.path(), ".bazelrc", "import %workspace%/platforms/pointsman.bazelrc\n")?;
        let words = ["bazel", "lint", "--bazelrc", &rc, "--config", &config, "--bazel", version, "--remote"];
        cli(&words).await?.expect_code(0)?;
    }
    let old = std::fs::read_to_string(folder.path().join("platforms/pointsman.bazelrc"))?;
    ensure!(!old.contains("build --allowed_strategies"), "Bazel 7 does not know it:\n{old}");
    ensure!(old.contains("build --host_platform=//platforms:this_host"), "{old}");
    Ok(())
}

#[tokio::test]
async fn files_of_others_are_not_written_over() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let top = folder.path().to_string_lossy().into_owned();
    let config = write(folder.path(), "pools.json5", POOLS)?;
    write(folder.path(), "platforms/BUCK", "# mine\n")?;
    let words = ["bazel", "flags", "--config", &config, "--output-dir", &top];
    let run = cli(&words).await?.expect_code(64)?;
    ensure!(run.text.contains("platforms/BUCK is there and was not written by this command"), "{}", run.text);
    ensure!(!Path::new(&format!("{top}/platforms/BUILD.bazel")).exists(), "half of it is written");
    Ok(())
}

#[tokio::test]
async fn pools_that_make_no_platforms_are_refused() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    for (text, told) in [
        ("{}", "declares no pools"),
        (
            "{ pools: [{ name: 'a b', platform: { Pool: 'x' } }, { name: 'a/b', size_class: 1 }] }",
            "give the pool another name",
        ),
        (
            "{ pools: [{ name: 'a', bazel: { strategies: ['local'] } }] }",
            "pools[0].bazel.strategies: lacks \"remote\"",
        ),
    ] {
        let config = write(folder.path(), "pools.json5", text)?;
        let run = cli(&["bazel", "flags", "--config", &config]).await?;
        ensure!(run.code() == 64 && run.text.contains(told), "{text}: {}", run.text);
    }
    let config = write(folder.path(), "pools.json5", POOLS)?;
    for package in ["//", "//a/../b", "//a:b", "/a", "@x//a"] {
        cli(&["bazel", "flags", "--config", &config, "--package", package]).await?.expect_code(64)?;
    }
    Ok(())
}
