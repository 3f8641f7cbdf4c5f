//! From the neutral form to a target's body.

use super::{Cannot, Conversation, Encoded, Terms};

pub(super) fn encode(_talk: &Conversation, _terms: &Terms<'_>) -> Result<Encoded, Cannot> {
    Err(Cannot::Dialect)
}
