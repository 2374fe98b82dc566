//! Makes a component of the core module that a compiler wrote.

use std::borrow::Cow;

use wit_component::{ComponentEncoder, metadata};

/// Bytes 4 to 8 of a core module: version 1, layer 0. A component has another layer.
const CORE_MODULE: &[u8] = b"\0asm\x01\0\0\0";

/// A module that can't be made a component.
#[derive(Debug, thiserror::Error)]
#[error("can't make a component of this core module: {0}")]
pub struct ComponentizeError(String);

/// Wraps a core module whose interface was embedded by `wit-bindgen`, as the Rust SDK and C do.
///
/// # Errors
/// When the module is none, has no interface embedded, or does not fit it.
pub fn componentize(core_module: &[u8]) -> Result<Vec<u8>, ComponentizeError> {
    // Without this look it would become a component without exports, and the reader wonder where theirs went.
    if let Ok((None, _)) = metadata::decode(core_module) {
        let text = "it is a core module without an embedded interface; build it with the policy SDK or `wit-bindgen`";
        return Err(ComponentizeError(text.into()));
    }
    ComponentEncoder::default()
        .validate(true)
        .module(core_module)
        .and_then(|mut encoder| encoder.encode())
        .map_err(|error| ComponentizeError(format!("{error:#}")))
}

/// The component that a policy file holds. What `cargo build` wrote is good enough: it is wrapped here, so that an
/// author needs no other tool.
pub(crate) fn component_of(file: &[u8]) -> Result<Cow<'_, [u8]>, ComponentizeError> {
    if file.starts_with(CORE_MODULE) { componentize(file).map(Cow::Owned) } else { Ok(Cow::Borrowed(file)) }
}
