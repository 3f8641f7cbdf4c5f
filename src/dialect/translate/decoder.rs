//! From a server's events to pieces: what all protocols have in common.

use super::calls::{Calls, Delta};
use super::text::Tail;
use super::view::View;
use super::{Finish, Piece, Usage, from_anthropic, from_gemini, from_ollama, from_openai};
use crate::cause::{Cause, Failure};
use crate::dialect::{Dialect, inspect_event};
use crate::limits::{ANSWER_CHOICES, CALL_BYTES, SIGNATURE_BYTES};
use crate::wire::{Framing, json, sse};

/// Reads one server's answer.
#[derive(Debug)]
pub struct Decoder {
    server: Dialect,
    /// Room for data on several lines.
    join: Vec<u8>,
    flow: Flow,
}

impl Decoder {
    /// A decoder for a server's protocol; `None` for those that no target is asked in.
    #[must_use]
    pub fn new(server: Dialect) -> Option<Self> {
        match server {
            Dialect::OpenaiChat
            | Dialect::OpenaiCompletions
            | Dialect::OllamaChat
            | Dialect::OllamaGenerate
            | Dialect::Anthropic
            | Dialect::Gemini => Some(Decoder { server, join: Vec::new(), flow: Flow::default() }),
            Dialect::OpenaiResponses | Dialect::OpenaiEmbeddings | Dialect::OllamaEmbed => None,
        }
    }

    /// The client asked for this many choices: the answer is whole when all are.
    #[must_use]
    pub fn expecting(mut self, choices: u32) -> Self {
        self.flow.expected = choices.min(ANSWER_CHOICES) as usize;
        self
    }

    /// One complete raw event, as [`crate::wire::Splitter`] marks it off. Appends what it says; after an error or the
    /// end nothing more. Whether it was anything but a sign of life: a blank line, a comment.
    pub fn event(&mut self, raw: &[u8], out: &mut Vec<Piece>) -> bool {
        if self.flow.over {
            return false;
        }
        if self.join.len() < raw.len() {
            self.join.resize(raw.len(), 0);
        }
        let facts = inspect_event(self.server, raw, &mut self.join);
        if let Some(error) = &facts.error {
            let text = raw.get(error.text.clone()).unwrap_or_default();
            self.flow.fail(Failure::with(error.cause, &json::readable(text)), out);
            return true;
        }
        if facts.alien {
            self.flow.fail(Failure::with(Cause::Protocol, "an event that is no JSON"), out);
            return true;
        }
        if facts.blank {
            return false;
        }
        self.flow.nameless = facts.nameless;
        let data = match self.server.framing() {
            Framing::Ndjson => raw.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(raw),
            // Its own length always suffices.
            Framing::Sse => match sse::parse(raw, &mut self.join) {
                Ok(event) => event.data.unwrap_or_default(),
                Err(_) => b"",
            },
        };
        let read = match View::new(data) {
            Some(view) => read(self.server, view, &mut self.flow, out),
            None => Ok(()),
        };
        match read {
            Err(failure) => self.flow.fail(failure, out),
            Ok(()) if facts.done => self.flow.done(out),
            Ok(()) => {}
        }
        true
    }

    /// The body ended cleanly: the answer is whole if every choice said why it ended; else it is an error. A body
    /// that broke ends with an error of the caller's own.
    pub fn end(&mut self, out: &mut Vec<Piece>) {
        if self.flow.over {
            return;
        }
        if self.finished() {
            return self.flow.done(out);
        }
        let failure = if self.flow.nameless {
            Failure::with(Cause::Crashed, "the stream ended after a frame without a model name")
        } else {
            Failure::new(Cause::Truncated)
        };
        self.flow.fail(failure, out);
    }

    /// Every choice has said why it ended, and nothing after it: what is missing is the protocol's end marker, which the
    /// caller need not wait for.
    #[must_use]
    pub fn finished(&self) -> bool {
        let seen = self.flow.choices.iter().filter(|choice| choice.seen);
        let ended = seen.clone().filter(|choice| choice.finish.is_some()).count();
        ended >= seen.count().max(self.flow.expected).max(1)
    }

    /// Where an Anthropic server's blocks stand.
    pub(super) const fn blocks(&self) -> from_anthropic::Blocks {
        self.flow.blocks
    }

    /// An error or the end was given.
    #[must_use]
    pub const fn over(&self) -> bool {
        self.flow.over
    }
}

/// One answer that came whole, read in the same way; `Ok` for what is good so far.
pub(super) fn read_whole(server: Dialect, body: &[u8], out: &mut Vec<Piece>) {
    let mut flow = Flow::default();
    let facts = crate::dialect::inspect_answer(server, body);
    if let Some(error) = &facts.error {
        let text = body.get(error.text.clone()).unwrap_or_default();
        return flow.fail(Failure::with(error.cause, &json::readable(text)), out);
    }
    let Some(view) = View::new(body).filter(|view| view.is_object()) else {
        return flow.fail(Failure::with(Cause::Protocol, "an answer that is no JSON object"), out);
    };
    let result = match server {
        Dialect::Anthropic => from_anthropic::answer(view, &mut flow, out),
        _ => read(server, view, &mut flow, out),
    };
    match result {
        Err(failure) => flow.fail(failure, out),
        Ok(()) if flow.choices.iter().any(|choice| choice.seen) => flow.done(out),
        Ok(()) => flow.fail(Failure::with(Cause::Protocol, "an answer without a choice"), out),
    }
}

fn read(server: Dialect, view: View<'_>, flow: &mut Flow, out: &mut Vec<Piece>) -> Result<(), Failure> {
    match server {
        Dialect::OpenaiChat | Dialect::OpenaiCompletions => from_openai::read(view, flow, out),
        Dialect::OllamaChat | Dialect::OllamaGenerate => from_ollama::read(view, flow, out),
        Dialect::Anthropic => from_anthropic::event(view, flow, out),
        Dialect::Gemini => from_gemini::read(view, flow, out),
        Dialect::OpenaiResponses | Dialect::OpenaiEmbeddings | Dialect::OllamaEmbed => Ok(()),
    }
}

/// What the answer has said so far, and what of it waits for more.
#[derive(Debug, Default)]
pub(super) struct Flow {
    started: bool,
    over: bool,
    nameless: bool,
    /// Choices that were asked for.
    expected: usize,
    /// Whom pieces are about.
    current: usize,
    choices: Vec<Choice>,
    /// What nobody chose.
    spare: Choice,
    /// Tokens so far.
    pub(super) counted: Usage,
    /// Anthropic's current content block.
    pub(super) block: from_anthropic::Block,
    pub(super) blocks: from_anthropic::Blocks,
}

#[derive(Debug, Default)]
struct Choice {
    seen: bool,
    text: Tail,
    thinking: Tail,
    refusal: Tail,
    calls: Calls,
    /// Text that came in the midst of a call's arguments waits for their end.
    held: Vec<Piece>,
    held_bytes: usize,
    finish: Option<Finish>,
}

impl Choice {
    /// The current call is over; what waited for that is next.
    fn end_call(&mut self, out: &mut Vec<Piece>) {
        self.calls.end_open(out);
        self.release(out);
    }

    fn release(&mut self, out: &mut Vec<Piece>) {
        self.held_bytes = 0;
        out.append(&mut self.held);
    }
}

/// Which text it is.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Text,
    Thinking,
    Refusal,
}

impl Flow {
    /// The answer's and the model's names. A frame that has neither (Azure's filter report) does not begin it.
    pub(super) fn start(&mut self, id: String, model: String, out: &mut Vec<Piece>) {
        if self.started || (id.is_empty() && model.is_empty()) {
            return;
        }
        self.started = true;
        out.push(Piece::Start { id, model });
    }

    /// What follows is about this choice; whether that is one we tell apart.
    pub(super) fn choose(&mut self, index: u64, out: &mut Vec<Piece>) -> bool {
        let Some(index) = u32::try_from(index).ok().filter(|index| *index < ANSWER_CHOICES) else {
            return false;
        };
        let at = index as usize;
        if at >= self.choices.len() {
            self.choices.resize_with(at + 1, Choice::default);
        }
        if let Some(choice) = self.choices.get_mut(at) {
            choice.seen = true;
        }
        if self.current != at {
            self.current = at;
            self.begin(out);
            out.push(Piece::Choice(index));
        }
        true
    }

    fn begin(&mut self, out: &mut Vec<Piece>) {
        if !self.started {
            self.started = true;
            out.push(Piece::Start { id: String::new(), model: String::new() });
        }
    }

    fn choice(&mut self) -> &mut Choice {
        // Every reader calls `choose` first.
        self.choices.get_mut(self.current).unwrap_or(&mut self.spare)
    }

    /// A JSON string's inside, escapes kept.
    pub(super) fn say(&mut self, kind: Kind, raw: &[u8], out: &mut Vec<Piece>) {
        if raw.is_empty() {
            return;
        }
        self.begin(out);
        let choice = self.choice();
        choice.finish = None;
        let tail = match kind {
            Kind::Text => &mut choice.text,
            Kind::Thinking => &mut choice.thinking,
            Kind::Refusal => &mut choice.refusal,
        };
        let text = tail.push(raw);
        if choice.calls.busy() && choice.held_bytes <= CALL_BYTES {
            choice.held_bytes += text.len() + size_of::<Piece>();
            words(kind, text, &mut choice.held);
        } else {
            choice.end_call(out);
            words(kind, text, out);
        }
    }

    /// The signature of the thinking before.
    pub(super) fn sign(&mut self, signature: String, out: &mut Vec<Piece>) -> Result<(), Failure> {
        self.opaque(signature, Piece::Signature, out)
    }

    /// Thinking that only its provider can read.
    pub(super) fn redacted(&mut self, data: String, out: &mut Vec<Piece>) -> Result<(), Failure> {
        self.opaque(data, Piece::Redacted, out)
    }

    fn opaque(
        &mut self,
        text: String,
        piece: fn(String) -> Piece,
        out: &mut Vec<Piece>,
    ) -> Result<(), Failure> {
        if text.len() > SIGNATURE_BYTES {
            let words = format!("a signature of {} bytes; {SIGNATURE_BYTES} is the most", text.len());
            return Err(Failure::with(Cause::NoBuffer, &words));
        }
        if !text.is_empty() {
            self.begin(out);
            self.choice().end_call(out);
            out.push(piece(text));
        }
        Ok(())
    }

    /// More of a call, or a new one.
    pub(super) fn call(&mut self, delta: Delta<'_>, out: &mut Vec<Piece>) -> Result<(), Failure> {
        self.begin(out);
        let choice = self.choice();
        choice.finish = None;
        choice.calls.delta(delta, out)?;
        if !choice.held.is_empty() && !choice.calls.busy() {
            choice.end_call(out);
        }
        Ok(())
    }

    /// The current call is over.
    pub(super) fn end_call(&mut self, out: &mut Vec<Piece>) {
        self.choice().end_call(out);
    }

    /// How likely the next text's tokens were.
    pub(super) fn logprobs(&mut self, json: String, out: &mut Vec<Piece>) {
        self.begin(out);
        out.push(Piece::Logprobs(json));
    }

    pub(super) fn usage(&mut self, usage: Usage, out: &mut Vec<Piece>) {
        let counted = self.counted.then(usage);
        // Some servers say the same with each token.
        if counted != self.counted {
            self.counted = counted;
            self.begin(out);
            out.push(Piece::Usage(usage));
        }
    }

    /// Why the current choice ended; told at the answer's end, for some servers go on.
    pub(super) fn finish(&mut self, finish: Finish) {
        let choice = self.choice();
        choice.seen = true;
        choice.finish = Some(finish);
    }

    fn done(&mut self, out: &mut Vec<Piece>) {
        self.begin(out);
        if self.choices.is_empty() {
            self.choices.push(Choice::default());
        }
        for at in 0..self.choices.len() {
            let Some(choice) = self.choices.get_mut(at).filter(|choice| choice.seen || at == 0) else {
                continue;
            };
            if self.current != at {
                self.current = at;
                // Below ANSWER_CHOICES.
                out.push(Piece::Choice(at as u32));
            }
            choice.calls.end(out);
            choice.release(out);
            words(Kind::Thinking, choice.thinking.flush(), out);
            words(Kind::Text, choice.text.flush(), out);
            words(Kind::Refusal, choice.refusal.flush(), out);
            let finish = match choice.finish.take() {
                None | Some(Finish::Stop) if choice.calls.any() => Finish::Calls,
                None => Finish::Stop,
                Some(finish) => finish,
            };
            out.push(Piece::Finish(finish));
        }
        self.over = true;
        out.push(Piece::Done);
    }

    fn fail(&mut self, failure: Failure, out: &mut Vec<Piece>) {
        self.over = true;
        out.push(Piece::Error(failure));
    }
}

fn words(kind: Kind, text: String, out: &mut Vec<Piece>) {
    if !text.is_empty() {
        out.push(match kind {
            Kind::Text => Piece::Text(text),
            Kind::Thinking => Piece::Thinking(text),
            Kind::Refusal => Piece::Refusal(text),
        });
    }
}
