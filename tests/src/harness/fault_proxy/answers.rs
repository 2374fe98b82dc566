//! Responses that the server did not give.

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{HeaderMap, Response};
use pointsman_proto::longrunning::{Operation, operation};
use pointsman_proto::pack;
use pointsman_proto::rev2::{Digest, ExecuteResponse};
use pointsman_proto::rpc::{self, PreconditionFailure, precondition_failure::Violation};
use prost::Message as _;
use tonic::{Code, Status};

/// What is passed either way.
pub(super) type Body = UnsyncBoxBody<Bytes, hyper::Error>;

/// What users see of it.
const INJECTED: &str = "injected by the test";

/// A failed call; with the details from which clients recover when something is missing.
pub(super) fn refusal(code: Code, missing: Option<&Digest>) -> Response<Body> {
    let status = match missing {
        None => Status::new(code, INJECTED),
        Some(digest) => {
            Status::with_details(code, INJECTED, status(code, Some(digest)).encode_to_vec().into())
        }
    };
    status.into_http::<Empty<Bytes>>().map(|body| body.map_err(|never| match never {}).boxed_unsync())
}

/// An `Execute` with a response that is no result.
pub(super) fn done(code: Code, missing: Option<&Digest>) -> Response<Body> {
    let response = ExecuteResponse { status: Some(status(code, missing)), ..Default::default() };
    let operation = Operation {
        name: "injected".to_owned(),
        done: true,
        result: Some(operation::Result::Response(pack(&response))),
        ..Default::default()
    };
    let message = operation.encode_to_vec();
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(message.len().try_into().unwrap_or(u32::MAX));
    frame.put_slice(&message);
    let mut response = Response::new(ending(frame.freeze(), Code::Ok));
    let content_type = hyper::header::HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, content_type);
    response
}

fn status(code: Code, missing: Option<&Digest>) -> rpc::Status {
    let violation = |digest: &Digest| Violation {
        r#type: "MISSING".to_owned(),
        subject: format!("blobs/{}/{}", digest.hash, digest.size_bytes),
        ..Default::default()
    };
    let details = missing.map(|digest| pack(&PreconditionFailure { violations: vec![violation(digest)] }));
    rpc::Status { code: code.into(), message: INJECTED.to_owned(), details: details.into_iter().collect() }
}

/// The first messages of a response, and then an end of ours. The server sees its stream reset.
pub(super) async fn first_messages(mut body: Incoming, count: usize, code: Code) -> Body {
    let mut received = BytesMut::new();
    while length(&received, count).is_none() {
        match body.frame().await {
            Some(Ok(frame)) => received.extend_from_slice(frame.data_ref().map_or(&[], |data| data)),
            // There are no more: what there is will do.
            _ => break,
        }
    }
    let wanted = length(&received, count).unwrap_or(received.len());
    ending(received.split_to(wanted).freeze(), code)
}

/// The bytes of the first so many messages, each with its five bytes of framing; `None` when they are not all there.
fn length(mut received: &[u8], count: usize) -> Option<usize> {
    let all = received.len();
    for _ in 0..count {
        let length = u32::from_be_bytes(received.get(1..5)?.try_into().ok()?);
        received = received.get(5 + usize::try_from(length).ok()?..)?;
    }
    Some(all - received.len())
}

fn ending(messages: Bytes, code: Code) -> Body {
    let mut trailers = HeaderMap::new();
    let end = Status::new(code, if code == Code::Ok { "" } else { INJECTED });
    // A code and a short text always fit.
    let _ = end.add_header(&mut trailers);
    StreamBody::new(stream::iter([Ok(Frame::data(messages)), Ok(Frame::trailers(trailers))])).boxed_unsync()
}
