use tonic::Code;

/// A call that ended with this may succeed when it is made again.
///
/// `RESOURCE_EXHAUSTED` is not among them: from a store it means a full disk or a used-up quota, which does not pass in time.
pub fn is_passing(code: Code) -> bool {
    matches!(
        code,
        Code::Unavailable
            | Code::Unknown
            | Code::Internal
            | Code::Aborted
            | Code::Cancelled
            | Code::DeadlineExceeded
    )
}
