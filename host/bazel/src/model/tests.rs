//! Each case of Bazel's rules that can be told from flags, as `.bazelrc` text, action and what becomes of it.

use std::path::Path;

use super::{Decision, Model, Os, Spawn};
use crate::flags::Flags;
use crate::label::Label;
use crate::rc;

const HOST: &str = "@platforms//host:host";

/// An action of this mnemonic on a platform.
struct Case<'a> {
    rc: &'a str,
    os: Os,
    version: &'a str,
    mnemonic: &'a str,
    description: Option<&'a str>,
    platform: &'a str,
    tags: &'a [&'a str],
}

impl<'a> Case<'a> {
    fn new(rc: &'a str, mnemonic: &'a str, platform: &'a str) -> Self {
        Self {
            rc,
            os: Os::Linux,
            version: "9.0.0",
            mnemonic,
            description: Some("Doing it"),
            platform,
            tags: &[],
        }
    }

    fn decide(&self) -> Decision {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rc");
        std::fs::write(&file, self.rc).unwrap();
        let read = rc::read(&file, Path::new("")).unwrap();
        let words = rc::expand(&read.lines, "test", &[], self.os).unwrap().words;
        let (flags, bad) = Flags::read(&words);
        assert!(bad.is_empty(), "{bad:?}");
        let model = Model::new(&flags, self.os, self.version.parse().unwrap());
        let tags: Vec<String> = self.tags.iter().map(|tag| (*tag).to_owned()).collect();
        let platform = Label::parse(self.platform).unwrap();
        model.decide(&Spawn {
            mnemonic: self.mnemonic,
            description: self.description,
            platform: &platform,
            tags: &tags,
        })
    }

    fn left(&self) -> String {
        self.decide().after().join(",")
    }

    fn runs(&self) -> Option<String> {
        let decision = self.decide();
        decision.runs.map(|index| decision.candidates[index].name.clone())
    }
}

fn left(rc: &str, mnemonic: &str, platform: &str) -> String {
    Case::new(rc, mnemonic, platform).left()
}

/// The example of Bazel's proposal.
const PROPOSAL: &str = "build --spawn_strategy=remote,worker,sandboxed,local
build --allowed_strategies_by_exec_platform=@platforms//host:host=local,sandboxed,worker
build --allowed_strategies_by_exec_platform=//:linux_amd64=remote
build --strategy=BAR=remote,sandboxed
";

#[test]
fn the_order_is_that_of_the_usual_flags() {
    assert_eq!(left(PROPOSAL, "FOO", HOST), "worker,sandboxed,local");
    assert_eq!(left(PROPOSAL, "FOO", "//:linux_amd64"), "remote");
}

#[test]
fn a_mnemonics_list_is_filtered_too() {
    assert_eq!(left(PROPOSAL, "BAR", HOST), "sandboxed");
    assert_eq!(left(PROPOSAL, "BAR", "//:linux_amd64"), "remote");
}

#[test]
fn a_mnemonic_that_has_to_be_local_fails_on_a_remote_platform() {
    let rc = format!("{PROPOSAL}build --strategy=Genrule=local");
    let case = Case::new(&rc, "Genrule", "//:linux_amd64");
    assert_eq!((case.left(), case.runs()), (String::new(), None));
    let told = case.decide().end("Genrule", &Label::parse("//:linux_amd64").unwrap());
    assert!(
        told.contains("none of []: asked for were [local] by --strategy (")
            && told.contains("allows [remote]"),
        "{told}"
    );
}

#[test]
fn a_platform_without_a_line_is_not_restricted() {
    assert_eq!(left(PROPOSAL, "FOO", "//:other"), "remote,worker,sandboxed,local");
}

#[test]
fn the_host_is_a_label_in_either_spelling() {
    let rc = "build --allowed_strategies_by_exec_platform=@@platforms//host:host=local";
    assert_eq!(left(rc, "FOO", HOST), "local");
    // Another host platform is another label.
    assert_eq!(left(rc, "FOO", "//:my_host"), "remote,worker,sandboxed,local");
}

#[test]
fn labels_are_those_of_the_main_repository() {
    let rc = "build --allowed_strategies_by_exec_platform=@@//p:p=local";
    assert_eq!(left(rc, "FOO", "//p"), "local");
}

#[test]
fn children_inherit_no_list() {
    let rc = "build --allowed_strategies_by_exec_platform=//:parent=local";
    assert_eq!(left(rc, "FOO", "//:child"), "remote,worker,sandboxed,local");
}

#[test]
fn the_last_list_of_a_label_replaces_those_before() {
    let rc = "build --allowed_strategies_by_exec_platform=//:a=local,worker
build --allowed_strategies_by_exec_platform=//:a=remote";
    assert_eq!(left(rc, "FOO", "//:a"), "remote");
}

#[test]
fn an_empty_list_allows_everything() {
    assert_eq!(
        left("build --allowed_strategies_by_exec_platform=//:a=", "FOO", "//:a"),
        "remote,worker,sandboxed,local"
    );
}

#[test]
fn an_unknown_name_stops_bazel() {
    for rc in
        ["build --spawn_strategy=remot,local", "build --allowed_strategies_by_exec_platform=//:a=remot,local"]
    {
        let decision = Case::new(rc, "FOO", "//:a").decide();
        assert_eq!((decision.runs, &*decision.unregistered), (None, &["remot".to_owned()][..]), "{rc}");
        assert!(decision.end("FOO", &Label::host()).contains("\"remot\" is no strategy"));
    }
}

#[test]
fn names_are_compared_by_what_they_stand_for() {
    let with = |allowed: &str, spawn: &str, os: Os| {
        let rc =
            format!("build --spawn_strategy={spawn} --allowed_strategies_by_exec_platform=//:a={allowed}");
        Case { os, ..Case::new(&rc, "FOO", "//:a") }.left()
    };
    assert_eq!(with("standalone", "local", Os::Linux), "local");
    assert_eq!(with("dynamic_worker", "dynamic", Os::Linux), "dynamic");
    assert_eq!(with("linux-sandbox", "sandboxed", Os::Linux), "sandboxed");
    assert_eq!(with("darwin-sandbox", "sandboxed", Os::Darwin), "sandboxed");
    // `sandboxed` is the best sandbox there is, and not the others.
    assert_eq!(with("sandboxed", "processwrapper-sandbox", Os::Linux), "");
}

#[test]
fn dynamic_has_to_be_allowed_itself() {
    let rc = "build --spawn_strategy=dynamic --allowed_strategies_by_exec_platform=//:a=worker,local";
    assert_eq!(left(rc, "FOO", "//:a"), "");
}

#[test]
fn each_side_of_dynamic_is_filtered() {
    let rc = "build --spawn_strategy=dynamic --dynamic_local_strategy=worker,local --allowed_strategies_by_exec_platform=//:a=dynamic,worker,local";
    let case = Case::new(rc, "FOO", "//:a");
    let legs = case.decide().candidates[0].legs.clone().unwrap();
    assert_eq!(legs.left, [vec!["worker".to_owned(), "local".to_owned()], vec![]]);
    assert_eq!(case.runs().as_deref(), Some("dynamic"), "it is a race with one side only");
    let rc = "build --spawn_strategy=dynamic --allowed_strategies_by_exec_platform=//:a=dynamic";
    let case = Case::new(rc, "FOO", "//:a");
    assert_eq!((case.left().as_str(), case.runs()), ("dynamic", None));
}

#[test]
fn sides_of_dynamic_can_depend_on_the_mnemonic() {
    let rc =
        "build --spawn_strategy=dynamic --dynamic_local_strategy=worker --dynamic_local_strategy=FOO=local";
    let local = |mnemonic: &str| {
        Case::new(rc, mnemonic, HOST).decide().candidates[0].legs.clone().unwrap().left[0].clone()
    };
    assert_eq!((local("FOO"), local("BAR")), (vec!["local".to_owned()], vec!["worker".to_owned()]));
}

/// A description that matches, a mnemonic that is named, and a platform with a list: the discussion of the proposal asks
/// who wins.
#[test]
fn an_expression_wins_over_a_mnemonic_and_the_platform_takes_from_either() {
    let frob = |platform_list: &str| {
        let rc = format!(
            "build --strategy_regexp=Frobbing.*=local --strategy=FROB=sandboxed
build --allowed_strategies_by_exec_platform=//platform:macos_arm_remote_cluster={platform_list}"
        );
        let description = Some("Frobbing the quzzle component");
        Case { description, ..Case::new(&rc, "FROB", "//platform:macos_arm_remote_cluster") }.left()
    };
    assert_eq!(frob("remote"), "", "local is not allowed there: the action fails");
    assert_eq!(frob("remote,local"), "local");
    assert_eq!(frob("remote,sandboxed"), "", "the mnemonic's list is not asked any more");
}

#[test]
fn of_expressions_the_last_that_matches_counts() {
    let rc = "build --strategy_regexp=Compiling.*/bar=local --strategy_regexp=Compiling=sandboxed --strategy_regexp=Linking,-//a=worker";
    let with =
        |description| Case { description: Some(description), ..Case::new(rc, "CppCompile", HOST) }.left();
    assert_eq!(with("Compiling //foo/bar/baz"), "sandboxed");
    assert_eq!(with("Linking //b"), "worker");
    assert_eq!(with("Linking //a"), "remote,worker,sandboxed,local");
}

#[test]
fn an_expression_with_an_empty_list_falls_through_to_the_mnemonic() {
    let rc = "build --strategy_regexp=Doing=local --strategy_regexp=Doing= --strategy=FOO=worker";
    let decision = Case::new(rc, "FOO", HOST).decide();
    assert_eq!(decision.after(), ["worker"]);
    assert!(decision.passed_over[0].contains("its list is empty"));
}

#[test]
fn expressions_do_not_apply_to_tests_or_to_what_has_no_description() {
    let rc = "build --strategy_regexp=.*=worker";
    assert_eq!(left(rc, "TestRunner", HOST), "remote,worker,sandboxed,local");
    assert_eq!(
        Case { description: None, ..Case::new(rc, "FOO", HOST) }.left(),
        "remote,worker,sandboxed,local"
    );
    assert_eq!(left(rc, "FOO", HOST), "worker");
}

#[test]
fn an_empty_list_of_a_mnemonic_means_the_default() {
    let rc = "build --spawn_strategy=local --strategy=FOO=worker --strategy=FOO=";
    assert_eq!(left(rc, "FOO", HOST), "local");
}

#[test]
fn the_genrule_flag_is_weaker_than_its_mnemonic() {
    let rc = "build --strategy=Genrule=worker --genrule_strategy=local";
    assert_eq!(left(rc, "Genrule", HOST), "worker");
    assert_eq!(left("build --genrule_strategy=local", "Genrule", HOST), "local");
    assert_eq!(left("build --genrule_strategy=local", "FOO", HOST), "remote,worker,sandboxed,local");
}

#[test]
fn windows_has_no_sandbox_by_default() {
    assert_eq!(Case { os: Os::Windows, ..Case::new("", "FOO", HOST) }.left(), "remote,worker,local");
}

#[test]
fn of_what_is_left_the_first_that_can_runs_the_action() {
    let with =
        |tags: &'static [&'static str], rc: &'static str| Case { tags, ..Case::new(rc, "FOO", HOST) }.runs();
    assert_eq!(with(&[], "").as_deref(), Some("remote"));
    assert_eq!(with(&["no-remote-exec"], "").as_deref(), Some("sandboxed"));
    assert_eq!(with(&["no-remote-exec", "supports-workers"], "").as_deref(), Some("worker"));
    assert_eq!(with(&["local"], "").as_deref(), Some("local"));
    assert_eq!(with(&["no-sandbox"], "build --spawn_strategy=sandboxed"), None);
    // Bazel 7.7.1 says so, too: a platform with this property and nothing but remote.
    assert_eq!(with(&["no-remote-exec"], "build --spawn_strategy=remote"), None);
}

#[test]
fn execution_info_can_be_changed_by_mnemonic() {
    let rc = "build --modify_execution_info=FO.=+no-remote,BAR=+local";
    assert_eq!(Case::new(rc, "FOO", HOST).runs().as_deref(), Some("sandboxed"));
    assert_eq!(
        Case::new(rc, "FOOT", HOST).runs().as_deref(),
        Some("remote"),
        "the whole mnemonic has to match"
    );
    let rc = "build --modify_execution_info=FOO=-local";
    assert_eq!(Case { tags: &["local"], ..Case::new(rc, "FOO", HOST) }.runs().as_deref(), Some("remote"));
}

#[test]
fn older_bazels_know_no_lists_and_dynamic_on_request_only() {
    let rc = "build --allowed_strategies_by_exec_platform=//:a=local";
    assert_eq!(
        Case { version: "8.5.0", ..Case::new(rc, "FOO", "//:a") }.left(),
        "remote,worker,sandboxed,local"
    );
    let runs = |rc| Case { version: "7.7.1", ..Case::new(rc, "FOO", "//:a") }.runs();
    assert_eq!(runs("build --spawn_strategy=dynamic"), None);
    assert_eq!(runs("build --spawn_strategy=dynamic --internal_spawn_scheduler").as_deref(), Some("dynamic"));
}

#[test]
fn the_steps_are_told() {
    let rc = format!("{PROPOSAL}build --strategy_regexp=Nothing=local");
    let steps = Case { tags: &["supports-workers"], ..Case::new(&rc, "FOO", HOST) }
        .decide()
        .steps("FOO", &Label::host());
    let steps =
        steps.lines().map(|line| line.split_once("(/").map_or(line, |(start, _)| start)).collect::<Vec<_>>();
    assert_eq!(
        steps,
        [
            "passed over  no --strategy_regexp matches \"Doing it\"",
            "list         [remote, worker, sandboxed, local] by --spawn_strategy ",
            "platform     @platforms//host:host allows [local, sandboxed, worker] ",
            "left         [worker, sandboxed, local]",
            "tried        worker: can run it",
            "tried        sandboxed: can run it",
            "tried        local: can run it",
            "runs         worker",
        ]
    );
}
