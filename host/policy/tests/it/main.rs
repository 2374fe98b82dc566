//! Tests of the policy host through its public interface. Hostile guests are text, so none of it needs a Wasm target.

mod default;
mod support;
