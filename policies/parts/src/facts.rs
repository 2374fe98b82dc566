//! What is known about the action of one call, asked for when it is needed and then kept for the rest of the call: a
//! question costs more than what most parts do with the answer.

use std::cell::{OnceCell, RefCell};

use pointsman_policy_sdk::{Property, action, command, route};

/// The facts of one action, and its platform as decided so far.
#[derive(Debug, Default)]
pub struct Facts {
    instance: OnceCell<String>,
    mnemonic: OnceCell<String>,
    target: OnceCell<String>,
    tool: OnceCell<String>,
    tool_version: OnceCell<String>,
    principal: OnceCell<String>,
    invocation: OnceCell<String>,
    correlated: OnceCell<String>,
    executable: OnceCell<String>,
    arguments: OnceCell<Vec<String>>,
    outputs: OnceCell<Vec<String>>,
    environment: RefCell<Vec<(String, Option<String>)>>,
    platform: RefCell<Option<Vec<Property>>>,
}

macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident: $ask:path;)+) => {
        $(
            $(#[$doc])*
            pub fn $name(&self) -> &str {
                self.$name.get_or_init($ask)
            }
        )+
    };
}

impl Facts {
    texts! {
        /// Instance name.
        instance: action::instance_name;
        /// Mnemonic, empty for clients that name none.
        mnemonic: action::mnemonic;
        /// Label of the target, empty for clients that name none.
        target: action::target_id;
        /// Name of the client.
        tool: action::tool_name;
        /// Version of the client.
        tool_version: action::tool_version;
        /// Authenticated caller.
        principal: action::principal;
        /// Id of the client's invocation.
        invocation: action::invocation_id;
        /// Id that several invocations have in common.
        correlated: action::correlated_invocations_id;
    }

    /// The program that is run, without its folder.
    pub fn executable(&self) -> &str {
        self.executable.get_or_init(|| {
            let path = command::argument(0).unwrap_or_default();
            crate::basename(&path).to_owned()
        })
    }

    /// All arguments; the first one is the program.
    pub fn arguments(&self) -> &[String] {
        self.arguments.get_or_init(command::arguments)
    }

    /// Declared outputs.
    pub fn outputs(&self) -> &[String] {
        self.outputs.get_or_init(command::output_paths)
    }

    /// Looks at the value of an environment variable.
    pub fn environment<R>(&self, name: &str, look: impl FnOnce(Option<&str>) -> R) -> R {
        let mut known = self.environment.borrow_mut();
        let index = known.iter().position(|(other, _)| other == name).unwrap_or_else(|| {
            known.push((name.to_owned(), command::environment(name)));
            known.len() - 1
        });
        look(known[index].1.as_deref())
    }

    /// The first value of a property, as decided so far.
    pub fn property(&self, name: &str) -> Option<String> {
        match &*self.platform.borrow() {
            Some(platform) => {
                platform.iter().find(|known| known.name == name).map(|known| known.value.clone())
            }
            None => route::platform_value(name),
        }
    }

    /// Has a property a value that will do, as decided so far? A property may have several.
    pub fn has_value(&self, name: &str, will_do: impl Fn(&str) -> bool) -> bool {
        // Most have one, and asking for that costs less than for all properties.
        if self.platform.borrow().is_none() {
            match route::platform_value(name) {
                None => return false,
                Some(value) if will_do(&value) => return true,
                Some(_) => {}
            }
        }
        self.platform(|all| all.iter().any(|known| known.name == name && will_do(&known.value)))
    }

    /// Looks at all properties, as decided so far.
    pub fn platform<R>(&self, look: impl FnOnce(&[Property]) -> R) -> R {
        look(self.platform.borrow_mut().get_or_insert_with(route::platform))
    }

    /// Decides the platform anew.
    pub fn set_platform(&self, platform: &[Property]) {
        route::set_platform(platform);
        // The server puts it in order; whoever looks gets it from there.
        *self.platform.borrow_mut() = None;
    }

    /// Takes a property out of the platform, so that matching does not see it.
    pub fn remove_property(&self, name: &str) {
        route::remove_property(name);
        if let Some(platform) = &mut *self.platform.borrow_mut() {
            platform.retain(|known| known.name != name);
        }
    }
}
