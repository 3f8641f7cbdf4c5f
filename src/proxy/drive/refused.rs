//! What a target's refusal means, and what of it is passed on.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;

use super::Kept;
use crate::cause::{Cause, Failure};
use crate::config::hidden;
use crate::dialect::{self, Dialect};
use crate::gate::{Rules, Verdict, answer};
use crate::limits;
use crate::proxy::head;
use crate::proxy::upstream::Reply;
use crate::wire::json;

/// What a refusal means.
pub(super) struct Refused {
    pub(super) failure: Failure,
    /// The pause that it asks for.
    pub(super) wait: Option<Duration>,
    /// It may become the client's answer.
    pub(super) kept: Option<Kept>,
    /// It is one: not a 200 with something else inside.
    pub(super) rejects: bool,
}

/// As much of a refusal's text as says why, without the key that its target was sent: some repeat it.
pub(super) async fn refusal_body(reply: &mut Reply, key: Option<&[u8]>) -> Vec<u8> {
    let bound = if reply.status.is_client_error() {
        limits::CLIENT_FAULT_BODY_BYTES
    } else {
        limits::ERROR_BODY_BYTES
    };
    let mut body = Vec::new();
    let reading = async {
        while body.len() < bound
            && let Some(Ok(chunk)) = reply.chunk().await
        {
            body.extend_from_slice(&chunk[..chunk.len().min(bound - body.len())]);
        }
    };
    // The status is known; a body that dawdles adds nothing worth waiting for.
    let _late = tokio::time::timeout(limits::ERROR_BODY_TIME, reading).await;
    match key {
        Some(key) => hidden(key, body),
        None => body,
    }
}

/// `client`: the dialect of whoever asked.
pub(super) fn refused(reply: &Reply, body: Vec<u8>, rules: Rules, target: usize, client: Dialect) -> Refused {
    let wait = head::retry_after(&reply.headers);
    if reply.status.is_success() {
        let (verdict, _) = answer::judge(rules, &body);
        let failure = match verdict {
            Verdict::Failed(failure) => failure,
            Verdict::Commit | Verdict::Empty(_) | Verdict::Overflow => {
                Failure::with(Cause::Protocol, "a JSON answer where a stream was asked for")
            }
        };
        return Refused { failure, wait: None, kept: None, rejects: false };
    }
    let cause = match dialect::classify_status(reply.status.as_u16(), &body) {
        // The client's request was good: what this target does not take is what was made of it here.
        Cause::ClientFault if rules.dialect != client && !dialect::is_moderation(&body) => {
            Cause::Untranslatable
        }
        cause => cause,
    };
    let failure = Failure::with(cause, &text_of(&body));
    // An endpoint that is not there, and what a server calls its own fault, are nothing for the client.
    let about_the_request =
        matches!(reply.status, StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY);
    let kept = match cause {
        Cause::ClientFault | Cause::ContextOverflow => true,
        Cause::Unsupported => about_the_request,
        _ => false,
    };
    let kept = kept.then(|| Kept {
        status: reply.status,
        headers: head::to_client(&reply.headers),
        body: Bytes::from(body),
        target,
        wire: rules.dialect,
    });
    Refused { failure, wait, kept, rejects: true }
}

/// What an error body says, for a person.
pub(super) fn text_of(body: &[u8]) -> String {
    json::readable(body.get(dialect::error_text(body)).unwrap_or_default())
}
