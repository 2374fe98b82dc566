//! Where things are kept when nobody says where.

use std::path::PathBuf;

/// `$XDG_STATE_HOME/pointsman`, else `$HOME/.local/state/pointsman`, else `pointsman-data` in the current folder.
///
/// Variables that are empty or hold a relative path count as absent, as the XDG base directory rules ask.
pub(super) fn default_state_dir() -> PathBuf {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    folder("XDG_STATE_HOME")
        .or_else(|| folder("HOME").map(|home| home.join(".local/state")))
        .map_or_else(|| PathBuf::from("pointsman-data"), |state| state.join("pointsman"))
}
