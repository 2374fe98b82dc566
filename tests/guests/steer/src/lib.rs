//! A policy for tests: lets actions say by platform properties what clients have no words for.

use pointsman_policy_sdk::{
    Code, ConfigError, Exclusivity, Group, Policy, Rejection, Scope, SizeClass, export_policy, host, route,
    terms, worker,
};

/// How long an action waits for the host of its affinity key, in milliseconds: longer than any test.
const AFFINITY_MS: u32 = 3_600_000;

/// How often an exclusive action may take the host of a worker with `steer-seldom`, in milliseconds: less often than any test.
const SELDOM_MS: u32 = 3_600_000;

/// `steer-alone` asks for a host alone, and `steer-group` for the only place in a group of that name. A worker with `steer-never`
/// lets nothing exclusive take its host, one with `steer-seldom` only one in a long time.
///
/// `steer-pool`, `steer-size`, `steer-affinity` and `steer-learn` become pool, size class, affinity key and learning key of the
/// route; the value of `steer-reject` is the reason why an action is refused. What is known under the key `steer-ask` becomes a
/// note.
#[derive(Debug)]
pub struct Steer;

impl Policy for Steer {
    const NAME: &'static str = "steer";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn configure(_: &str) -> Result<Self, Vec<ConfigError>> {
        Ok(Self)
    }

    fn route(&self) -> Result<(), Rejection> {
        let take = |name| route::platform_value(name).inspect(|_| route::remove_property(name));
        if let Some(reason) = take("steer-reject") {
            return Err(Rejection::new(Code::PermissionDenied, reason));
        }
        if let Some(pool) = take("steer-pool") {
            route::set_pool(Some(&pool));
        }
        if let Some(class) = take("steer-size").and_then(|class| class.parse().ok()) {
            route::set_size(SizeClass::Exactly(class));
        }
        if let Some(key) = take("steer-affinity") {
            route::set_affinity(&key, AFFINITY_MS);
        }
        if let Some(key) = take("steer-learn") {
            route::set_learning_key(&key);
        }
        if take("steer-alone").is_some() {
            route::set_exclusive(&Exclusivity::Host);
        }
        if let Some(name) = take("steer-group") {
            route::set_exclusive(&Exclusivity::Group(Group { name, scope: Scope::Cluster, at_most: 1 }));
        }
        if let Some(key) = take("steer-ask") {
            let known = host::statistics(&key);
            route::note(&known.map_or_else(
                || "nothing is known".to_owned(),
                |s| format!("{} attempts, {} failures, {:.1} cores", s.attempts, s.failures, s.mean_cores),
            ));
        }
        Ok(())
    }

    fn admit(&self) -> Result<(), Rejection> {
        for (name, at_most_each) in [("steer-never", None), ("steer-seldom", Some(SELDOM_MS))] {
            if worker::platform_value(name).is_some() {
                terms::remove_property(name);
                terms::set_exclusive(at_most_each);
            }
        }
        Ok(())
    }
}

export_policy!(Steer, on_worker);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use pointsman_policy_sdk::Property;
    use pointsman_policy_sdk::testing::{Call, run};

    #[test]
    fn properties_become_what_they_say() {
        let mut call = Call::default();
        let properties = [
            ("os", "linux"),
            ("steer-affinity", "k"),
            ("steer-ask", "l"),
            ("steer-learn", "l"),
            ("steer-pool", "p"),
            ("steer-size", "7"),
        ];
        call.route.platform = properties.map(|(name, value)| Property::new(name, value)).into();
        let route = run::<Steer>("", call).unwrap().route;
        assert_eq!(route.platform, [Property::new("os", "linux")]);
        assert_eq!(route.pool.as_deref(), Some("p"));
        assert_eq!(route.size, SizeClass::Exactly(7));
        assert_eq!(route.affinity, Some(("k".into(), AFFINITY_MS)));
        assert_eq!(
            (route.learning_key.as_deref(), &*route.notes),
            (Some("l"), &["nothing is known".to_owned()][..])
        );
    }
    #[test]
    fn what_is_to_be_rejected_is() {
        let mut call = Call::default();
        call.route.platform = vec![Property::new("steer-reject", "so that it fails")];
        let rejection = run::<Steer>("", call).unwrap().rejection.unwrap();
        assert_eq!((rejection.code, rejection.reason.as_str()), (Code::PermissionDenied, "so that it fails"));
    }
}
