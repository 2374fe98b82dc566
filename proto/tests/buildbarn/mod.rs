//! Buildbarn's messages as its workers send them: written down by hand, not derived from our definitions.
use crate::facts::{Facts, Key, fold};

/// Package, then indented below: a message or service, then `number type name`.
const TABLE: &str = "
buildbarn.remoteactionrouter
  RouteActionRequest
    1 string instance_name
    2 REV2.DigestFunction.Value digest_function
    3 REV2.Action action
    4 REV2.RequestMetadata request_metadata
  RouteActionResponse
    1 REV2.Action action
    4 repeated google.protobuf.Any invocation_keys
buildbarn.remoteworker
  SynchronizeRequest
    1 map string string worker_id
    2 string instance_name_prefix
    3 REV2.Platform platform
    4 buildbarn.remoteworker.CurrentState current_state
    5 uint32 size_class
    6 bool prefer_being_idle
  CurrentState
    1 oneof worker_state google.protobuf.Empty idle
    2 oneof worker_state buildbarn.remoteworker.CurrentState.Executing executing
  CurrentState.Executing
    1 REV2.Digest action_digest
    2 oneof execution_state google.protobuf.Empty started
    3 oneof execution_state google.protobuf.Empty fetching_inputs
    4 oneof execution_state google.protobuf.Empty running
    5 oneof execution_state google.protobuf.Empty uploading_outputs
    6 oneof execution_state REV2.ExecuteResponse completed
  SynchronizeResponse
    1 google.protobuf.Timestamp next_synchronization_at
    2 buildbarn.remoteworker.DesiredState desired_state
  DesiredState
    1 oneof worker_state google.protobuf.Empty idle
    2 oneof worker_state buildbarn.remoteworker.DesiredState.Executing executing
  DesiredState.Executing
    1 REV2.Digest action_digest
    2 REV2.Action action
    4 google.protobuf.Timestamp queued_timestamp
    6 repeated google.protobuf.Any auxiliary_metadata
    7 string instance_name_suffix
    8 map string string w3c_trace_context
    9 REV2.DigestFunction.Value digest_function
buildbarn.resourceusage
  FilePoolResourceUsage
    1 uint64 files_created
    2 uint64 files_count_peak
    3 uint64 files_size_bytes_peak
    4 uint64 reads_count
    5 uint64 reads_size_bytes
    6 uint64 writes_count
    7 uint64 writes_size_bytes
    8 uint64 truncates_count
  InputRootResourceUsage
    1 uint64 directories_resolved
    2 uint64 directories_read
    3 uint64 files_read
  MonetaryResourceUsage
    1 map string buildbarn.resourceusage.MonetaryResourceUsage.Expense expenses
  MonetaryResourceUsage.Expense
    1 string currency
    2 double cost
  POSIXResourceUsage
    1 google.protobuf.Duration user_time
    2 google.protobuf.Duration system_time
    3 int64 maximum_resident_set_size
    7 int64 page_reclaims
    8 int64 page_faults
    9 int64 swaps
    10 int64 block_input_operations
    11 int64 block_output_operations
    12 int64 messages_sent
    13 int64 messages_received
    14 int64 signals_received
    15 int64 voluntary_context_switches
    16 int64 involuntary_context_switches
    17 string termination_signal
";

/// Package, service, method, request and response.
const METHODS: [[&str; 5]; 2] = [
    ["remoteactionrouter", "ActionRouter", "RouteAction", "RouteActionRequest", "RouteActionResponse"],
    ["remoteworker", "OperationQueue", "Synchronize", "SynchronizeRequest", "SynchronizeResponse"],
];

/// The table with the services of Buildbarn that we define.
pub(crate) fn table() -> Facts {
    let mut facts = Facts::new();
    let (mut package, mut message) = ("", String::new());
    for line in TABLE.lines().filter(|l| !l.is_empty()) {
        match line.len() - line.trim_start().len() {
            0 => package = line,
            2 => {
                message = fold(format!("{package}.{}", line.trim()).split('.'));
                facts.insert(message.clone(), Default::default());
            }
            _ => {
                let (number, what) = line.trim().split_once(' ').unwrap();
                let fields = facts.get_mut(&message).unwrap();
                fields.insert(Key::Number(number.parse().unwrap()), description(what));
            }
        }
    }
    for [package, service, method, request, response] in METHODS {
        let name = |what: &str| fold(["buildbarn", package, what]);
        let path = Key::Method(format!("/buildbarn.{package}.{service}/{method}"));
        facts.insert(name(service), [(path, format!("{} -> {}", name(request), name(response)))].into());
    }
    facts
}

/// Folds type names, which are the words with dots.
fn description(what: &str) -> String {
    let what = what.replace("REV2", "build.bazel.remote.execution.v2");
    let words = what.split(' ').map(|w| if w.contains('.') { fold(w.split('.')) } else { w.to_owned() });
    words.collect::<Vec<_>>().join(" ")
}

/// Buildbarn compares the type of an `Any` by its exact name, which the table above folds.
#[test]
fn resource_usage_has_exact_names() {
    use pointsman_proto::{pack, resourceusage::PosixResourceUsage};
    let any = pack(&PosixResourceUsage::default());
    assert_eq!(any.type_url, "type.googleapis.com/buildbarn.resourceusage.POSIXResourceUsage");
}
