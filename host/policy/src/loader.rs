//! From bytes to a policy that is compiled, checked against the interface, and configured.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use wasmtime::component::Component;

use crate::componentize::component_of;
use crate::cwasm::CompiledCache;
use crate::decision::PolicyId;
use crate::engine::Ticking;
use crate::error::LoadError;
use crate::golden;
use crate::interface::{Instance, Loaded, Manifest};
use crate::policy::{Common, Isolation, Parts, Policy};
use crate::preflight::Offer;
use crate::tally::count;

/// Everything that loading needs.
pub(crate) struct Loader {
    pub(crate) ticking: Ticking,
    pub(crate) offer: Offer,
    pub(crate) cache: CompiledCache,
    /// Instances that each policy keeps.
    pub(crate) instances: usize,
    pub(crate) common: Arc<Common>,
}

/// How a policy is to be loaded.
#[derive(Clone, Debug, Default)]
pub(crate) struct How<'a> {
    /// Its configuration, as JSON.
    pub(crate) config: &'a str,
    pub(crate) isolation: Isolation,
    pub(crate) on_trial: bool,
}

impl Loader {
    /// Loads a component, or a core module with the interface embedded.
    pub(crate) fn load(&self, bytes: &[u8], how: &How<'_>) -> Result<Policy, LoadError> {
        self.load_quietly(bytes, how).inspect_err(|_| count(&self.common.counters.refused_loads))
    }

    fn load_quietly(&self, bytes: &[u8], how: &How<'_>) -> Result<Policy, LoadError> {
        let limit = self.common.limits.component_bytes;
        if bytes.len() > limit {
            return Err(LoadError::TooLarge { bytes: bytes.len(), limit });
        }
        let digest_hex = digest_hex(bytes);
        let component = self.compile(bytes)?;
        let engine = &self.ticking.engine;
        let differences = self.offer.differences(engine, &component);
        if !differences.is_empty() {
            return Err(LoadError::Interface { differences });
        }
        let loaded = Loaded::new(engine, &component)
            .map_err(|text| LoadError::Interface { differences: vec![text] })?;
        let common = &self.common;
        count(&common.counters.instances);
        let (first, configured) = Instance::new(&loaded, how.config, &common.limits, &common.sources, None)
            .map_err(LoadError::Failed)?;
        let (manifest, command_when) = configured.map_err(|problems| LoadError::Config { problems })?;
        let parts = Parts {
            id: identity(&manifest, digest_hex)?,
            config: how.config.into(),
            config_schema: manifest.config_schema.map(Into::into),
            loaded,
            command_when,
            isolation: how.isolation,
            on_trial: how.on_trial,
            first,
            instances: self.instances,
        };
        let policy = Policy::new(parts, common.clone());
        golden::check(&policy, bytes)?;
        Ok(policy)
    }

    fn compile(&self, bytes: &[u8]) -> Result<Component, LoadError> {
        // Most often it is something else altogether, and what the engine says then has eight lines.
        if !bytes.starts_with(b"\0asm") {
            let start = bytes[..bytes.len().min(8)].escape_ascii();
            let text = match bytes {
                [] => "it is empty".into(),
                _ => format!("it begins with \"{start}\", and WebAssembly with \"\\0asm\""),
            };
            return Err(LoadError::NotAComponent(text));
        }
        let component = component_of(bytes).map_err(|error| LoadError::NotAComponent(error.to_string()))?;
        let (component, _) = self.cache.component(&component).map_err(LoadError::NotAComponent)?;
        Ok(component)
    }
}

/// SHA-256 in lower-case hex.
pub fn digest_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Names are shown in logs, pages and messages, so they have to be short and plain.
fn identity(manifest: &Manifest, digest_hex: String) -> Result<PolicyId, LoadError> {
    for (what, text) in [("name", &manifest.name), ("version", &manifest.version)] {
        let plain = text.chars().all(|c| c.is_ascii_graphic());
        if text.is_empty() || text.len() > 100 || !plain {
            let text: String = text.chars().take(100).collect();
            let text = format!("{what} {text:?} is not 1 to 100 printable ASCII characters without spaces");
            return Err(LoadError::Manifest(text));
        }
    }
    Ok(PolicyId {
        name: manifest.name.as_str().into(),
        version: manifest.version.as_str().into(),
        digest_hex: digest_hex.into(),
    })
}
