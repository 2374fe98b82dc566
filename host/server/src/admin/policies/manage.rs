//! Status of policies as messages, and commands for them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pointsman_policy::archive::Event;
use pointsman_policy::{
    CommandError, LinkStatus, Mode, PolicyId, Push, Rollout, Share, TrialStatus, VersionStatus,
};
use pointsman_proto::v1::push_policy_request::Rollout as Asked;
use pointsman_proto::v1::{
    PolicyEvent, PolicyLink, PolicyLoad, PolicyTrial, PolicyVersion, PushPolicyRequest, policy_trial,
};
use tonic::Status;

use crate::admin::messages::ms;

/// How a link is.
pub(super) fn link(status: &LinkStatus, history: bool) -> PolicyLink {
    PolicyLink {
        name: status.name.to_string(),
        chains: status.chains.iter().map(ToString::to_string).collect(),
        file: status.file.as_ref().map(|file| file.display().to_string()).unwrap_or_default(),
        on_error: status.on_error.name().to_owned(),
        pin: status.pin.clone().unwrap_or_default(),
        signed: status.signed,
        active: Some(version(&status.active)),
        probation_left_ms: status.probation_left.map(ms),
        previous: status.previous.iter().map(id).collect(),
        trial: status.trial.as_ref().map(trial),
        last_load: Some(PolicyLoad {
            ok: status.last_load.ok,
            unix_ms: unix_ms(status.last_load.at),
            digest: status.last_load.digest_hex.clone(),
            text: status.last_load.text.clone(),
            took_ms: ms(status.last_load.took),
        }),
        rolled_back: status
            .rolled_back
            .iter()
            .map(|gone| PolicyEvent {
                unix_ms: gone.unix_ms,
                what: "rolled-back".to_owned(),
                digest: gone.digest_hex.clone(),
                detail: gone.reason.clone(),
                ..PolicyEvent::default()
            })
            .collect(),
        history: if history { status.history.iter().map(event).collect() } else { Vec::new() },
    }
}

fn id(id: &PolicyId) -> PolicyVersion {
    PolicyVersion {
        name: id.name.to_string(),
        version: id.version.to_string(),
        digest: id.digest_hex.to_string(),
        ..PolicyVersion::default()
    }
}

fn version(status: &VersionStatus) -> PolicyVersion {
    let tally = &status.tally;
    PolicyVersion {
        origin: status.origin.to_owned(),
        since_unix_ms: unix_ms(status.since),
        hooks: status.hooks.iter().map(|hook| (*hook).to_owned()).collect(),
        calls: tally.total(),
        rejections: tally.rejections,
        failures: tally
            .failures
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(kind, count)| (kind.name().to_owned(), *count))
            .collect(),
        mean_us: mean_us(tally.latency_sum, tally.total()),
        circuit_open: status.circuit_open,
        slow: status.slow,
        ..id(&status.id)
    }
}

fn trial(status: &TrialStatus) -> PolicyTrial {
    let results = &status.results;
    PolicyTrial {
        version: Some(version(&status.version)),
        mode: status.mode.clone(),
        compared: results.compared,
        disagreed: results.disagreed,
        not_compared: results.not_compared,
        active_mean_us: mean_us(results.active_time, results.compared),
        samples: results
            .samples
            .iter()
            .map(|sample| policy_trial::Sample {
                action: sample.action.to_string(),
                mnemonic: sample.mnemonic.to_string(),
                target_id: sample.target_id.to_string(),
                differences: sample.differences.clone(),
            })
            .collect(),
    }
}

fn event(event: &Event) -> PolicyEvent {
    PolicyEvent {
        unix_ms: event.unix_ms,
        what: event.what.clone(),
        digest: event.digest_hex.clone(),
        name: event.name.clone(),
        version: event.version.clone(),
        detail: event.detail.clone(),
    }
}

fn mean_us(sum: Duration, count: u64) -> u64 {
    (sum.as_micros() / u128::from(count.max(1))).try_into().unwrap_or(u64::MAX)
}

fn unix_ms(at: SystemTime) -> u64 {
    ms(at.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A push as the manager wants it.
///
/// # Errors
/// What is wrong with the request.
pub(super) fn push(request: PushPolicyRequest) -> Result<Push, Status> {
    let share = |share: f64| match (0.0..=1.0).contains(&share) {
        true => Ok(share),
        false => Err(Status::invalid_argument(format!("{share} is no share; give a number from 0 to 1"))),
    };
    let rollout = match request.rollout {
        None => None,
        Some(Asked::InForce(_)) => Some(Rollout::InForce),
        Some(Asked::Shadow(of)) => Some(Rollout::Trial(Mode::Shadow(share(of)?))),
        Some(Asked::Canary(of)) => Some(Rollout::Trial(Mode::Canary(Share::Invocations(share(of)?)))),
        Some(Asked::CanaryPrefixes(list)) => {
            let prefixes = list.instance_name_prefixes.into_iter().map(Into::into).collect();
            Some(Rollout::Trial(Mode::Canary(Share::Prefixes(prefixes))))
        }
    };
    Ok(Push {
        link: request.link,
        bytes: request.component.into(),
        signature: (!request.signature.is_empty()).then_some(request.signature),
        rollout,
        again: request.again,
    })
}

/// A command's refusal as a status.
pub(super) fn refused(error: &CommandError) -> Status {
    match error {
        CommandError::UnknownLink { .. } => Status::not_found(error.to_string()),
        CommandError::Refused(_) => Status::failed_precondition(error.to_string()),
        CommandError::Stopping => Status::unavailable(error.to_string()),
    }
}
