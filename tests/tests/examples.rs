//! The examples do what they say.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use pointsman::config::{Config, Overrides};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/configs")
}

#[test]
fn every_configuration_is_accepted() -> anyhow::Result<()> {
    let mut count = 0;
    for entry in std::fs::read_dir(folder())? {
        Config::load(&entry?.path(), &Overrides::default())?;
        count += 1;
    }
    ensure!(count >= 3, "only {count} examples");
    Ok(())
}

/// "Every key, with its default": both halves of it.
#[test]
fn the_full_configuration_is_the_default_one() -> anyhow::Result<()> {
    let file = folder().join("everything.json5");
    let mut shown = Config::load(&file, &Overrides::default())?.to_json();
    let empty = Config::parse("{}", "x/everything.json5").context("nothing is not accepted")?;
    let mut default = empty.to_json();
    for config in [&mut shown, &mut default] {
        for place in ["/storage/embedded/dir", "/worker/dir"] {
            // They depend on the folder of the file, or on the user's home.
            config.pointer_mut(place).with_context(|| format!("{place} is not printed"))?.take();
        }
    }
    ensure!(shown == default, "shown: {shown:#}\ndefault: {default:#}");

    let text = std::fs::read_to_string(&file)?;
    let missing = keys(&default).into_iter().find(|key| !text.contains(&format!("{key}:")));
    ensure!(missing.is_none(), "everything.json5 lacks {missing:?}");
    Ok(())
}

fn keys(value: &serde_json::Value) -> Vec<String> {
    let Some(map) = value.as_object() else { return Vec::new() };
    map.iter()
        .flat_map(|(key, value)| {
            // Keys such as container-image are quoted in the file.
            let plain = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            plain.then(|| key.clone()).into_iter().chain(keys(value))
        })
        .collect()
}
