//! Fairness between tenants: workers are shared out between tenants, the share of each between its builds, and the share
//! of a build between its invocations. What runs in the background gets what all others leave.

use std::ops::RangeInclusive;

use pointsman_policy_sdk::defaults::NO_INVOCATION;
use pointsman_policy_sdk::{CommandWhen, Config, Rejection, action, route};

use crate::condition::{Condition, priority};
use crate::{Facts, Part};

/// JSON Schema of its configuration.
pub const SCHEMA: &str = include_str!("../../tenant-fair/config.schema.json");

/// Groups whose first level is this one are in the background. No tenant has that name by itself: principals and
/// instance names have no parentheses in them unless somebody wants that.
const BACKGROUND: &str = "(background)";

/// A unit is worth a hundredth of a doubling of what executes, so by this much no number of executing actions makes the
/// background the smaller group.
const PRIORITY_OFFSET: i32 = 10_000;

/// What a client may ask for by its own priority where nothing is said: to count as half or twice as many. Without a
/// limit a tenant takes all workers by asking for them, and gets out of the background.
const PRIORITIES: RangeInclusive<i32> = -100..=100;

/// The part, configured.
#[derive(Clone, Debug)]
pub struct TenantFair {
    /// Where the tenant is read; the first one that is not empty counts.
    tenant: Vec<Tenant>,
    /// The tenant of all who have none.
    nobody: String,
    /// Groups below the tenant, coarsest first.
    below: Vec<Below>,
    /// A priority beyond these counts as the next of them.
    priorities: RangeInclusive<i32>,
    background: Option<Background>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tenant {
    /// Who the client authenticated as.
    Principal,
    /// First step of the instance name.
    Instance,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Below {
    Correlated,
    Invocation,
}

#[derive(Clone, Debug)]
struct Background {
    when: Condition,
    priority_offset: i32,
    /// Properties that only say so, and which no worker has.
    remove: Vec<String>,
}

const TENANTS: [(&str, Tenant); 2] = [("principal", Tenant::Principal), ("instance_name", Tenant::Instance)];
const BELOW: [(&str, Below); 2] =
    [("correlated_invocations_id", Below::Correlated), ("tool_invocation_id", Below::Invocation)];

impl Part for TenantFair {
    fn read(config: &mut Config) -> Self {
        let tenant = config.words("tenant", &TENANTS).unwrap_or(vec![Tenant::Principal, Tenant::Instance]);
        if tenant.is_empty() {
            config.error(
                config.path_of("tenant"),
                "names nothing that tells tenants apart; leave it out, or name some",
            );
        }
        Self {
            tenant,
            nobody: config.name("nobody").unwrap_or_else(|| "(no tenant)".into()),
            below: config.words("below", &BELOW).unwrap_or(vec![Below::Correlated, Below::Invocation]),
            priorities: priority(config, PRIORITIES).unwrap_or(PRIORITIES),
            background: config.object("background").map(|mut inner| {
                let background = Background::read(&mut inner);
                config.close(inner);
                background
            }),
        }
    }

    fn commands(&self) -> Option<CommandWhen> {
        self.background.as_ref()?.when.commands()
    }

    fn route(&self, facts: &Facts) -> Result<(), Rejection> {
        let mut keys = Vec::with_capacity(4);
        let asked = route::priority();
        let mut priority = asked.clamp(*self.priorities.start(), *self.priorities.end());
        if let Some(background) = &self.background {
            if background.when.holds(facts) {
                keys.push(BACKGROUND.to_owned());
                priority = priority.saturating_add(background.priority_offset);
            }
            for name in &background.remove {
                facts.remove_property(name);
            }
        }
        if priority != asked {
            route::set_priority(priority);
        }
        let tenant = self.tenant.iter().map(|source| source.of(facts)).find(|tenant| !tenant.is_empty());
        keys.push(tenant.unwrap_or(&self.nobody).to_owned());
        let tenants = keys.len();
        keys.extend(self.below.iter().map(|source| source.read()).filter(|key| !key.is_empty()));
        if keys.len() == tenants && !self.below.is_empty() {
            keys.push(NO_INVOCATION.into());
        }
        route::set_invocation_keys(&keys);
        Ok(())
    }
}

impl Tenant {
    fn of(self, facts: &Facts) -> &str {
        match self {
            Self::Principal => facts.principal(),
            Self::Instance => facts.instance().split('/').next().unwrap_or_default(),
        }
    }
}

impl Below {
    fn read(self) -> String {
        match self {
            Self::Correlated => action::correlated_invocations_id(),
            Self::Invocation => action::invocation_id(),
        }
    }
}

impl Background {
    fn read(config: &mut Config) -> Self {
        let when = Condition::under(config, "when").unwrap_or_default();
        if when.is_always() {
            let text = "needs `when`, as work is in the background only if not all of it is";
            config.error(config.path().to_owned(), text);
        }
        let offset = config.integer("priority_offset", 1..=1_000_000).and_then(|n| i32::try_from(n).ok());
        Self {
            when,
            priority_offset: offset.unwrap_or(PRIORITY_OFFSET),
            remove: config.names("remove_properties").unwrap_or_default(),
        }
    }
}
