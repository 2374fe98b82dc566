//! A first policy: puts a remark on every decision, and renames platform properties.

use std::collections::BTreeMap;

use pointsman_policy_sdk::{Config, ConfigError, Policy, Rejection, action, defaults, export_policy, route};

/// The policy, configured. With `{"note": "hello", "rename": {"docker-image": "container-image"}}` every decision says
/// hello, and workers are matched by `container-image` where clients say `docker-image`.
#[derive(Debug)]
pub struct FirstPolicy {
    note: String,
    rename: BTreeMap<String, String>,
}

impl Policy for FirstPolicy {
    const NAME: &'static str = "first-policy";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(config: &str) -> Result<Self, Vec<ConfigError>> {
        defaults::request();
        let mut config = Config::parse(config)?;
        let note = config.string("note").unwrap_or_else(|| "hello from my first policy".into());
        let rename = config.string_map("rename").unwrap_or_default();
        config.finish()?;
        Ok(Self { note, rename })
    }

    fn route(&self) -> Result<(), Rejection> {
        defaults::apply();
        for (old, new) in &self.rename {
            if let Some(value) = route::platform_value(old) {
                route::remove_property(old);
                route::set_property(new, &value);
            }
        }
        let mnemonic = action::mnemonic();
        route::note(
            if mnemonic.is_empty() { self.note.clone() } else { format!("{}, {mnemonic}", self.note) }
                .as_str(),
        );
        Ok(())
    }
}

export_policy!(FirstPolicy);

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_policy_sdk::Property;
    use pointsman_policy_sdk::testing::{Call, run};

    #[test]
    fn renames_and_greets() {
        let mut call = Call::default();
        call.action.platform = Some(vec![Property::new("old", "x")]);
        call.action.mnemonic = "Genrule".into();
        call.route.platform = vec![Property::new("old", "x"), Property::new("other", "y")];
        let ran = run::<FirstPolicy>(r#"{"note": "hello", "rename": {"old": "new"}}"#, call).unwrap();
        assert_eq!(ran.route.platform, [Property::new("new", "x"), Property::new("other", "y")]);
        assert_eq!(ran.route.notes, ["hello, Genrule"]);
    }

    #[test]
    fn mistakes_are_told() {
        let errors = run::<FirstPolicy>(r#"{"nte": "hello"}"#, Call::default()).unwrap_err();
        assert_eq!(errors[0].message, "unknown key \"nte\": did you mean \"note\"?");
    }
}
