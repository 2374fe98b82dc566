//! The gate that each version passes before it can be put in force or tried out. Whatever it meets on the way, what is in
//! force stays.

use crate::error::LoadError;
use crate::loader::{How, Loader, digest_hex};
use crate::plan::LinkPlan;
use crate::policy::Policy;
use crate::signature;

/// A version that is to be let in.
pub(crate) struct Candidate<'a> {
    pub(crate) bytes: &'a [u8],
    /// Content of its signature file, if it has one.
    pub(crate) signature: Option<&'a str>,
    /// It is to be tried out first.
    pub(crate) on_trial: bool,
}

/// Checks pin and signature, compiles, compares the interface, configures, and runs the golden cases that the component
/// carries.
pub(crate) fn pass(loader: &Loader, plan: &LinkPlan, candidate: &Candidate<'_>) -> Result<Policy, LoadError> {
    let found = digest_hex(candidate.bytes);
    if let Some(pinned) = &plan.pin
        && *pinned != found
    {
        return Err(LoadError::Pinned { pinned: pinned.clone(), found });
    }
    if !plan.public_keys.is_empty() {
        let missing = || {
            let text = "it has none, and `public_keys` wants one: sign with `minisign -S -m FILE`";
            LoadError::Signature(text.to_owned())
        };
        let signature = candidate.signature.ok_or_else(missing)?;
        signature::verify(&plan.public_keys, candidate.bytes, signature)
            .map_err(|error| LoadError::Signature(error.to_string()))?;
    }
    let how = How { config: &plan.config, isolation: plan.isolation, on_trial: candidate.on_trial };
    loader.load(candidate.bytes, &how).map_err(|error| placed(error, plan))
}

/// Says of each problem with the configuration where it was written down.
fn placed(error: LoadError, plan: &LinkPlan) -> LoadError {
    let LoadError::Config { mut problems } = error else { return error };
    for problem in &mut problems {
        problem.place = plan.places.of(&problem.path);
    }
    LoadError::Config { problems }
}
