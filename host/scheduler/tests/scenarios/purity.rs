//! The core can't know time, I/O or async: nothing in its manifest could bring them.

#[test]
fn the_manifest_names_nothing_that_could() {
    let manifest = include_str!("../../Cargo.toml");
    let section = manifest.split("[dependencies]").nth(1).unwrap();
    let names = section.lines().map_while(|line| match line.trim() {
        end if end.starts_with('[') => None,
        line => Some(line.split(['.', ' ', '=']).next().unwrap_or_default()),
    });
    let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
    assert_eq!(names, ["foldhash", "hashbrown", "slotmap", "smallvec", "strsim", "thiserror"]);
}
