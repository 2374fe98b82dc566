//! What an action finds in its environment: what its Command sets, then what its scheduler and this worker offer.
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
    let offered = offers.flat_map(|offer| offer.variables.into_iter().rev()).filter(can_be);
    let own = EnvironmentVariable { name: SIZE_CLASS_VARIABLE.to_owned(), value: size_class.to_string() };
    for EnvironmentVariable { name, value } in offered.chain([own]) {
        if environment.iter().all(|(known, _)| *known != name) {
            environment.push((name, value));
        }
    }
    environment
}

/// A process can be started with it: an offer must not keep an action from running.
fn can_be(variable: &EnvironmentVariable) -> bool {
    let EnvironmentVariable { name, value } = variable;
    !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
}
