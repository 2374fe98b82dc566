//! Real clients against the real program: each client, each thing that it can want and each fault that it may meet, and
//! a table of what came of either.
//!
//! A test runner of its own (`harness = false`), since the table needs all outcomes at one place. It takes the arguments
//! that other tests take: `bazel2` runs the tests of one client, `--include-ignored` those too that are run on demand.

mod bazel;
mod faults;
mod feature;
mod pants;
mod recc;
mod support;
mod table;
mod trexe;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use pointsman_tests::harness::Clients;

use feature::{Cell, Feature};
use table::Outcome;

/// One client.
struct Column {
    /// With its version.
    title: &'static str,
    /// In names of tests.
    name: &'static str,
    /// What `clients.sh` must have set up.
    needs: &'static str,
    cell: fn(Feature) -> Cell,
}

const COLUMNS: [Column; 5] = [
    Column { title: "Bazel 7.7.1", name: "bazel7", needs: "bazel7", cell: bazel::seven },
    Column { title: "Bazel 2.1.0", name: "bazel2", needs: "bazel2", cell: bazel::two },
    Column { title: "trexe 1.4.16", name: "trexe", needs: "buildbox", cell: trexe::cell },
    Column { title: "recc 1.4.16", name: "recc", needs: "buildbox", cell: recc::cell },
    Column { title: "Pants 2.17.1", name: "pants", needs: "pants", cell: pants::cell },
];

/// What was found out so far, by column and title of the row.
type Found = Arc<Mutex<BTreeMap<(usize, &'static str), (Outcome, Duration)>>>;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // They would wait for each other anyway: the clients' root is one.
    arguments.test_threads = Some(1);
    let found = Found::default();
    let mut trials = vec![Trial::test("the_table_in_the_readme_is_this_one", readme)];
    for (number, column) in COLUMNS.iter().enumerate() {
        for feature in Feature::ALL {
            trials.extend(trial(number, column, feature, &found));
        }
    }
    let observed = faults::Observed::default();
    trials.extend(faults::trials(&observed));
    let conclusion = libtest_mimic::run(&arguments, trials);
    if !arguments.list {
        report(&found, &observed);
    }
    conclusion.exit_code()
}

fn trial(number: usize, column: &'static Column, feature: Feature, found: &Found) -> Option<Trial> {
    let (check, on_demand) = match (column.cell)(feature) {
        Cell::Offered(check) => (check, false),
        Cell::OnDemand(check) => (check, true),
        Cell::NotOffered(_) => return None,
    };
    let name = format!("{}::{}", column.name, feature.title().replace(' ', "_"));
    let (found, suite) = (found.clone(), name.clone());
    let keep = move |outcome, time| {
        if let Ok(mut found) = found.lock() {
            found.insert((number, feature.title()), (outcome, time));
        }
    };
    let run = move || {
        // For the case that it panics.
        keep(Outcome::Failed, Duration::ZERO);
        let mut started = Instant::now();
        let outcome = perform(&suite, column.needs, check, &mut started)
            .map(|done| done.map_or(Outcome::NotRun, |()| Outcome::Ok));
        keep(*outcome.as_ref().unwrap_or(&Outcome::Failed), started.elapsed());
        outcome.map(drop).map_err(|error| Failed::from(format!("{error:?}")))
    };
    Some(Trial::test(name, run).with_ignored_flag(on_demand))
}

/// What `check` finds; `None` where the client is absent. `started` becomes the moment at which the clients' root was free.
fn perform<T, R>(
    suite: &str,
    client: &str,
    check: impl FnOnce(Clients) -> R,
    started: &mut Instant,
) -> anyhow::Result<Option<T>>
where
    R: Future<Output = anyhow::Result<T>>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let clients = Clients::take(suite, &[client]).await?;
        *started = Instant::now();
        match clients {
            Some(clients) => check(clients).await.map(Some),
            None => Ok(None),
        }
    })
}

/// `tests/README.md` shows the tables of a day on which all is well; a new row or column belongs in there too.
fn readme() -> Result<(), Failed> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md"))?;
    for wanted in [table::ideal(), table::reasons(), faults::ideal()] {
        if !text.contains(&wanted) {
            return Err(format!("tests/README.md does not show this:\n\n{wanted}").into());
        }
    }
    Ok(())
}

fn report(found: &Found, observed: &faults::Observed) {
    let Ok(found) = found.lock() else { return };
    let outcome = |number: usize, feature: Feature| match (COLUMNS[number].cell)(feature) {
        Cell::NotOffered(_) => Outcome::NotOffered,
        _ => found.get(&(number, feature.title())).map_or(Outcome::NotRun, |&(outcome, _)| outcome),
    };
    let mut text = format!("{}\n", table::render(outcome));
    for (number, column) in COLUMNS.iter().enumerate() {
        let times = found.iter().filter(|((at, _), _)| *at == number).map(|(_, (_, time))| *time);
        text += &format!("{}: {:.0} s\n", column.title, times.sum::<Duration>().as_secs_f64());
    }
    text += &format!("\n{}", faults::render(observed));
    // Whoever closed standard output does not want it.
    let _ = write!(std::io::stdout(), "{text}");
}
