//! The gRPC service: takes a call, counts it, and says in its answer's metadata when something had failed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pointsman_proto::action_router::{RouteActionRequest, RouteActionResponse};
use pointsman_proto::remoteactionrouter::action_router_server::ActionRouter;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Request, Response, Status};

use super::counts::Outcome;
use super::decide::Decider;

/// Header of answers that were given without the policies: `known` or `native`. Buildbarn's scheduler does not look at it.
pub const DEGRADED: &str = "pointsman-degraded";

/// The service.
#[derive(Clone, Debug)]
pub(super) struct ActionRouterService(pub(super) Arc<Decider>);

#[tonic::async_trait]
impl ActionRouter for ActionRouterService {
    async fn route_action(
        &self,
        request: Request<RouteActionRequest>,
    ) -> Result<Response<RouteActionResponse>, Status> {
        let begun = Instant::now();
        // A tenth is for the way back: a caller whose time is over hears nothing of what we say.
        let deadline = callers_deadline(request.metadata()).map(|time| time * 9 / 10);
        let answer = self.0.answer(request.into_inner(), deadline).await;
        self.0.counts.took(begun.elapsed());
        match answer {
            Ok(answer) => {
                self.0.counts.outcome(answer.outcome);
                let mut response = Response::new(answer.response);
                if answer.outcome != Outcome::Routed {
                    let how = MetadataValue::from_static(answer.outcome.name());
                    response.metadata_mut().insert(DEGRADED, how);
                }
                Ok(response)
            }
            Err((outcome, status)) => {
                self.0.counts.outcome(outcome);
                Err(status)
            }
        }
    }
}

/// How long the caller waits, by its header `grpc-timeout`: up to eight digits and a unit.
fn callers_deadline(headers: &MetadataMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let count: u64 = digits.parse().ok().filter(|_| digits.len() <= 8)?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_callers_deadline_is_read() {
        let read = |text: &str| {
            let mut headers = MetadataMap::new();
            headers.insert("grpc-timeout", text.parse().unwrap());
            callers_deadline(&headers)
        };
        assert_eq!(read("2H"), Some(Duration::from_secs(7200)));
        assert_eq!(read("3M"), Some(Duration::from_secs(180)));
        assert_eq!(read("00000004S"), Some(Duration::from_secs(4)));
        assert_eq!(read("99999999m"), Some(Duration::from_millis(99_999_999)));
        assert_eq!(read("5u"), Some(Duration::from_micros(5)));
        assert_eq!(read("6n"), Some(Duration::from_nanos(6)));
        for text in ["", "S", "1", "1s", "-1S", "123456789S"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
