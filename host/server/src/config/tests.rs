use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn refused(text: &str) -> String {
    Config::parse(text, "p.json5").expect_err("must be refused").to_string()
}

fn listed(values: &[&str]) -> PlatformValues {
    PlatformValues::Listed(values.iter().map(|value| (*value).to_owned()).collect())
}

#[test]
fn the_defaults_need_no_file() {
    let config = Config::default();
    assert_eq!(config.listen.to_string(), "127.0.0.1:8980");
    assert_eq!(config.http.listen, HttpListen::Auto);
    assert_eq!(config.unknown_property, UnknownProperty::Ignore);
    assert_eq!(config.host_key, HostKey::AllButThread);
    assert_eq!(config.platform_properties["cpu_count"], PropertyType::Minimum);
    assert_eq!(config.platform_properties["container-image"], PropertyType::Priority);
    assert_eq!(config.timers.idle_poll, 120 * SECOND);
    assert_eq!(config.worker_match_logging_interval, Some(10 * SECOND));
    assert!(!config.worker.enabled);
}

#[test]
fn an_empty_file_differs_from_none_in_one_thing() {
    let config = Config::parse("{} // nothing", "p.json5").unwrap();
    assert_eq!(config.unknown_property, UnknownProperty::Reject);
    let mut same = config.values.clone();
    same.unknown_property = UnknownProperty::Ignore;
    same.file = None;
    assert_eq!(same, Config::default().values);
}

#[test]
fn every_key_is_read() {
    let text = r#"{
        listen: "0.0.0.0:1", http: { listen: "[::1]:2", buildbarn_metrics: false }, state_dir: "/s", matching: "typed", unknown_property: "queue", host_key: ["node"],
        pools: [{ name: "p", platform: { a: ["1"], b: "2" }, instance_name_prefix: "x", size_class: 3, max_inflight_tasks: 4,
                  bazel: { platform: "//p", strategies: ["remote", "local"], constraint_values: ["@platforms//os:linux"] } }],
        bazel: { host: { platform: "//h", strategies: ["local"] } },
        max_attempts: 5, placement: "best_fit",
        attempts: { lost: 1, given_back: 2, reported: 5, exhausted_forgiven: 0 }, quarantine_after: 0, reserved_percent: 25,
        sizes: { rerun: ["timed-out"] },
        priority_step: "1m", worker_match_logging_interval_s: -1,
        supported_platform_properties: { a: "exact", b: "minimum", "c d": "priority", e: "ignore" },
        storage: { embedded: { max_size: "1GiB", action_cache_entries: 5, small_blob_cache: "1kB" } },
        action_cache: { look_again_after: "0s", write_results: true },
        timers: { heartbeat: "1s", heartbeat_max: "2s", idle_poll: "2s", worker_expiry: "3s", abandoned: "4s",
                  completed_retention: "5s", default_action_timeout: "6s", maximum_action_timeout: "7s",
                  retry_backoff: "0s", retry_backoff_max: "8s", exhausted_pause: "9s", exhausted_pause_max: "10s",
                  quarantine: "11s", quarantine_max: "12s", unschedulable_timeout: "0s",
                  reservation_after: "0s", reservation_timeout: "13s", shutdown_grace: "500ms" },
        limits: { queued_actions: 1, properties_per_action: 2, command_size: "3B", message_size: "4MiB",
                  streams_per_connection: 5, classes: 6, demands: 7, workers: 8, holds: 9, heartbeats_per_second: 10 },
        policy: { file: "x/p.wasm", config: { list: [1, null, -2, 0.5, "x"] }, fuel: 7, deadline: "9s", memory: "8MiB",
                  dir: "p", probation: { length: "1m", events: 2, traps: 0, over_budget: 0.5, more_rejections: 1 } },
        decision_log: { memory_records: 0, memory_size: "1MiB", file: "log/d.zst", rotate_size: "2MiB", keep_files: 0,
                        mask: ["principal", "property:a"], sample: 0.5 },
        router: { deadline: "3s", unsupported: "reject", known_routes: "0B" },
        worker: { enabled: true, concurrency: 9, platform: { a: ["1", "2"], b: { query_cmd: "nproc --all" },
                  "c d": { values: [""] } }, query_timeout: "1m", dir: "w", cache_size: "1TB", storage_patience: "1m" },
    }"#;
    let config = Config::parse(text, "etc/p.json5").unwrap();
    assert_eq!(config.http.listen, HttpListen::At("[::1]:2".parse().unwrap()));
    assert!(!config.http.buildbarn_metrics);
    assert_eq!(config.storage.dir, Path::new("/s/storage"));
    assert_eq!(config.storage.max_size_bytes, 1 << 30);
    assert_eq!(config.storage.small_blob_cache_bytes, 1000);
    assert_eq!(config.host_key, HostKey::Only(vec!["node".to_owned()]));
    assert_eq!(config.worker_match_logging_interval, None);
    assert_eq!(config.timers.shutdown_grace, Duration::from_millis(500));
    assert_eq!(config.placement, Placement::BestFit);
    assert_eq!(config.timers.retry_backoff, Duration::ZERO);
    assert_eq!(config.timers.quarantine_max, 12 * SECOND);
    assert_eq!(config.timers.unschedulable_timeout, Duration::ZERO);
    assert_eq!(
        (config.timers.reservation_after, config.timers.reservation_timeout),
        (Duration::ZERO, 13 * SECOND)
    );
    assert_eq!(config.reserved_percent, 25);
    assert_eq!(
        (config.attempts.lost_max, config.attempts.given_back_max, config.attempts.reported_max),
        (1, 2, 5)
    );
    assert_eq!((config.attempts.exhausted_forgiven_max, config.quarantine_after), (0, 0));
    assert_eq!(config.sizes.rerun, [TooSmall::TimedOut]);
    let [pool] = &*config.pools else { panic!("{:?}", config.pools) };
    assert_eq!(
        (pool.name.as_str(), &*pool.platform["a"], &*pool.platform["b"]),
        ("p", &["1".to_owned()][..], &["2".to_owned()][..])
    );
    assert_eq!(
        (pool.instance_name_prefix.as_deref(), pool.size_class, pool.max_inflight_tasks),
        (Some("x"), Some(3), 4)
    );
    assert_eq!(pool.bazel.platform.as_ref().map(ToString::to_string).as_deref(), Some("//p:p"));
    assert_eq!((pool.bazel.strategies.len(), pool.bazel.constraint_values.len()), (2, 1));
    assert_eq!(
        (config.bazel.host.platform.to_string().as_str(), config.bazel.host.strategies.len()),
        ("//h:h", 1)
    );
    assert_eq!((config.limits.classes_max, config.limits.demands_max), (6, 7));
    assert_eq!((config.limits.workers_max, config.limits.holds_max), (8, 9));
    assert_eq!(config.limits.command_size_max_bytes, 3);
    assert_eq!((config.timers.heartbeat_max, config.limits.heartbeats_per_s_max), (2 * SECOND, 10));
    let wanted = ActionCache { look_again_after: Duration::ZERO, write_results: true };
    assert_eq!(config.action_cache, wanted);
    let main = &config.policy.links["main"];
    assert_eq!(main.config, serde_json::json!({"list": [1, null, -2, 0.5, "x"]}));
    assert_eq!(main.file.as_deref(), Some(Path::new("etc/x/p.wasm")), "from the file's folder");
    assert_eq!(config.policy.chains, BTreeMap::from([(String::new(), vec!["main".to_owned()])]));
    assert_eq!((config.policy.dir.as_path(), config.policy.probation.events_min), (Path::new("etc/p"), 2));
    let log = &config.decision_log;
    assert_eq!(log.file.as_deref(), Some(Path::new("etc/log/d.zst")));
    assert_eq!((log.memory_records_max, log.memory_max_bytes, log.rotate_bytes), (0, 1 << 20, 2 << 20));
    assert_eq!((log.keep_files, log.mask.len(), log.sample), (0, 2, 0.5));
    assert_eq!((config.router.deadline, config.router.known_routes_max_bytes), (3 * SECOND, 0));
    assert_eq!(config.router.unsupported, Unsupported::Reject);
    assert_eq!(config.worker.platform["a"], listed(&["1", "2"]));
    assert_eq!(config.worker.platform["c d"], listed(&[""]));
    let PlatformValues::Queried(query) = &config.worker.platform["b"] else { panic!("no query") };
    assert_eq!((query.key(), query.command()), ("b", "nproc --all"));
    assert_eq!(config.worker.query_timeout, 60 * SECOND);
    assert_eq!(config.worker.storage_patience, 60 * SECOND);
    assert_eq!(config.policy.deadline, 9 * SECOND);
    assert_eq!(config.worker.dir, Path::new("etc/w"));
    assert_eq!(config.worker.cache_size_bytes, 1_000_000_000_000);
}

#[test]
fn what_is_printed_says_the_same_when_read() {
    for text in [
        "{}",
        "{host_key: ['a'], worker_match_logging_interval_s: 0, priority_step: '0s', worker: {platform: {ISA: 'x'}}}",
        "{policy: {file: '/p.wasm', memory: '1000B'}, timers: {heartbeat: '1500ms'}}",
        "{policies: {a: {file: '/a.wasm', on_error: 'skip', isolation: 'call'}, \
          b: {new_versions: 'canary', canary_prefixes: ['ci']}}, chains: {'': ['b'], ci: ['a', 'default']}}",
        "{worker: {platform: {ISA: [], Arch: {values: ['b', '']}, cpu_count: {query_cmd: \"sh -c 'nproc'\"}}}}",
        "{decision_log: {file: '/d.zst', mask: ['environment:X', 'arguments'], sample: 0.25}}",
        "{http: {listen: 'off'}}",
        "{http: {listen: '127.0.0.1:0'}, listen: '127.0.0.1:0'}",
        "{matching: 'exact_set', worker: {platform: {anything: 'x'}}}",
        "{pools: [{name: 'b', size_class: 0, platform: {ISA: ['x', 'y'], cpu_count: '4'}}, {name: 'a'}]}",
        "{learning: {dir: 'l', keys: 7, class_cores: {'4': 6, '0': 0.5}, cores: ''}, packing: {by: 'measured', memory: ''}}",
        "{max_attempts: 9, attempts: {lost: 2}, timers: {unschedulable_timeout: '0s'}, quarantine_after: 0, reserved_percent: 100}",
        "{sizes: {rerun: []}}",
        "{router: {deadline: '1s', unsupported: 'reject', known_routes: '0B'}}",
    ] {
        let config = Config::parse(text, "/etc/p.json5").unwrap();
        let printed = config.to_json().to_string();
        assert_eq!(Config::parse(&printed, "/etc/p.json5").unwrap(), config, "{printed}");
    }
}

#[test]
fn a_field_to_mask_is_one_of_a_record() {
    let text = refused("{decision_log: {mask: ['principal', 'argument'], sample: 2}}");
    assert!(
        text.contains(
            "decision_log.mask[1]: a record has no field \"argument\"; did you mean \"arguments\"?"
        ),
        "{text}"
    );
    assert!(text.contains("decision_log.sample: 2 is no share; give a number from 0 to 1"), "{text}");
}

#[test]
fn the_side_port_is_an_address_or_a_word() {
    let text = refused("{http: {listen: 'none'}}");
    assert!(
        text.contains("http.listen: \"none\" is no address: give \"IP:PORT\", \"auto\" (127.0.0.1:8981"),
        "{text}"
    );
    let text = refused("{http: {listen: 8981}}");
    assert!(text.contains("expected \"IP:PORT\", \"auto\" or \"off\""), "{text}");
    let text = refused("{http: {listen: '127.0.0.1:8980'}}");
    assert!(text.contains("is where clients and workers connect (listen)"), "{text}");
}

#[test]
fn a_file_that_is_nested_too_deep_is_refused() {
    let deep = |n| format!("{{policy: {{config: {}{}}}}}", "[".repeat(n), "]".repeat(n));
    assert!(Config::parse(&deep(98), "p.json5").is_ok());
    assert!(refused(&deep(99)).contains("p.json5:1:"), "{}", refused(&deep(99)));
    assert!(refused(&deep(100_000)).contains("nested more than 100 deep"));
}

#[test]
fn policies_and_chains_must_fit() {
    let says = |text: &str, what: &str| assert!(refused(text).contains(what), "{}", refused(text));
    says("{policies: {a: {}, b: {}}}", "policies: has several, so `chains` must say");
    says("{policies: {a: {}}, policy: {file: 'x'}}", "is for a policy that is alone");
    says("{policies: {a: {}}, chains: {'': ['a', 'x']}}", "names \"x\", which is not among policies (a)");
    says("{policies: {a: {}}, chains: {'': ['a', 'a']}}", "names \"a\" twice");
    says("{policies: {a: {}}, chains: {'': []}}", "is empty");
    says("{policies: {a: {sha256: 'abc'}}}", "is no SHA-256");
    says("{policies: {a: {public_keys: ['abc']}}}", "is not a public key of minisign");
    says("{policies: {a: {trial_share: 0.5}}}", "has no effect unless");
    says("{policies: {a: {new_versions: 'shadow', trial_share: 50}}}", "50 is no share");
    let config = Config::parse("{policies: {a: {file: 'a.wasm'}}}", "etc/p.json5").unwrap();
    assert_eq!(config.policy.chains, BTreeMap::from([(String::new(), vec!["a".to_owned()])]));
}

#[test]
fn parts_of_a_policy_s_configuration_lie_in_files() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("p.json5");
    std::fs::create_dir(folder.path().join("tables")).unwrap();
    std::fs::write(folder.path().join("tables/heavy.json5"), "// ours\n[{ size: 'big' },\n { x: 1 }]")
        .unwrap();
    let parse = |text: &str| Config::parse(text, name.to_str().unwrap());
    let config = parse(
        "{policy: {config: {a: {b: 1}}, config_files: {'/a/table': 'tables/heavy.json5', 'k~': 'tables/heavy.json5'}}}",
    );
    let config = config.unwrap();
    let plan = config.policy.plan();
    let link = &plan.links["main"];
    let given: serde_json::Value = serde_json::from_str(&link.config).unwrap();
    let table = serde_json::json!([{ "size": "big" }, { "x": 1 }]);
    assert_eq!(given, serde_json::json!({ "a": { "b": 1, "table": table }, "k~": table }));
    assert_eq!(
        config.policy.default_config(),
        link.config,
        "where the default stands in, it has the files too"
    );

    // What a policy says of a place is told with file, line and column.
    let place = |pointer: &str| {
        let place = link.places.of(pointer)?;
        let (file, line) = place.split_once(":").unwrap();
        assert!(file.ends_with("tables/heavy.json5"), "{place}");
        Some(line.to_owned())
    };
    assert_eq!(place("/a/table/1/x").as_deref(), Some("3:4"));
    assert_eq!(place("/a/table/0").as_deref(), Some("2:2"));
    let nowhere = link.places.of("/a/table/7/none").unwrap();
    assert!(nowhere.ends_with("tables/heavy.json5"), "the file, as its list has no such item: {nowhere}");
    assert_eq!(place("/a/b"), None, "it is in the configuration itself");

    // Printed, it names the files and not what is in them; and reads the same.
    let printed = config.to_json().to_string();
    assert!(printed.contains("heavy.json5") && !printed.contains("\"size\":"), "{printed}");
    assert_eq!(parse(&printed).unwrap().policy, config.policy);
}

#[test]
fn of_files_within_files_the_innermost_has_the_place() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("outer"), "{ b: 1 }").unwrap();
    std::fs::write(folder.path().join("inner"), "[\n 1,\n 2]").unwrap();
    let name = folder.path().join("p.json5");
    let text = "{policy: {config_files: {'/a': 'outer', '/a/c': 'inner'}}}";
    let config = Config::parse(text, name.to_str().unwrap()).unwrap();
    let places = &config.policy.plan().links["main"].places;
    assert!(places.of("/a/c/1").unwrap().ends_with("inner:3:2"));
    assert!(places.of("/a/b").unwrap().ends_with("outer:1:3"));
}

#[test]
fn files_that_can_t_be_parts_of_a_configuration_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("p.json5");
    std::fs::write(folder.path().join("good"), "1").unwrap();
    std::fs::write(folder.path().join("bad"), "[\n  { a: },\n]").unwrap();
    let says = |text: &str, what: &[&str]| {
        let error = Config::parse(text, name.to_str().unwrap()).unwrap_err().to_string();
        assert!(what.iter().all(|what| error.contains(what)), "{error}");
    };
    says(
        "{policy: {config_files: {'/t': 'none'}}}",
        &["p.json5:1:32: policy.config_files.\"/t\"", "none: can't be read: "],
    );
    says(
        "{policies: {a: {config_files: {'/t': 'bad'}}}}",
        &["policies.a.config_files", "bad:2:8: not valid JSON5"],
    );
    says("{policy: {config: {t: 1}, config_files: {'/t': 'good'}}}", &["has a value already"]);
    says(
        "{policy: {config: {t: 1}, config_files: {'/t/x': 'good'}}}",
        &["goes through something that is not an object"],
    );
    says("{policy: {config_files: {'/': 'good'}}}", &["names no key"]);
    says("{policies: {a: {}}, policy: {config_files: {'/t': 'good'}}}", &["is for a policy that is alone"]);
}

#[test]
fn a_store_elsewhere_is_instead_of_the_embedded_one() {
    let config = Config::parse(
        "{storage: {remote: {address: 'grpc://cas:1', instance_name: 'x', patience: '3s'}}}",
        "p.json5",
    );
    let config = config.unwrap();
    let store = config.remote_storage.as_ref().unwrap();
    assert_eq!((store.address.as_str(), store.instance_name.as_deref()), ("grpc://cas:1", Some("x")));
    assert_eq!(store.patience, 3 * SECOND);
    let printed = config.to_json().to_string();
    assert_eq!(Config::parse(&printed, "p.json5").unwrap(), config, "{printed}");
    let both = refused("{storage: {embedded: {dir: 'x'}, remote: {address: 'grpc://cas:1'}}}");
    assert!(both.contains("keep one of the two"), "{both}");
    let wrong = [
        "cas:1",
        "grpcs://cas:1",
        "grpc://",
        "grpc://cas",
        "grpc://cas:0",
        "grpc://cas:99999",
        "grpc://c s:1",
        "grpc://cas:1/main",
        "grpc://:1",
    ];
    for address in wrong {
        let text = refused(&format!("{{storage: {{remote: {{address: '{address}'}}}}}}"));
        assert!(text.contains(&format!("address {address:?} is none; give \"grpc://HOST:PORT\"")), "{text}");
    }
    let name = refused("{storage: {remote: {address: 'grpc://cas:1', instance_name: 'a/blobs'}}}");
    assert!(
        name.contains("storage.remote.instance_name: instance name \"a/blobs\" holds \"blobs\""),
        "{name}"
    );
}

#[test]
fn a_store_elsewhere_is_not_the_server_itself() {
    let with = |listen, address| {
        Config::parse(
            &format!("{{listen: '{listen}', storage: {{remote: {{address: '{address}'}}}}}}"),
            "p.json5",
        )
    };
    for (listen, address) in [
        ("127.0.0.1:8980", "grpc://127.0.0.1:8980"),
        ("127.0.0.1:8980", "http://localhost:8980/"),
        ("0.0.0.0:8980", "grpc://127.0.0.1:8980"),
        ("[::]:8980", "grpc://[::1]:8980"),
    ] {
        let text = with(listen, address).expect_err(address).to_string();
        assert!(text.contains("is this server's own (listen)"), "{text}");
    }
    for (listen, address) in
        [("127.0.0.1:8980", "grpc://127.0.0.1:8981"), ("10.0.0.1:8980", "grpc://10.0.0.2:8980")]
    {
        with(listen, address).unwrap();
    }
}

#[test]
fn a_pool_that_another_leaves_no_worker_is_found() {
    for (before, after, hides) in [
        ("", "platform: {Pool: 'gpu'}", true),
        ("platform: {Pool: 'x'}", "platform: {Pool: 'x', cpu_count: '4'}", true),
        ("platform: {cpu_count: '4'}", "platform: {cpu_count: '16'}, size_class: 1", true),
        ("platform: {cpu_count: '16'}", "platform: {cpu_count: '4'}", false),
        ("platform: {Pool: 'x'}", "", false),
        ("size_class: 1", "", false),
        ("instance_name_prefix: 'a'", "instance_name_prefix: 'b'", false),
    ] {
        let text = format!("{{pools: [{{name: 'a', {before}}}, {{name: 'b', {after}}}]}}");
        match Config::parse(&text, "p.json5") {
            Ok(_) => assert!(!hides, "{text}"),
            Err(error) => {
                let error = error.to_string();
                assert!(
                    hides && error.contains("no worker is ever of pool \"b\": pool \"a\" before it"),
                    "{error}"
                );
            }
        }
    }
}

#[test]
fn pools_are_checked() {
    let text = refused(
        "{pools: [{name: 'a', platform: {ISO: 'x', cpu_count: ['1', '2'], Pool: {query_cmd: 'x'}}}, {name: 'a'}, {}]}",
    );
    for part in [
        "\"ISO\" is not in supported_platform_properties (did you mean \"ISA\"?)",
        "pools[0].platform.cpu_count: is of type minimum: give the one amount",
        "pools[0].platform.Pool: query_cmd is for the bundled worker",
        "pools[1].name: the pool \"a\" is declared twice",
        "pools[2]: has no name",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn the_side_of_builds_is_checked() {
    let text = refused(
        "{pools: [{name: 'a', bazel: {platform: '//a:', strategies: ['remot'], constraint_values: ['a b']}}],
          bazel: {host: {strategies: []}}}",
    );
    for part in [
        "pools[0].bazel.platform: is no label: it names no target",
        "pools[0].bazel.strategies: \"remot\" is no strategy of Bazel; did you mean \"remote\"?",
        "pools[0].bazel.strategies: lacks \"remote\"",
        "pools[0].bazel.constraint_values: \"a b\" is no label",
        "bazel.host.strategies: is empty, and to Bazel an empty list allows everything",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn nativelinks_form_parses_as_it_stands() {
    let text = r#"{
        schedulers: [
          {
            name: "MAIN_SCHEDULER",
            simple: {
              supported_platform_properties: { cpu_count: "minimum", OSFamily: "priority", gpu: "exact" },
              // Seconds between dumps.
              worker_match_logging_interval_s: 5,
            },
          },
        ],
    }"#;
    let config = Config::parse(text, "p.json5").unwrap();
    assert_eq!(config.platform_properties["gpu"], PropertyType::Exact);
    assert_eq!(config.platform_properties.len(), 3);
    assert_eq!(config.worker_match_logging_interval, Some(5 * SECOND));
}

#[test]
fn nativelinks_form_is_refused_where_it_says_more_than_we_do() {
    let two = refused("{schedulers: [\n{name: 'a', simple: {}},\n {name: 'b', simple: {}}]}");
    assert!(two.starts_with("p.json5:3:2: schedulers[1]: 2 schedulers are listed"), "{two}");
    let other = refused("{schedulers: [{name: 'a', grpc: {}}]}");
    assert!(other.contains("schedulers[0].grpc: unknown key \"grpc\""), "{other}");
    let none = refused("{schedulers: [{name: 'a'}]}");
    assert!(none.contains("schedulers[0]: has no \"simple\""), "{none}");
    let timeout = refused("{schedulers: [{simple: {worker_timeout_s: 5}}]}");
    assert!(timeout.contains("use timers.worker_expiry"), "{timeout}");
    let twice = refused(
        "{worker_match_logging_interval_s: 1,\nschedulers: [{simple: {worker_match_logging_interval_s: 1}}]}",
    );
    assert!(
        twice.starts_with("p.json5:2:24: schedulers[0].simple.worker_match_logging_interval_s: is also"),
        "{twice}"
    );
}

#[test]
fn an_unknown_key_names_its_place_and_the_nearest() {
    let error = refused("{\n  timers: {\n\theartbeet: \"10s\",\n  },\n}");
    assert_eq!(
        error,
        "p.json5:3:2: timers.heartbeet: unknown key \"heartbeet\"; did you mean \"heartbeat\"?; known here: heartbeat, heartbeat_max, \
         idle_poll, worker_expiry, abandoned, completed_retention, default_action_timeout, maximum_action_timeout, \
         retry_backoff, retry_backoff_max, exhausted_pause, exhausted_pause_max, quarantine, quarantine_max, \
         reservation_after, reservation_timeout, unschedulable_timeout, shutdown_grace\n  3 |  heartbeet: \"10s\",\n    |  ^"
    );
}

#[test]
fn all_problems_are_told_at_once_in_the_order_of_the_file() {
    let text = r#"{
        unknown_property: "refuse",
        timers: { idle_poll: 120, abandoned: "60", colour: 1 },
        supported_platform_properties: { gpu: "exat", "a b": 5 },
        host_key: ["x", 7],
        limits: [],
        worker: { platform: { ISA: true } },
    }"#;
    let error = Config::parse(text, "p.json5").unwrap_err();
    let told: Vec<_> = error.problems.iter().map(|p| (p.line, p.column, p.key.as_str())).collect();
    assert_eq!(
        told,
        [
            (2, 27, "unknown_property"),
            (3, 30, "timers.idle_poll"),
            (3, 46, "timers.abandoned"),
            (3, 52, "timers.colour"),
            (4, 47, "supported_platform_properties.gpu"),
            (4, 62, "supported_platform_properties.\"a b\""),
            (5, 25, "host_key[1]"),
            (6, 17, "limits"),
            (7, 36, "worker.platform.ISA"),
        ]
    );
    let text = error.to_string();
    for part in [
        "unknown value \"refuse\"; known here: reject, queue, ignore",
        "expected a duration with its unit in quotes, such as \"30s\", found integer `120`",
        "\"60\" is not a duration: write a number and a unit",
        "unknown value \"exat\"; did you mean \"exact\"?",
        "expected one of the words",
        "expected a string, found integer `7`",
        "expected an object: { queued_actions: …, … }, found sequence",
        "expected a value in quotes, a list of them, { values: […] } or { query_cmd: \"…\" }, found boolean `true`",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}

#[test]
fn syntax_errors_have_their_place() {
    assert!(refused("{\n a: 1\n b: 2}").starts_with("p.json5:3:2: not valid JSON5: expected comma\n"));
    let cut = refused("{\n  listen: \n");
    assert!(cut.starts_with("p.json5:2:10: not valid JSON5: the file ends inside of value\n"), "{cut}");
    assert!(refused("").starts_with("p.json5:1:1: not valid JSON5"));
    assert!(refused("{} {}").contains("p.json5:1:4: not valid JSON5: trailing characters"));
    assert!(refused("[]").contains("p.json5:1:1: expected an object"), "{}", refused("[]"));
    let twice = refused("{ max_attempts: 1,\n max_attempts: 2 }");
    assert!(twice.starts_with("p.json5:2:2: \"max_attempts\" is given twice"), "{twice}");
    assert!(refused("{ max_attempts: NaN }").contains("p.json5:1:17: a number must be finite"));
}

#[test]
fn contradictions_are_told_together() {
    let error = refused(
        r#"{
        timers: { worker_expiry: "5s", default_action_timeout: "3h", shutdown_grace: "0s" },
        storage: { embedded: { max_size: "1MiB" } },
        max_attempts: 0,
        host_key: [],
        limits: { message_size: "1MiB" },
        worker_match_logging_interval_s: -2,
        worker: { platform: { gpu: "x", cpu_count: "many", isa: "x86-64" } },
    }"#,
    );
    for part in [
        ":2:34: timers.worker_expiry: heartbeat is 10s and worker_expiry is 5s",
        ":2:64: timers.default_action_timeout: default_action_timeout is 3h and maximum_action_timeout is 2h",
        "timers.shutdown_grace: must not be 0",
        "storage.embedded.max_size: small_blob_cache (67108864 bytes) is larger",
        "max_attempts: must not be 0",
        "host_key: is empty",
        "limits.message_size: is below 4MiB",
        "worker_match_logging_interval_s: -2 s is no interval",
        "worker.platform.gpu: such a worker would be refused",
        "worker.platform.cpu_count: \"cpu_count\" is of type minimum",
        "did you mean \"ISA\"?",
    ] {
        assert!(error.contains(part), "{part} is missing in\n{error}");
    }
}

#[test]
fn budgets_are_no_larger_than_their_sum_and_follow_it() {
    let config = Config::parse("{max_attempts: 7, attempts: {reported: 2}}", "p.json5").unwrap();
    assert_eq!((config.attempts.lost_max, config.attempts.reported_max), (7, 2));
    let error = refused("{attempts: {lost: 4, given_back: 0, exhausted_forgiven: -1}}");
    assert!(error.contains("attempts.exhausted_forgiven: expected u32, found integer `-1`"), "{error}");
    let error = refused("{attempts: {lost: 4, given_back: 0}}");
    assert!(error.contains("1:19: attempts.lost: is 4, but max_attempts is 3"), "{error}");
    assert!(error.contains("attempts.given_back: must not be 0"), "{error}");
}

#[test]
fn a_time_that_grows_has_an_end_above_its_start() {
    for (key, longest) in [
        ("retry_backoff", "retry_backoff_max"),
        ("exhausted_pause", "exhausted_pause_max"),
        ("quarantine", "quarantine_max"),
    ] {
        let error = refused(&format!("{{timers: {{{key}: '1h', {longest}: '1s'}}}}"));
        assert!(error.contains(&format!("timers.{key}: {key} is 1h and {longest} is 1s: ")), "{error}");
    }
    assert!(
        refused("{reserved_percent: 101}").contains("reserved_percent: is 101; it has to be from 1 to 100")
    );
    assert!(refused("{timers: {quarantine: '0s'}}").contains("timers.quarantine: must not be 0"));
}

#[test]
fn whole_lists_have_no_use_for_types() {
    let config = Config::parse("{matching: 'exact_set', worker: {platform: {any: 'x'}}}", "p.json5").unwrap();
    assert_eq!(config.matching, Matching::ExactSet);
    assert!(config.platform_properties.is_empty());
    assert_eq!(config.unknown_property, UnknownProperty::Ignore);
    let error = refused(
        "{matching: 'exact_set', unknown_property: 'queue', supported_platform_properties: {a: 'exact'}}",
    );
    assert!(error.contains("1:25: unknown_property: has no effect with matching: \"exact_set\""), "{error}");
    assert!(error.contains("1:52: supported_platform_properties: has no effect"), "{error}");
}

#[test]
fn a_property_is_told_in_one_way_only() {
    let error = refused(
        r#"{ worker: { platform: {
            OSFamily: { values: ["x"], query_cmd: "echo" },
            ISA: {},
            Arch: { query_cmd: "echo 'a" },
            Pool: { query_cmd: " " },
            cpu_count: { values: ["many"] },
        } } }"#,
    );
    for part in [
        ":2:23: worker.platform.OSFamily: has both values and query_cmd",
        ":3:18: worker.platform.ISA: says nothing; give values",
        "worker.platform.Arch: the platform property \"Arch\" can't be told by the command \"echo 'a\": a quote is not closed",
        "worker.platform.Pool: the platform property \"Pool\" can't be told by the command \" \": it has no words",
        "worker.platform.cpu_count: \"cpu_count\" is of type minimum",
    ] {
        assert!(error.contains(part), "{part} is missing in\n{error}");
    }
    let slip = refused("{worker: {platform: {Pool: {query_command: 'x', values: [1]}}}}");
    assert!(slip.contains("worker.platform.Pool.query_command: unknown key"), "{slip}");
    assert!(slip.contains("worker.platform.Pool.values[0]: expected a string"), "{slip}");
}

#[test]
fn flags_win_over_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("p.json5");
    std::fs::write(&file, "{listen: '127.0.0.1:1', worker: {platform: {ISA: 'a', Arch: 'b'}}}").unwrap();
    let flags = Overrides {
        listen: Some(([127, 0, 0, 1], 2).into()),
        storage_dir: Some(PathBuf::from("here")),
        with_worker: true,
        worker_platform: [("ISA".to_owned(), vec!["c".to_owned()])].into(),
        ..Overrides::default()
    };
    let config = Config::load(&file, &flags).unwrap();
    assert_eq!(config.listen.port(), 2);
    assert_eq!(config.storage.dir, Path::new("here"), "a flag's path starts from the current folder");
    assert!(config.worker.enabled);
    assert_eq!(config.worker.platform["ISA"], listed(&["c"]));
    assert_eq!(config.worker.platform["Arch"], listed(&["b"]));
}

#[test]
fn flags_are_checked_too() {
    let flags = Overrides { worker_platform: [("x".to_owned(), vec![])].into(), ..Overrides::default() };
    let error = Config::without_file(&flags).unwrap_err().to_string();
    assert!(error.starts_with("command line: worker.platform.x: such a worker would be refused"), "{error}");
}

#[test]
fn a_file_that_is_not_there_says_so() {
    let error = Config::load(Path::new("/no/such/file"), &Overrides::default()).unwrap_err().to_string();
    assert!(error.starts_with("/no/such/file: can't be read: No such file"), "{error}");
}

#[test]
fn slips_of_the_fingers_find_their_word() {
    let known = ["OSFamily", "ISA", "container-image", "cpu_count"];
    for (written, meant) in [
        ("osfamily", Some("OSFamily")),
        ("OSFamliy", Some("OSFamily")),
        ("container_image", Some("container-image")),
        ("cpu-cuont", Some("cpu_count")),
        ("gpu", None),
        ("", None),
    ] {
        assert_eq!(nearest(written, known), meant, "{written}");
    }
}

#[test]
fn learning_and_packing_go_by_properties_that_are_amounts() {
    let says = |text: &str, what: &str| assert!(refused(text).contains(what), "{}", refused(text));
    says("{learning: {keys: 0}}", "learning.keys: is 0; give 1 to 1000000");
    says("{learning: {min_attempts: 101}}", "learning.min_attempts: is 101; give 1 to 100");
    says("{learning: {flush_every: '1ms'}}", "learning.flush_every: is 1ms; give 100ms to 1h");
    says("{learning: {forget_after: '0s'}}", "learning.forget_after: must not be 0");
    says(
        "{learning: {cores: 'ISA'}}",
        "learning.cores: is \"ISA\", which is no property of type minimum; declare it",
    );
    says("{learning: {class_cores: {big: 4}}}", "learning.class_cores.big: is no size class");
    says(
        "{learning: {class_cores: {'1': 0}}}",
        "learning.class_cores.\"1\": is 0; give the cores of one action",
    );
    says("{packing: {memory: 'cpu_count'}}", "packing.memory: is the same property as packing.cores");
    says("{packing: {by: 'measured', cores: '', memory: ''}}", "there is nothing to measure");
    says("{packing: {by: 'guessed'}}", "guessed");
    says("{matching: 'exact_set', packing: {cores: 'cpu'}}", "has no effect with matching: \"exact_set\"");
    let config = Config::parse("{supported_platform_properties: {a: 'exact'}}", "p.json5").unwrap();
    assert_eq!(
        (&config.learning.cores, &config.packing.cores, &config.packing.memory),
        (&None, &None, &None)
    );
    let config = Config::parse("{learning: {dir: 'l', class_cores: {'4': 6}}}", "etc/p.json5").unwrap();
    assert_eq!(config.learning.dir, Path::new("etc/l"));
    assert_eq!(config.learning.class_cores, BTreeMap::from([(4, 6.0)]));
    assert_eq!(config.packing.memory_unit.bytes(), 1 << 20);
}
