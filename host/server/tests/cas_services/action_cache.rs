//! `ActionCache`.

use pointsman_proto::rev2::{
    self, ActionResult, GetActionResultRequest, OutputFile, UpdateActionResultRequest,
};

use super::*;

fn output(path: &str, digest: &Digest) -> OutputFile {
    OutputFile { path: path.to_owned(), digest: Some(digest.to_proto()), ..Default::default() }
}

fn get(instance_name: &str, action: &Digest) -> GetActionResultRequest {
    GetActionResultRequest {
        instance_name: instance_name.to_owned(),
        action_digest: Some(action.to_proto()),
        ..Default::default()
    }
}

async fn update(
    fixture: &Fixture,
    instance_name: &str,
    action: &Digest,
    result: ActionResult,
) -> Result<(), Status> {
    let request = UpdateActionResultRequest {
        instance_name: instance_name.to_owned(),
        action_digest: Some(action.to_proto()),
        action_result: Some(result.clone()),
        ..Default::default()
    };
    let stored = fixture.action_cache().update_action_result(request).await?.into_inner();
    assert_eq!(stored, result);
    Ok(())
}

#[tokio::test]
async fn results_are_found_under_their_instance_name() {
    let fixture = Fixture::new().await;
    let action = digest(b"action");
    let miss = fixture.action_cache().get_action_result(get("a", &action)).await;
    assert_status(miss, Code::NotFound, "in instance name \"a\"");
    let result = ActionResult {
        exit_code: 0,
        output_files: vec![output("o", &fixture.put(b"o").await)],
        ..Default::default()
    };
    update(&fixture, "a", &action, result.clone()).await.unwrap();
    let found = fixture.action_cache().get_action_result(get("a", &action)).await.unwrap();
    assert_eq!(found.into_inner(), result);
    let other = fixture.action_cache().get_action_result(get("", &action)).await;
    assert_status(other, Code::NotFound, "no result of action");
}

#[tokio::test]
async fn a_result_whose_outputs_are_gone_is_not_found() {
    let fixture = Fixture::new().await;
    let action = digest(b"action");
    let result = ActionResult { output_files: vec![output("o", &digest(b"gone"))], ..Default::default() };
    update(&fixture, "", &action, result).await.unwrap();
    let found = fixture.action_cache().get_action_result(get("", &action)).await;
    assert_status(found, Code::NotFound, "no result of action");
}

#[tokio::test]
async fn outputs_are_put_in_when_asked_for_and_small() {
    let fixture = Fixture::new().await;
    let action = digest(b"action");
    let large = fixture.put(&content(1, 2 << 20)).await;
    let result = ActionResult {
        output_files: vec![
            output("large", &large),
            output("a.d", &fixture.put(b"a: b c").await),
            output("b.d", &fixture.put(b"b: c").await),
        ],
        stdout_digest: Some(fixture.put(b"to stdout").await.to_proto()),
        stderr_digest: Some(fixture.put(b"to stderr").await.to_proto()),
        ..Default::default()
    };
    update(&fixture, "", &action, result).await.unwrap();
    let request = GetActionResultRequest {
        inline_stdout: true,
        inline_output_files: vec!["large".to_owned(), "a.d".to_owned(), "unknown".to_owned()],
        ..get("", &action)
    };
    let found = fixture.action_cache().get_action_result(request).await.unwrap().into_inner();
    assert_eq!((&found.stdout_raw[..], &found.stderr_raw[..]), (&b"to stdout"[..], &b""[..]));
    let contents: Vec<&[u8]> = found.output_files.iter().map(|file| &file.contents[..]).collect();
    assert_eq!(contents, [&b""[..], b"a: b c", b""]);
    assert!(found.stdout_digest.is_some());
}

#[tokio::test]
async fn requests_that_are_wrong_say_how() {
    let fixture = Fixture::new().await;
    let action = digest(b"action");
    let bad_name = fixture.action_cache().get_action_result(get("a/blobs", &action)).await;
    assert_status(bad_name, Code::InvalidArgument, "holds \"blobs\", which the protocol reserves");
    let no_digest = fixture.action_cache().get_action_result(GetActionResultRequest::default()).await;
    assert_status(no_digest, Code::InvalidArgument, "action_digest is not set");
    let request = GetActionResultRequest { digest_function: 7, ..get("", &action) };
    let murmur = fixture.action_cache().get_action_result(request).await;
    assert_status(murmur, Code::InvalidArgument, "digest function MURMUR3 is not served; served: SHA256");

    let request = UpdateActionResultRequest { action_digest: Some(action.to_proto()), ..Default::default() };
    let no_result = fixture.action_cache().update_action_result(request).await;
    assert_status(no_result, Code::InvalidArgument, "action_result is not set");
    let bad = ActionResult {
        stdout_digest: Some(rev2::Digest { hash: "xyz".to_owned(), size_bytes: 1 }),
        ..Default::default()
    };
    let result = update(&fixture, "", &action, bad).await;
    assert_status(result, Code::InvalidArgument, "action_result: hash \"xyz\" has 3 characters");
    let bad = update(&fixture, "/", &action, ActionResult::default()).await;
    assert_status(bad, Code::InvalidArgument, "begins or ends with a slash");
}
