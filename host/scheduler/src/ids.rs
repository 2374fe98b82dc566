//! Identities. Keys are generational: one that outlived its subject finds nothing, never another subject.

use std::sync::Arc;

use smallvec::SmallVec;

slotmap::new_key_type! {
    /// One piece of work, shared by all operations that wait for it.
    pub struct TaskId;
    /// A client's handle on a task.
    pub struct OperationId;
    /// One that executes a single action at a time: a Synchronize thread.
    pub struct WorkerId;
    /// What workers share: capacity, and the digests it runs.
    pub struct HostId;
    /// Tasks with equal requirements.
    pub struct ClassId;
    /// Classes that the same shapes may serve and that consume the same.
    pub struct LaneId;
    /// Workers that meet the same asked properties.
    pub struct ShapeId;
    /// Workers that advertise the same.
    pub struct KindId;
    /// A property that some class asks for.
    pub struct AtomId;
    /// A vector of `minimum` values that some class asks for.
    pub struct DemandId;
    /// A group of tasks that shares workers with its siblings: a node of the tree that `invocation_keys` make.
    pub struct InvocationId;
    /// Workers that are shared out together.
    pub struct PoolId;
    /// Workers that say the same of themselves: a queue as Buildbarn has it.
    pub struct QueueId;
}

/// One Synchronize call, named by the driver; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PollId(pub u64);

/// Digest of an Action, with the function that made it (REv2 `DigestFunction.Value`). Cheap to copy: a queued task's is
/// held in three places.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActionDigest(Arc<Parts>);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Parts {
    hash: SmallVec<[u8; 32]>,
    function: i32,
    size_bytes: i64,
}

impl ActionDigest {
    /// From REv2 `DigestFunction.Value`, the hash as bytes, and the size of the Action in bytes.
    pub fn new(function: i32, hash: &[u8], size_bytes: i64) -> Self {
        Self(Arc::new(Parts { hash: hash.into(), function, size_bytes }))
    }

    /// The hash, in bytes.
    pub fn hash(&self) -> &[u8] {
        &self.0.hash
    }

    /// Whether a worker that reports `other` means this action: the protocol's reports have no digest function.
    pub(crate) fn is_reported_as(&self, other: &Self) -> bool {
        self.0.hash == other.0.hash && self.0.size_bytes == other.0.size_bytes
    }
}

/// Hash map for look-up only: its order depends on nothing but its content, and still nothing may iterate it.
pub(crate) type Map<K, V> = hashbrown::HashMap<K, V, foldhash::fast::FixedState>;

/// Hash set for look-up only, like [`Map`].
pub(crate) type Set<T> = hashbrown::HashSet<T, foldhash::fast::FixedState>;

/// Shared text.
pub(crate) type Text = Arc<str>;
