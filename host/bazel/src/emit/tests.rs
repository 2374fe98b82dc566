//! The files for a few pools, compared with what they are to be. `BLESS=1 cargo test -p pointsman-bazel golden` writes them anew.

use std::path::Path;

use super::{Host, Pool, Property, Site, emit};
use crate::label::Label;

fn property(key: &str, values: &[&str]) -> Property {
    let values = values.iter().map(|value| (*value).to_owned()).collect();
    Property { key: key.to_owned(), values, is_amount: key == "cpu_count" }
}

fn pool(name: &str, properties: Vec<Property>) -> Pool {
    Pool {
        name: name.to_owned(),
        properties,
        platform: None,
        strategies: vec!["remote".to_owned()],
        constraint_values: Vec::new(),
        notes: Vec::new(),
    }
}

fn site(version: &str) -> Site {
    let linux = || vec![property("OSFamily", &["linux"]), property("ISA", &["x86-64", "x86-64-v3"])];
    let small = pool(
        "linux small",
        [linux(), vec![property("Pool", &["small"]), property("cpu_count", &["4"])]].concat(),
    );
    let gpu = Pool {
        constraint_values: vec![
            "@platforms//os:linux".to_owned(),
            "@platforms//cpu:arm64".to_owned(),
            "//c:gpu".to_owned(),
        ],
        strategies: vec!["remote".to_owned(), "local".to_owned()],
        notes: vec![
            "Only workers of size class 4 are of this pool, and no platform asks for one: a policy does."
                .to_owned(),
        ],
        ..pool("gpu", vec![property("Pool", &["gpu \"a\""])])
    };
    let odd = pool("odd", vec![property("Pool", &["odd"])]);
    let own = Pool { platform: Some(Label::parse("//toolchains:own").unwrap()), ..pool("own", Vec::new()) };
    Site {
        source: "pools.json5".to_owned(),
        version: version.parse().unwrap(),
        package: "platforms".to_owned(),
        address: "scheduler:8980".to_owned(),
        pools: vec![small, gpu, odd, own],
        host: Host {
            platform: Label::host(),
            strategies: ["worker", "sandboxed", "local"].map(str::to_owned).to_vec(),
        },
    }
}

fn golden(version: &str, folder: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(folder);
    let emitted = emit(&site(version)).unwrap();
    for file in &emitted.files {
        let path = folder.join(&file.path);
        if std::env::var_os("BLESS").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &file.text).unwrap();
        }
        let wanted = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(file.text, wanted, "{}", path.display());
    }
    assert_eq!(emitted.warnings, [""; 0]);
}

#[test]
fn golden_files_for_bazel_9() {
    golden("9.0.0", "bazel9");
}

#[test]
fn golden_files_for_bazel_7() {
    golden("7.7.1", "bazel7");
}

#[test]
fn pools_that_ask_for_the_same_are_told() {
    let mut site = site("9.0.0");
    site.pools =
        vec![pool("a", vec![property("cpu_count", &["1"])]), pool("b", vec![property("cpu_count", &["8"])])];
    let warnings = emit(&site).unwrap().warnings;
    assert!(
        matches!(&warnings[..], [one] if one.contains("\"a\" and \"b\" ask for the same")),
        "{warnings:?}"
    );
}

#[test]
fn without_pools_there_is_nothing_to_write() {
    let site = Site { pools: Vec::new(), ..site("9.0.0") };
    assert!(emit(&site).unwrap_err().to_string().contains("pools.json5 declares no pools"));
}

/// What is written is what the lint wants.
#[test]
fn the_lint_finds_nothing_in_what_is_written() {
    for version in ["9.0.0", "7.7.1"] {
        let site = site(version);
        let folder = tempfile::tempdir().unwrap();
        for file in emit(&site).unwrap().files {
            let path = folder.path().join(&file.path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, file.text).unwrap();
        }
        let rc = crate::rc::read(&folder.path().join("platforms/pointsman.bazelrc"), folder.path()).unwrap();
        let pools = site.pools.iter().map(|pool| crate::lint::PoolPlatform {
            pool: pool.name.clone(),
            platform: Label::parse(&pool.label(&site.package)).unwrap(),
            strategies: pool.strategies.clone(),
        });
        let around = crate::lint::Surroundings {
            os: crate::model::Os::Linux,
            version: site.version,
            configs: Vec::new(),
            commands: vec!["test".to_owned()],
            registered: Vec::new(),
            pools: pools.collect(),
            pools_file: None,
            remote: true,
        };
        assert_eq!(crate::lint::lint(&rc, &around).unwrap(), [], "{version}");
    }
}
