//! What an Execute sees when the CAS or its Command is no good: an answer in time, and never one without properties that
//! nobody decided on.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pointsman_proto::rev2::{Action, Digest};
use pointsman_proto::rpc::{self, PreconditionFailure};
use pointsman_proto::unpack;
use pointsman_tests::fake_client::digest_of;
use pointsman_tests::harness::{Relay, RouterProcess, sample};
use prost::Message as _;
use tonic::Code;

use crate::support::{Cas, action_of, bazel, buck2, owned, router, scheduler, within};

const DEADLINE: &str = "router: { deadline: '1s' }";
/// The same with time to spare for a busy machine.
const IN_TIME: Duration = Duration::from_secs(3);

/// A CAS behind a wire, and a router before that.
async fn over_a_wire() -> (Cas, Arc<Relay>, RouterProcess) {
    let cas = Cas::start().await;
    let wire = Arc::new(Relay::start(cas.address.to_string()).await.unwrap());
    let router = router(wire.address().parse().unwrap(), DEADLINE).await;
    (cas, wire, router)
}

#[tokio::test]
async fn a_cas_that_is_down_is_named() {
    let (cas, wire, router) = over_a_wire().await;
    let asks = scheduler(&router).await;
    let known = cas.action(&buck2("known", &[("a", "1")])).await;
    let new = cas.action(&buck2("new", &[("a", "1")])).await;
    asks.clone().of_invocation("one").execute(&known).await.unwrap();

    wire.down();
    let begun = Instant::now();
    let refused = within(IN_TIME, asks.execute(&new)).await.unwrap_err();
    assert!(begun.elapsed() < IN_TIME);
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    let text = refused.message();
    assert!(
        text.contains("can't be routed: ") && text.contains(&format!("grpc://{}", wire.address())),
        "{text}"
    );
    assert!(text.contains("no earlier route of such an action is known"), "{text}");
    // Whose Command was read before is routed as ever; here after an edit of a source, by another build.
    let edited = Action { input_root_digest: Some(digest_of(b"edited")), ..known };
    let routed = asks.of_invocation("two").execute(&edited).await.unwrap();
    assert_eq!(routed.platform, owned(&[("a", "1")]));
    assert_eq!(
        routed.keys,
        [serde_json::json!({ "toolInvocationId": "two" })],
        "the caller's, not the first one's"
    );

    wire.up();
    let routed = within(IN_TIME * 3, async {
        loop {
            match scheduler(&router).await.execute(&new).await {
                Ok(routed) => return routed,
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    });
    assert_eq!(routed.await.degraded, None);
}

#[tokio::test]
async fn known_routes_outlive_the_commands() {
    let cas = Cas::start().await;
    let wire = Relay::start(cas.address.to_string()).await.unwrap();
    let keys = "router: { deadline: '1s' }";
    let text = format!(
        "{{ storage: {{ remote: {{ address: 'grpc://{}', small_blob_cache: '0B' }} }}, {keys} }}",
        wire.address()
    );
    let router = RouterProcess::start(&text, &[]).await.unwrap();
    let asks = scheduler(&router).await;
    let known = cas.action(&buck2("known", &[("a", "1")])).await;
    assert_eq!(asks.execute(&known).await.unwrap().degraded, None);
    wire.down();
    let routed = within(IN_TIME, asks.execute(&known)).await.unwrap();
    assert_eq!((routed.platform, routed.degraded.as_deref()), (owned(&[("a", "1")]), Some("known")));
    // What its client has given a platform needs no Command, and nobody is in anybody's way.
    let routed = within(IN_TIME, asks.execute(&bazel("b", &[("b", "1")]))).await.unwrap();
    assert_eq!(routed.degraded, None);
    assert!(router.log().contains("routed without its policies, it goes where such an action went before"));
    let scrape = router.page("/metrics").await.unwrap().body;
    assert_eq!(sample(&scrape, "pointsman_router_calls_total{outcome=\"known\"}"), Some(1.0), "{scrape}");
}

#[tokio::test]
async fn a_cas_that_hangs_hangs_nobody() {
    // Accepted by the kernel, answered by nobody.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let router = router(listener.local_addr().unwrap(), DEADLINE).await;
    let asks = scheduler(&router).await;
    let begun = Instant::now();
    // Many at once: for the same Command, and each for its own.
    let calls = (0..200).map(|n| {
        let (asks, action) = (asks.clone(), action_of(&buck2(&(n % 100).to_string(), &[("a", "1")])));
        tokio::spawn(async move { asks.execute(&action).await })
    });
    for call in calls.collect::<Vec<_>>() {
        let refused = within(IN_TIME, call).await.unwrap().unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    }
    assert!(begun.elapsed() < IN_TIME, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn the_callers_own_deadline_counts_if_it_is_shorter() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let router = router(listener.local_addr().unwrap(), "router: { deadline: '20s' }").await;
    let asks = scheduler(&router).await;
    let action = action_of(&buck2("a", &[("a", "1")])).encode_to_vec();
    let begun = Instant::now();
    let refused = asks.ask(action.into(), Some(Duration::from_secs(1))).await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    // The router's own words, which came before the caller's time was over.
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(refused.message().contains("no earlier route"), "{refused}");
}

#[tokio::test]
async fn a_command_that_is_missing_is_asked_for() {
    let cas = Cas::start().await;
    let router = cas.router(DEADLINE).await;
    let asks = scheduler(&router).await;
    let command = buck2("a", &[("a", "1")]);
    let action = action_of(&command);
    let refused = within(IN_TIME, asks.execute(&action)).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    let status = rpc::Status::decode(refused.details()).unwrap();
    let details: PreconditionFailure = unpack(&status.details[0]).unwrap();
    let Digest { hash, size_bytes } = action.command_digest.clone().unwrap();
    assert_eq!(details.violations[0].r#type, "MISSING");
    assert_eq!(details.violations[0].subject, format!("blobs/{hash}/{size_bytes}"));
    // As clients do then.
    cas.action(&command).await;
    assert_eq!(asks.execute(&action).await.unwrap().platform, owned(&[("a", "1")]));
}

#[tokio::test]
async fn a_command_of_200_mb_is_refused_unread() {
    let cas = Cas::start().await;
    let router = cas.router(DEADLINE).await;
    let asks = scheduler(&router).await;
    asks.execute(&bazel("warm", &[])).await.unwrap();
    let before = router.resident_bytes().unwrap();
    let digest = Digest { size_bytes: 200_000_000, ..digest_of(b"large") };
    for n in 0..50 {
        let root = Some(digest_of(&[n]));
        let action =
            Action { command_digest: Some(digest.clone()), input_root_digest: root, ..Action::default() };
        let refused = within(IN_TIME, asks.execute(&action)).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        assert!(refused.message().contains("limits.command_size"), "{refused}");
    }
    let grown = router.resident_bytes().unwrap().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes");
}

/// Large and allowed: many of them at once are read one after the other, and no more are kept than fit.
#[tokio::test]
async fn memory_is_bounded_however_large_commands_are() {
    let cas = Cas::start().await;
    let keys = "router: { deadline: '20s' }, limits: { command_size: '16MiB' }";
    let router = cas.router(keys).await;
    let asks = scheduler(&router).await;
    let client = cas.client().await;
    let mut actions = Vec::new();
    for n in 0..24 {
        let mut command = buck2(&n.to_string(), &[("a", "1")]);
        command.arguments.push("x".repeat(3_500_000));
        client.upload([command.encode_to_vec().into()]).await.unwrap();
        actions.push(action_of(&command));
    }
    let before = router.resident_bytes().unwrap();
    for _ in 0..3 {
        let calls = actions.iter().map(|action| {
            let (asks, action) = (asks.clone(), action.clone());
            tokio::spawn(async move { asks.execute(&action).await })
        });
        for call in calls.collect::<Vec<_>>() {
            let routed = within(Duration::from_secs(30), call).await.unwrap().unwrap();
            assert_eq!((routed.platform, routed.degraded), (owned(&[("a", "1")]), None));
        }
    }
    // 64 MiB are kept, and as many may be on their way, twice while they are decoded.
    let grown = router.resident_bytes().unwrap().saturating_sub(before);
    assert!(grown < 320 << 20, "{grown} bytes");
    let scrape = router.page("/metrics").await.unwrap().body;
    let kept = sample(&scrape, "pointsman_router_commands_memory_bytes").unwrap();
    assert!(kept > 30e6 && kept <= f64::from(64 << 20), "{kept}");
}

#[tokio::test]
async fn what_is_no_command_is_told_so() {
    let cas = Cas::start().await;
    let router = cas.router(DEADLINE).await;
    let blob: &[u8] = &[0x0a, 200, 1, 2];
    cas.client().await.upload([blob.into()]).await.unwrap();
    let action = Action { command_digest: Some(digest_of(blob)), ..Action::default() };
    let refused = within(IN_TIME, scheduler(&router).await.execute(&action)).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    assert!(refused.message().contains("not a valid Command"), "{refused}");
}

#[tokio::test]
async fn identical_commands_are_fetched_once() {
    let (cas, _wire, router) = over_a_wire().await;
    let asks = scheduler(&router).await;
    let action = cas.action(&buck2("a", &[("a", "1")])).await;
    let calls = (0..100).map(|_| {
        let (asks, action) = (asks.clone(), action.clone());
        tokio::spawn(async move { asks.execute(&action).await })
    });
    for call in calls.collect::<Vec<_>>() {
        assert_eq!(call.await.unwrap().unwrap().platform, owned(&[("a", "1")]));
    }
    let scrape = router.page("/metrics").await.unwrap().body;
    let count = |became: &str| {
        sample(&scrape, &format!("pointsman_router_commands_total{{became=\"{became}\"}}")).unwrap()
    };
    assert_eq!(count("fetched"), 1.0);
    assert_eq!(count("joined") + count("kept"), 99.0);
}

#[tokio::test]
async fn a_cas_that_comes_late_is_waited_for() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    drop(listener);
    // It starts without its CAS, since both may start at once.
    let router = router(address, DEADLINE).await;
    let refused =
        within(IN_TIME, scheduler(&router).await.execute(&action_of(&buck2("a", &[])))).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(refused.message().contains(&address.to_string()), "{refused}");
}
