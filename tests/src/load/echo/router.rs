//! RouteAction, answered with what came.
use pointsman_proto::{
    action_router::{RouteActionRequest, RouteActionResponse},
    pack,
    remoteactionrouter::action_router_server::ActionRouter,
};
use tonic::{Request, Response, Status};

/// Sends the action back, and the client's metadata as the only key.
#[derive(Debug)]
pub(super) struct Router;

#[tonic::async_trait]
impl ActionRouter for Router {
    async fn route_action(
        &self,
        request: Request<RouteActionRequest>,
    ) -> Result<Response<RouteActionResponse>, Status> {
        let RouteActionRequest { action, request_metadata, .. } = request.into_inner();
        let invocation_keys = request_metadata.iter().map(pack).collect();
        Ok(Response::new(RouteActionResponse { action, invocation_keys }))
    }
}
