//! A policy file that changes in the ways files do.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pointsman_policy::{Manager, Runtime, WatchOptions};

use crate::guests::Guest;
use crate::managed::{for_file, manager, wait_for};
use crate::support::{first, runtime};

fn policy(name: &str) -> Vec<u8> {
    Guest { name: name.into(), ..Guest::default() }.build()
}

/// Far longer than anything here takes.
const LONG: Duration = Duration::from_secs(30);

struct Watched {
    runtime: Arc<Runtime>,
    manager: Manager,
}

impl Watched {
    fn start(path: &Path, options: WatchOptions) -> Self {
        let runtime = Arc::new(runtime());
        let manager = manager(&runtime, for_file(path), options).unwrap();
        Self { runtime, manager }
    }

    fn in_force(&self) -> String {
        first(&self.runtime.in_force()).policy().name.to_string()
    }

    #[track_caller]
    fn expect_installed(&self, name: &str) {
        wait_for(&self.manager, &format!("{name} in force"), |link| link.active.id.name == name.into());
        assert_eq!(self.in_force(), name);
    }

    #[track_caller]
    fn expect_refused(&self, text: &str) {
        wait_for(&self.manager, text, |link| !link.last_load.ok && link.last_load.text.contains(text));
    }

    #[track_caller]
    fn expect_nothing(&self, during: Duration) {
        let before = self.manager.status()[0].history.clone();
        std::thread::sleep(during);
        assert_eq!(self.manager.status()[0].history, before);
    }
}

/// Told of changes only: a poll would come too late for these tests.
fn told() -> WatchOptions {
    WatchOptions { poll: LONG * 2, ..WatchOptions::default() }
}

/// Not told of changes at all.
fn polling() -> WatchOptions {
    WatchOptions { poll: Duration::from_millis(100), notify: false, ..WatchOptions::default() }
}

fn rename_over(path: &Path, bytes: &[u8]) {
    let beside = path.with_extension("new");
    fs::write(&beside, bytes).unwrap();
    fs::rename(&beside, path).unwrap();
}

#[test]
fn atomic_rename() {
    for options in [told(), polling()] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy.wasm");
        fs::write(&path, policy("one")).unwrap();
        let watched = Watched::start(&path, options);
        assert_eq!(watched.in_force(), "one");
        rename_over(&path, &policy("two"));
        watched.expect_installed("two");
        rename_over(&path, &policy("two"));
        watched.expect_nothing(Duration::from_millis(600));
    }
}

#[test]
fn written_in_two_halves() {
    for options in [told(), polling()] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy.wasm");
        fs::write(&path, policy("one")).unwrap();
        // Settles for so long that a busy machine does not make the pause between the halves look like the end.
        let watched = Watched::start(&path, WatchOptions { settle: Duration::from_secs(1), ..options });
        let bytes = policy("two");
        let (first, second) = bytes.split_at(bytes.len() / 2);
        let mut file = fs::File::create(&path).unwrap();
        file.write_all(first).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(watched.in_force(), "one");
        file.write_all(second).unwrap();
        drop(file);
        watched.expect_installed("two");
    }
}

#[test]
fn half_a_file_never_takes_effect() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.wasm");
    fs::write(&path, policy("one")).unwrap();
    let watched = Watched::start(&path, told());
    let bytes = policy("two");
    fs::write(&path, &bytes[..bytes.len() - 100]).unwrap();
    watched.expect_refused("it is not a WebAssembly component");
    assert_eq!(watched.in_force(), "one");
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(&bytes[bytes.len() - 100..]).unwrap();
    drop(file);
    watched.expect_installed("two");
}

#[cfg(unix)]
#[test]
fn swapped_symbolic_links() {
    use std::os::unix::fs::symlink;
    for options in [told(), polling()] {
        // As Kubernetes lays a ConfigMap out: the file links into `..data`, and that is swapped.
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (version, name) in [("..v1", "one"), ("..v2", "two")] {
            fs::create_dir(at(version)).unwrap();
            fs::write(at(version).join("policy.wasm"), policy(name)).unwrap();
        }
        symlink("..v1", at("..data")).unwrap();
        symlink("..data/policy.wasm", at("policy.wasm")).unwrap();
        let watched = Watched::start(&at("policy.wasm"), options);
        symlink("..v2", at("..data_tmp")).unwrap();
        fs::rename(at("..data_tmp"), at("..data")).unwrap();
        watched.expect_installed("two");
    }
}

#[cfg(unix)]
#[test]
fn swapped_folder() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (version, name) in [("v1", "one"), ("v2", "two")] {
        fs::create_dir(at(version)).unwrap();
        fs::write(at(version).join("policy.wasm"), policy(name)).unwrap();
    }
    symlink("v1", at("current")).unwrap();
    // Only polling sees the swap; what comes after it is told.
    let poll = Duration::from_secs(1);
    let watched =
        Watched::start(&at("current/policy.wasm"), WatchOptions { poll, ..WatchOptions::default() });
    symlink("v2", at("next")).unwrap();
    fs::rename(at("next"), at("current")).unwrap();
    watched.expect_installed("two");
    rename_over(&at("v2/policy.wasm"), &policy("three"));
    watched.expect_installed("three");
}

#[test]
fn broken_files_leave_the_version_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.wasm");
    fs::write(&path, policy("one")).unwrap();
    let watched = Watched::start(&path, told());
    rename_over(&path, b"not Wasm");
    watched.expect_refused("it is not a WebAssembly component");
    rename_over(&path, b"not Wasm");
    watched.expect_nothing(Duration::from_millis(600));
    let mut guest = Guest::default();
    guest.world = guest.world.replace("export p:lifecycle@;", "");
    rename_over(&path, &guest.build());
    watched.expect_refused("it does not export `pointsman:policy/lifecycle@0.1.0`");
    fs::remove_file(&path).unwrap();
    watched.expect_refused("can't be read");
    assert_eq!(watched.in_force(), "one");
    assert_eq!(watched.runtime.in_force().number(), 2, "nothing was put in force meanwhile");
    fs::write(&path, policy("one")).unwrap();
    watched.expect_nothing(Duration::from_millis(600));
    fs::write(&path, policy("two")).unwrap();
    watched.expect_installed("two");
}

#[test]
fn other_files_of_the_folder_do_not_matter() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.wasm");
    fs::write(&path, policy("one")).unwrap();
    let watched = Watched::start(&path, told());
    rename_over(&path, &policy("two"));
    // Somebody else writes all the time; that must not put the look at our file off.
    let started = Instant::now();
    for index in 0..100 {
        fs::write(folder.path().join("busy"), [index]).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        if watched.in_force() == "two" {
            break;
        }
    }
    watched.expect_installed("two");
    assert!(started.elapsed() < LONG);
}

#[test]
fn the_first_version_must_be_good() {
    let runtime = Arc::new(runtime());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.wasm");
    let start = || manager(&runtime, for_file(&path), told()).unwrap_err().to_string();
    let error = start();
    assert!(error.contains("policy link 'main' has no version that can be used: can't read "), "{error}");
    fs::write(&path, "rubbish").unwrap();
    let error = start();
    assert!(error.contains("policy.wasm (sha256 "), "{error}");
    assert_eq!(&*first(&runtime.in_force()).policy().name, "default");
}

#[test]
fn nothing_happens_after_a_drop() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.wasm");
    fs::write(&path, policy("one")).unwrap();
    let watched = Watched::start(&path, WatchOptions::default());
    let runtime = watched.runtime.clone();
    let number = runtime.in_force().number();
    drop(watched);
    rename_over(&path, &policy("two"));
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(&*first(&runtime.in_force()).policy().name, "one");
    assert_eq!(runtime.in_force().number(), number);
    assert_eq!(Arc::strong_count(&runtime), 1, "its thread has ended");
}
