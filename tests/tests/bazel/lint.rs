//! `pointsman bazel lint` in workspaces with and without faults: each fault with its line, and nothing else.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use pointsman_tests::harness::cli;
use serde_json::Value;

use super::write;

fn workspaces() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bazel/workspaces")
}

/// `arguments` of a workspace, with the files that they name.
fn arguments(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("arguments")).unwrap_or_default();
    let word = |word: &str| {
        let file = folder.join(word);
        if file.is_file() { file.to_string_lossy().into_owned() } else { word.to_owned() }
    };
    let rc = folder.join(".bazelrc").to_string_lossy().into_owned();
    ["bazel", "lint", "--output", "json", "--bazelrc", &rc]
        .map(str::to_owned)
        .into_iter()
        .chain(text.split_whitespace().map(word))
        .collect()
}

/// A finding as `expected` has it.
fn line(finding: &Value) -> String {
    let text = |key: &str| finding[key].as_str().unwrap_or_default();
    let file = Path::new(text("file")).file_name().map(|name| name.to_string_lossy().into_owned());
    let place = file.map_or_else(|| "-".to_owned(), |file| format!("{file}:{}", finding["line"]));
    format!("{place} {} {}", text("code"), text("severity"))
}

#[tokio::test]
async fn each_fault_is_found_with_its_line_and_nothing_else() -> anyhow::Result<()> {
    let (mut good, mut bad) = (0, 0);
    for entry in std::fs::read_dir(workspaces())? {
        let folder = entry?.path();
        let name = folder.display().to_string();
        let expected = std::fs::read_to_string(folder.join("expected")).with_context(|| name.clone())?;
        let words = arguments(&folder);
        let run = cli(&words.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        let run = run.expect_code(i32::from(!expected.is_empty()))?;
        let mut values = serde_json::Deserializer::from_str(&run.text).into_iter::<Value>();
        let report = values.next().transpose()?.with_context(|| format!("{name}: nothing is printed"))?;
        let findings = report["findings"].as_array().context("no findings")?;
        for finding in findings {
            for key in ["what", "why", "do"] {
                ensure!(finding[key].as_str().is_some_and(|text| text.len() > 5), "{name}: {finding:#}");
            }
        }
        let mut found: Vec<String> = findings.iter().map(line).collect();
        let mut wanted: Vec<&str> = expected.lines().collect();
        found.sort();
        wanted.sort_unstable();
        ensure!(found == wanted, "{name}: found {found:#?}\nwanted {wanted:#?}\n{report:#}");
        *(if expected.is_empty() { &mut good } else { &mut bad }) += 1;
    }
    ensure!(good >= 3 && bad >= 9, "only {good} good and {bad} bad workspaces");
    Ok(())
}

#[tokio::test]
async fn what_can_not_be_read_ends_with_64_and_says_where() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    for (text, told) in [
        ("\nimport %workspace%/absent", ":2: import of "),
        ("import %workspace%/.bazelrc", ":1: import of "),
        ("import", ":1: import takes one path"),
        ("build --config=ci", ":1: --config=ci is defined in no section that `bazel build` reads"),
        (
            "build:a --config=b\nbuild:b --config=a\nbuild --config=a",
            ":2: --config=a is a part of itself (a -> b -> a)",
        ),
        ("build:a --config b\nbuild:b --jobs=1\nbuild --config=a", ":1: within a config"),
    ] {
        let rc = write(folder.path(), ".bazelrc", text)?;
        let run = cli(&["bazel", "lint", "--bazelrc", &rc]).await?.expect_code(64)?;
        ensure!(run.text.contains(&format!("{rc}{told}")), "{text:?}: {}", run.text);
    }
    for words in [
        &["--bazelrc", "/no/such/file"][..],
        &["--bazelrc", "/dev/null", "--bazel", "newest"],
        &["--bazelrc", "/dev/null", "--platform", "//a b"],
        &["--bazelrc", "/dev/null", "--platforms", "/no/such/file"],
        &["--bazelrc", "/dev/null", "--command", "query"],
        &["--bazelrc", "/dev/null", "--config", "/no/such/file"],
    ] {
        let run = cli(&[&["bazel", "lint"], words].concat()).await?.expect_code(64)?;
        ensure!(!run.text.is_empty(), "{words:?} is refused without a word");
    }
    Ok(())
}

#[tokio::test]
async fn a_table_tells_place_reason_and_remedy() -> anyhow::Result<()> {
    let rc = workspaces().join("bad_executor/.bazelrc").to_string_lossy().into_owned();
    let run = cli(&["bazel", "lint", "--bazelrc", &rc]).await?.expect_code(1)?;
    for part in [&*format!("{rc}:2: warning[no-executor]: "), "\n  why: ", "\n  do:  ", "1 finding"] {
        ensure!(run.text.contains(part), "{part:?} is not in\n{}", run.text);
    }
    let clean = cli(&["bazel", "lint", "--bazelrc", &rc, "--remote"]).await?.expect_code(0)?;
    ensure!(clean.text == format!("{rc}: ok\n"), "{}", clean.text);
    Ok(())
}
