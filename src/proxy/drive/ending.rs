//! How a request ends: whole, broken and said so, refused, or passed on as a target gave it.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::refused::text_of;
use super::{Driver, Stage};
use crate::cause::{Cause, Failure};
use crate::dialect::reply;
use crate::observe::{Limit, Outcome, events};
use crate::proxy::deaths;
use crate::proxy::head;
use crate::proxy::outlet::Head;
use crate::proxy::refusal;
use crate::time::now;
use crate::wire::Framing;

impl Driver {
    /// Why it cannot be: the end that the server left out cannot be said in the client's dialect.
    pub(super) fn end_clean(&mut self) -> Option<Cause> {
        let took = self.took();
        if let Some(translation) = self.attempt.translation.as_mut().filter(|_| !self.attempt.shadow) {
            let mut last = Vec::new();
            translation.took(took);
            translation.end(&mut last);
            self.pace.outlet.bytes(Bytes::from(last));
            if let Some(failure) = translation.failure() {
                self.attempt.detail.clone_from(&failure.detail);
                return Some(failure.cause);
            }
        } else if let Stage::Relay(relay) = &self.attempt.stage
            && relay.said().finished
            && !relay.said().done
        {
            self.pace.outlet.bytes(Bytes::from_static(reply::end_marker(self.job.call.dialect)));
        }
        self.pace.outlet.end_clean();
        self.account.end(Outcome::Answered, None);
        None
    }

    /// An error that the client can read, then an end that it cannot mistake for a whole answer.
    pub(super) async fn end_broken(&mut self, cause: Cause) {
        let mut told = false;
        if let Stage::Relay(relay) = &self.attempt.stage {
            told = relay.said().error_shown;
            if self.attempt.translation.is_some() && !self.attempt.shadow {
                // It gives whole frames, and tells of no error by itself.
                told = false;
            } else if relay.cut_inside_event() {
                // A blank line would be no JSON to Ollama's clients.
                let line_end: &'static [u8] = match self.job.call.dialect.framing() {
                    Framing::Sse => b"\n\n",
                    Framing::Ndjson => b"\n",
                };
                self.pace.outlet.bytes(Bytes::from_static(line_end));
            }
        }
        let mut failure = Failure { cause, detail: std::mem::take(&mut self.attempt.detail) };
        // The upstream's part is over: it must not wait for the client to read its error.
        let target = self.target();
        deaths::explain(&self.job.gateway, target, &mut failure, now());
        let streams = matches!(self.attempt.stage, Stage::Relay(_));
        let shadow = self.attempt.shadow;
        let translation = self.attempt.translation.take().filter(|_| !shadow);
        self.next_attempt(self.attempt.candidate);
        if streams && !told {
            // What went wrong first, where it has gone on before.
            let first = self.first_break().filter(|_| !matches!(cause, Cause::Cancelled | Cause::Draining));
            let (culprit, shown) = first.unwrap_or_else(|| (target, failure.clone()));
            let problem = refusal::broken(self.job.gateway.name(culprit), &shown);
            let event = match translation {
                Some(mut translation) => {
                    let mut event = Vec::new();
                    translation.fail(&problem, &mut event);
                    event
                }
                None => problem.event(self.job.call.dialect),
            };
            self.pace.outlet.bytes(Bytes::from(event));
        }
        let outcome = match cause {
            Cause::Cancelled => Outcome::Cancelled,
            Cause::Draining => Outcome::Drained,
            _ => Outcome::Broken,
        };
        self.account.end(outcome, Some((target, failure)));
        self.pace.flushed().await;
        self.pace.outlet.end_broken();
    }

    /// A target's own answer, unchanged: a refusal that is the client's fault, or an empty answer.
    pub(super) async fn pass(&mut self, outcome: Outcome) {
        let kept = if outcome == Outcome::Answered { self.empty.take() } else { self.rejection.take() };
        // A refusal that is nothing to pass on: an endpoint that is not there.
        let Some(kept) = kept else { return self.refuse(Cause::Unsupported).await };
        self.next_attempt(0);
        let dialect = self.job.call.dialect;
        if self.pace.head_sent {
            if outcome == Outcome::Answered {
                self.pace.outlet.bytes(kept.body);
                self.pace.outlet.end_clean();
                self.account.end(outcome, None);
                return;
            }
            let text = text_of(&kept.body);
            let problem = reply::Problem::new(kept.status.as_u16(), "invalid_request", text);
            self.pace.outlet.bytes(Bytes::from(problem.event(dialect)));
            self.account.end(outcome, None);
            self.pace.flushed().await;
            self.pace.outlet.end_broken();
            return;
        }
        let (mut headers, mut body) = (kept.headers, kept.body);
        if kept.wire != dialect {
            // Only its words are the client's.
            let problem = reply::Problem::new(kept.status.as_u16(), "invalid_request", text_of(&body));
            refusal::headers(&problem, head::retry_after(&headers), &mut headers);
            body = Bytes::from(problem.body(dialect));
        }
        self.own_headers(&mut headers, Some(kept.target));
        self.account.status(kept.status.as_u16());
        self.account.end(outcome, None);
        self.pace.head(Head { status: kept.status, headers, whole: Some(body) });
    }

    /// Every candidate failed, or the request was stopped before it had an answer.
    pub(super) async fn refuse(&mut self, cause: Cause) {
        self.next_attempt(0);
        let request_time = self.job.gateway.config.limits.request_time;
        if cause == Cause::TimeoutTotal && now() >= self.job.began + request_time {
            self.limit_hit(Limit::RequestTime);
        }
        self.account.settle();
        let failures = self.account.failures();
        let problem = refusal::all_failed(&self.job.gateway, &self.plan, failures, cause);
        let outcome = match cause {
            Cause::Cancelled => Outcome::Cancelled,
            Cause::Draining => Outcome::Drained,
            Cause::Suspended if failures.iter().all(|(_, failure)| failure.cause == cause) => {
                Outcome::Unavailable
            }
            // Nobody has the model that it names.
            _ if problem.status == 404 => Outcome::Refused,
            _ => Outcome::Failed,
        };
        self.account.status(if self.pace.head_sent { 200 } else { problem.status });
        self.account.end(outcome, None);
        if self.pace.head_sent {
            self.pace.outlet.bytes(Bytes::from(problem.event(self.job.call.dialect)));
            self.pace.flushed().await;
            self.pace.outlet.end_broken();
            return;
        }
        self.own_problem(&problem);
    }

    pub(super) fn no_candidate(&mut self) {
        let problem = refusal::no_candidate(&self.job.gateway, &self.plan, &self.job.call);
        self.account.status(problem.status);
        self.account.end(refusal::outcome(&problem), None);
        self.own_problem(&problem);
    }

    pub(super) fn own_problem(&mut self, problem: &reply::Problem) {
        let (gateway, model) = (&self.job.gateway, &self.job.call.model);
        let pause = refusal::retry_after(gateway, &self.plan, model, self.account.failures());
        self.own_problem_after(problem, pause);
    }

    /// With the time after which it may be tried again.
    pub(super) fn own_problem_after(&mut self, problem: &reply::Problem, pause: Option<Duration>) {
        let mut headers = HeaderMap::new();
        refusal::headers(problem, pause, &mut headers);
        self.own_headers(&mut headers, None);
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::BAD_GATEWAY);
        let body = Bytes::from(problem.body(self.job.call.dialect));
        self.pace.head(Head { status, headers, whole: Some(body) });
    }

    pub(super) fn own_headers(&self, headers: &mut HeaderMap, target: Option<usize>) {
        let name = target.map(|target| self.job.gateway.name(target));
        let attempts = self.account.attempts(name.filter(|_| self.account.has_committed()));
        head::own(headers, &self.job.id, name, &attempts);
        if let Some(fitted) = self.attempt.fitted.as_ref().filter(|_| target.is_some()) {
            head::fitted(headers, fitted.tokens);
        }
    }

    pub(super) fn limit_hit(&self, limit: Limit) {
        self.job.gateway.metrics.limit(limit);
        events::limit_hit(limit, Some(&self.job.id));
    }
}
