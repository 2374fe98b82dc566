//! The connection to the scheduler, and what is said when it does not work.

use std::time::Duration;

use pointsman_proto::v1::admin_client::AdminClient;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::Target;
use crate::cli::Failure;

pub(super) type Client = AdminClient<Channel>;

/// How long a connection may take: whoever waits for more is in the wrong network.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long an answer may take. The longest queue is explained in a fraction of it.
const ANSWER_MAX: Duration = Duration::from_secs(60);

pub(super) async fn connect(target: &Target) -> Result<Client, Failure> {
    Ok(AdminClient::new(channel(target).await?))
}

/// A connection for any of the scheduler's services.
pub(in crate::cli) async fn channel(target: &Target) -> Result<Channel, Failure> {
    let server = &target.server;
    let rest = server.strip_prefix("grpc://").unwrap_or(server);
    let url = if rest.contains("://") { rest.to_owned() } else { format!("http://{rest}") };
    let endpoint = Endpoint::from_shared(url)
        .map_err(|e| Failure::Usage(format!("--server {server}: {e}; give HOST:PORT or grpc://HOST:PORT")))?;
    match endpoint.connect_timeout(CONNECT_MAX).timeout(ANSWER_MAX).connect().await {
        Ok(channel) => Ok(channel),
        Err(error) => Err(Failure::Unavailable(format!(
            "no scheduler answers at {server}: {:#}; start one with `pointsman serve`, or say where it is with --server \
             or POINTSMAN_SERVER",
            anyhow::Error::from(error)
        ))),
    }
}

/// Why a call failed.
pub(in crate::cli) fn refused(status: Status) -> Failure {
    let message = status.message();
    match status.code() {
        // A server with one half only says so itself.
        Code::Unimplemented if message.contains("switched off") => Failure::Unavailable(message.to_owned()),
        Code::Unimplemented => Failure::Unavailable(
            "what answers there has no such service of pointsman.v1: it is a router, another program, or an older version; say where \
             the scheduler is with --server or POINTSMAN_SERVER"
                .to_owned(),
        ),
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown => {
            Failure::Unavailable(format!("the scheduler did not answer: {message}; its log says more"))
        }
        _ => Failure::Refused(message.to_owned()),
    }
}

/// The same for a call that names an operation.
pub(super) fn refused_operation(status: Status) -> Failure {
    match status.code() {
        Code::NotFound => Failure::Refused(format!(
            "{}; `pointsman queue` names operations that wait, `pointsman workers` those that run",
            status.message()
        )),
        _ => refused(status),
    }
}
