//! What an instance name may be. One rule for every service.

use tonic::Status;

/// Segments that would make resource names ambiguous (REv2 reserves them).
const RESERVED: [&str; 7] =
    ["blobs", "uploads", "actions", "actionResults", "operations", "capabilities", "compressed-blobs"];

/// Longest instance name, in bytes. The protocol has no limit; names end up in keys, labels and logs.
const MAX_BYTES: usize = 1024;

/// Checks an instance name: empty, or segments joined by single slashes, none of them reserved.
///
/// # Errors
/// `INVALID_ARGUMENT` that says which rule is broken.
pub fn validate(name: &str) -> Result<(), Status> {
    match problem(name) {
        None => Ok(()),
        Some(problem) => {
            let shown: String = name.chars().take(100).collect();
            Err(Status::invalid_argument(format!("instance name {shown:?} {problem}")))
        }
    }
}

fn problem(name: &str) -> Option<String> {
    if name.is_empty() {
        return None;
    }
    if name.len() > MAX_BYTES {
        return Some(format!("has {} bytes, at most {MAX_BYTES} are allowed", name.len()));
    }
    if name.chars().any(char::is_control) {
        return Some("holds a control character".to_owned());
    }
    if name.starts_with('/') || name.ends_with('/') {
        return Some("begins or ends with a slash".to_owned());
    }
    for segment in name.split('/') {
        if segment.is_empty() {
            return Some("holds two slashes in a row".to_owned());
        }
        if RESERVED.contains(&segment) {
            return Some(format!("holds {segment:?}, which the protocol reserves for resource names"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_what_clients_send() {
        for name in ["", "main", "a/b", "remote-execution/linux x86", "blobs2", "Blobs", "ü"] {
            assert!(validate(name).is_ok(), "{name}");
        }
        assert!(validate(&"x".repeat(MAX_BYTES)).is_ok());
    }

    #[test]
    fn says_which_rule_is_broken() {
        let cases = [
            ("/a", "begins or ends with a slash"),
            ("a/", "begins or ends with a slash"),
            ("/", "begins or ends with a slash"),
            ("a//b", "holds two slashes in a row"),
            ("a/uploads/b", "holds \"uploads\", which"),
            ("compressed-blobs", "holds \"compressed-blobs\", which"),
            ("a\nb", "holds a control character"),
            (&"x".repeat(MAX_BYTES + 1), "has 1025 bytes"),
        ];
        for (name, expected) in cases {
            let status = validate(name).unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument);
            assert!(status.message().contains(expected), "{}", status.message());
        }
    }
}
