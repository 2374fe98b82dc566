//! Outputs inside the answer of Execute, for each client what it asked for.

use pointsman_proto::rev2::{Digest, ExecuteRequest};
use pointsman_tests::fake_client::ActionSpec;

use crate::support::{server_with, within};

fn request(action: &Digest) -> ExecuteRequest {
    ExecuteRequest { action_digest: Some(action.clone()), ..Default::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_client_gets_the_outputs_that_it_asked_for() {
    let server = server_with("worker: { enabled: true, concurrency: 1 }").await;
    let client = server.client().await;
    let script =
        "sleep 0.3; echo out; echo err >&2; echo dep > a.d; echo obj > a.o; head -c 2000000 /dev/zero > big";
    let spec = ActionSpec {
        output_paths: ["a.d", "a.o", "big"].map(str::to_owned).to_vec(),
        ..ActionSpec::new(["/bin/sh", "-c", script])
    };
    let action = client.upload_action(&spec).await.unwrap();
    let files = ["a.d", "big", "none"].map(str::to_owned).to_vec();
    let wants = ExecuteRequest { inline_stdout: true, inline_output_files: files, ..request(&action) };
    // The first two share one execution, the third has the cached result.
    let (one, two) = (client.execute_request(wants.clone()).await, client.execute(&action).await);
    let (one, two) = within(async { tokio::join!(one.unwrap().finish(), two.unwrap().finish()) }).await;
    let three = within(client.execute_request(wants).await.unwrap().finish()).await.unwrap();
    assert!(three.response.cached_result);
    let (one, two) = (one.unwrap(), two.unwrap());
    let name = one.updates[0].name.clone();
    for (result, inlined) in [
        (one.response.result.unwrap(), true),
        (two.response.result.unwrap(), false),
        (three.response.result.unwrap(), true),
    ] {
        let stdout = if inlined { "out\n" } else { "" };
        assert_eq!((&result.stdout_raw[..], &result.stderr_raw[..]), (stdout.as_bytes(), &b""[..]));
        assert!(result.stdout_digest.is_some());
        let contents = |path: &str| {
            let file = result.output_files.iter().find(|file| file.path == path).unwrap();
            String::from_utf8(file.contents.to_vec()).unwrap()
        };
        assert_eq!(contents("a.d"), if inlined { "dep\n" } else { "" });
        // Neither what nobody asked for nor what is too large for an answer.
        assert_eq!((contents("a.o"), contents("big")), (String::new(), String::new()));
    }
    // Who comes back by name has not asked for any.
    let again = within(client.wait_execution(&name).await.unwrap().finish()).await.unwrap();
    assert_eq!(again.response.result.unwrap().stdout_raw, "");
}
