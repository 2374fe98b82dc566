//! Drains, which operators set by our own service.

use std::collections::HashMap;

use pointsman_proto::remoteworker::current_state::executing::ExecutionState;
use pointsman_proto::v1::admin_client::AdminClient;
use pointsman_proto::v1::{AddHoldRequest, Hold, RemoveHoldRequest, hold};
use pointsman_tests::fake_client::connect;
use pointsman_tests::fake_worker::{Instruction, exited};
use tonic::transport::Channel;

use crate::steps::{calling, execute, given, response, told_idle, told_to_go_on};
use crate::support::{TestServer, action, host, server, within};

async fn admin(server: &TestServer) -> AdminClient<Channel> {
    AdminClient::new(connect(server.address).await.unwrap())
}

fn drain() -> Option<Hold> {
    let worker_id_pattern = HashMap::from([("hostname".to_owned(), "h".to_owned())]);
    Some(Hold { kind: hold::Kind::Drain.into(), worker_id_pattern, ..Default::default() })
}

#[tokio::test]
async fn drain_and_undrain_during_a_poll() {
    let server = server().await;
    let (client, mut admin) = (server.client().await, admin(&server).await);
    let call = calling(server.worker(&host("h")).await).await;
    admin.add_hold(AddHoldRequest { hold: drain() }).await.unwrap();
    let updates = execute(&client, &action("1")).await;
    // It stays in its call and is no candidate.
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    assert_eq!(server.server.driver.counts().queued, 1);
    admin.remove_hold(RemoveHoldRequest { hold: drain() }).await.unwrap();
    let (mut worker, told) = within(call).await.unwrap();
    let work = match told.unwrap() {
        Instruction::Execute(work) => work,
        // The call was over before the drain; the next one gets it.
        _ => given(&mut worker).await,
    };
    worker.complete(exited(&work, 0));
    told_idle(&mut worker).await;
    response(updates).await;
}

#[tokio::test]
async fn a_drained_worker_finishes_and_gets_no_more_also_after_a_restart() {
    let server = server().await;
    let (client, mut admin) = (server.client().await, admin(&server).await);
    let (one, _two) = (execute(&client, &action("1")).await, execute(&client, &action("2")).await);
    let mut worker = server.worker(&host("h")).await;
    let work = given(&mut worker).await;
    admin.add_hold(AddHoldRequest { hold: drain() }).await.unwrap();
    worker.report(ExecutionState::Running(()));
    told_to_go_on(&mut worker).await;
    worker.complete(exited(&work, 0));
    told_idle(&mut worker).await;
    response(one).await;
    told_idle(&mut server.worker(&host("h")).await).await;
    assert_eq!(server.server.driver.counts().queued, 1);
}
