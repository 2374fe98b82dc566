//! What keeps a worker from an action, and what an action waits for, in one word each.

/// What keeps a worker from running an action, in the order in which it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Obstacle {
    /// It serves other instance names.
    OtherInstance,
    /// It belongs to another pool.
    OtherPool,
    /// It has another size class.
    OtherSizeClass,
    /// It lacks an asked property, or has another value.
    PropertyMismatch,
    /// It offers none of the execution strategies that may be used.
    NoStrategy,
    /// It offers one that is less wanted than what others offer.
    OtherStrategy,
    /// Its host is never taken by an exclusive action.
    NoExclusive,
    /// Its host has less in all than the action asks for.
    NeverFits,
    /// An operator has drained it.
    Drained,
    /// An operator has paused it, or its host has said that it is out of resources.
    Paused,
    /// Its host has failed too many tasks one after the other.
    Quarantined,
    /// The action failed on its host, and there are others.
    FailedThere,
    /// The action failed on its host, and there it is tried again only after a while.
    BackingOff,
    /// It is not on the host that the action waits for.
    Affinity,
    /// Its host is kept free for another action.
    Reserved,
    /// It runs something.
    Busy,
    /// An exclusive action executes on its host.
    ExclusiveThere,
    /// Its host runs the same action, and can't run it twice.
    SameActionThere,
    /// Its host runs as many actions as it may.
    MaxInflight,
    /// Its host has not enough left.
    NotEnoughFree,
    /// Others execute on its host, and the action is exclusive.
    OthersThere,
    /// Its host admits an exclusive action only later.
    NotAdmitted,
    /// As many actions of its group execute as may.
    GroupFull,
    /// It has not called since its last answer; it will.
    NotCalling,
    /// Nothing: it is about to be given the action, or one before it.
    Nothing,
}

impl Obstacle {
    /// Each of them, in order.
    pub const ALL: [Self; 25] = [
        Self::OtherInstance,
        Self::OtherPool,
        Self::OtherSizeClass,
        Self::PropertyMismatch,
        Self::NoStrategy,
        Self::OtherStrategy,
        Self::NoExclusive,
        Self::NeverFits,
        Self::Drained,
        Self::Paused,
        Self::Quarantined,
        Self::FailedThere,
        Self::BackingOff,
        Self::Affinity,
        Self::Reserved,
        Self::Busy,
        Self::ExclusiveThere,
        Self::SameActionThere,
        Self::MaxInflight,
        Self::NotEnoughFree,
        Self::OthersThere,
        Self::NotAdmitted,
        Self::GroupFull,
        Self::NotCalling,
        Self::Nothing,
    ];

    /// As it is written.
    pub fn code(self) -> &'static str {
        match self {
            Self::OtherInstance => "other-instance",
            Self::OtherPool => "other-pool",
            Self::OtherSizeClass => "other-size-class",
            Self::PropertyMismatch => "property-mismatch",
            Self::NoStrategy => "no-strategy",
            Self::OtherStrategy => "other-strategy",
            Self::NoExclusive => "no-exclusive",
            Self::NeverFits => "never-fits",
            Self::Drained => "drained",
            Self::Paused => "paused",
            Self::Quarantined => "quarantined",
            Self::FailedThere => "failed-there",
            Self::BackingOff => "backing-off",
            Self::Affinity => "affinity",
            Self::Reserved => "reserved",
            Self::Busy => "busy",
            Self::ExclusiveThere => "exclusive-there",
            Self::SameActionThere => "same-action-there",
            Self::MaxInflight => "max-inflight",
            Self::NotEnoughFree => "not-enough-free",
            Self::OthersThere => "others-there",
            Self::NotAdmitted => "not-admitted",
            Self::GroupFull => "group-full",
            Self::NotCalling => "not-calling",
            Self::Nothing => "free",
        }
    }
}

/// Why an action is where it is, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A worker has it.
    Running,
    /// It asks for a key outside the schema.
    UnknownProperty,
    /// No worker is known at all.
    NoWorkerRegistered,
    /// No worker serves its instance name.
    NoInstanceMatch,
    /// No worker belongs to its pool.
    NoPool,
    /// No worker has its size class.
    NoSizeClass,
    /// No worker has what it asks for.
    NoPropertyMatch,
    /// No worker offers an execution strategy that may be used.
    NoStrategy,
    /// It is exclusive, and no worker's host admits such.
    NoExclusive,
    /// No host has as much in all as it asks for.
    NeverFits,
    /// A declared pool could run it, and no worker of it that can is there.
    PoolEmpty,
    /// All that could run it are drained.
    Drained,
    /// All that could run it are drained or paused.
    Paused,
    /// All that could run it are drained, paused or in quarantine.
    Quarantined,
    /// It failed on all that could run it now, and is tried there again after a while.
    BackingOff,
    /// It waits a while for the host that last ran its affinity key.
    Affinity,
    /// A host is kept free for it, where others execute that have to end first.
    Reserved,
    /// It is exclusive, and others execute on each host that admits it, or none admits it yet.
    Exclusive,
    /// As many actions of its group execute as may.
    GroupFull,
    /// All that could run it are busy.
    AllBusy,
    /// It has just come, or its turn comes next.
    Next,
}

impl Reason {
    /// Each of them, in order.
    pub const ALL: [Self; 21] = [
        Self::Running,
        Self::UnknownProperty,
        Self::NoWorkerRegistered,
        Self::NoInstanceMatch,
        Self::NoPool,
        Self::NoSizeClass,
        Self::NoPropertyMatch,
        Self::NoStrategy,
        Self::NoExclusive,
        Self::NeverFits,
        Self::PoolEmpty,
        Self::Drained,
        Self::Paused,
        Self::Quarantined,
        Self::BackingOff,
        Self::Affinity,
        Self::Reserved,
        Self::Exclusive,
        Self::GroupFull,
        Self::AllBusy,
        Self::Next,
    ];

    /// As it is written.
    pub fn code(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::UnknownProperty => "unknown-property",
            Self::NoWorkerRegistered => "no-worker-registered",
            Self::NoInstanceMatch => "no-instance-match",
            Self::NoPool => "no-pool",
            Self::NoSizeClass => "no-size-class",
            Self::NoPropertyMatch => "no-property-match",
            Self::NoStrategy => "no-strategy",
            Self::NoExclusive => "no-exclusive",
            Self::NeverFits => "never-fits",
            Self::PoolEmpty => "pool-empty",
            Self::Drained => "drained",
            Self::Paused => "paused",
            Self::Quarantined => "quarantined",
            Self::BackingOff => "backing-off",
            Self::Affinity => "affinity",
            Self::Reserved => "reserved",
            Self::Exclusive => "exclusive",
            Self::GroupFull => "group-full",
            Self::AllBusy => "all-busy",
            Self::Next => "next",
        }
    }

    /// No worker that is known now can ever run it.
    pub fn is_never(self) -> bool {
        match self {
            Self::UnknownProperty
            | Self::NoWorkerRegistered
            | Self::NoInstanceMatch
            | Self::NoPool
            | Self::NoSizeClass
            | Self::NoPropertyMatch
            | Self::NoStrategy
            | Self::NoExclusive
            | Self::NeverFits => true,
            Self::Running
            | Self::PoolEmpty
            | Self::Drained
            | Self::Paused
            | Self::Quarantined
            | Self::BackingOff
            | Self::Affinity
            | Self::Reserved
            | Self::Exclusive
            | Self::GroupFull
            | Self::AllBusy
            | Self::Next => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_all() {
        assert!(Obstacle::ALL.iter().enumerate().all(|(i, obstacle)| *obstacle as usize == i));
        assert_eq!(Obstacle::ALL.last(), Some(&Obstacle::Nothing));
        assert!(Reason::ALL.iter().enumerate().all(|(i, reason)| *reason as usize == i));
        assert_eq!(Reason::ALL.last(), Some(&Reason::Next));
    }
}
