//! RequestMetadata: what clients say of themselves in a header.

use pointsman_proto::pack_encoded;
use pointsman_proto::rev2::RequestMetadata;
use prost::Message as _;
use prost_types::Any;
use tonic::metadata::MetadataMap;

use crate::driver::TraceContext;

/// REv2's header, and the one of its predecessor that Pants 2.17 still sends.
const HEADERS: [&str; 2] = [
    "build.bazel.remote.execution.v2.requestmetadata-bin",
    "google.devtools.remoteexecution.v1test.requestmetadata-bin",
];

/// Reads the header, and keeps it as it came for whoever it is passed on to. What can't be read is as good as absent,
/// since REv2 makes it optional.
pub fn request_metadata(headers: &MetadataMap) -> Option<(RequestMetadata, Any)> {
    let value = HEADERS.iter().find_map(|h| headers.get_bin(*h))?;
    let bytes = value.to_bytes().ok()?;
    let metadata = RequestMetadata::decode(&bytes[..]).ok()?;
    Some((metadata, pack_encoded::<RequestMetadata>(bytes.into())))
}

/// Bytes of a `tracestate`; the standard lets whoever passes it on drop what is longer than 512.
const TRACE_STATE_MAX_BYTES: usize = 512;

/// Reads the W3C trace context. One that is malformed is as good as absent, as the standard has it: the trace begins
/// anew with whoever comes next.
pub fn trace_context(headers: &MetadataMap) -> Option<Box<TraceContext>> {
    let text = |name| headers.get(name).and_then(|v| v.to_str().ok());
    let parent = text("traceparent").filter(|p| is_traceparent(p))?;
    let state = text("tracestate").filter(|s| s.len() <= TRACE_STATE_MAX_BYTES).unwrap_or_default();
    Some(Box::new(TraceContext { parent: parent.to_owned(), state: state.to_owned() }))
}

/// Version, trace, span and flags in lower-case hexadecimal digits; newer versions may have more behind them.
fn is_traceparent(text: &str) -> bool {
    let mut parts = text.split('-');
    let mut digits = |n: usize| {
        let is_digit = |b: &u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        parts.next().filter(|p| p.len() == n && p.as_bytes().iter().all(is_digit))
    };
    let [Some(version), Some(trace), Some(span), Some(_)] = [2, 32, 16, 2].map(&mut digits) else {
        return false;
    };
    let is_zero = |id: &str| id.bytes().all(|b| b == b'0');
    version != "ff" && !is_zero(trace) && !is_zero(span) && (version != "00" || parts.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn read(parent: &str, state: &str) -> Option<(String, String)> {
        let mut headers = MetadataMap::new();
        headers.insert("traceparent", parent.parse().unwrap());
        headers.insert("tracestate", state.parse().unwrap());
        trace_context(&headers).map(|c| (c.parent, c.state))
    }

    #[test]
    fn a_trace_context_is_taken_as_it_is_or_not_at_all() {
        let newer = format!("01-{}-more", &PARENT[3..]);
        for parent in [PARENT, &newer] {
            assert_eq!(read(parent, "a=1,b=2"), Some((parent.to_owned(), "a=1,b=2".to_owned())));
        }
        assert_eq!(read(PARENT, &"x".repeat(513)), Some((PARENT.to_owned(), String::new())));
        let (more, version) = (format!("{PARENT}-more"), format!("ff{}", &PARENT[2..]));
        let zero = PARENT.replace("b7ad6b7169203331", "0000000000000000");
        for parent in ["", "00", &PARENT[1..], &PARENT.to_uppercase(), &more, &version, &zero] {
            assert_eq!(read(parent, "a=1"), None, "{parent}");
        }
    }
}
