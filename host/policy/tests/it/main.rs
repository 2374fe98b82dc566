//! Tests of the policy host through its public interface. Hostile guests are text, so none of it needs a Wasm target.

#![allow(clippy::unwrap_used, clippy::field_reassign_with_default)]

mod answers;
mod boxed;
mod default;
mod golden;
mod guests;
mod hostile;
mod hostile_hooks;
mod hostile_life;
mod lifecycle;
mod managed;
mod refused;
mod support;
mod swap;
mod watch;
