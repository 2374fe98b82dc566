//! Which version a link begins with, when the server starts or the configuration changes.

use std::path::Path;
use std::sync::Arc;

use super::version::{Bytes, Origin, Version};
use crate::archive::{Archive, LinkState};
use crate::gate::{self, Candidate};
use crate::loader::digest_hex;
use crate::plan::{LinkPlan, Source};
use crate::runtime::Runtime;
use crate::signature::signature_path;
use crate::trial::Mode;
use crate::watch::read_bounded;

/// A link that is to get a version.
pub(super) struct Sought {
    pub(super) name: Arc<str>,
    pub(super) plan: LinkPlan,
    pub(super) state: LinkState,
    /// Versions in memory, that in force first.
    pub(super) at_hand: Vec<(Bytes, Origin)>,
    /// Only the first of those will do: nothing but its configuration has changed.
    pub(super) only_that: bool,
}

/// What a link begins with.
pub(super) struct Restored {
    pub(super) active: Version,
    pub(super) spare: Option<Version>,
    pub(super) trial: Option<(Version, Mode)>,
    pub(super) state: LinkState,
    /// What was wrong with versions that would have been better.
    pub(super) passed_over: Vec<String>,
}

/// The first of the versions there are that the gate lets in. The file comes first if it is another one than was acted
/// upon before; else the decision that was made then stands: for the version that was pushed since, or against the one
/// that was rolled back.
pub(super) fn find(runtime: &Runtime, sought: Sought) -> Result<Restored, Vec<String>> {
    let Sought { name, plan, mut state, at_hand, only_that } = sought;
    let archive = runtime.archive.as_ref();
    let (choices, mut reasons) = match only_that {
        true => (at_hand, Vec::new()),
        false => choices(runtime, archive, &plan, &mut state, at_hand),
    };
    let mut tried = Vec::new();
    for (bytes, origin) in choices {
        let digest = digest_hex(&bytes.content);
        if tried.contains(&digest) {
            continue;
        }
        match pass(runtime, &plan, &bytes, false) {
            Ok(policy) => {
                let active = Version::new(policy, bytes, origin);
                let spare = archive.and_then(|archive| spare(runtime, archive, &plan, &state, &digest));
                let trial = archive.and_then(|archive| trial(runtime, archive, &plan, &state, &digest));
                return Ok(Restored { active, spare, trial, state, passed_over: reasons });
            }
            Err(error) => reasons.push(match (&plan.source, origin) {
                (Source::File(path), Origin::File) => {
                    format!("{} (sha256 {digest}): {error}", path.display())
                }
                _ => format!("the version {digest} ({}): {error}", origin.name()),
            }),
        }
        tried.push(digest);
    }
    tracing::debug!(link = &*name, "no version can be used");
    Err(reasons)
}

/// All versions there are, in the order in which they are tried; and what is wrong with those that can't even be.
fn choices(
    runtime: &Runtime,
    archive: Option<&Archive>,
    plan: &LinkPlan,
    state: &mut LinkState,
    at_hand: Vec<(Bytes, Origin)>,
) -> (Vec<(Bytes, Origin)>, Vec<String>) {
    let mut reasons = Vec::new();
    let source = match &plan.source {
        Source::Default => {
            Some((Bytes { content: Runtime::default_bytes().into(), signature: None }, Origin::Default))
        }
        Source::File(path) => match read(path, runtime.file_bytes_max()) {
            Ok(bytes) => Some((bytes, Origin::File)),
            Err(error) => {
                reasons.push(format!("can't read {}: {error}", path.display()));
                None
            }
        },
    };
    let kept = |digest: &str, origin, signature: Option<&String>| {
        let content = archive?.component(digest).ok()?.into();
        Some((Bytes { content, signature: signature.map(|text| text.as_str().into()) }, origin))
    };
    let mut choices = Vec::new();
    if let Some(pinned) = &plan.pin {
        let known = state.active.iter().chain(&state.previous).find(|version| version.digest_hex == *pinned);
        let origin = known.map_or(Origin::Push, |version| version.source);
        choices.extend(kept(pinned, origin, known.and_then(|version| version.signature.as_ref())));
    }
    let is_news = source.as_ref().is_some_and(|(bytes, _)| {
        let digest = digest_hex(&bytes.content);
        let news = state.seen.as_deref() != Some(&*digest);
        let gone = state.rolled_back(&digest).map(|gone| gone.reason.clone());
        if let Some(reason) = gone.filter(|_| news) {
            reasons.push(format!("the version {digest} was rolled back before: {reason}"));
            return false;
        }
        state.seen = Some(digest);
        news
    });
    if is_news {
        choices.extend(source.clone());
    }
    choices.extend(at_hand);
    for version in state.active.iter().chain(&state.previous) {
        choices.extend(kept(&version.digest_hex, version.source, version.signature.as_ref()));
    }
    let gone = |bytes: &Bytes| state.rolled_back(&digest_hex(&bytes.content)).is_some();
    choices.extend(source.filter(|(bytes, _)| !gone(bytes)));
    (choices, reasons)
}

fn pass(
    runtime: &Runtime,
    plan: &LinkPlan,
    bytes: &Bytes,
    on_trial: bool,
) -> Result<crate::policy::Policy, crate::error::LoadError> {
    let candidate = Candidate { bytes: &bytes.content, signature: bytes.signature.as_deref(), on_trial };
    gate::pass(&runtime.loader, plan, &candidate)
}

/// The version that was in force before, ready to answer.
fn spare(
    runtime: &Runtime,
    archive: &Archive,
    plan: &LinkPlan,
    state: &LinkState,
    active: &str,
) -> Option<Version> {
    let mut earlier = state.active.iter().chain(&state.previous);
    let kept = earlier.find(|v| v.digest_hex != active && state.rolled_back(&v.digest_hex).is_none())?;
    again(runtime, archive, plan, kept, false)
}

/// The version that was tried out, if it was not the one that is in force now.
fn trial(
    runtime: &Runtime,
    archive: &Archive,
    plan: &LinkPlan,
    state: &LinkState,
    active: &str,
) -> Option<(Version, Mode)> {
    let kept = state.candidate.as_ref().filter(|trial| trial.version.digest_hex != active)?;
    Some((again(runtime, archive, plan, &kept.version, true)?, Mode::of_kept(&kept.mode)))
}

fn again(
    runtime: &Runtime,
    archive: &Archive,
    plan: &LinkPlan,
    kept: &crate::archive::Version,
    on_trial: bool,
) -> Option<Version> {
    let content = archive.component(&kept.digest_hex).ok()?.into();
    let bytes = Bytes { content, signature: kept.signature.as_deref().map(Into::into) };
    let policy = pass(runtime, plan, &bytes, on_trial);
    let policy = policy.inspect_err(|error| {
        tracing::warn!(digest = kept.digest_hex, "a version that was kept can't be used any more: {error}");
    });
    Some(Version::new(policy.ok()?, bytes, kept.source))
}

/// A file with its signature, if there is one.
pub(super) fn read(path: &Path, bytes_max: usize) -> std::io::Result<Bytes> {
    let content = read_bounded(path, bytes_max)?.into();
    Ok(Bytes { content, signature: read_signature(path) })
}

/// A signature that can't be read is none: whoever wants one says so.
pub(super) fn read_signature(file: &Path) -> Option<Arc<str>> {
    let bytes = read_bounded(&signature_path(file), SIGNATURE_BYTES_MAX).ok()?;
    String::from_utf8(bytes).ok().map(Into::into)
}

/// Four lines have some hundred.
pub(super) const SIGNATURE_BYTES_MAX: usize = 64 << 10;
