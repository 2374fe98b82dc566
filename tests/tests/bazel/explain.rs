//! `pointsman bazel explain`: the steps to a strategy, or to none.

use anyhow::ensure;
use pointsman_tests::harness::cli;

use super::write;

/// The example of Bazel's proposal: a description that an expression matches, a mnemonic, and a platform with a list.
const FROB: &str = "build --strategy_regexp=Frobbing.*=local
build --strategy=FROB=sandboxed
build --allowed_strategies_by_exec_platform=//platform:macos_arm_remote_cluster=remote
";

#[tokio::test]
async fn an_action_that_nothing_can_run_is_told_with_both_lists() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let rc = write(folder.path(), ".bazelrc", FROB)?;
    let words = [
        "bazel",
        "explain",
        "--bazelrc",
        &rc,
        "--mnemonic",
        "FROB",
        "--exec-platform",
        "//platform:macos_arm_remote_cluster",
    ];
    let described = [&words[..], &["--description", "Frobbing the quzzle component"]].concat();
    let run = cli(&described).await?.expect_code(1)?;
    for part in [
        &*format!("list         [local] by --strategy_regexp=Frobbing.* ({rc}:1)"),
        &format!("allows [remote] ({rc}:3)"),
        "left         []",
        "fails        FROB can be run by none of []: asked for were [local] by",
        "No other execution platform is tried",
    ] {
        ensure!(run.text.contains(part), "{part:?} is not in\n{}", run.text);
    }
    // Another description, and the mnemonic's list counts, of which as little is left.
    let other = [&words[..], &["--description", "Something else"]].concat();
    let run = cli(&other).await?.expect_code(1)?;
    ensure!(run.text.contains(&format!("[sandboxed] by --strategy ({rc}:2)")), "{}", run.text);
    Ok(())
}

#[tokio::test]
async fn the_strategy_that_runs_an_action_is_told() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let rc = write(folder.path(), ".bazelrc", FROB)?;
    let words = [
        "bazel",
        "explain",
        "--bazelrc",
        &rc,
        "--mnemonic",
        "BAR",
        "--exec-platform",
        "@platforms//host:host",
    ];
    let run = cli(&[&words[..], &["--tag", "no-remote", "--os", "linux"]].concat()).await?.expect_code(0)?;
    for part in
        ["has no list", "tried        remote: the action is tagged no-remote", "runs         sandboxed"]
    {
        ensure!(run.text.contains(part), "{part:?} is not in\n{}", run.text);
    }
    Ok(())
}
