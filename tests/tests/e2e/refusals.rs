//! What a person at the other end reads when the server refuses.

use anyhow::ensure;
use pointsman_tests::harness::{Server, ServerOptions};

use super::{WORKSPACE, with_bazel, with_worker};

#[tokio::test(flavor = "multi_thread")]
async fn a_mistyped_property_is_told_with_the_way_out() -> anyhow::Result<()> {
    let Some(clients) = with_bazel().await? else { return Ok(()) };
    // With a file, even an empty one, undeclared keys are refused.
    let options = ServerOptions { config: "{}".to_owned(), ..with_worker(&[]) };
    let server = Server::start_in(&clients, &options).await?;
    let bazel = clients.bazel(WORKSPACE).await?;

    let words = ["build", "//:link0", "--remote_default_exec_properties=OSFamliy=linux"];
    // 34: Bazel calls it a remote error.
    let build = bazel.remote(&server.address(), &words).await?.expect_code(34)?;
    for part in ["FAILED_PRECONDITION", "OSFamliy", "OSFamily", "supported_platform_properties"] {
        ensure!(build.text.contains(part), "{part} is not told:\n{}", build.text);
    }

    let words = ["build", "//:link0", "--remote_default_exec_properties=OSFamily=linux"];
    bazel.remote(&server.address(), &words).await?.expect_code(0)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_instance_name_is_told() -> anyhow::Result<()> {
    let Some(clients) = with_bazel().await? else { return Ok(()) };
    let server = Server::start_in(&clients, &with_worker(&[])).await?;
    let bazel = clients.bazel(WORKSPACE).await?;
    let words = ["build", "//:link0", "--remote_instance_name=a/blobs/b"];
    let build = bazel.remote(&server.address(), &words).await?;
    ensure!(build.code() != 0, "{}", build.text);
    for part in ["INVALID_ARGUMENT", "a/blobs/b"] {
        ensure!(build.text.contains(part), "{part} is not told:\n{}", build.text);
    }
    Ok(())
}
