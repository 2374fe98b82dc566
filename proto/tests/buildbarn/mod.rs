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
buildbarn.buildqueuestate
  PaginationInfo
    1 uint32 start_index
    2 uint32 total_entries
  PlatformQueueName
    1 string instance_name_prefix
    2 REV2.Platform platform
  SizeClassQueueName
    1 buildbarn.buildqueuestate.PlatformQueueName platform_queue_name
    2 uint32 size_class
  InvocationName
    1 buildbarn.buildqueuestate.SizeClassQueueName size_class_queue_name
    2 repeated google.protobuf.Any ids
  OperationState
    1 string name
    2 buildbarn.buildqueuestate.InvocationName invocation_name
    4 google.protobuf.Timestamp queued_timestamp
    5 REV2.Digest action_digest
    7 google.protobuf.Timestamp timeout
    8 oneof stage google.protobuf.Empty queued
    9 oneof stage google.protobuf.Empty executing
    10 oneof stage REV2.ExecuteResponse completed
    11 string target_id
    12 int32 priority
    13 string instance_name_suffix
    14 google.protobuf.Duration expected_duration
    15 REV2.DigestFunction.Value digest_function
  SizeClassQueueState
    1 uint32 size_class
    2 google.protobuf.Timestamp timeout
    5 uint32 workers_count
    7 uint32 drains_count
    9 buildbarn.buildqueuestate.InvocationState root_invocation
  PlatformQueueState
    1 buildbarn.buildqueuestate.PlatformQueueName name
    2 repeated buildbarn.buildqueuestate.SizeClassQueueState size_class_queues
  InvocationState
    2 buildbarn.buildqueuestate.InvocationState.QueuedOperationsCount queued_operations_count
    4 uint32 executing_workers_count
    5 uint32 idle_workers_count
    6 uint32 idle_synchronizing_workers_count
    7 uint32 children_count
    8 uint32 active_children_count
    9 uint32 queued_children_count
  InvocationState.QueuedOperationsCount
    1 uint32 direct
    2 uint32 indirect
  InvocationChildState
    1 google.protobuf.Any id
    2 buildbarn.buildqueuestate.InvocationState state
  WorkerState
    1 map string string id
    2 google.protobuf.Timestamp timeout
    3 buildbarn.buildqueuestate.OperationState current_operation
    4 bool drained
  DrainState
    1 map string string worker_id_pattern
    2 google.protobuf.Timestamp created_timestamp
  GetOperationRequest
    1 string operation_name
  GetOperationResponse
    1 buildbarn.buildqueuestate.OperationState operation
  ListOperationsRequest
    1 uint32 page_size
    2 buildbarn.buildqueuestate.ListOperationsRequest.StartAfter start_after
    3 google.protobuf.Any filter_invocation_id
    4 REV2.ExecutionStage.Value filter_stage
  ListOperationsRequest.StartAfter
    1 string operation_name
  ListOperationsResponse
    1 repeated buildbarn.buildqueuestate.OperationState operations
    2 buildbarn.buildqueuestate.PaginationInfo pagination_info
  KillOperationsRequest
    1 buildbarn.buildqueuestate.KillOperationsRequest.Filter filter
    2 google.rpc.Status status
  KillOperationsRequest.Filter
    1 oneof type string operation_name
    2 oneof type buildbarn.buildqueuestate.SizeClassQueueName size_class_queue_without_workers
  ListPlatformQueuesResponse
    1 repeated buildbarn.buildqueuestate.PlatformQueueState platform_queues
  ListInvocationChildrenRequest
    1 buildbarn.buildqueuestate.InvocationName invocation_name
    2 buildbarn.buildqueuestate.ListInvocationChildrenRequest.Filter filter
  ListInvocationChildrenRequest.Filter
    0 ALL
    1 ACTIVE
    2 QUEUED
  ListInvocationChildrenResponse
    1 repeated buildbarn.buildqueuestate.InvocationChildState children
  ListQueuedOperationsRequest
    1 buildbarn.buildqueuestate.InvocationName invocation_name
    3 uint32 page_size
    4 buildbarn.buildqueuestate.ListQueuedOperationsRequest.StartAfter start_after
  ListQueuedOperationsRequest.StartAfter
    1 int32 priority
    2 google.protobuf.Timestamp queued_timestamp
    3 google.protobuf.Duration expected_duration
  ListQueuedOperationsResponse
    1 repeated buildbarn.buildqueuestate.OperationState queued_operations
    2 buildbarn.buildqueuestate.PaginationInfo pagination_info
  ListWorkersRequest
    1 buildbarn.buildqueuestate.ListWorkersRequest.Filter filter
    3 uint32 page_size
    4 buildbarn.buildqueuestate.ListWorkersRequest.StartAfter start_after
  ListWorkersRequest.Filter
    1 oneof type buildbarn.buildqueuestate.SizeClassQueueName all
    2 oneof type buildbarn.buildqueuestate.InvocationName executing
    3 oneof type buildbarn.buildqueuestate.InvocationName idle_synchronizing
  ListWorkersRequest.StartAfter
    1 map string string worker_id
  ListWorkersResponse
    1 repeated buildbarn.buildqueuestate.WorkerState workers
    2 buildbarn.buildqueuestate.PaginationInfo pagination_info
  TerminateWorkersRequest
    1 map string string worker_id_pattern
  ListDrainsRequest
    1 buildbarn.buildqueuestate.SizeClassQueueName size_class_queue_name
  ListDrainsResponse
    1 repeated buildbarn.buildqueuestate.DrainState drains
  AddOrRemoveDrainRequest
    1 buildbarn.buildqueuestate.SizeClassQueueName size_class_queue_name
    2 map string string worker_id_pattern
";

/// Services: package and name, then below each a method with what it takes and gives.
const SERVICES: &str = "
buildbarn.remoteactionrouter.ActionRouter
  RouteAction buildbarn.remoteactionrouter.RouteActionRequest -> buildbarn.remoteactionrouter.RouteActionResponse
buildbarn.remoteworker.OperationQueue
  Synchronize buildbarn.remoteworker.SynchronizeRequest -> buildbarn.remoteworker.SynchronizeResponse
buildbarn.buildqueuestate.BuildQueueState
  GetOperation buildbarn.buildqueuestate.GetOperationRequest -> buildbarn.buildqueuestate.GetOperationResponse
  ListOperations buildbarn.buildqueuestate.ListOperationsRequest -> buildbarn.buildqueuestate.ListOperationsResponse
  KillOperations buildbarn.buildqueuestate.KillOperationsRequest -> google.protobuf.Empty
  ListPlatformQueues google.protobuf.Empty -> buildbarn.buildqueuestate.ListPlatformQueuesResponse
  ListInvocationChildren buildbarn.buildqueuestate.ListInvocationChildrenRequest -> buildbarn.buildqueuestate.ListInvocationChildrenResponse
  ListQueuedOperations buildbarn.buildqueuestate.ListQueuedOperationsRequest -> buildbarn.buildqueuestate.ListQueuedOperationsResponse
  ListWorkers buildbarn.buildqueuestate.ListWorkersRequest -> buildbarn.buildqueuestate.ListWorkersResponse
  TerminateWorkers buildbarn.buildqueuestate.TerminateWorkersRequest -> google.protobuf.Empty
  ListDrains buildbarn.buildqueuestate.ListDrainsRequest -> buildbarn.buildqueuestate.ListDrainsResponse
  AddDrain buildbarn.buildqueuestate.AddOrRemoveDrainRequest -> google.protobuf.Empty
  RemoveDrain buildbarn.buildqueuestate.AddOrRemoveDrainRequest -> google.protobuf.Empty
";

/// The tables, with the services that we define.
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
    let mut service = "";
    for line in SERVICES.lines().filter(|l| !l.is_empty()) {
        let Some(method) = line.strip_prefix("  ") else {
            service = line;
            continue;
        };
        let (name, what) = method.split_once(' ').unwrap();
        let methods = facts.entry(fold(service.split('.'))).or_default();
        methods.insert(Key::Method(format!("/{service}/{name}")), description(what));
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
