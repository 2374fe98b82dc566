//! Tests of the policy host through its public interface. Hostile guests are text, so none of it needs a Wasm target.

mod answers;
mod default;
mod guests;
mod hostile;
mod refused;
mod support;
mod swap;
mod watch;
