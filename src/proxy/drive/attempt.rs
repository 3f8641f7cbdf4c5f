//! One attempt, up to its response head: connect, send, and what a refusal means.

use std::rc::Rc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};

use super::collecting::Memory;
use super::pace::Works;
use super::refused::{refusal_body, refused};
use super::resuming::Prefix;
use super::{Driver, Stage};
use crate::cause::{Cause, Failure};
use crate::config::{Kind, Target, TargetUrl};
use crate::dialect::collect::Collector;
use crate::dialect::conversation::{self, Cannot, Reference};
use crate::dialect::request::{Call, Changes, Edit};
use crate::dialect::{self, Dialect, thoughts};
use crate::gate::Gate;
use crate::gate::pool::Buffer;
use crate::observe::{Limit, Outcome, translate_events};
use crate::proxy::exchange::{Action, Event};
use crate::proxy::gateway::Gateway;
use crate::proxy::head::{self, HeadKind};
use crate::proxy::media::{self, Held};
use crate::proxy::refusal;
use crate::proxy::relay::Edits;
use crate::proxy::resume;
use crate::proxy::upstream::{Reply, RequestBody, SendError};
use crate::route::{self, Candidate, Delivery};
use crate::time::now;

impl Driver {
    pub(super) async fn connect(&mut self, candidate: usize, fresh: bool) -> Action {
        self.next_attempt(candidate);
        let target = self.target();
        if let Some(failure) = self.account.drilled(target) {
            return self.failed(failure);
        }
        // A stale connection's successor is the same attempt.
        if !fresh {
            if let Some(action) = self.home_ready(target).await {
                return action;
            }
            if let Some(action) = self.place_after_failures(target).await {
                return action;
            }
            if let Some(action) = self.memory_room(target).await {
                return action;
            }
            if let Err(failure) = self.account.attempt_begins(target, self.is_last_resort()) {
                return self.failed(failure);
            }
            self.queued_there();
        }
        self.pace.fate = self.account.fate();
        self.pace.works = self.works(target);
        let gateway = Rc::clone(&self.job.gateway);
        match self.pace.run(gateway.upstreams.connect(target, fresh)).await {
            Err(action) => action,
            Ok(Ok(link)) => {
                self.attempt.link = Some(link);
                self.pace.exchange.on(Event::Connected, now())
            }
            Ok(Err(failure)) => self.failed(failure),
        }
    }

    /// By what its server can be seen to work.
    fn works(&self, target: usize) -> Option<Works> {
        let local = self.job.gateway.locals.get(target).cloned().flatten()?;
        let within = self.plan.candidates.get(self.attempt.candidate)?.deadlines.between_tokens;
        Some(Works { local, within })
    }

    pub(super) async fn send(&mut self) -> Action {
        // Of a later target: the first one's were there before its time began.
        if let Err(action) = self.pictures(self.attempt.candidate).await {
            return action;
        }
        let request = match self.request() {
            Ok(request) => request,
            Err(failure) => return self.failed(failure),
        };
        let Some(link) = self.attempt.link.take() else { return self.failed(Failure::new(Cause::Internal)) };
        self.account.sends();
        match self.pace.run(link.send(request)).await {
            Err(action) => action,
            Ok(Ok(reply)) => self.head(reply).await,
            Ok(Err(SendError::Stale(failure))) => {
                self.attempt.detail = failure.detail;
                self.pace.exchange.on(Event::Stale, now())
            }
            Ok(Err(SendError::Failed(failure))) => self.failed(failure),
        }
    }

    pub(super) async fn head(&mut self, reply: Reply) -> Action {
        let delivery = self.delivery();
        let mut kind = head::kind(self.wire(), delivery != Delivery::Whole, reply.status, &reply.headers);
        if delivery == Delivery::Collected && reply.status.is_success() && kind != HeadKind::Stream {
            // It takes the request for a stream, and gives the whole answer; or what it gives is neither.
            kind = head::kind(self.wire(), false, reply.status, &reply.headers);
            self.asks_whole();
        }
        self.attempt.stage = match kind {
            HeadKind::Stream if delivery == Delivery::Collected => {
                let drops_banners = self.job.gateway.config.drop_anonymous_reasoning;
                Stage::Collecting(Box::new(Collector::new(self.wire(), drops_banners)), Memory::default())
            }
            HeadKind::Stream => match self.take_buffer() {
                Some(buffer) => Stage::Gate(Box::new(Gate::new(self.rules(), buffer))),
                None => return self.failed(Failure::new(Cause::NoBuffer)),
            },
            HeadKind::Answer => Stage::Answer(Vec::new(), None),
            HeadKind::Error => return self.rejected(reply).await,
            HeadKind::Alien(what) => return self.failed(Failure::with(Cause::Protocol, &what)),
        };
        self.attempt.reply = Some(reply);
        self.pace.exchange.on(Event::Head, now())
    }

    /// The target refused, or sent JSON where a stream was due: its text says why.
    pub(super) async fn rejected(&mut self, mut reply: Reply) -> Action {
        let gateway = Rc::clone(&self.job.gateway);
        let target = gateway.config.targets.get(self.target());
        let key = target.and_then(|target| head::key_sent(target, &self.job.credential));
        let body = match self.pace.run(refusal_body(&mut reply, key)).await {
            Ok(body) => body,
            Err(action) => return action,
        };
        let by_stream =
            self.delivery() == Delivery::Collected && dialect::refuses_streams(reply.status.as_u16(), &body);
        let fits = self.fits(reply.status, &body);
        let refused = refused(&reply, body, self.rules(), self.target(), self.job.call.dialect);
        if let Some(tokens) = fits {
            drop(reply);
            return Box::pin(self.send_fitted(tokens, refused)).await;
        }
        let refused = self.refused_at_first(refused);
        self.attempt.retry_after = refused.wait;
        if by_stream && refused.rejects {
            drop(reply);
            return Box::pin(self.asks_anew_whole()).await;
        }
        if !refused.rejects {
            return self.failed(refused.failure);
        }
        if refused.failure.cause == Cause::Unsupported && is_no_endpoint(reply.status) && self.turns_wire() {
            drop(reply);
            return Box::pin(self.send_anew()).await;
        }
        self.attempt.detail = refused.failure.detail;
        self.rejection = refused.kept.or(self.rejection.take());
        self.pace.exchange.on(Event::Rejected(refused.failure.cause, refused.wait), now())
    }

    /// Its server lacks the client's endpoint: from here on it is asked in the dialect that all of its kind speak.
    fn turns_wire(&mut self) -> bool {
        let (dialect, target) = (self.job.call.dialect, self.target());
        let kind = self.job.gateway.config.targets.get(target).map(|target| target.kind);
        let other = kind.and_then(|kind| route::fallback_wire(kind, dialect));
        match (self.plan.candidates.get_mut(self.attempt.candidate), other) {
            (Some(candidate), Some(other)) if candidate.wire == dialect => {
                candidate.wire = other;
                true
            }
            _ => false,
        }
    }

    /// This target gives no stream of this model: it is asked for the whole answer. If that goes well, it is from now on.
    fn asks_whole(&mut self) {
        if let Some(candidate) = self.plan.candidates.get_mut(self.attempt.candidate) {
            candidate.delivery = Delivery::Whole;
            self.attempt.unstreamed = true;
        }
    }

    /// The same attempt, for the whole answer.
    pub(super) async fn asks_anew_whole(&mut self) -> Action {
        self.asks_whole();
        self.pace.exchange.on(Event::AsksWhole, now());
        self.send_anew().await
    }

    /// The same attempt, on a connection of its own.
    pub(super) async fn send_anew(&mut self) -> Action {
        let gateway = Rc::clone(&self.job.gateway);
        match self.pace.run(gateway.upstreams.connect(self.target(), true)).await {
            Err(action) => action,
            Ok(Ok(link)) => {
                self.attempt.link = Some(link);
                self.send().await
            }
            Ok(Err(failure)) => self.failed(failure),
        }
    }

    pub(super) fn request(&mut self) -> Result<Request<RequestBody>, Failure> {
        let candidate =
            self.plan.candidates.get(self.attempt.candidate).ok_or(Failure::new(Cause::Internal))?;
        let job = &self.job;
        let source = Source {
            id: &job.id,
            call: &job.call,
            method: &job.method,
            path: &job.path,
            headers: &job.headers,
            credential: &job.credential,
            body: &job.body.bytes,
            gateway: &job.gateway,
            media: &job.media,
            prefix: self.prefix(),
            fitted: self.attempt.fitted.as_ref().map(|fitted| fitted.tokens),
        };
        let (request, edits) = source.request(candidate)?;
        self.attempt.edits = edits;
        Ok(request)
    }

    /// Fetches what the first target must be given, before any deadline of its own runs. False: there is nobody left to
    /// answer to.
    pub(super) async fn first_pictures(&mut self) -> bool {
        match self.pictures(0).await {
            Ok(()) => true,
            Err(Action::Refuse(cause)) => {
                self.refuse(cause).await;
                false
            }
            Err(_) => false,
        }
    }

    /// The pictures that this candidate must be given, where the request has only their URLs.
    async fn pictures(&mut self, candidate: usize) -> Result<(), Action> {
        let gateway = Rc::clone(&self.job.gateway);
        let wants = |candidate| media::wants_pictures(&gateway, &self.job.call, candidate);
        if !self.plan.candidates.get(candidate).is_some_and(wants) {
            return Ok(());
        }
        let (held, call, body) = (Rc::clone(&self.job.media), &self.job.call, &self.job.body.bytes);
        self.pace.run(held.fetch_all(&gateway, call, body)).await
    }

    pub(super) async fn take_room(&mut self) -> bool {
        let gateway = Rc::clone(&self.job.gateway);
        match self.pace.run(gateway.gate_room()).await {
            Ok(Some(room)) => {
                let (buffer, permit) = room.split();
                self.room = Some((Some(buffer), permit));
                true
            }
            Ok(None) => {
                self.limit_hit(Limit::GatedStreams);
                self.account.status(503);
                self.account.end(Outcome::Unavailable, None);
                self.own_problem(&refusal::no_gate_buffer(&self.job.gateway));
                false
            }
            Err(Action::Refuse(cause)) => {
                self.refuse(cause).await;
                false
            }
            // Nobody is left to answer to.
            Err(_) => false,
        }
    }

    pub(super) fn take_buffer(&mut self) -> Option<Buffer> {
        self.room.as_mut().and_then(|(buffer, _)| buffer.take())
    }
}

/// What requests to targets are made of.
pub(super) struct Source<'a> {
    pub(super) id: &'a str,
    pub(super) gateway: &'a Gateway,
    pub(super) media: &'a Held,
    pub(super) call: &'a Call,
    pub(super) method: &'a Method,
    pub(super) path: &'a str,
    pub(super) headers: &'a HeaderMap,
    pub(super) credential: &'a HeaderMap,
    pub(super) body: &'a Bytes,
    /// The answer's beginning, which the target is to go on with.
    pub(super) prefix: Option<&'a Prefix>,
    /// The limit of the answer's length, where the client's own does not fit.
    pub(super) fitted: Option<u64>,
}

impl Source<'_> {
    /// The request to this candidate, and what must be changed in its answer because of it.
    pub(super) fn request(&self, candidate: &Candidate) -> Result<(Request<RequestBody>, Edits), Failure> {
        let config = &self.gateway.config;
        let target = config.targets.get(candidate.target).ok_or(Failure::new(Cause::Internal))?;
        let call = self.call;
        if candidate.wire != call.dialect || self.prefix.is_some() {
            return self.translated(candidate, target);
        }
        // Anthropic refuses a history in which another server's thinking stands.
        if target.kind == Kind::Anthropic
            && thoughts::any_foreign(self.body)
            && let Ok(request) = self.translated(candidate, target)
        {
            return Ok(request);
        }
        let counts = matches!(call.dialect, Dialect::OpenaiChat | Dialect::OpenaiCompletions);
        let collects = candidate.delivery == Delivery::Collected;
        let changes = Changes {
            model: (candidate.model != call.model).then_some(candidate.model.as_str()),
            // llama.cpp reports its counts unasked, and moves its `timings` when asked for usage (into a chunk
            // that would then be hidden).
            ask_usage: counts && target.include_usage && (collects || target.kind != Kind::Llamacpp),
            ask_progress: call.dialect == Dialect::OpenaiChat && target.kind == Kind::Llamacpp,
            ask_stream: collects,
            max_tokens: self.fitted,
        };
        let edits = Edits {
            hide_usage: changes.ask_usage && call.stream && !call.wants_usage,
            hide_progress: changes.ask_progress && call.stream && !call.wants_progress,
            ..Edits::default()
        };
        let path = route::joined_path(target, self.path);
        let mut request = Request::builder().method(self.method.clone()).uri(path);
        if let Some(headers) = request.headers_mut() {
            head::to_upstream(headers, self.headers, target, self.credential);
        }
        let changed = if candidate.inlined { self.inlined(&changes, target)? } else { call.edits(&changes) };
        let slices = dialect::request::apply(self.body, changed);
        let request = request.body(RequestBody::new(slices));
        Ok((request.map_err(|e| Failure::with(Cause::Internal, &e.to_string()))?, edits))
    }

    /// The edits of a body in whose place the target gets the bytes of what the body only names.
    fn inlined(&self, changes: &Changes<'_>, target: &Target) -> Result<Vec<Edit>, Failure> {
        let dialect = self.call.dialect;
        let cannot = |words: String| Failure::with(Cause::Untranslatable, &words);
        let inline = |is_url: bool, text: &str| {
            let own = if is_url {
                media::may_have_urls(self.gateway, target.place)
            } else {
                route::native(target.kind, dialect)
            };
            if own {
                return Ok(None);
            }
            let reference = if is_url { Reference::Url(text) } else { Reference::File(dialect, text) };
            if let Some(blob) = self.media.blob(self.gateway, reference) {
                return Ok(Some(conversation::in_base64(&blob)));
            }
            let at = conversation::place_of(dialect, self.body, reference).unwrap_or_default();
            Err(if is_url {
                let why = self.media.why().unwrap_or_else(|| "it is no picture".to_owned());
                cannot(format!("the picture of `{at}` is not to be had: {why}"))
            } else {
                cannot(format!("the file of `{at}` is known to its provider alone"))
            })
        };
        self.call.edits_inlined(changes, self.body, inline).map_err(|fault| {
            fault.unwrap_or_else(|| cannot("the request names too many pictures or files".to_owned()))
        })
    }

    /// The same for a target of another dialect: written anew from what the client said.
    fn translated(
        &self,
        candidate: &Candidate,
        target: &Target,
    ) -> Result<(Request<RequestBody>, Edits), Failure> {
        let config = &self.gateway.config;
        let mut asked = conversation::decode_shared(self.call.dialect, self.body)
            .map_err(|bad| Failure::with(Cause::Untranslatable, &bad.message))?;
        asked.stream = candidate.delivery != Delivery::Whole;
        asked.max_tokens = asked.max_tokens.map(|limit| limit.min(self.fitted.unwrap_or(limit)));
        let terms = conversation::Terms {
            to: candidate.wire,
            model: &candidate.model,
            flavor: flavor(target),
            ask_usage: target.include_usage,
            strict: config.translation.strict,
            urls: media::may_have_urls(self.gateway, target.place),
            files: route::native(target.kind, self.call.dialect),
            loading: true,
            resolve: &|reference| self.media.blob(self.gateway, reference),
        };
        // Some models take no beginning of an answer: they are asked in words.
        let mut prefilled = self.prefix.is_some() && resume::takes_prefix(target.kind);
        let encode = |prefilled| match self.prefix {
            Some(prefix) => {
                conversation::encode(&asked.clone().going_on(&prefix.said, prefix.tokens, prefilled), &terms)
            }
            None => conversation::encode(&asked, &terms),
        };
        let encoded = match encode(prefilled) {
            Err(Cannot::Prefill) if prefilled => {
                prefilled = false;
                encode(false)
            }
            encoded => encoded,
        };
        let encoded = encoded.map_err(|cannot| {
            let words = cannot.words(&target.name);
            let why = matches!(cannot, Cannot::Url { .. }).then(|| self.media.why()).flatten();
            let words = why.map_or(words.clone(), |why| format!("{words}: {why}"));
            Failure::with(Cause::Untranslatable, &words)
        })?;
        if !encoded.dropped.is_empty() {
            let dropped: Vec<_> =
                encoded.dropped.iter().map(|it| format!("{} {}", it.field, it.why)).collect();
            translate_events::dropped(self.id, &target.name, candidate.wire.as_str(), &dropped.join("; "));
        }
        let path = route::joined_path(target, &encoded.path);
        let mut request = Request::builder().method(Method::POST).uri(path);
        if let Some(headers) = request.headers_mut() {
            head::to_other_dialect(headers, self.headers, target, self.credential);
        }
        let request = request.body(RequestBody::new(vec![Bytes::from(encoded.body)]));
        let edits = Edits { hide_thinking: asked.thinking.on == Some(false), prefilled, ..Edits::default() };
        Ok((request.map_err(|e| Failure::with(Cause::Internal, &e.to_string()))?, edits))
    }
}

/// Who speaks OpenAI's dialect there. OpenAI itself is known by its host, or by Azure's.
fn flavor(target: &Target) -> conversation::Flavor {
    match target.kind {
        Kind::Openai if is_openai(&target.url) => conversation::Flavor::Openai,
        Kind::Vllm => conversation::Flavor::Vllm,
        Kind::Llamacpp => conversation::Flavor::Llamacpp,
        Kind::Openai | Kind::Ollama | Kind::Anthropic | Kind::Gemini => conversation::Flavor::Other,
    }
}

fn is_openai(url: &TargetUrl) -> bool {
    let TargetUrl::Https { host, .. } = url else { return false };
    let host = host.to_ascii_lowercase();
    host == "api.openai.com" || [".api.openai.com", ".openai.azure.com"].iter().any(|own| host.ends_with(own))
}

/// Whether a server says so that it has no such endpoint; a model that it lacks is told by its text.
fn is_no_endpoint(status: StatusCode) -> bool {
    matches!(status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::conversation::Flavor;

    #[test]
    fn openai_itself_is_known_by_its_host() {
        for (kind, url, wanted) in [
            ("openai", "https://api.openai.com/v1", Flavor::Openai),
            ("openai", "https://eu.api.openai.com/v1", Flavor::Openai),
            ("openai", "https://box.openai.azure.com/openai/v1", Flavor::Openai),
            ("openai", "https://api.deepseek.com", Flavor::Other),
            ("openai", "https://notapi.openai.com.evil.test/v1", Flavor::Other),
            ("openai", "https://myapi.openai.com/v1", Flavor::Other),
            ("openai", "http://127.0.0.1:1234/v1", Flavor::Other),
            ("vllm", "http://127.0.0.1:8000", Flavor::Vllm),
        ] {
            let config = format!("[[target]]\nname = \"t\"\nkind = \"{kind}\"\nurl = \"{url}\"\n");
            let parsed =
                crate::config::parse(&config, std::path::Path::new("test"), &|_| None).expect(&config);
            assert_eq!(flavor(&parsed.config.targets[0]), wanted, "{url}");
        }
    }
}
