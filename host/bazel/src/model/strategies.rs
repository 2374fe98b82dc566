//! The names of strategies, and which names mean the same one on a host.

use crate::flags::Flags;

/// All names that a strategy has on some host.
pub const STRATEGIES: [&str; 12] = [
    "remote",
    "worker",
    "sandboxed",
    "local",
    "standalone",
    "dynamic",
    "dynamic_worker",
    "linux-sandbox",
    "darwin-sandbox",
    "windows-sandbox",
    "processwrapper-sandbox",
    "docker",
];

/// The host that runs Bazel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Os {
    /// Linux.
    Linux,
    /// macOS.
    Darwin,
    /// Windows.
    Windows,
}

/// What is registered on a host. Lists are compared by what a name stands for, not by the name.
#[derive(Clone, Debug)]
pub struct Registry {
    /// Each name with the one that it stands for.
    names: Vec<(&'static str, &'static str)>,
}

impl Registry {
    /// What Bazel registers there. `dynamic_always` as since Bazel 9: before, `dynamic` was there with `--internal_spawn_scheduler` only.
    pub fn new(os: Os, flags: &Flags, dynamic_always: bool) -> Self {
        let mut names =
            vec![("remote", "remote"), ("worker", "worker"), ("local", "local"), ("standalone", "local")];
        if dynamic_always || flags.internal_spawn_scheduler.as_ref().is_some_and(|on| on.value) {
            names.extend([("dynamic", "dynamic"), ("dynamic_worker", "dynamic")]);
        }
        // `sandboxed` is the sandbox that was registered last.
        match os {
            Os::Linux => names.extend([
                ("processwrapper-sandbox", "processwrapper-sandbox"),
                ("linux-sandbox", "linux-sandbox"),
                ("sandboxed", "linux-sandbox"),
            ]),
            Os::Darwin => names.extend([
                ("processwrapper-sandbox", "processwrapper-sandbox"),
                ("darwin-sandbox", "darwin-sandbox"),
                ("sandboxed", "darwin-sandbox"),
            ]),
            Os::Windows if flags.windows_sandbox => {
                names.extend([("windows-sandbox", "windows-sandbox"), ("sandboxed", "windows-sandbox")]);
            }
            Os::Windows => {}
        }
        if flags.docker_sandbox && os != Os::Windows {
            names.push(("docker", "docker"));
        }
        Self { names }
    }

    /// What a name stands for; none if nothing of that name is registered.
    pub fn stands_for(&self, name: &str) -> Option<&'static str> {
        self.names.iter().find(|(known, _)| *known == name).map(|(_, one)| *one)
    }

    /// The names that there are.
    pub fn names(&self) -> Vec<&'static str> {
        self.names.iter().map(|(name, _)| *name).collect()
    }

    /// What is tried where no flag says anything.
    pub fn default_list(&self) -> Vec<String> {
        let all = ["remote", "worker", "sandboxed", "local"];
        all.iter().filter(|name| self.stands_for(name).is_some()).map(|name| (*name).to_owned()).collect()
    }

    /// Those of a list that another list allows, in their own order.
    pub fn allowed(&self, list: &[String], allowed: &[String]) -> Vec<String> {
        let allowed: Vec<_> = allowed.iter().filter_map(|name| self.stands_for(name)).collect();
        let is_allowed = |name: &&String| self.stands_for(name).is_some_and(|one| allowed.contains(&one));
        list.iter().filter(is_allowed).cloned().collect()
    }
}
