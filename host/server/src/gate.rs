//! Calls to services that the configuration has switched off: they are told so, and where to look.

use std::task::{Context, Poll};

use futures_util::future::{Either, Ready, ready};
use tonic::Status;
use tonic::codegen::http::{Request, Response};
use tower::{Layer, Service};

use crate::config::Services;

/// What a server has that others send it actions to.
const EXECUTION: [&str; 7] = [
    "build.bazel.remote.execution.v2.Execution",
    "google.longrunning.Operations",
    "buildbarn.remoteworker.OperationQueue",
    "buildbarn.buildqueuestate.BuildQueueState",
    "pointsman.v1.Admin",
    "pointsman.v1.Policies",
    "pointsman.v1.Sizes",
];

/// What a server has that others keep blobs and action results in.
const CACHE: [&str; 3] = [
    "build.bazel.remote.execution.v2.ContentAddressableStorage",
    "build.bazel.remote.execution.v2.ActionCache",
    "google.bytestream.ByteStream",
];

/// Puts a [`Gate`] before the services.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GateLayer(pub(crate) Services);

impl<S> Layer<S> for GateLayer {
    type Service = Gate<S>;

    fn layer(&self, inner: S) -> Gate<S> {
        Gate { inner, services: self.0 }
    }
}

/// Refuses what is switched off.
#[derive(Clone, Debug)]
pub(crate) struct Gate<S> {
    inner: S,
    services: Services,
}

impl<S, A, B> Service<Request<A>> for Gate<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    B: Default,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Either<Ready<Result<Response<B>, S::Error>>, S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        match refusal(self.services, request.uri().path()) {
            Some(status) => Either::Left(ready(Ok(status.into_http()))),
            None => Either::Right(self.inner.call(request)),
        }
    }
}

/// Why a call is refused; `path` is `/SERVICE/METHOD`.
fn refusal(services: Services, path: &str) -> Option<Status> {
    let (has, off, others): (_, &[&str], _) = match services {
        Services::All => return None,
        Services::Execution => ("execution", &CACHE, "cache"),
        Services::Cache => ("cache", &EXECUTION, "execution"),
    };
    let service = path.strip_prefix('/')?.split('/').next()?;
    off.contains(&service).then(|| {
        Status::unimplemented(format!(
            "{service} is switched off on this server (services: \"{has}\"): ask the one that has \
             services: \"{others}\", or \"all\""
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_is_off_and_says_who_has_it() {
        let execute = "/build.bazel.remote.execution.v2.Execution/Execute";
        let read = "/google.bytestream.ByteStream/Read";
        let capabilities = "/build.bazel.remote.execution.v2.Capabilities/GetCapabilities";
        for (services, path, refused) in [
            (Services::All, execute, false),
            (Services::All, read, false),
            (Services::Execution, execute, false),
            (Services::Execution, read, true),
            (Services::Execution, capabilities, false),
            (Services::Cache, execute, true),
            (Services::Cache, read, false),
            (Services::Cache, capabilities, false),
            (Services::Cache, "nonsense", false),
        ] {
            assert_eq!(refusal(services, path).is_some(), refused, "{services:?} {path}");
        }
        let text = refusal(Services::Cache, execute).unwrap().message().to_owned();
        assert!(text.contains("services: \"cache\"") && text.contains("services: \"execution\""), "{text}");
    }
}
