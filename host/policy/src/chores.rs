//! Work that nobody should wait for: dropping instances, and making new ones in their place.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Weak};

use crate::interface::Instance;
use crate::policy::Policy;

/// A thread that does it. It ends when the last owner of this has gone.
pub(crate) struct Chores {
    queue: SyncSender<(Instance, Weak<Policy>)>,
}

/// Instances that may wait to be replaced; further ones are dropped by their callers, who make new ones themselves.
const QUEUE: usize = 64;

impl Chores {
    pub(crate) fn start() -> Result<Self, String> {
        let (queue, inbox) = sync_channel::<(Instance, Weak<Policy>)>(QUEUE);
        std::thread::Builder::new()
            .name("policy-chores".into())
            .spawn(move || {
                for (instance, policy) in inbox {
                    drop(instance);
                    if let Some(policy) = policy.upgrade() {
                        policy.refill();
                    }
                }
            })
            .map_err(|error| {
                format!("can't start the thread that replaces instances of policies: {error}")
            })?;
        Ok(Self { queue })
    }

    /// Drops an instance and makes one for each slot of the policy that is empty.
    pub(crate) fn replace(&self, instance: Instance, policy: &Arc<Policy>) {
        // What doesn't fit is dropped here.
        let _ = self.queue.try_send((instance, Arc::downgrade(policy)));
    }
}
