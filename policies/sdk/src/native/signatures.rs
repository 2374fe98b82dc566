//! Compiles only when native functions take and give what the generated ones do.

use crate::bindings::pointsman::policy as generated;
use crate::worker_bindings::pointsman::policy as generated_for_workers;

macro_rules! same {
    ($generated:ident::$module:ident: $($function:ident($($argument:ident),*)),* $(,)?) => {
        $(
            // Both branches of one `if` must have one type.
            let _ = |choice: bool, $($argument),*| {
                if choice { super::$module::$function($($argument),*) } else { $generated::$module::$function($($argument),*) }
            };
        )*
    };
}

#[test]
#[allow(clippy::redundant_closure, unused_must_use)]
fn native_functions_have_the_generated_signatures() {
    same!(generated::action: instance_name(), digest(), has_platform(), platform(), platform_value(a), priority(), timeout_ms(),
        do_not_cache(), skip_cache_lookup(), tool_name(), tool_version(), invocation_id(), correlated_invocations_id(),
        mnemonic(), target_id(), configuration_id(), principal(), attempts(), cause());
    same!(generated::command: request(a), arguments(), argument(a), environment(a), environment_variables(), platform(),
        output_paths(), working_directory());
    same!(generated::route: platform(), platform_value(a), set_platform(a), set_property(a, b), remove_property(a), pool(),
        set_pool(a), size(), set_size(a), exclusive(), set_exclusive(a), strategies(), set_strategies(a),
        invocation_keys(), set_invocation_keys(a), priority(), set_priority(a), timeout_ms(), set_timeout_ms(a),
        set_shared(a), affinity(), set_affinity(a, b), learning_key(), set_learning_key(a), set_environment(a, b), rank_candidates(a),
        note(a));
    same!(generated::host: log(a, b), statistics(a), get(a), set(a, b, c), pools(), now());
    same!(generated_for_workers::worker: id(), instance_name_prefix(), platform(), platform_value(a), size_class(),
        principal());
    same!(generated_for_workers::terms: set_platform(a), set_property(a, b), remove_property(a), set_pool(a),
        set_size_class(a), set_strategies(a), set_max_inflight(a), set_exclusive(a), set_exclusive_below(a), note(a));
}
