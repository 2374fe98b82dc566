//! What is to run alone on its host, and what is to be at most so many at once, in real builds: by when each action began
//! and ended, as its worker says.

use std::time::Duration;

use anyhow::{Context, ensure};
use pointsman_tests::harness::{
    BazelVersion, Clients, Observed, Server, ServerOptions, finished_operations, start_worker,
};

use super::with_bazel;

/// A server whose own policy takes exclusivity from properties, and its further arguments. Two of the group `licence` may
/// execute at once on all hosts of the pool.
async fn serve(clients: &Clients, arguments: &[&str]) -> anyhow::Result<Server> {
    let config = "{ unknown_property: 'ignore', timers: { completed_retention: '10m' },
        policy: { config: { exclusive: { groups: { licence: { at_most: 2, scope: 'pool' } } } } } }";
    let arguments = arguments.iter().map(|&word| word.to_owned()).collect();
    Server::start_in(clients, &ServerOptions { arguments, config: config.to_owned() }).await
}

/// They were executed at the same time.
fn meet(one: &Observed, other: &Observed) -> bool {
    let ((from, to), (other_from, other_to)) = (one.executed, other.executed);
    from < other_to && other_from < to
}

/// All that was executed.
async fn ran(server: &Server) -> anyhow::Result<Vec<Observed>> {
    let all = finished_operations(server.channel()?).await?;
    Ok(all.into_iter().filter(|operation| !operation.cached).collect())
}

/// What was executed for targets whose names begin so, of a kind of action.
fn of<'a>(all: &'a [Observed], target: &str, mnemonic: &str) -> Vec<&'a Observed> {
    let is_one =
        |o: &&Observed| o.client.target_id.starts_with(target) && o.client.action_mnemonic == mnemonic;
    all.iter().filter(is_one).collect()
}

/// The others that an action met.
fn met<'a>(all: &'a [Observed], one: &Observed) -> Vec<&'a Observed> {
    all.iter().filter(|other| other.name != one.name && meet(other, one)).collect()
}

/// Twenty-four tests beside one other, on a host with four threads.
async fn beside(test: &str) -> anyhow::Result<Option<Vec<Observed>>> {
    let Some(clients) = with_bazel().await? else { return Ok(None) };
    let server = serve(&clients, &["--with-worker", "--worker-concurrency", "4"]).await?;
    let bazel = clients.bazel(BazelVersion::Seven).await?;
    let others: Vec<String> = (0..24).map(|i| format!("//exclusive:beside{i}_test")).collect();
    let words = ["test", "--jobs=40", test].into_iter().chain(others.iter().map(String::as_str));
    bazel.remote(&server.address(), &words.collect::<Vec<_>>()).await?.expect_code(0)?;
    bazel.expect_spawns("remote")?;
    let all = ran(&server).await?;
    ensure!(of(&all, "//exclusive:beside", "TestRunner").len() >= 24, "not all others ran: {all:#?}");
    Ok(Some(all))
}

/// The longest of what Bazel runs for a test: the test itself. What makes its log into XML takes no time.
fn itself<'a>(all: &'a [Observed], test: &str) -> anyhow::Result<&'a Observed> {
    let tests = of(all, test, "TestRunner").into_iter();
    let lasted = |o: &&Observed| o.executed.1.duration_since(o.executed.0).unwrap_or_default();
    let longest = tests.max_by_key(lasted).context("the test is not among what ran")?;
    ensure!(lasted(&longest) >= Duration::from_secs(1), "the test itself is not among what ran");
    Ok(longest)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exclusive_test_is_alone_on_its_host_and_what_builds_it_is_not() -> anyhow::Result<()> {
    let Some(all) = beside("//exclusive:alone_test").await? else { return Ok(()) };
    let test = itself(&all, "//exclusive:alone_test")?;
    ensure!(met(&all, test).is_empty(), "{test:?} met {:#?}", met(&all, test));
    let (before, after) = all
        .iter()
        .filter(|o| o.name != test.name)
        .partition::<Vec<_>, _>(|o| o.executed.1 <= test.executed.0);
    ensure!(!before.is_empty() && !after.is_empty(), "it was first or last, and alone by chance: {all:#?}");
    let built = of(&all, "//exclusive:alone_test", "CppCompile");
    let built = built.first().context("nothing was compiled for the test")?;
    // Whether others are executed just then is chance; that they might be is not.
    ensure!(built.decision.exclusivity.is_empty(), "what compiled it had to be alone too: {built:?}");
    ensure!(test.decision.exclusivity == "host", "{test:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_test_without_the_property_meets_others() -> anyhow::Result<()> {
    let Some(all) = beside("//exclusive:among_test").await? else { return Ok(()) };
    let test = itself(&all, "//exclusive:among_test")?;
    ensure!(!met(&all, test).is_empty(), "it was alone by chance, so the other test shows nothing: {test:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_of_two_is_two_at_most_on_all_hosts_of_its_pool() -> anyhow::Result<()> {
    let Some(clients) = with_bazel().await? else { return Ok(()) };
    let server = serve(&clients, &[]).await?;
    let bazel = clients.bazel(BazelVersion::Seven).await?;
    let workers: anyhow::Result<Vec<_>> =
        ["one", "two", "three"].iter().map(|name| start_worker(&clients, &server, name, &[])).collect();
    let _workers = workers?;
    let licensed = (0..8).map(|i| format!("//exclusive:licensed{i}"));
    let targets: Vec<String> =
        licensed.chain((0..12).map(|i| format!("//exclusive:beside{i}_test"))).collect();
    let words = ["test", "--jobs=40"].into_iter().chain(targets.iter().map(String::as_str));
    bazel.remote(&server.address(), &words.collect::<Vec<_>>()).await?.expect_code(0)?;
    bazel.expect_spawns("remote")?;

    let all = ran(&server).await?;
    let licensed = of(&all, "//exclusive:licensed", "Genrule");
    ensure!(licensed.len() == 8, "{} of 8 ran", licensed.len());
    // Whenever there are most of them, one has just begun.
    let at_start = |one: &&Observed| {
        let began = one.executed.0;
        licensed.iter().filter(|o| o.executed.0 <= began && began < o.executed.1).count()
    };
    let most = licensed.iter().map(at_start).max();
    ensure!(most == Some(2), "{most:?} at once: {licensed:#?}");
    let host = |o: &Observed| o.worker.split(',').next().map(str::to_owned);
    let pairs = licensed.iter().flat_map(|one| licensed.iter().map(move |two| (one, two)));
    let apart = pairs.filter(|(one, two)| meet(one, two) && host(one) != host(two));
    ensure!(apart.count() > 0, "they never ran on two hosts at once: {licensed:#?}");
    let others = of(&all, "//exclusive:beside", "TestRunner");
    let beside = licensed.iter().filter(|one| others.iter().any(|other| meet(one, other)));
    ensure!(beside.count() > 0, "nothing ran beside them: {all:#?}");
    Ok(())
}
