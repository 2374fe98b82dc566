//! Routers side by side know nothing of each other, and say the same.

use std::time::Duration;

use pointsman_proto::rev2::{Action, RequestMetadata};
use prost::Message as _;

use crate::support::{Cas, bazel, buck2, scheduler};

#[tokio::test]
async fn two_give_the_same_bytes_whatever_either_has_seen_before() {
    let cas = Cas::start().await;
    let keys = "policy: { config: { platform_from_command: 'missing_properties', tenant_fair: {}, property_rules: { rules: [{ add: \
                { zone: 'a' } }] } } }";
    let (one, two) = (cas.router(keys).await, cas.router(keys).await);
    let mut actions = Vec::new();
    for n in 0..20 {
        let name = n.to_string();
        actions.push(cas.action(&buck2(&name, &[("n", &*name), ("OSFamily", "linux")])).await);
        let timeout = Some(prost_types::Duration { seconds: n, nanos: 0 });
        let action = cas.action(&buck2(&name, &[("only-there", "1")])).await;
        let digest = action.command_digest;
        actions.push(Action { timeout, command_digest: digest, ..bazel(&name, &[("b", "1")]) });
    }
    let metadata = RequestMetadata {
        correlated_invocations_id: "c".into(),
        tool_invocation_id: "i".into(),
        ..RequestMetadata::default()
    };
    let (one, two) = (scheduler(&one).await, scheduler(&two).await);
    let [one, two] = [one, two].map(|asks| asks.with_instance_name("team").with_metadata(metadata.clone()));
    // The first has seen all of them before, some time ago, in another order.
    for action in actions.iter().rev() {
        one.execute(action).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(1100)).await;
    for action in &actions {
        let ask = |asks: &crate::scheduler::Scheduler| {
            let (asks, action) = (asks.clone(), action.encode_to_vec().into());
            async move { asks.ask(action, None).await.unwrap().into_inner().encode_to_vec() }
        };
        assert_eq!(ask(&one).await, ask(&two).await);
        assert_eq!(ask(&two).await, ask(&one).await);
    }
}
