//! Compares what a component imports and exports with the interface, before anything of it runs.
//!
//! The engine would refuse a misfit too, but names only the first one, and never a hook whose name is mistyped: that
//! would just not be called.

use std::collections::BTreeMap;

use wasmtime::Engine;
use wasmtime::component::Component;
use wasmtime::component::types::{ComponentInstance, ComponentItem};
use wit_parser::{Resolve, WorldItem};

use crate::interface::{WIT, WORLD};
use crate::shape;

const PACKAGE: &str = "pointsman:policy";
const LIFECYCLE: &str = "lifecycle";
const WITHOUT_WASI: &str = "a policy has no clock, files, network or randomness; build it without WASI: \
    Rust for the target wasm32-unknown-unknown, C without stdio, Go with an adapter that stubs WASI, \
    componentize-py with --stub-wasi, jco with --backend-qjs-stub-wasi --backend-qjs-disable-async";

/// Functions by name, each with its type as text.
type Functions = BTreeMap<String, String>;

/// The interface as a table.
#[derive(Debug)]
pub(crate) struct Offer {
    /// `major.minor.patch` of the package.
    version: String,
    /// Interfaces that a policy may import.
    imports: BTreeMap<String, Functions>,
    /// Interfaces that a policy may export.
    exports: BTreeMap<String, Functions>,
}

impl Offer {
    /// Reads it from the WIT text that the bindings were generated from.
    pub(crate) fn new() -> Result<Self, String> {
        let mut resolve = Resolve::default();
        let package =
            resolve.push_str("policy.wit", WIT).map_err(|error| format!("policy.wit: {error:#}"))?;
        let world = resolve
            .select_world(&[package], Some(WORLD))
            .map_err(|error| format!("policy.wit: {error:#}"))?;
        let version =
            resolve.packages[package].name.version.as_ref().map(ToString::to_string).unwrap_or_default();
        let table = |items: &mut dyn Iterator<Item = &WorldItem>| {
            let mut interfaces = BTreeMap::new();
            for item in items {
                if let WorldItem::Interface { id, .. } = item {
                    let interface = &resolve.interfaces[*id];
                    let functions = interface
                        .functions
                        .iter()
                        .map(|(name, function)| (name.clone(), shape::of_wit(&resolve, function)));
                    interfaces.insert(interface.name.clone().unwrap_or_default(), functions.collect());
                }
            }
            interfaces
        };
        let world = &resolve.worlds[world];
        Ok(Self {
            version,
            imports: table(&mut world.imports.values()),
            exports: table(&mut world.exports.values()),
        })
    }

    /// All differences, one line each; none when the component fits.
    pub(crate) fn differences(&self, engine: &Engine, component: &Component) -> Vec<String> {
        let ty = component.component_type();
        let mut found = Vec::new();
        let mut wasi = Vec::new();
        for (name, item) in ty.imports(engine) {
            if name.starts_with("wasi") {
                wasi.push(name.to_owned());
            } else {
                self.import(engine, name, &item.ty, &mut found);
            }
        }
        if !wasi.is_empty() {
            found.push(format!("it imports {}: {WITHOUT_WASI}", wasi.join(", ")));
        }
        let mut exported = Vec::new();
        for (name, item) in ty.exports(engine) {
            if let Some(interface) = self.export(engine, name, &item.ty, &mut found) {
                exported.push(interface);
            }
        }
        self.complete(&exported, &mut found);
        found
    }

    fn import(&self, engine: &Engine, name: &str, item: &ComponentItem, found: &mut Vec<String>) {
        let Some(Name { interface, version }) = Name::parse(name) else {
            found.push(format!("it imports `{name}`, and a policy can import interfaces of {PACKAGE} only"));
            return;
        };
        if !self.compatible(version) {
            found.push(format!("it imports `{name}`, this server offers {PACKAGE} {}", self.version));
            return;
        }
        let Some(offered) = self.imports.get(interface) else {
            let known = names(&self.imports);
            found.push(format!("it imports `{name}`, which is not offered; offered are {known}"));
            return;
        };
        let ComponentItem::ComponentInstance(instance) = item else {
            found.push(format!("it imports `{name}`, but not as an interface"));
            return;
        };
        for (function, wanted) in functions(engine, instance) {
            match offered.get(&function) {
                None => found.push(format!(
                    "it imports `{function}: {wanted}` of `{name}`, which {PACKAGE} {} does not have yet",
                    self.version
                )),
                Some(offered) if *offered != wanted => found.push(format!(
                    "it imports `{function}` of `{name}` as `{wanted}`, this server has it as `{offered}`"
                )),
                Some(_) => {}
            }
        }
    }

    /// Gives the name of the interface when it is one of ours.
    fn export(
        &self,
        engine: &Engine,
        name: &str,
        item: &ComponentItem,
        found: &mut Vec<String>,
    ) -> Option<String> {
        // What toolchains export beside (`init`, `exports`) is none of our business, but `on-action` alone is a
        // mistake: only `pointsman:policy/on-action` is a hook.
        let Some(Name { interface, version }) = Name::parse(name) else {
            if self.exports.contains_key(name) {
                found.push(format!("it exports `{name}`, did you mean `{PACKAGE}/{name}@{}`?", self.version));
            }
            return None;
        };
        if !self.compatible(version) {
            found.push(format!("it exports `{name}`, this server calls {PACKAGE} {}", self.version));
            return Some(interface.to_owned());
        }
        let Some(called) = self.exports.get(interface) else {
            if interface != "types" {
                let known = names(&self.exports);
                found.push(format!("it exports `{name}`, which would never be called; known are {known}"));
            }
            return None;
        };
        let ComponentItem::ComponentInstance(instance) = item else {
            found.push(format!("it exports `{name}`, but not as an interface"));
            return Some(interface.to_owned());
        };
        let exported = functions(engine, instance);
        for (function, wanted) in called {
            match exported.get(function) {
                None => found.push(format!("its `{name}` lacks `{function}: {wanted}`")),
                Some(has) if has != wanted => {
                    found.push(format!(
                        "its `{name}` has `{function}` as `{has}`, this server calls it as `{wanted}`"
                    ));
                }
                Some(_) => {}
            }
        }
        Some(interface.to_owned())
    }

    fn complete(&self, exported: &[String], found: &mut Vec<String>) {
        if !exported.iter().any(|name| name == LIFECYCLE) {
            found.push(format!(
                "it does not export `{PACKAGE}/{LIFECYCLE}@{}`, so it can't be configured",
                self.version
            ));
        }
        if !exported.iter().any(|name| name != LIFECYCLE) {
            let hooks: Vec<&str> =
                self.exports.keys().map(String::as_str).filter(|name| *name != LIFECYCLE).collect();
            found.push(format!("it exports none of {}, so it would never be called", hooks.join(", ")));
        }
    }

    /// Before 1.0 the minor number is what must be equal.
    fn compatible(&self, version: &str) -> bool {
        let line = |version: &str| version.rsplit_once('.').map(|(line, _)| line.to_owned());
        line(version).is_some() && line(version) == line(&self.version)
    }
}

/// `pointsman:policy/INTERFACE@VERSION`, taken apart.
struct Name<'a> {
    interface: &'a str,
    version: &'a str,
}

impl<'a> Name<'a> {
    fn parse(name: &'a str) -> Option<Self> {
        let rest = name.strip_prefix(PACKAGE)?.strip_prefix('/')?;
        let (interface, version) = rest.split_once('@').unwrap_or((rest, ""));
        Some(Self { interface, version })
    }
}

fn functions(engine: &Engine, instance: &ComponentInstance) -> Functions {
    let function = |item| match item {
        ComponentItem::ComponentFunc(function) => Some(shape::of_component(&function)),
        ComponentItem::Resource(_) => Some("resource".to_owned()),
        _ => None,
    };
    instance.exports(engine).filter_map(|(name, item)| Some((name.to_owned(), function(item.ty)?))).collect()
}

fn names(interfaces: &BTreeMap<String, Functions>) -> String {
    interfaces.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
}
