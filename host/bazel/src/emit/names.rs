//! Names of targets from names of pools.

use std::collections::BTreeMap;

use super::EmitError;

/// The constraint that tells pools apart.
pub(super) const SETTING: &str = "pool";
/// The host, where it needs a platform of its own.
pub(super) const THIS_HOST: &str = "this_host";
/// What Buck2 is given.
pub(super) const REGISTRATION: &str = "execution_platforms";

/// A pool's name as that of a target: what Bazel, Buck2 or a shell could trip over becomes `_`.
pub(super) fn sanitised(pool: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.') { c } else { '_' };
    let name: String = pool.chars().map(plain).collect();
    // `-x` is a flag to whoever reads it, `.` and `..` are folders.
    if name.starts_with(['-', '.']) { format!("_{name}") } else { name }
}

/// The constraint value of a pool.
pub(super) fn constraint(name: &str) -> String {
    format!("{SETTING}_{name}")
}

/// Refuses pools whose targets would have one name.
pub(super) fn check<'a>(pools: impl Iterator<Item = &'a str>) -> Result<(), EmitError> {
    let mut taken: BTreeMap<String, String> = BTreeMap::new();
    for own in [SETTING, THIS_HOST, REGISTRATION] {
        taken.insert(own.to_owned(), format!("the target {own:?} that is always there"));
    }
    for pool in pools {
        let name = sanitised(pool);
        for target in [name.clone(), constraint(&name)] {
            if let Some(other) = taken.insert(target.clone(), format!("the pool {pool:?}")) {
                return Err(EmitError::Clash { pool: pool.to_owned(), target, other });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{check, sanitised};

    #[test]
    fn names_are_made_harmless() {
        assert_eq!(sanitised("linux/x86 (big)"), "linux_x86__big_");
        assert_eq!(sanitised("-x"), "_-x");
        assert_eq!(sanitised("Größe"), "Gr__e");
    }

    #[test]
    fn two_pools_have_two_names() {
        assert!(check(["a", "b", "a.b"].into_iter()).is_ok());
        let told = |pools: &[&str]| check(pools.iter().copied()).unwrap_err().to_string();
        assert!(told(&["a/b", "a b"]).contains("\"a_b\"") && told(&["a/b", "a b"]).contains("\"a/b\""));
        assert!(told(&["x", "pool_x"]).contains("\"pool_x\""));
        assert!(told(&["this_host"]).contains("always there"));
    }
}
