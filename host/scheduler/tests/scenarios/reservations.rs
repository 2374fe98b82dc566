//! A host is kept free for what asks for much, so that what asks for little does not keep it waiting for ever.

use std::time::Duration;

use pointsman_scheduler::explain::Reason;
use pointsman_scheduler::scheduler::Config;

use crate::support::{Worker, World, ask, worker};

const LONGEST: u64 = 20;

fn threads() -> Vec<Worker> {
    (0..8).map(|i| worker(&format!("h/{i}")).with("cpu", "8")).collect()
}

/// Eight threads share eight of cpu; small actions that take one each for up to 20 s never stop coming. Seconds until an
/// action that takes all eight begins.
fn until_the_large_one_begins(config: Config, patience: u64) -> Option<u64> {
    let mut w = World::new(config);
    let threads = threads();
    let (mut next, mut ends) = (0, vec![0_u64; 8]);
    let mut runs: Vec<Option<String>> = vec![None; 8];
    let mut large = None;
    for second in 0..patience {
        while w.core.counts().queued < 6 {
            next += 1;
            w.submit(&ask(&format!("small-{next}")).with("cpu", "1"));
        }
        if second == 5 {
            large = Some(w.submit(&ask("large").with("cpu", "8")));
        }
        for (i, thread) in threads.iter().enumerate() {
            if ends[i] > second {
                continue;
            }
            let answer = match runs[i].take() {
                Some(name) => w.completed(thread, &name),
                None => w.idle(thread),
            };
            if let Some(name) = answer.strip_prefix("run ") {
                runs[i] = Some(name.to_owned());
                ends[i] = second + 3 + (next * 7 + i as u64 * 5) % (LONGEST - 2);
            }
        }
        for answer in w.answers() {
            let (thread, name) = answer.split_once(": run ").unwrap_or_default();
            let Some(i) = threads.iter().position(|t| *t.key == *thread) else { continue };
            runs[i] = Some(name.to_owned());
            ends[i] = second + 3;
        }
        if large.is_some_and(|large| w.state(large) == "on h") {
            return Some(second - 5);
        }
        w.pass(1);
    }
    None
}

#[test]
fn it_begins_after_its_patience_and_what_runs_longest() {
    let after = Duration::from_secs(60);
    let begun =
        until_the_large_one_begins(Config { reservation_after: after, ..Config::default() }, 1000).unwrap();
    assert!((60..=60 + LONGEST).contains(&begun), "after {begun} s");
    let sooner = Config { reservation_after: Duration::from_secs(10), ..Config::default() };
    assert!((10..=10 + LONGEST).contains(&until_the_large_one_begins(sooner, 1000).unwrap()));
}

#[test]
fn without_it_would_wait_for_as_long_as_others_come() {
    let never = Duration::from_secs(1_000_000);
    let config = Config { reservation_after: never, ..Config::default() };
    assert_eq!(until_the_large_one_begins(config, 1000), None);
}

#[test]
fn it_is_said_for_whom_a_host_is_kept() {
    let mut w = World::default();
    let t = threads();
    w.submit(&ask("a").with("cpu", "4"));
    w.idle(&t[0]);
    let large = w.submit(&ask("large").with("cpu", "8"));
    let name = w.core.operation_by_id(large).unwrap().name.clone();
    assert_eq!(w.why(large).reason, Reason::AllBusy);
    for i in 1..4 {
        w.submit(&ask(&format!("small-{i}")).with("cpu", "1"));
        assert_eq!(w.idle(&t[i]), format!("run small-{i}"), "it is passed over");
        w.pass(25);
        w.executing(&t[0], "a");
        (1..=i).for_each(|i| _ = w.executing(&t[i], &format!("small-{i}")));
    }
    let small = w.submit(&ask("small-4").with("cpu", "1"));
    assert_eq!(w.idle(&t[4]), "waits", "for more than a minute, now");
    assert_eq!((w.why(large).reason, w.why(large).kept.as_deref()), (Reason::Reserved, Some("h")));
    let view = w.core.workers().next().unwrap();
    assert_eq!(view.reserved_for, Some(name));
    for (thread, i) in t[1..4].iter().zip(1..) {
        assert_eq!(w.completed(thread, &format!("small-{i}")), "waits");
    }
    assert_eq!(w.completed(&t[0], "a"), "run large");
    assert_eq!((w.state(large).as_str(), w.state(small).as_str()), ("on h", "queued"));
    let m = w.core.metrics(w.now);
    assert_eq!((m.hosts_reserved, m.reservations[0].1, m.reservations[1].1), (0, 1, 1));
}

#[test]
fn what_would_be_next_anyway_is_not_passed_over() {
    let mut w = World::new(Config { reservation_after: Duration::ZERO, ..Config::default() });
    let [one, two] = ["h/1", "h/2"].map(|k| worker(k).with("cpu", "8"));
    w.submit(&ask("a").with("cpu", "4"));
    w.idle(&one);
    // A background build's large action has not its turn before others.
    let large = w.submit(&ask("large").with("cpu", "8").priority(100));
    w.submit(&ask("small").with("cpu", "1"));
    assert_eq!(w.idle(&two), "run small");
    assert_eq!(w.why(large).reason, Reason::AllBusy);
    assert_eq!(w.core.metrics(w.now).hosts_reserved, 0);
}
