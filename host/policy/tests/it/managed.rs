//! A manager for tests.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pointsman_policy::{
    LinkPlan, LinkStatus, Manager, ManagerOptions, Plan, ProbationRules, Runtime, Source, StartError,
    WatchOptions,
};

/// A plan of one link, `main`, for all.
pub(crate) fn plan(link: LinkPlan) -> Plan {
    let name: Arc<str> = "main".into();
    Plan {
        links: BTreeMap::from([(name.clone(), link)]),
        chains: BTreeMap::from([("".into(), vec![name])]),
        probation: ProbationRules::default(),
    }
}

/// The plan of a link that has a file.
pub(crate) fn for_file(path: &Path) -> Plan {
    plan(LinkPlan { source: Source::File(path.to_owned()), ..LinkPlan::default() })
}

pub(crate) fn manager(
    runtime: &Arc<Runtime>,
    plan: Plan,
    watch: WatchOptions,
) -> Result<Manager, StartError> {
    Manager::start(runtime.clone(), plan, ManagerOptions { watch, on_swap: Box::new(|_| ()) })
}

/// Waits until the only link is as wanted.
#[track_caller]
pub(crate) fn wait_for(manager: &Manager, what: &str, wanted: impl Fn(&LinkStatus) -> bool) -> LinkStatus {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let status = manager.status().remove(0);
        if wanted(&status) {
            return status;
        }
        assert!(Instant::now() < deadline, "waited for {what}, there is {status:#?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
