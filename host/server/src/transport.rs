//! What the port needs beside gRPC: to outlive floods of connections, and answers that clients can take.

use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use tonic::codegen::http::{HeaderValue, Response};

/// Pause after a connection that could not be accepted, for want of file descriptors above all: trying again at once
/// would keep a processor busy with it.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// So many failures are one line of the log.
const LOGGED_EVERY: u64 = 100;

/// Encoded bytes of an error's text. Bazel and others take 8 KiB of headers in all, and see no error at all if there
/// are more; names that clients gave, and that texts repeat, may be of any length.
const MESSAGE_MAX_BYTES: usize = 4 << 10;

/// Connections, without those that failed.
pub(crate) fn accepted<C, E: std::fmt::Display>(
    incoming: impl Stream<Item = Result<C, E>>,
) -> impl Stream<Item = Result<C, E>> {
    let mut failures = 0_u64;
    incoming.filter_map(move |connection| {
        let logged = connection.is_err() && failures.is_multiple_of(LOGGED_EVERY);
        failures += u64::from(connection.is_err());
        async move {
            match connection {
                Ok(connection) => Some(Ok(connection)),
                Err(error) => {
                    if logged {
                        tracing::error!(%error, "a connection could not be accepted: if there are too many open files, raise LimitNOFILE, or end clients");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    None
                }
            }
        }
    })
}

/// Shells and service managers allow a process a thousand open files unless it asks for more, for the sake of programs
/// that this one is not; a scheduler has a connection for each client and worker.
pub(crate) fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the number of open files could not be raised");
    }
}

/// Shortens the text of an error that would be refused for its length.
pub(crate) fn short_message<B>(mut response: Response<B>) -> Response<B> {
    if let Some(text) = response.headers_mut().get_mut("grpc-message")
        && text.len() > MESSAGE_MAX_BYTES
        && let Ok(short) = HeaderValue::from_bytes(&text.as_bytes()[..cut(text.as_bytes())])
    {
        *text = short;
    }
    response
}

/// Where to cut percent-encoded UTF-8: not inside an escape, and not inside a character.
fn cut(text: &[u8]) -> usize {
    let mut end = MESSAGE_MAX_BYTES;
    end -= match text[..end] {
        [.., b'%'] => 1,
        [.., b'%', _] => 2,
        _ => 0,
    };
    while let [b'%', b'8' | b'9' | b'A' | b'B' | b'a' | b'b', ..] = text[end..] {
        if end < 3 {
            break;
        }
        end -= 3;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        let long = "x".repeat(MESSAGE_MAX_BYTES - 1);
        for (text, kept) in [("", 0), ("yz", 1), ("%20", 0), ("%C3%A9", 0), ("%E2%82%ACz", 0)] {
            let text = format!("{long}{text}");
            let mut response = Response::new(());
            response.headers_mut().insert("grpc-message", text.parse().unwrap());
            let response = short_message(response);
            assert_eq!(response.headers()["grpc-message"].as_bytes(), &text.as_bytes()[..long.len() + kept]);
        }
        let euros = "%E2%82%AC".repeat(1000);
        assert_eq!(cut(euros.as_bytes()) % 9, 0);
    }
}
