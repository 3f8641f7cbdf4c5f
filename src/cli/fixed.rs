//! What a reload leaves as it is.

use crate::config::Config;

/// What was allocated at the start stays as it is in `new`. Returns the keys that ask for something else.
pub(super) fn keep_fixed(old: &Config, new: &mut Config) -> Vec<&'static str> {
    fn keep<T: Clone + PartialEq>(key: &'static str, old: &T, new: &mut T, restart: &mut Vec<&'static str>) {
        if old != new {
            restart.push(key);
            new.clone_from(old);
        }
    }
    let mut restart = Vec::new();
    keep("lock_memory", &old.lock_memory, &mut new.lock_memory, &mut restart);
    let (was, will) = (&old.limits, &mut new.limits);
    keep("limits.gate_buffer", &was.gate_buffer, &mut will.gate_buffer, &mut restart);
    keep("limits.gated_streams", &was.gated_streams, &mut will.gated_streams, &mut restart);
    keep("limits.body_memory", &was.body_memory, &mut will.body_memory, &mut restart);
    keep("limits.answer_memory", &was.answer_memory, &mut will.answer_memory, &mut restart);
    restart
}
