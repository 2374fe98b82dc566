//! Write a Pointsman routing policy in Rust.
//!
//! A policy is one type that implements [`Policy`], and one line that exports it:
//!
//! ```
//! use pointsman_policy_sdk::{Config, ConfigError, Policy, Rejection, action, export_policy, route};
//!
//! struct BigLinks;
//!
//! impl Policy for BigLinks {
//!     const NAME: &'static str = "big-links";
//!     const VERSION: &'static str = "1.0.0";
//!
//!     fn configure(config: &str) -> Result<Self, Vec<ConfigError>> {
//!         Config::parse(config)?.finish()?;
//!         Ok(Self)
//!     }
//!
//!     fn route(&self) -> Result<(), Rejection> {
//!         if action::mnemonic() == "CppLink" {
//!             route::set_property("memory", "large");
//!             route::note("links go to large workers");
//!         }
//!         Ok(())
//!     }
//! }
//!
//! export_policy!(BigLinks);
//! ```
//!
//! Policies with more hooks name them: `export_policy!(BigLinks, on_worker, on_result)` also exports
//! [`Policy::admit`] and [`Policy::completed`].
//!
//! Built for `wasm32-unknown-unknown`, the modules [`action`], [`command`], [`route`] and [`host`] (and [`worker`] and
//! [`terms`] in [`Policy::admit`]) are the server's.
//! Built natively, they speak of the call that a test describes with [`testing`], so that a policy is tested with
//! plain `cargo test`. Signatures are those of `wit/policy.wit`, which also says what each function means.
//!
//! [`route::set_environment`] tells the action itself something, such as how many processes it may start. Only workers of
//! Pointsman's own pass it on, and results are cached without it: what an action makes must not depend on it.
//!
//! A policy must decide by what it reads in a call and by its configuration only. The server keeps several instances
//! of it and replaces them at will: what one instance remembers, another has never seen.

#[allow(unsafe_code, missing_docs, unreachable_pub, clippy::all)]
#[doc(hidden)]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "router",
        pub_export_macro: true,
        default_bindings_module: "pointsman_policy_sdk::bindings",
        additional_derives: [PartialEq],
        generate_unused_types: true,
    });
}

/// What the hook `on-worker` needs beside.
#[allow(unsafe_code, missing_docs, unreachable_pub, clippy::all)]
#[doc(hidden)]
pub mod worker_bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "
            package pointsman:sdk;
            world admission {
                import pointsman:policy/worker@0.1.0;
                import pointsman:policy/terms@0.1.0;
                export pointsman:policy/on-worker@0.1.0;
            }",
        world: "pointsman:sdk/admission",
        with: { "pointsman:policy/types@0.1.0": crate::bindings::pointsman::policy::types },
        generate_all,
        pub_export_macro: true,
        default_bindings_module: "pointsman_policy_sdk::worker_bindings",
    });
}

/// What the hook `on-result` needs beside.
#[allow(unsafe_code, missing_docs, unreachable_pub, clippy::all)]
#[doc(hidden)]
pub mod result_bindings {
    wit_bindgen::generate!({
        path: "../../wit",
        inline: "
            package pointsman:sdk;
            world results {
                export pointsman:policy/on-result@0.1.0;
            }",
        world: "pointsman:sdk/results",
        with: { "pointsman:policy/types@0.1.0": crate::bindings::pointsman::policy::types },
        generate_all,
        pub_export_macro: true,
        default_bindings_module: "pointsman_policy_sdk::result_bindings",
        additional_derives: [PartialEq],
    });
}

mod config;
pub mod defaults;
#[cfg(not(target_family = "wasm"))]
mod native;
#[cfg(not(target_family = "wasm"))]
pub mod testing;

pub use bindings::exports::pointsman::policy::lifecycle::{ConfigError, Manifest};
pub use bindings::pointsman::policy::types::{
    Attempt, Code, CommandWhen, Exclusivity, Group, Outcome, Pool, Property, Rejection, Scope, SizeClass,
    Summary, Trigger,
};
#[cfg(target_family = "wasm")]
pub use bindings::pointsman::policy::{action, command, host, route};
pub use config::{Config, hint};
#[cfg(not(target_family = "wasm"))]
pub use native::{action, command, host, route, terms, worker};
pub use result_bindings::exports::pointsman::policy::on_result::Next;
#[cfg(target_family = "wasm")]
pub use worker_bindings::pointsman::policy::{terms, worker};

/// What an author writes. One value of the type lives in each instance of the policy.
pub trait Policy: Sized + 'static {
    /// Name under which decisions are recorded and values are stored. Keep it when the policy is changed.
    const NAME: &'static str;
    /// Version that is recorded with each decision; `env!("CARGO_PKG_VERSION")` is a good one.
    const VERSION: &'static str;

    /// JSON Schema of the configuration, for editors.
    fn config_schema() -> Option<String> {
        None
    }

    /// Reads the configuration, which is JSON (`{}` when the operator gave none), and asks for what the policy needs,
    /// e.g. by [`command::request`]. Called once per instance, before anything else.
    ///
    /// # Errors
    /// All that is wrong with the configuration, each with the place: the server then keeps the policy it has.
    fn configure(config: &str) -> Result<Self, Vec<ConfigError>>;

    /// Routes one action: reads [`action`] and [`command`], edits [`route`].
    ///
    /// # Errors
    /// A rejection ends the action; its reason is what the user sees. A panic, on the other hand, makes the server
    /// ignore this policy for this action.
    fn route(&self) -> Result<(), Rejection> {
        Ok(())
    }

    /// Sets the terms for a worker that asks to join: reads [`worker`], edits [`terms`]. Called only if the policy
    /// exports the hook `on_worker`.
    ///
    /// # Errors
    /// A rejection turns the worker away; its reason is what the worker's operator sees.
    fn admit(&self) -> Result<(), Rejection> {
        Ok(())
    }

    /// Says what happens after an attempt: reads [`action`], and edits [`route`] if the action is to run again. Called
    /// only if the policy exports the hook `on_result`.
    fn completed(&self, _attempt: &Attempt) -> Next {
        Next::Accept
    }
}

impl Rejection {
    /// A rejection without advice.
    pub fn new(code: Code, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), help: None }
    }

    /// Adds what the user can do about it.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl Property {
    /// A property from its two strings.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), value: value.into() }
    }
}

impl ConfigError {
    /// `path` is a JSON pointer into the configuration, empty for the whole of it.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

/// Exports a type that implements [`Policy`] as the policy of this crate, with the hook `on-action` and those that are
/// named after it: `on_worker`, `on_result`. Does nothing in a native build.
#[macro_export]
macro_rules! export_policy {
    ($policy:ty $(, $hook:ident)* $(,)?) => {
        #[cfg(target_family = "wasm")]
        #[allow(unsafe_code)]
        const _: () = {
            struct Component;

            ::std::thread_local! {
                static POLICY: ::std::cell::OnceCell<$policy> = const { ::std::cell::OnceCell::new() };
            }

            /// The server configures before it asks; anything else is its fault, and a trap says so.
            fn with<R>(f: impl FnOnce(&$policy) -> R) -> R {
                POLICY.with(|cell| match cell.get() {
                    Some(policy) => f(policy),
                    None => ::std::process::abort(),
                })
            }

            impl $crate::bindings::exports::pointsman::policy::lifecycle::Guest for Component {
                fn configure(
                    config: ::std::string::String,
                ) -> ::std::result::Result<$crate::Manifest, ::std::vec::Vec<$crate::ConfigError>> {
                    let policy = <$policy as $crate::Policy>::configure(&config)?;
                    // Called once, so nothing is there yet.
                    POLICY.with(|cell| cell.set(policy).ok());
                    ::std::result::Result::Ok($crate::Manifest {
                        name: <$policy as $crate::Policy>::NAME.into(),
                        version: <$policy as $crate::Policy>::VERSION.into(),
                        config_schema: <$policy as $crate::Policy>::config_schema(),
                    })
                }
            }

            impl $crate::bindings::exports::pointsman::policy::on_action::Guest for Component {
                fn route_action() -> ::std::result::Result<(), $crate::Rejection> {
                    with(|policy| $crate::Policy::route(policy))
                }
            }

            $crate::bindings::export!(Component with_types_in $crate::bindings);
            $($crate::export_hook!($hook);)*
        };
    };
}

/// One hook more, within [`export_policy`].
#[doc(hidden)]
#[macro_export]
macro_rules! export_hook {
    (on_worker) => {
        impl $crate::worker_bindings::exports::pointsman::policy::on_worker::Guest for Component {
            fn admit() -> ::std::result::Result<(), $crate::Rejection> {
                with(|policy| $crate::Policy::admit(policy))
            }
        }

        $crate::worker_bindings::export!(Component with_types_in $crate::worker_bindings);
    };
    (on_result) => {
        impl $crate::result_bindings::exports::pointsman::policy::on_result::Guest for Component {
            fn completed(attempt: $crate::Attempt) -> $crate::Next {
                with(|policy| $crate::Policy::completed(policy, &attempt))
            }
        }

        $crate::result_bindings::export!(Component with_types_in $crate::result_bindings);
    };
}
