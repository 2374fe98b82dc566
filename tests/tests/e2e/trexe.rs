//! buildbox's `trexe`: a client on grpc-c++, which can leave an action and come back for it.

use anyhow::ensure;
use pointsman_tests::harness::{Clients, Server};

use super::with_worker;

async fn with_trexe() -> anyhow::Result<Option<Clients>> {
    Clients::take("e2e with trexe", &["buildbox"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_and_its_outputs_come_back() -> anyhow::Result<()> {
    let Some(clients) = with_trexe().await? else { return Ok(()) };
    let server = Server::start_in(&clients, &with_worker(&[])).await?;
    let remote = format!("--remote=http://{}", server.address());
    let into = format!("--d={}", server.file_inside("out"));
    let words =
        ["trexe", &remote, "--platform-properties=OSFamily=linux,cpu_count=1", "--output-path=o", &into];
    let script = "echo hi >o; echo said; echo complained >&2";

    for _ in 0..2 {
        let run =
            clients.run(&[&words[..], &["--", "/bin/sh", "-c", script]].concat()).await?.expect_code(0)?;
        ensure!(run.text.contains("said") && run.text.contains("complained"), "{}", run.text);
        let output = server.file("out/o");
        ensure!(std::fs::read_to_string(&output)? == "hi\n");
        std::fs::remove_file(output)?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exit_code_is_passed_on() -> anyhow::Result<()> {
    let Some(clients) = with_trexe().await? else { return Ok(()) };
    let server = Server::start_in(&clients, &with_worker(&[])).await?;
    let remote = format!("--remote=http://{}", server.address());
    clients.run(&["trexe", &remote, "--", "/bin/sh", "-c", "exit 7"]).await?.expect_code(7)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_may_leave_and_ask_later() -> anyhow::Result<()> {
    let Some(clients) = with_trexe().await? else { return Ok(()) };
    let server = Server::start_in(&clients, &with_worker(&[])).await?;
    let remote = format!("--remote=http://{}", server.address());
    let words =
        ["trexe", &remote, "--no-wait", "--output-path=o", "--", "/bin/sh", "-c", "sleep 3; echo late >o"];
    let left = clients.run(&words).await?.expect_code(0)?;
    let name = left.text.trim();
    ensure!(
        !name.is_empty() && !name.contains(char::is_whitespace),
        "not the name of an operation: {name:?}"
    );

    let operation = format!("--operation={name}");
    let into = format!("--d={}", server.file_inside("later"));
    clients.run(&["trexe", &remote, &operation, "--wait", &into]).await?.expect_code(0)?;
    ensure!(std::fs::read_to_string(server.file("later/o"))? == "late\n");
    Ok(())
}
