//! Compiled components, kept over restarts: loading one takes a millisecond, compiling it up to seconds.
//!
//! What is kept is native code, and whoever can slip in a file of their own runs what they like in this process. So it
//! lies in a folder of ours alone, is read without following links and into memory that nobody else can change, and is
//! believed only when it carries a keyed hash over its name and content. The key never leaves the folder. A compiled
//! component from anywhere else, a push or a watched file, is not even looked at: it is no component.

use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io::Read;
use std::path::Path;

use wasmtime::Engine;
use wasmtime::component::Component;

use crate::folder::{Durable, Entry, Folder, FolderError};

const KEY: &str = "key";
const SUFFIX: &str = ".cwasm";

/// More than one component ever takes.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// How much is kept.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    files: usize,
    bytes: u64,
}

const BOUNDS: Bounds = Bounds { files: 64, bytes: 1 << 30 };

/// Where a compiled component comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Compiled,
    Cached,
}

/// The cache of one engine.
pub(crate) struct CompiledCache {
    engine: Engine,
    /// What compiled code depends on beside the component: version, target and settings of the engine.
    engine_hash: [u8; 32],
    kept: Option<Kept>,
    bounds: Bounds,
}

struct Kept {
    folder: Folder,
    key: [u8; 32],
}

impl CompiledCache {
    /// A cache in the folder `cwasm` of `dir`; without one everything is compiled.
    ///
    /// # Errors
    /// When the folder is not ours alone, or no key can be made.
    pub(crate) fn open(dir: Option<&Path>, engine: &Engine) -> Result<Self, FolderError> {
        let kept = match dir {
            Some(dir) => {
                let folder = Folder::open(&dir.join("cwasm"))?;
                let key = key(&folder)?;
                Some(Kept { folder, key })
            }
            None => None,
        };
        Ok(Self { engine: engine.clone(), engine_hash: engine_hash(engine), kept, bounds: BOUNDS })
    }

    /// The component of these bytes, compiled. Whatever is wrong with the cache, it is compiled anew, and the log says
    /// why.
    ///
    /// # Errors
    /// When the bytes are no component.
    pub(crate) fn component(&self, bytes: &[u8]) -> Result<(Component, Origin), String> {
        let name = self.name(bytes);
        if let Some(kept) = &self.kept {
            match kept.component(&self.engine, &name) {
                Ok(Some(component)) => return Ok((component, Origin::Cached)),
                Ok(None) => {}
                Err(problem) => {
                    tracing::warn!(
                        "a compiled policy that was kept is not used, it is compiled again: {problem}"
                    );
                }
            }
        }
        let component = Component::from_binary(&self.engine, bytes).map_err(|error| format!("{error:#}"))?;
        if let Some(kept) = &self.kept
            && let Err(problem) = kept.keep(&name, &component, self.bounds)
        {
            tracing::warn!(
                "can't keep a compiled policy, it will be compiled again after a restart: {problem}"
            );
        }
        Ok((component, Origin::Compiled))
    }

    /// Made of the bytes themselves, so that nobody has to be believed about what they are.
    fn name(&self, bytes: &[u8]) -> String {
        let mut hasher = blake3::Hasher::new_keyed(&self.engine_hash);
        hasher.update(bytes);
        format!("{}{SUFFIX}", hasher.finalize().to_hex())
    }
}

impl Kept {
    fn component(&self, engine: &Engine, name: &str) -> Result<Option<Component>, String> {
        let Some(file) = self.folder.read(name, FILE_BYTES_MAX).map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        let place = || self.folder.path().join(name).display().to_string();
        let Some((hash, code)) = file.split_first_chunk() else {
            return Err(format!("{}: it is cut off", place()));
        };
        // Compared in constant time.
        if self.hash(name, code) != blake3::Hash::from_bytes(*hash) {
            return Err(format!("{}: it is not as this server wrote it", place()));
        }
        let component = deserialize(engine, code).map_err(|error| format!("{}: {error}", place()))?;
        // It is only about which ones go first.
        let _ = self.folder.touch(name);
        Ok(Some(component))
    }

    fn keep(&self, name: &str, component: &Component, bounds: Bounds) -> Result<(), String> {
        let code = component.serialize().map_err(|error| format!("{error:#}"))?;
        let mut file = Vec::with_capacity(code.len() + blake3::OUT_LEN);
        file.extend_from_slice(self.hash(name, &code).as_bytes());
        file.extend_from_slice(&code);
        self.folder.write(name, &file, Durable::No).map_err(|error| error.to_string())?;
        self.make_room(bounds).map_err(|error| error.to_string())
    }

    /// The name is part of it: a file under another's name is another policy's code.
    fn hash(&self, name: &str, code: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(name.as_bytes()).update(&[0]).update(code);
        hasher.finalize()
    }

    /// Removes what was not used for the longest time.
    fn make_room(&self, bounds: Bounds) -> Result<(), FolderError> {
        let mut files: Vec<Entry> =
            self.folder.list()?.into_iter().filter(|entry| entry.name.ends_with(SUFFIX)).collect();
        files.sort_by_key(|entry| std::cmp::Reverse(entry.modified));
        let mut bytes = 0_u64;
        for (index, entry) in files.iter().enumerate() {
            bytes = bytes.saturating_add(entry.bytes);
            if index >= bounds.files || bytes > bounds.bytes {
                self.folder.remove(&entry.name)?;
            }
        }
        Ok(())
    }
}

/// The only place where bytes become code that runs as part of this process.
#[allow(unsafe_code)]
fn deserialize(engine: &Engine, code: &[u8]) -> Result<Component, String> {
    // SAFETY: the bytes must come from `Component::serialize` of a Wasmtime that this engine accepts. Their keyed hash
    // was right, and only `keep` writes such hashes, over what `serialize` has just given. They were read into memory
    // of our own, so they are still what was hashed. Version and settings of the engine are part of the name, and
    // Wasmtime checks them once more.
    unsafe { Component::deserialize(engine, code) }.map_err(|error| format!("{error:#}"))
}

/// The key in the folder. One that is missing or not to be trusted is replaced, and with it all that was kept.
fn key(folder: &Folder) -> Result<[u8; 32], FolderError> {
    match folder.read(KEY, 32) {
        Ok(Some(bytes)) => match bytes.try_into() {
            Ok(key) => return Ok(key),
            Err(_) => tracing::warn!(
                file = %folder.path().join(KEY).display(),
                "the key of kept compiled policies has not 32 bytes; all are compiled again"
            ),
        },
        Ok(None) => {}
        Err(error) => {
            tracing::warn!("the key of kept compiled policies is not used, all are compiled again: {error}")
        }
    }
    let mut key = [0; 32];
    let random = Path::new("/dev/urandom");
    File::open(random).and_then(|mut file| file.read_exact(&mut key)).map_err(|error| FolderError {
        path: random.to_owned(),
        problem: format!("can't make a key of random bytes: {error}"),
    })?;
    folder.write(KEY, &key, Durable::Yes)?;
    Ok(key)
}

fn engine_hash(engine: &Engine) -> [u8; 32] {
    struct Collect(blake3::Hasher);

    impl Hasher for Collect {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }

        fn finish(&self) -> u64 {
            0 // Nobody asks: what is wanted is the long hash.
        }
    }

    let mut collect = Collect(blake3::Hasher::new());
    engine.precompile_compatibility_hash().hash(&mut collect);
    *collect.0.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;
    use std::time::{Duration, SystemTime};

    use wasm_encoder::{RawSection, Section};
    use wasmtime::Config;

    use super::*;

    fn engine() -> Engine {
        Engine::default()
    }

    fn component(name: &str) -> Vec<u8> {
        let module = wat::parse_str(format!("(module (func (export \"{name}\")))")).unwrap();
        let mut component = b"\0asm\x0d\0\x01\0".to_vec();
        RawSection { id: 1, data: &module }.append_to(&mut component);
        component
    }

    fn cache(dir: &Path) -> CompiledCache {
        CompiledCache::open(Some(dir), &engine()).unwrap()
    }

    /// Where a fresh cache gets it from; what it gives must be usable.
    fn origin(dir: &Path, bytes: &[u8]) -> Origin {
        let (component, origin) = cache(dir).component(bytes).unwrap();
        assert!(!component.serialize().unwrap().is_empty());
        origin
    }

    /// A cache with one component in it, and the file that keeps it.
    fn filled(dir: &Path) -> (Vec<u8>, PathBuf) {
        let bytes = component("a");
        assert_eq!(origin(dir, &bytes), Origin::Compiled);
        let file = dir.join("cwasm").join(cache(dir).name(&bytes));
        assert!(file.exists());
        assert_eq!(origin(dir, &bytes), Origin::Cached);
        (bytes, file)
    }

    /// What was done to the file is noticed, and mended.
    #[track_caller]
    fn assert_mended(dir: &Path, bytes: &[u8], file: &Path) {
        assert_eq!(origin(dir, bytes), Origin::Compiled);
        assert!(fs::symlink_metadata(file).unwrap().is_file());
        assert_eq!(origin(dir, bytes), Origin::Cached);
    }

    #[test]
    fn without_a_folder_everything_is_compiled() {
        let cache = CompiledCache::open(None, &engine()).unwrap();
        for _ in 0..2 {
            assert_eq!(cache.component(&component("a")).unwrap().1, Origin::Compiled);
        }
        assert!(cache.component(b"no component").is_err());
    }

    #[test]
    fn each_changed_byte_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let (bytes, file) = filled(dir.path());
        let whole = fs::read(&file).unwrap();
        for place in [0, 31, 32, whole.len() / 2, whole.len() - 1] {
            let mut changed = whole.clone();
            changed[place] ^= 1;
            fs::write(&file, changed).unwrap();
            assert_mended(dir.path(), &bytes, &file);
        }
        for cut in [0, 31, 32, whole.len() - 1] {
            fs::write(&file, &whole[..cut]).unwrap();
            assert_mended(dir.path(), &bytes, &file);
        }
    }

    #[test]
    fn code_of_another_component_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let (bytes, file) = filled(dir.path());
        let other = component("b");
        assert_eq!(origin(dir.path(), &other), Origin::Compiled);
        fs::copy(dir.path().join("cwasm").join(cache(dir.path()).name(&other)), &file).unwrap();
        assert_mended(dir.path(), &bytes, &file);
    }

    #[test]
    fn planted_files_are_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let (bytes, file) = filled(dir.path());
        // The very file that it wrote, but by way of a link, or open to others.
        let elsewhere = dir.path().join("elsewhere");
        fs::rename(&file, &elsewhere).unwrap();
        symlink(&elsewhere, &file).unwrap();
        assert_mended(dir.path(), &bytes, &file);
        fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
        assert_mended(dir.path(), &bytes, &file);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&file, Some(4711), None).unwrap();
            assert_mended(dir.path(), &bytes, &file);
        }
        // Good code without a hash, as `wasmtime compile` would make it.
        let code = engine().precompile_component(&bytes).unwrap();
        fs::write(&file, &code).unwrap();
        assert_mended(dir.path(), &bytes, &file);
        assert!(cache(dir.path()).component(&code).is_err(), "compiled code is no component");
    }

    #[test]
    fn with_another_key_nothing_is_believed() {
        let dir = tempfile::tempdir().unwrap();
        let (bytes, file) = filled(dir.path());
        let key = dir.path().join("cwasm/key");
        for bad in [&[0; 32][..], &[0; 31], b""] {
            fs::write(&key, bad).unwrap();
            assert_mended(dir.path(), &bytes, &file);
        }
        // A key that others could have put there is replaced.
        let planted = fs::read(&key).unwrap();
        fs::set_permissions(&key, Permissions::from_mode(0o666)).unwrap();
        assert_mended(dir.path(), &bytes, &file);
        assert_ne!(fs::read(&key).unwrap(), planted);
        assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o7777, 0o600);
    }

    #[test]
    fn another_engine_has_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let (bytes, _) = filled(dir.path());
        let mut config = Config::new();
        config.consume_fuel(true);
        let other = CompiledCache::open(Some(dir.path()), &Engine::new(&config).unwrap()).unwrap();
        assert_eq!(other.component(&bytes).unwrap().1, Origin::Compiled);
        assert_eq!(other.component(&bytes).unwrap().1, Origin::Cached);
        assert_eq!(origin(dir.path(), &bytes), Origin::Cached, "both are kept");
    }

    #[test]
    fn what_was_not_used_goes_first() {
        let dir = tempfile::tempdir().unwrap();
        let mut cache = cache(dir.path());
        cache.bounds.files = 2;
        let age = |name: &str, seconds: u64| {
            let path = dir.path().join("cwasm").join(cache.name(&component(name)));
            let then = SystemTime::now() - Duration::from_secs(seconds);
            File::open(path).unwrap().set_modified(then).unwrap();
        };
        cache.component(&component("a")).unwrap();
        age("a", 100);
        cache.component(&component("b")).unwrap();
        age("b", 50);
        cache.component(&component("a")).unwrap();
        cache.component(&component("c")).unwrap();
        let cached = |cache: &CompiledCache, name: &str| {
            cache
                .kept
                .as_ref()
                .unwrap()
                .component(&cache.engine, &cache.name(&component(name)))
                .unwrap()
                .is_some()
        };
        assert_eq!(["a", "b", "c"].map(|name| cached(&cache, name)), [true, false, true]);
        cache.bounds.bytes = 1;
        assert_eq!(cache.component(&component("d")).unwrap().1, Origin::Compiled);
        assert_eq!(["a", "b", "c", "d"].map(|name| cached(&cache, name)), [false; 4]);
        assert!(dir.path().join("cwasm/key").exists());
    }
}
