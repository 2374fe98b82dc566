//! Running: inputs, environment, ends of all kinds.
use crate::harness::{Harness, sh};
use pointsman_proto::{pack, resourceusage::PosixResourceUsage, rev2::*, rpc, unpack, v1::ActionEnvironment};
use prost::Message as _;
use prost_types::Any;
use std::time::{Duration, Instant};
use tonic::Code;

fn code(response: &ExecuteResponse) -> Code {
    Code::from(response.status.clone().unwrap_or_default().code)
}

fn message(response: &ExecuteResponse) -> String {
    response.status.clone().unwrap_or_default().message
}

fn alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_reads_inputs_and_its_result_is_cached() {
    let harness = Harness::start_with(|c| c.instance_name_prefix = "pre".into()).await;
    let action = sh("cat dir/in empty > out; test -x dir/in && echo hello; echo oops >&2")
        .input("dir/in", "content\n")
        .input("empty", "")
        .outputs(&["out"])
        .with(|a| a.suffix = "suf/fix");
    let hash = harness.submit(action);
    let response = harness.result(&hash).await;
    assert_eq!(code(&response), Code::Ok, "{response:?}");
    let result = response.result.unwrap();
    assert_eq!(harness.text(&result.output_files[0].digest), "content\n");
    assert!(!result.output_files[0].is_executable);
    assert_eq!(harness.text(&result.stdout_digest), "hello\n");
    assert_eq!(harness.text(&result.stderr_digest), "oops\n");
    let inner = harness.storage.0.lock().unwrap();
    assert_eq!(inner.results[&("pre/suf/fix".to_owned(), hash)], result);
    assert!(inner.instances.iter().all(|name| name == "pre/suf/fix"), "{:?}", inner.instances);
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_tells_the_whole_story() {
    let harness = Harness::start_with(|c| c.concurrency = 12).await;
    let result = harness.run(sh("sleep 0.1; kill -TERM $$")).await.result.unwrap();
    assert_eq!(result.exit_code, 128 + 15);
    let meta = result.execution_metadata.unwrap();
    assert!(meta.worker.starts_with(r#"{"hostname":"test","thread":""#), "{}", meta.worker);
    let stamps = [
        meta.queued_timestamp,
        meta.worker_start_timestamp,
        meta.input_fetch_start_timestamp,
        meta.input_fetch_completed_timestamp,
        meta.execution_start_timestamp,
        meta.execution_completed_timestamp,
        meta.output_upload_start_timestamp,
        meta.output_upload_completed_timestamp,
        meta.worker_completed_timestamp,
    ];
    let times: Vec<_> = stamps.map(|t| std::time::SystemTime::try_from(t.unwrap()).unwrap()).to_vec();
    assert!(times.is_sorted(), "{times:?}");
    assert!(
        Duration::try_from(meta.virtual_execution_duration.unwrap()).unwrap() >= Duration::from_millis(100)
    );
    assert_eq!(meta.auxiliary_metadata.len(), 2);
    assert_eq!(unpack::<RequestMetadata>(&meta.auxiliary_metadata[0]).unwrap().action_mnemonic, "Sent");
    let usage: PosixResourceUsage = unpack(&meta.auxiliary_metadata[1]).unwrap();
    assert_eq!(usage.termination_signal, "TERM");
    assert!(usage.maximum_resident_set_size > 100_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_action_keeps_its_outputs_and_is_not_cached() {
    let harness = Harness::start().await;
    let response = harness.run(sh("echo x > out; exit 3").outputs(&["out", "never"])).await;
    assert_eq!(code(&response), Code::Ok);
    let result = response.result.unwrap();
    assert_eq!((result.exit_code, result.output_files.len()), (3, 1));
    harness.run(sh("true").with(|a| a.do_not_cache = true)).await;
    assert!(harness.storage.0.lock().unwrap().results.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_is_the_commands_and_the_size_class() {
    let harness = Harness::start_with(|c| c.size_class = 3).await;
    let response = harness.run(sh("").args(&["/usr/bin/env"]).env("A", "1").env("B", "x y=z")).await;
    let expected = "A=1\nB=x y=z\nPOINTSMAN_SIZE_CLASS=3\n";
    assert_eq!(harness.text(&response.result.unwrap().stdout_digest), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_scheduler_offers_never_replaces_what_the_command_sets() {
    let harness = Harness::start().await;
    let offer = |variables: &[(&str, &str)]| {
        let variable = |(name, value): &(&str, &str)| command::EnvironmentVariable {
            name: (*name).to_owned(),
            value: (*value).to_owned(),
        };
        pack(&ActionEnvironment { variables: variables.iter().map(variable).collect() })
    };
    let run = async |offers: Vec<Any>, own: &[(&str, &str)]| {
        let action = sh("").args(&["/usr/bin/env"]).with(|a| a.told = offers);
        let action = own.iter().fold(action, |action, (name, value)| action.env(name, value));
        let result = harness.run(action).await.result.unwrap();
        let mut lines: Vec<_> = harness.text(&result.stdout_digest).lines().map(str::to_owned).collect();
        lines.sort_unstable();
        (lines.join(" "), result.execution_metadata.unwrap().auxiliary_metadata)
    };
    let first = offer(&[("JOBS", "4"), ("MINE", "x"), ("POINTSMAN_SIZE_CLASS", "7")]);
    let second = offer(&[("JOBS", "8"), ("BAD=NAME", "x"), ("", "x"), ("NUL", "a\0b")]);
    let (environment, told) = run(vec![first.clone(), second.clone()], &[("MINE", "own")]).await;
    assert_eq!(environment, "JOBS=8 MINE=own POINTSMAN_SIZE_CLASS=7");
    assert_eq!(told[1..3], [first, second], "the result says what the action was told");
    let (environment, _) = run(Vec::new(), &[("POINTSMAN_SIZE_CLASS", "own")]).await;
    assert_eq!(environment, "POINTSMAN_SIZE_CLASS=own");
    // One that isn't any is no reason to fail.
    let broken = Any { value: b"\xff\xff".as_slice().into(), ..offer(&[("A", "1")]) };
    assert_eq!(run(vec![broken], &[]).await.0, "POINTSMAN_SIZE_CLASS=0");
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_are_found_as_the_command_says() {
    let harness = Harness::start().await;
    let script = "#!/bin/sh\necho ran $0 in $(basename $(pwd))\n";
    let run = async |arguments: &[&str], path: Option<&str>| {
        let mut action = sh("").args(arguments).input("w/tool", script).input("tool", script);
        if let Some(path) = path {
            action = action.env("PATH", path);
        }
        let response = harness.run(action.with(|a| a.command.working_directory = "w".into())).await;
        let text = message(&response);
        match code(&response) {
            Code::Ok => Ok(harness.text(&response.result.unwrap().stdout_digest)),
            code => Err((code, text)),
        }
    };
    assert_eq!(run(&["./tool"], None).await.unwrap(), "ran ./tool in w\n");
    assert_eq!(run(&["../tool"], None).await.unwrap(), "ran ../tool in w\n");
    assert_eq!(run(&["tool"], Some("nowhere:.:/bin:/usr/bin")).await.unwrap(), "ran ./tool in w\n");
    assert_eq!(run(&["sh", "-c", "echo $0"], None).await.unwrap(), "sh\n");
    for missing in [&["tool"][..], &["./nothing"], &["/no/such/program"], &[""], &[]] {
        let (code, text) = run(missing, Some("/bin")).await.unwrap_err();
        assert_eq!(code, Code::InvalidArgument, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_out_kills_the_whole_family_and_keeps_the_output() {
    let harness = Harness::start().await;
    let script = "echo before; sleep 300 & echo $! > pids; (setsid sleep 301 & echo $! >> pids); echo x > out; \
        sleep 302 > /dev/null";
    let started = Instant::now();
    let action = sh(script).outputs(&["out", "pids"]).with(|a| a.timeout = Some(Duration::from_secs(1)));
    let response = harness.run(action).await;
    assert!(started.elapsed() < Duration::from_secs(20));
    assert_eq!(code(&response), Code::DeadlineExceeded);
    let result = response.result.unwrap();
    assert_eq!(harness.text(&result.stdout_digest), "before\n");
    assert_eq!(result.exit_code, 137);
    let pids = result.output_files.iter().find(|f| f.path == "pids").unwrap();
    for pid in harness.text(&pids.digest).lines() {
        assert!(!alive(pid), "{pid} is alive");
    }
    assert!(harness.storage.0.lock().unwrap().results.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_action_leaves_running_is_killed() {
    let harness = Harness::start().await;
    let script = "sleep 300 & echo $! > pids; setsid sleep 301 > /dev/null 2>&1 & echo $! >> pids; sleep 0.2";
    let result = harness.run(sh(script).outputs(&["pids"])).await.result.unwrap();
    let pids = harness.text(&result.output_files[0].digest);
    assert_eq!(pids.lines().count(), 2);
    assert!(pids.lines().all(|pid| !alive(pid)), "{pids}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_missing_blobs_are_named() {
    let harness = Harness::start().await;
    let big = vec![7; 3_000_000];
    let action = sh("true")
        .input("a/one", "one")
        .input("two", "two")
        .input("big", &big)
        .input("there", "there")
        .with(|a| a.forget = vec![b"one".to_vec(), b"two".to_vec(), big.clone()]);
    let response = harness.run(action).await;
    assert_eq!(code(&response), Code::FailedPrecondition);
    let status = response.status.unwrap();
    let failure: rpc::PreconditionFailure = unpack(&status.details[0]).unwrap();
    let mut subjects: Vec<_> = failure.violations.iter().map(|v| v.subject.clone()).collect();
    subjects.sort();
    let mut expected = [&b"one"[..], b"two", &big]
        .map(crate::storage::digest_of)
        .map(|d| format!("blobs/{}/{}", d.hash, d.size_bytes));
    expected.sort();
    assert_eq!(subjects, expected);
    assert!(failure.violations.iter().all(|v| v.r#type == "MISSING"));

    // The same once they are there, and a Command that is not.
    let action = sh("cat two big | wc -c").input("two", "two").input("big", &big);
    let result = harness.run(action).await.result.unwrap();
    assert_eq!(harness.text(&result.stdout_digest).trim(), "3000003");
    let action = sh("true");
    let command = prost::Message::encode_to_vec(&action.command);
    let response = harness.run(action.with(|a| a.forget = vec![command])).await;
    assert_eq!(code(&response), Code::FailedPrecondition);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_cannot_change_cached_inputs() {
    let harness = Harness::start().await;
    let script = "chmod u+w in; cat in; echo changed > in; cat in";
    for _ in 0..2 {
        let result = harness.run(sh(script).input("in", "original\n")).await.result.unwrap();
        assert_eq!(harness.text(&result.stdout_digest), "original\nchanged\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_come_once_and_in_the_sizes_the_storage_allows() {
    let harness = Harness::start().await;
    harness.storage.0.lock().unwrap().batch_max = 20_000;
    let big: Vec<u8> = (0..1_000_000_u32).map(|n| n as u8).collect();
    let mut digests = Vec::new();
    harness.storage.fail("ReadCut", Code::Unavailable, 2);
    harness.storage.fail("BatchReadBlobs", Code::Unavailable, 1);
    for _ in 0..2 {
        let mut action = sh("cat big > out; cat f* | wc -c").input("big", &big).outputs(&["out"]);
        for name in ["f1", "f2", "f3", "f4", "f5", "f6"] {
            action = action.input(name, name.repeat(4000));
        }
        let result = harness.run(action).await.result.unwrap();
        assert_eq!(harness.text(&result.stdout_digest).trim(), "48000");
        digests.push(result.output_files[0].digest.clone());
    }
    assert_eq!(digests[0], digests[1]);
    assert_eq!(digests[0], Some(crate::storage::digest_of(&big)));
    assert_eq!(harness.storage.calls("Read"), 3);
    assert_eq!(harness.storage.calls("Write"), 0, "the output was known to the storage");
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_of_all_sizes_are_uploaded() {
    let harness = Harness::start().await;
    harness.storage.fail("Write", Code::Unavailable, 1);
    harness.storage.fail("BatchUpdateBlobs", Code::Unavailable, 1);
    let script = "head -c 5000000 /dev/zero > big; for i in 1 2 3 4 5 6; do (echo $i; head -c 900000 /dev/zero) > m$i; done";
    let outputs = ["big", "m1", "m2", "m3", "m4", "m5", "m6"];
    let result = harness.run(sh(script).outputs(&outputs)).await.result.unwrap();
    assert_eq!(result.output_files.len(), 7);
    for file in &result.output_files {
        let digest = file.digest.clone().unwrap();
        assert_eq!(harness.storage.get(&digest).len() as i64, digest.size_bytes);
    }
    assert_eq!(harness.storage.calls("Write"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_of_the_storage_are_told_apart() {
    let harness = Harness::start().await;
    harness.storage.fail("BatchReadBlobs", Code::Unavailable, 1000);
    assert_eq!(code(&harness.run(sh("true")).await), Code::Unavailable);
    harness.storage.fail("BatchReadBlobs", Code::Ok, 0);
    harness.storage.fail("BatchUpdateBlobs", Code::ResourceExhausted, 1);
    let response = harness.run(sh("echo some output")).await;
    assert_eq!(code(&response), Code::ResourceExhausted, "{response:?}");
    // The result counts even if it can't be cached.
    harness.storage.fail("UpdateActionResult", Code::PermissionDenied, 1);
    assert_eq!(code(&harness.run(sh("true")).await), Code::Ok);
    // Content that is not what its digest says.
    let lie = crate::storage::digest_of(b"truth");
    let action = sh("cat in").input("in", "truth");
    let desired = action.desired(&harness.storage);
    harness.storage.0.lock().unwrap().blobs.insert(lie.hash, "lies!".into());
    let hash = desired.action_digest.clone().unwrap().hash;
    harness.scheduler.with(|inner| inner.queue.push_back(desired));
    assert_eq!(code(&harness.result(&hash).await), Code::Internal);
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_actions_are_refused() {
    let harness = Harness::start().await;
    let bad: Vec<(&str, crate::harness::Job)> = vec![
        ("output", sh("true").outputs(&["../x"])),
        ("output", sh("true").outputs(&["/x"])),
        ("working", sh("true").with(|a| a.command.working_directory = "a/../..".into())),
        ("working", sh("true").with(|a| a.command.working_directory = "absent".into())),
        ("SHA256TREE", sh("true").with(|a| a.digest_function = digest_function::Value::Sha256tree as i32)),
        ("property", sh("true").with(|a| a.command.output_node_properties = vec!["ctime".into()])),
        ("..", sh("true").input("x", "x").with(|a| a.edit_root = Some(|d| d.files[0].name = "..".into()))),
        ("a/b", sh("true").input("x", "x").with(|a| a.edit_root = Some(|d| d.files[0].name = "a/b".into()))),
        (
            "two nodes",
            sh("true").input("x", "x").with(|a| a.edit_root = Some(|d| d.files.push(d.files[0].clone()))),
        ),
        ("suffix", sh("true").with(|a| a.suffix = "/x")),
        ("symbolic link", sh("true").with(|a| a.links = vec![("out", "/tmp")]).outputs(&["out/x/y"])),
    ];
    for (word, action) in bad {
        let response = harness.run(action).await;
        assert_eq!(code(&response), Code::InvalidArgument, "{word}: {response:?}");
        assert!(message(&response).contains(word), "{word}: {}", message(&response));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn node_properties_and_links_of_inputs_are_honoured() {
    let harness = Harness::start().await;
    let action = sh("stat -c '%a %Y' f; readlink l; cat l").input("f", "text\n").with(|a| {
        a.links = vec![("l", "./f")];
        a.edit_root = Some(|d| {
            d.files[0].node_properties = Some(NodeProperties {
                mtime: Some(prost_types::Timestamp { seconds: 1_000_000_000, nanos: 5 }),
                unix_mode: Some(0o4640),
                ..Default::default()
            });
        });
    });
    let result = harness.run(action).await.result.unwrap();
    assert_eq!(harness.text(&result.stdout_digest), "640 1000000000\n./f\ntext\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_actions_at_once_share_the_cache() {
    let harness = Harness::start_with(|c| c.concurrency = 8).await;
    let tool = "#!/bin/sh\necho tool $1\n";
    let hashes: Vec<_> = (0..60)
        .map(|n| {
            let script = format!("./tool {n} && ./bin/other {n}");
            harness.submit(sh(&script).input("tool", tool).input("bin/other", "#!/bin/sh\necho other $1\n"))
        })
        .collect();
    for (n, hash) in hashes.iter().enumerate() {
        let response = harness.result(hash).await;
        let result = response.result.unwrap();
        assert_eq!(
            harness.text(&result.stdout_digest),
            format!("tool {n}\nother {n}\n"),
            "{:?}",
            response.status
        );
    }
    harness.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_that_removes_its_surroundings_is_not_repeated() {
    let harness = Harness::start().await;
    let response = harness.run(sh("rm -rf ../*")).await;
    assert_eq!(code(&response), Code::FailedPrecondition, "{response:?}");
    assert_eq!(code(&harness.run(sh("true")).await), Code::Ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_that_would_fill_the_memory_are_refused() {
    let harness = Harness::start().await;
    // Some megabytes of directories, gigabytes of paths.
    let mut root = Directory::default();
    for _ in 0..1000 {
        let digest = Some(harness.storage.put(root.encode_to_vec()));
        root = Directory {
            directories: vec![DirectoryNode { name: "n".repeat(255), digest }],
            ..Default::default()
        };
    }
    let deep = harness.storage.put(root.encode_to_vec());
    let huge = Digest { size_bytes: 1 << 40, ..deep.clone() };
    for input_root in [&deep, &huge] {
        let mut desired = sh("true").desired(&harness.storage);
        desired.action.as_mut().unwrap().input_root_digest = Some(input_root.clone());
        let response = harness.run_desired(desired).await;
        assert_eq!(code(&response), Code::InvalidArgument, "{response:?}");
        assert!(message(&response).len() < 3000);
    }
    let mut desired = sh("false").desired(&harness.storage);
    desired.action.as_mut().unwrap().command_digest = Some(huge);
    assert_eq!(code(&harness.run_desired(desired).await), Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn actions_that_fail_at_once_do_not_slow_the_others() {
    let harness = Harness::start().await;
    let started = Instant::now();
    for n in 0..20 {
        let response = harness.run(sh("true").args(&[&format!("/no/such/{n}")])).await;
        assert_eq!(code(&response), Code::InvalidArgument);
    }
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}
