//! A limit of the answer's length that a target refused as too large is asked again, at that target, with what fits.

use http::StatusCode;

use super::Driver;
use super::refused::Refused;
use crate::cause::Cause;
use crate::dialect;
use crate::observe::translate_events;
use crate::proxy::exchange::Action;

/// The limit that the present attempt's target was asked with instead of the client's.
pub(super) struct Fitted {
    /// In tokens.
    pub(super) tokens: u64,
    /// What it said to the client's own.
    first: Box<Refused>,
}

impl Driver {
    /// What fits, if these words say so and the client can still be told: once an attempt.
    pub(super) fn fits(&self, status: StatusCode, body: &[u8]) -> Option<u64> {
        let too_much = matches!(
            status,
            StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY
        );
        if !too_much || self.attempt.fitted.is_some() || self.pace.head_sent || self.is_between() {
            return None;
        }
        dialect::fitting(body, self.job.call.max_tokens?, self.job.call.prompt_tokens)
    }

    /// The same attempt, with `tokens` instead of what was refused.
    pub(super) async fn send_fitted(&mut self, tokens: u64, refused: Refused) -> Action {
        let (id, name) = (&self.job.id, self.job.gateway.name(self.target()));
        translate_events::fitted(id, name, self.job.call.max_tokens.unwrap_or(0), tokens);
        self.attempt.fitted = Some(Fitted { tokens, first: Box::new(refused) });
        self.send_anew().await
    }

    /// Refused once more: the client, and the next target, have to do with what its own words led to.
    pub(super) fn refused_at_first(&mut self, refused: Refused) -> Refused {
        let cause = refused.failure.cause;
        let again = cause.is_of_the_request() || matches!(cause, Cause::ClientFault | Cause::Untranslatable);
        match self.attempt.fitted.take_if(|_| again) {
            Some(fitted) => *fitted.first,
            None => refused,
        }
    }
}
