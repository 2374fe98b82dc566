//! What an action finds in its environment: what its Command sets, then what its scheduler and this worker offer.
use std::sync::Once;

use pointsman_proto::{rev2::command::EnvironmentVariable, unpack, v1::ActionEnvironment};
use prost::Name as _;
use prost_types::Any;

/// The variable that tells an action the size class of its worker (decimal), unless its Command or policy sets it.
pub const SIZE_CLASS_VARIABLE: &str = "POINTSMAN_SIZE_CLASS";

/// The environment of an action whose worker was told that of it. What is offered is no part of the Action, and so of
/// nothing that its result is cached by: it never takes the place of what the Command sets.
pub(crate) fn environment(
    of_command: Vec<EnvironmentVariable>,
    told: &[Any],
    size_class: u32,
) -> Vec<(String, String)> {
    let mut environment: Vec<_> = of_command.into_iter().map(|v| (v.name, v.value)).collect();
    let name = ActionEnvironment::full_name();
    let messages = told.iter().filter(|any| any.type_url.rsplit('/').next() == Some(&*name));
    // Later ones take precedence.
    let offers = messages.filter_map(|any| unpack::<ActionEnvironment>(any).ok()).rev();
    let offered =
        offers.flat_map(|offer| offer.variables.into_iter().rev()).filter(|v| can_be(v) && may_be_offered(v));
    let own = EnvironmentVariable { name: SIZE_CLASS_VARIABLE.to_owned(), value: size_class.to_string() };
    for EnvironmentVariable { name, value } in offered.chain([own]) {
        if environment.iter().all(|(known, _)| *known != name) {
            environment.push((name, value));
        }
    }
    environment
}

/// What says which program runs, or what is loaded into it, is for the Command alone: an offer is part of nothing that
/// results are cached by, so whoever could offer these could change every result.
fn may_be_offered(variable: &EnvironmentVariable) -> bool {
    const STEERS: [&str; 4] = ["PATH", "BASH_ENV", "ENV", "IFS"];
    let name = &*variable.name;
    let steers = STEERS.contains(&name) || name.starts_with("LD_") || name.starts_with("DYLD_");
    if steers {
        static TOLD: Once = Once::new();
        TOLD.call_once(|| {
            tracing::warn!(
                name,
                "a policy offers this variable to actions (route.set-environment), and they don't get it, nor others that \
                 say which program runs or what is loaded (PATH, ENV, BASH_ENV, IFS, LD_*, DYLD_*); have the client set it \
                 in the Command. This is said once"
            );
        });
    }
    !steers
}

/// A process can be started with it: an offer must not keep an action from running.
fn can_be(variable: &EnvironmentVariable) -> bool {
    let EnvironmentVariable { name, value } = variable;
    !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
}

#[cfg(test)]
mod tests {
    use pointsman_proto::pack;

    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Vec<EnvironmentVariable> {
        let variable = |(name, value): &(&str, &str)| EnvironmentVariable {
            name: (*name).to_owned(),
            value: (*value).to_owned(),
        };
        pairs.iter().map(variable).collect()
    }

    #[test]
    fn what_says_which_program_runs_is_for_the_command_alone() {
        let offered = [
            ("JOBS", "4"),
            ("LD_PRELOAD", "evil.so"),
            ("DYLD_INSERT_LIBRARIES", "evil.dylib"),
            ("PATH", "/evil"),
            ("ENV", "/evil.sh"),
            ("BASH_ENV", "/evil.sh"),
            ("LDFLAGS", "-O1"),
        ];
        let told = [pack(&ActionEnvironment { variables: variables(&offered) })];
        let environment = environment(variables(&[("LD_LIBRARY_PATH", "lib")]), &told, 3);
        let text = |(name, value): &(String, String)| format!("{name}={value}");
        let mut all: Vec<String> = environment.iter().map(text).collect();
        all.sort();
        assert_eq!(all, ["JOBS=4", "LDFLAGS=-O1", "LD_LIBRARY_PATH=lib", "POINTSMAN_SIZE_CLASS=3"]);
    }
}
