//! Each finding by the shortest file that has it, with its line.

use super::{Finding, PoolPlatform, Surroundings, lint};
use crate::label::Label;
use crate::model::Os;
use crate::rc;

fn around() -> Surroundings {
    Surroundings {
        os: Os::Linux,
        version: "9.0.0".parse().unwrap(),
        configs: Vec::new(),
        commands: vec!["build".to_owned(), "test".to_owned()],
        registered: Vec::new(),
        pools: Vec::new(),
        pools_file: None,
        remote: true,
    }
}

fn findings(text: &str, around: &Surroundings) -> Vec<Finding> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rc");
    std::fs::write(&file, text).unwrap();
    lint(&rc::read(&file, folder.path()).unwrap(), around).unwrap()
}

/// Codes with their lines; 0 where there is none.
fn codes(text: &str, around: &Surroundings) -> Vec<(&'static str, usize)> {
    let place = |finding: &Finding| finding.place.as_ref().map_or(0, |place| place.line);
    findings(text, around).iter().map(|finding| (finding.code, place(finding))).collect()
}

/// What nothing is wrong with.
const GOOD: &str = "build --extra_execution_platforms=//p:a,//p:b
build --allowed_strategies_by_exec_platform=//p:a=remote
build --allowed_strategies_by_exec_platform=//p:b=remote
build --allowed_strategies_by_exec_platform=@platforms//host:host=worker,sandboxed,local
";

fn good_with(more: &str) -> Vec<(&'static str, usize)> {
    codes(&format!("{GOOD}{more}"), &around())
}

fn pool(name: &str, platform: &str) -> PoolPlatform {
    let strategies = vec!["remote".to_owned()];
    PoolPlatform { pool: name.to_owned(), platform: Label::parse(platform).unwrap(), strategies }
}

#[test]
fn nothing_is_wrong_with_what_is_right() {
    assert_eq!(good_with(""), []);
    assert_eq!(codes("build --jobs=100\n", &around()), []);
    assert_eq!(good_with("build --strategy=Genrule=remote,local\nbuild --nospecial -c opt\n"), []);
}

#[test]
fn a_registered_platform_has_a_list() {
    let text = GOOD.replace("//p:a,//p:b", "//p:a,//p:b,//p:c");
    assert_eq!(codes(&text, &around()), [("platform-without-line", 1)]);
    let registered = Surroundings { registered: vec![Label::parse("//p:m").unwrap()], ..around() };
    assert_eq!(codes(GOOD, &registered), [("platform-without-line", 0)]);
}

#[test]
fn a_list_has_a_registered_platform() {
    assert_eq!(
        good_with("build --allowed_strategies_by_exec_platform=//p:x=remote"),
        [("line-without-platform", 5)]
    );
}

#[test]
fn the_host_has_a_list() {
    let without: String = GOOD.lines().take(3).map(|line| format!("{line}\n")).collect();
    assert_eq!(codes(&without, &around()), [("host-without-line", 0)]);
    // The usual label is nobody's any more.
    assert_eq!(
        good_with("build --host_platform=//p:h"),
        [("line-without-platform", 4), ("host-without-line", 5)]
    );
}

#[test]
fn a_pools_platform_is_reached_remotely() {
    let around = Surroundings { pools: vec![pool("a", "//p:a")], ..around() };
    let text = GOOD.replace("//p:a=remote", "//p:a=local");
    assert_eq!(codes(&text, &around), [("pool-out-of-reach", 2)]);
}

#[test]
fn a_pool_is_registered_and_in_the_order_of_the_configuration() {
    let pools = |names: &[&str]| {
        let pools = names.iter().map(|name| pool(name, &format!("//p:{name}"))).collect();
        codes(GOOD, &Surroundings { pools, ..around() })
    };
    assert_eq!(pools(&["a", "b"]), []);
    assert_eq!(pools(&["b", "a"]), [("order-differs", 1)]);
    assert_eq!(pools(&["a", "b", "c"]), [("pool-not-registered", 0)]);
}

#[test]
fn both_sides_of_dynamic_are_allowed() {
    let with = |list: &str| {
        let text = GOOD
            .replace("//p:a=remote", &format!("//p:a={list}"))
            .replace("worker,sandboxed,local", "dynamic,remote,worker");
        codes(&format!("{text}build --spawn_strategy=dynamic,remote"), &around())
    };
    assert_eq!(with("dynamic,remote,sandboxed"), []);
    assert_eq!(with("dynamic,remote"), [("dynamic-one-side", 2)]);
    assert_eq!(with("dynamic,local"), [("dynamic-empty", 2)]);
    assert_eq!(with("worker,local"), [("nothing-left", 5)]);
}

#[test]
fn a_fallback_is_allowed_where_it_may_be_needed() {
    assert_eq!(
        good_with("build --remote_local_fallback"),
        [("fallback-not-allowed", 2), ("fallback-not-allowed", 3)]
    );
    assert_eq!(
        good_with("build --remote_local_fallback\ntest --noremote_local_fallback --jobs=3"),
        good_with("build --remote_local_fallback")
    );
    assert_eq!(good_with("build --remote_local_fallback --noremote_local_fallback"), []);
}

#[test]
fn names_exist_on_the_host() {
    assert_eq!(good_with("build --spawn_strategy=remote,docker,local"), [("unknown-strategy", 5)]);
    assert_eq!(good_with("build --spawn_strategy=remote,standalone,processwrapper-sandbox,local"), []);
    let windows = Surroundings { os: Os::Windows, ..around() };
    assert_eq!(codes(GOOD, &windows), [("unknown-strategy", 4)]);
}

#[test]
fn an_empty_list_is_not_what_it_seems() {
    assert_eq!(codes(&GOOD.replace("//p:b=remote", "//p:b="), &around()), [("empty-list", 3)]);
}

#[test]
fn a_list_given_twice_counts_once() {
    assert_eq!(
        good_with("build --allowed_strategies_by_exec_platform=@@//p:a=remote"),
        [("list-replaced", 2)]
    );
}

#[test]
fn platforms_given_twice_count_once() {
    let text = format!("build --extra_execution_platforms=//p:old\n{GOOD}");
    assert_eq!(codes(&text, &around()), [("platforms-replaced", 1)]);
}

#[test]
fn old_bazels_lack_the_flag() {
    let old = Surroundings { version: "8.5.0".parse().unwrap(), ..around() };
    let found = codes(GOOD, &old);
    assert_eq!(found, [("needs-bazel-9", 2), ("needs-bazel-9", 3), ("needs-bazel-9", 4)]);
}

#[test]
fn a_mnemonics_list_is_emptied_and_the_text_says_by_whom() {
    let found = findings(&format!("{GOOD}build --strategy=CppCompile=sandboxed\n"), &around());
    let whats: Vec<_> = found.iter().map(|finding| finding.what.as_str()).collect();
    let what = |platform: &str| {
        format!("actions with the mnemonic CppCompile fail on {platform}: nothing is left of [sandboxed]")
    };
    assert_eq!(whats, [what("//p:a"), what("//p:b")]);
    assert!(
        found[0].why.contains("--strategy=CppCompile asks for [sandboxed], and ")
            && found[0].why.contains("rc:2 allows [remote]")
    );
    assert_eq!(good_with("build --strategy_regexp=Linking=remote"), [("nothing-left", 5)]);
    assert_eq!(good_with("build --genrule_strategy=local"), [("nothing-left", 5), ("nothing-left", 5)]);
    assert_eq!(good_with("build --genrule_strategy=local --strategy=Genrule=local,remote"), []);
}

#[test]
fn tests_have_flags_of_their_own() {
    assert_eq!(good_with("test --strategy=TestRunner=local"), [("nothing-left", 5), ("nothing-left", 5)]);
}

#[test]
fn labels_and_values_are_some() {
    assert_eq!(good_with("build --allowed_strategies_by_exec_platform=//p:=remote"), [("bad-label", 5)]);
    assert_eq!(good_with("build --allowed_strategies_by_exec_platform=//p:a"), [("bad-value", 5)]);
    assert_eq!(good_with("build --allowed_strategies_by_exec_platform=//p:a=remote,"), [("bad-value", 5)]);
    assert_eq!(good_with("build --strategy_regexp=(=remote"), [("bad-expression", 5), ("nothing-left", 5)]);
}

#[test]
fn the_host_has_one_label_that_counts() {
    let text = GOOD.replace("@platforms//host:host", "@bazel_tools//tools:host_platform");
    assert_eq!(codes(&text, &around()), [("alias-label", 4), ("host-without-line", 0)]);
}

#[test]
fn a_pattern_is_looked_up_among_what_is_known() {
    let text = GOOD.replace("//p:a,//p:b", "//p:all");
    let unknown = [("unknown-pattern", 1), ("line-without-platform", 2), ("line-without-platform", 3)];
    assert_eq!(codes(&text, &around()), unknown);
    assert_eq!(
        codes(&text, &Surroundings { pools: vec![pool("a", "//p:a"), pool("b", "//p:b")], ..around() }),
        []
    );
}

#[test]
fn what_is_read_otherwise_than_written_is_told() {
    assert_eq!(good_with("biuld --x"), [("unknown-section", 5)]);
    assert_eq!(good_with("query --spawn_strategy=local"), [("wrong-section", 5)]);
    assert_eq!(good_with("build --copt=\"a"), [("open-quote", 5)]);
    assert_eq!(good_with("build --copt=a#b"), [("comment-in-word", 5)]);
    assert_eq!(good_with("build --x # \\\n --y"), [("comment-continues", 5)]);
    assert_eq!(codes(GOOD, &Surroundings { remote: false, ..around() }), [("no-executor", 2)]);
}
