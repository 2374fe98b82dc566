//! Whole files, with imports and configs.

use std::path::Path;

use super::{ExpandError, OddityKind, RcError, expand, read};
use crate::model::Os;

/// A folder with these files; `rc` is the first.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn rc(folder: &Path) -> Result<super::Rc, RcError> {
    read(&folder.join("rc"), folder)
}

fn words(text: &str, command: &str, configs: &[&str]) -> Result<Vec<String>, ExpandError> {
    let folder = folder(&[("rc", text)]);
    let configs: Vec<String> = configs.iter().map(|config| (*config).to_owned()).collect();
    let expanded = expand(&rc(folder.path()).unwrap().lines, command, &configs, Os::Linux)?;
    Ok(expanded.words.into_iter().map(|word| word.text).collect())
}

#[test]
fn imported_lines_stand_where_they_are_imported() {
    let folder = folder(&[
        ("rc", "build --a\nimport %workspace%/more\ntry-import %workspace%/absent\nbuild --c\n"),
        ("more", "build --b \\\n  --b2"),
    ]);
    let rc = rc(folder.path()).unwrap();
    let found: Vec<_> =
        rc.lines.iter().flat_map(|line| &line.words).map(|w| (&*w.text, w.place.line)).collect();
    assert_eq!(found, [("--a", 1), ("--b", 1), ("--b2", 2), ("--c", 4)]);
    assert!(rc.lines[1].place.file.ends_with("more"));
    assert!(
        matches!(&rc.oddities[..], [one] if matches!(one.kind, OddityKind::SkippedImport(_)) && one.place.line == 3)
    );
}

#[test]
fn what_bazel_does_not_start_with_is_told_with_its_line() {
    let told = |files: &[(&str, &str)]| rc(folder(files).path()).unwrap_err().to_string();
    let loops = told(&[("rc", "\nimport %workspace%/more"), ("more", "build --a\nimport %workspace%/rc")]);
    assert!(loops.contains("more:2: import of ") && loops.contains(" -> "), "{loops}");
    assert!(told(&[("rc", "build --a\nimport %workspace%/absent")]).contains("rc:2: import of "));
    assert!(told(&[("rc", "import")]).contains("rc:1: import takes one path, and here are 0"));
    assert!(told(&[("rc", "try-import a b")]).contains("here are 2"));
    assert!(told(&[]).contains("can't be read"));
}

#[test]
fn a_comment_that_goes_on_swallows_the_next_line() {
    let folder = folder(&[("rc", "build --a \\\n  --b # why \\\n  --c\nbuild --d\n")]);
    let rc = rc(folder.path()).unwrap();
    let found: Vec<_> = rc.lines.iter().flat_map(|line| &line.words).map(|word| &*word.text).collect();
    assert_eq!(found, ["--a", "--b", "--d"]);
    assert!(
        matches!(&rc.oddities[..], [one] if one.kind == OddityKind::CommentContinues(3) && one.place.line == 2)
    );
}

#[test]
fn a_command_inherits_from_weak_to_strong() {
    let text = "test --t\nbuild --b\ncommon --c\nalways --a\nrun --r\nquery --q\nbuild --b2";
    assert_eq!(words(text, "test", &[]).unwrap(), ["--a", "--c", "--b", "--b2", "--t"]);
    assert_eq!(words(text, "build", &[]).unwrap(), ["--a", "--c", "--b", "--b2"]);
    assert!(matches!(words(text, "query", &[]), Err(ExpandError::Command(..))));
}

#[test]
fn configs_are_expanded_where_they_are_named() {
    let text =
        "build --a --config=x --b\nbuild:x --x1 --config=y --x2\nbuild:y --y\ntest:x --tx\nbuild:ci --ci\n";
    assert_eq!(words(text, "build", &["ci"]).unwrap(), ["--a", "--x1", "--y", "--x2", "--b", "--ci"]);
    assert_eq!(words(text, "test", &[]).unwrap(), ["--a", "--x1", "--y", "--x2", "--tx", "--b"]);
    assert_eq!(words("build --config x\nbuild:x --y", "build", &[]).unwrap(), ["--y"]);
}

#[test]
fn the_config_of_the_system_stands_where_it_is_enabled() {
    let text = "build --a\nbuild --enable_platform_specific_config --b\nbuild:linux --l\nbuild:macos --m\n";
    assert_eq!(
        words(text, "build", &[]).unwrap(),
        ["--a", "--enable_platform_specific_config", "--l", "--b"]
    );
}

#[test]
fn configs_that_bazel_refuses_are_refused_with_their_line() {
    let told = |text: &str, configs: &[&str]| words(text, "build", configs).unwrap_err().to_string();
    let cycle = told("build:a --config=b\nbuild:b --config=a\nbuild --config=a", &[]);
    assert!(cycle.contains("rc:2: --config=a is a part of itself (a -> b -> a)"), "{cycle}");
    assert!(
        told("build --a\nbuild --config=none", &[]).contains("rc:2: --config=none is defined in no section")
    );
    assert!(told("test:t --a", &["t"]).starts_with("--config=t is defined in no section"));
    assert!(told("build:a --config b\nbuild:b --c\nbuild --config=a", &[]).contains("rc:1: within a config"));
}

/// Each level twice the one below: a file of some lines that would take for ever.
#[test]
fn what_doubles_on_each_level_ends() {
    let configs: String =
        (0..60).map(|i| format!("build:c{i} --config=c{0} --config=c{0}\n", i + 1)).collect();
    let told = words(&format!("{configs}build:c60 --x"), "build", &["c0"]).unwrap_err().to_string();
    assert!(told.contains("is too much"), "{told}");
    let chain: String = (0..5000).map(|i| format!("build:c{i} --config=c{}\n", i + 1)).collect();
    assert!(matches!(words(&chain, "build", &["c0"]), Err(ExpandError::TooMany { .. })));

    let names: Vec<String> = (0..40).map(|i| format!("f{i}")).collect();
    let texts: Vec<String> =
        (0..40).map(|i| format!("import %workspace%/f{0}\nimport %workspace%/f{0}\n", i + 1)).collect();
    let mut files: Vec<(&str, &str)> =
        names.iter().zip(&texts).map(|(name, text)| (&**name, &**text)).collect();
    files.extend([("rc", "import %workspace%/f0"), ("f40", "build --x")]);
    assert!(matches!(rc(folder(&files).path()), Err(RcError::TooMany { .. })));
}

/// Whatever a file holds, it is read or refused.
#[test]
fn any_bytes_are_read_or_refused() {
    let pieces = [
        "build",
        ":",
        " ",
        "\\",
        "\n",
        "\r\n",
        "#",
        "'",
        "\"",
        "--config",
        "=",
        "ä",
        "import ",
        "--strategy",
        ",",
        "//",
        "@",
        "(",
        "\t",
        "--no",
    ];
    let mut seed = 7_u64;
    for _ in 0..1000 {
        let mut text = String::new();
        for _ in 0..20 {
            // A linear congruential generator: which numbers is of no matter, only that they are the same each time.
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text.push_str(pieces[(seed >> 33) as usize % pieces.len()]);
        }
        let folder = folder(&[("rc", &text)]);
        let Ok(rc) = rc(folder.path()) else { continue };
        if let Ok(expanded) = expand(&rc.lines, "test", &[], Os::Linux) {
            let (flags, _) = crate::flags::Flags::read(&expanded.words);
            crate::model::Model::new(&flags, Os::Linux, crate::Version::ALLOW_LISTS);
        }
        let _ = crate::Label::parse(&text);
        let _ = crate::TargetPattern::parse(&text);
    }
}
