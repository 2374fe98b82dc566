//! Links and versions for people.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pointsman_proto::v1::{PolicyEvent, PolicyLink, PolicyStatusResponse, PolicyTrial, PolicyVersion};

/// One block per link.
pub(super) fn status(status: &PolicyStatusResponse) -> String {
    status.links.iter().map(link).collect::<Vec<_>>().join("\n\n")
}

/// One line per event, the latest last.
pub(super) fn history(status: &PolicyStatusResponse) -> String {
    let mut lines = Vec::new();
    for link in &status.links {
        lines.extend(link.history.iter().map(|event| format!("{}  {}", link.name, happened(event))));
    }
    if lines.is_empty() { "nothing has happened yet".to_owned() } else { lines.join("\n") }
}

fn link(link: &PolicyLink) -> String {
    let mut lines = vec![format!("{} (on_error {})", link.name, link.on_error)];
    let mut line = |what: &str, text: String| lines.push(format!("  {what:<13}{text}"));
    if let Some(active) = &link.active {
        line("in force", version(active));
        line("", calls(active));
    }
    if let Some(left) = link.probation_left_ms {
        let left = Duration::from_secs(left / 1000);
        line("probation", format!("for another {}", humantime::format_duration(left)));
    }
    let prefixes = link.chains.iter().map(|prefix| if prefix.is_empty() { "(all others)" } else { prefix });
    line("chains", prefixes.collect::<Vec<_>>().join(", "));
    if !link.file.is_empty() {
        line("file", link.file.clone());
    }
    if !link.pin.is_empty() {
        line("pinned to", link.pin.clone());
    }
    if link.signed {
        line("signature", "wanted".to_owned());
    }
    for previous in &link.previous {
        line("before", format!("{} {} sha256 {}", previous.name, previous.version, previous.digest));
    }
    if let Some(tried) = &link.trial {
        trial(tried, &mut line);
    }
    if let Some(load) = &link.last_load {
        let word = if load.ok { "let in" } else { "REFUSED" };
        line(
            "last version",
            format!("{word} {} ago ({} ms): {}", ago(load.unix_ms), load.took_ms, load.text),
        );
        if !load.ok && !load.digest.is_empty() {
            line("", format!("sha256 {}", load.digest));
        }
    }
    for gone in &link.rolled_back {
        line("rolled back", format!("{} ago, sha256 {}: {}", ago(gone.unix_ms), gone.digest, gone.detail));
    }
    lines.join("\n")
}

fn trial(trial: &PolicyTrial, line: &mut impl FnMut(&str, String)) {
    let Some(tried) = &trial.version else { return };
    line("on trial", version(tried));
    line("", calls(tried));
    line("", trial.mode.clone());
    if trial.compared + trial.not_compared > 0 {
        line(
            "",
            format!(
                "{} of {} decisions differ ({} not compared for lack of time); mean {} us, in force {} us",
                trial.disagreed, trial.compared, trial.not_compared, tried.mean_us, trial.active_mean_us
            ),
        );
    }
    for sample in trial.samples.iter().take(SAMPLES) {
        let what = [&sample.mnemonic, &sample.target_id].map(|text| if text.is_empty() { "-" } else { text });
        line("", format!("{} {} {}: {}", sample.action, what[0], what[1], sample.differences.join("; ")));
    }
}

/// Decisions that are shown; JSON has more.
const SAMPLES: usize = 5;

fn version(version: &PolicyVersion) -> String {
    format!(
        "{} {} from {}, since {} ago, sha256 {}",
        version.name,
        version.version,
        version.origin,
        ago(version.since_unix_ms),
        version.digest
    )
}

fn calls(version: &PolicyVersion) -> String {
    let failed: u64 = version.failures.values().sum();
    let mut text = format!(
        "{} calls, mean {} us, {} rejected, {failed} failed",
        version.calls, version.mean_us, version.rejections
    );
    let mut kinds: Vec<_> = version.failures.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    kinds.sort();
    if !kinds.is_empty() {
        text.push_str(&format!(" ({})", kinds.join(", ")));
    }
    if version.circuit_open {
        text.push_str("; fails each time, so it is not asked for a while");
    }
    if version.slow {
        text.push_str("; slow, so it is asked on threads of its own");
    }
    text.push_str(&format!("; hooks {}", version.hooks.join(", ")));
    text
}

fn happened(event: &PolicyEvent) -> String {
    let at = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(event.unix_ms));
    let mut text = format!("{at}  {:<17}", event.what);
    for part in [&event.name, &event.version] {
        if !part.is_empty() {
            text.push_str(part);
            text.push(' ');
        }
    }
    let digest = event.digest.get(..12).unwrap_or(&event.digest);
    if !digest.is_empty() {
        text.push_str(&format!("sha256 {digest}  "));
    }
    text.push_str(&event.detail);
    text.trim_end().to_owned()
}

fn ago(unix_ms: u64) -> String {
    let then = UNIX_EPOCH + Duration::from_millis(unix_ms);
    let passed = SystemTime::now().duration_since(then).unwrap_or_default();
    humantime::format_duration(Duration::from_secs(passed.as_secs())).to_string()
}
