//! For clients of OpenAI Responses: the ladder of events, each with its number, and the response object at its end.

use super::answer::Answer;
use super::encoder::Common;
use super::text::{Fill, fill, quote};
use super::{Finish, Piece};
use crate::cause::{Cause, Failure};
use crate::dialect::reply::Problem;
use crate::limits::REPEATED_BYTES;

/// A stream. The protocol says everything again at its end, so it is kept, up to [`REPEATED_BYTES`].
#[derive(Debug, Default)]
pub(super) struct Stream {
    begun: bool,
    /// The next event's number.
    number: u64,
    open: Option<Item>,
    /// Items that are done, so the open one's index.
    done: u64,
    /// Those items as JSON, with commas between them.
    output: String,
}

/// The item that is open.
#[derive(Debug)]
struct Item {
    kind: Kind,
    id: String,
    /// Its text, its summary, its arguments.
    text: String,
    /// Of a text: a JSON list without its brackets.
    logprobs: String,
    /// Of thinking.
    signature: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Refusal,
    Thinking,
    /// The name, as JSON, and the rest of a `function_call` item but for its arguments.
    Call(String, String),
}

impl Stream {
    pub(super) fn piece(
        &mut self,
        common: &mut Common,
        piece: &Piece,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        match piece {
            Piece::Text(text) => self.say(&Kind::Text, text, common, out),
            Piece::Refusal(text) => self.say(&Kind::Refusal, text, common, out),
            Piece::Thinking(text) => self.say(&Kind::Thinking, text, common, out),
            Piece::Signature(signature) | Piece::Redacted(signature) => {
                let words = self.open.as_ref().is_some_and(|item| item.kind == Kind::Thinking);
                if !words || matches!(piece, Piece::Redacted(_)) {
                    self.open(Kind::Thinking, true, common, out);
                }
                if let Some(item) = &mut self.open {
                    item.signature.clone_from(signature);
                }
                self.close(out);
            }
            Piece::Logprobs(next) => {
                if let Some(waiting) = &mut common.logprobs {
                    waiting.pop();
                    waiting.push(',');
                    waiting.push_str(next.strip_prefix('[').unwrap_or(next));
                } else {
                    common.logprobs = Some(next.clone());
                }
            }
            Piece::ToolStart { index, id, name, signature } => {
                let mut call = Vec::new();
                let id = common.call_id(*index, id);
                fill(&mut call, ",\"call_id\":$", &[Fill::Text(&id)]);
                if !signature.is_empty() {
                    let google = ",\"extra_content\":{\"google\":{\"thought_signature\":$}}";
                    fill(&mut call, google, &[Fill::Text(signature)]);
                }
                let mut quoted = Vec::new();
                quote(&mut quoted, name);
                let [name, call] = [quoted, call].map(|json| String::from_utf8(json).unwrap_or_default());
                self.open(Kind::Call(name, call), false, common, out);
            }
            Piece::ToolArguments { delta, .. } => self.delta(delta, common, out),
            Piece::ToolEnd { .. } | Piece::Finish(_) => self.close(out),
            Piece::Done => {
                self.begin(common, out);
                self.close(out);
                let (status, response) = self.whole(common);
                let name = if status == "completed" { "response.completed" } else { "response.incomplete" };
                self.event(name, "\"response\":$", &[Fill::Json(&response)], out);
            }
            Piece::Start { .. } | Piece::Choice(_) | Piece::Usage(_) | Piece::Error(_) => {}
        }
        let open =
            self.open.as_ref().map_or(0, |item| item.text.len() + item.logprobs.len() + item.signature.len());
        let waiting = common.logprobs.as_ref().map_or(0, String::len);
        if self.output.len() + open + waiting > REPEATED_BYTES {
            let words = format!(
                "an answer of over {REPEATED_BYTES} bytes, and this protocol says everything again at its end"
            );
            return Err(Failure::with(Cause::NoBuffer, &words));
        }
        Ok(())
    }

    /// The answer broke. Clients' libraries expect `response.created` first whatever follows.
    pub(super) fn fail(&mut self, common: &Common, problem: &Problem, out: &mut Vec<u8>) {
        self.begin(common, out);
        let mut error = Vec::new();
        let values = [Fill::Text(problem.code), Fill::Text(&problem.message)];
        fill(&mut error, "{\"code\":$,\"message\":$}", &values);
        let error = String::from_utf8(error).unwrap_or_default();
        let response = self.response(common, "failed", &error, "null", "null");
        self.event("response.failed", "\"response\":$", &[Fill::Json(&response)], out);
    }

    /// The whole answer comes anew, in further items. What is open ends as incomplete (OpenAI's client takes no unended
    /// item): nobody is to act on a call that was cut off. The response at the end has the new items alone.
    pub(super) fn restart(&mut self, common: &Common, told: &str, out: &mut Vec<u8>) {
        self.begin(common, out);
        self.end("incomplete", out);
        self.output.clear();
        self.event("response.edgeward.restart", "\"edgeward\":$", &[Fill::Json(told)], out);
    }

    fn event(&mut self, name: &str, rest: &str, values: &[Fill<'_>], out: &mut Vec<u8>) {
        fill(
            out,
            "event: $\ndata: {\"type\":$,\"sequence_number\":$,",
            &[Fill::Json(name), Fill::Text(name), Fill::Number(self.number)],
        );
        fill(out, rest, values);
        out.extend_from_slice(b"}\n\n");
        self.number += 1;
    }

    fn begin(&mut self, common: &Common, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        let response = self.response(common, "in_progress", "null", "null", "null");
        for name in ["response.created", "response.in_progress"] {
            self.event(name, "\"response\":$", &[Fill::Json(&response)], out);
        }
    }

    fn say(&mut self, kind: &Kind, text: &str, common: &mut Common, out: &mut Vec<u8>) {
        if self.open.as_ref().is_none_or(|item| item.kind != *kind) {
            self.open(kind.clone(), false, common, out);
        }
        self.delta(text, common, out);
    }

    /// `silent`: it gets no part.
    fn open(&mut self, kind: Kind, silent: bool, common: &Common, out: &mut Vec<u8>) {
        self.begin(common, out);
        self.close(out);
        let prefix = match &kind {
            Kind::Text | Kind::Refusal => "msg",
            Kind::Thinking => "rs",
            Kind::Call(..) => "fc",
        };
        let item = Item {
            id: format!("{prefix}_{}_{}", common.terms.id, self.done),
            kind,
            text: String::new(),
            logprobs: String::new(),
            signature: String::new(),
        };
        let begun = item.json(None, "in_progress");
        let values = [Fill::Number(self.done), Fill::Json(&begun)];
        self.event("response.output_item.added", "\"output_index\":$,\"item\":$", &values, out);
        if let Some((part, _)) = item.part_event().filter(|_| !silent) {
            self.part(part, &item, "", out);
        }
        self.open = Some(item);
    }

    /// A part's beginning or end.
    fn part(&mut self, name: &str, item: &Item, text: &str, out: &mut Vec<u8>) {
        let part = item.part(text);
        let values =
            [Fill::Text(&item.id), Fill::Number(self.done), Fill::Json(item.within()), Fill::Json(&part)];
        self.event(name, "\"item_id\":$,\"output_index\":$,$:0,\"part\":$", &values, out);
    }

    fn delta(&mut self, text: &str, common: &mut Common, out: &mut Vec<u8>) {
        let Some(mut item) = self.open.take() else { return };
        item.text.push_str(text);
        let (name, _) = item.text_events();
        let logprobs = if item.kind == Kind::Text { common.logprobs.take() } else { None };
        let logprobs = logprobs.as_deref().and_then(|list| list.strip_prefix('[')?.strip_suffix(']'));
        if let Some(list) = logprobs {
            item.logprobs.push_str(if item.logprobs.is_empty() { "" } else { "," });
            item.logprobs.push_str(list);
        }
        let place = self.place(&item);
        let mut more = String::new();
        if item.kind == Kind::Text {
            more = format!(",\"logprobs\":[{}]", logprobs.unwrap_or_default());
        }
        self.event(name, "$,\"delta\":$$", &[Fill::Json(&place), Fill::Text(text), Fill::Json(&more)], out);
        self.open = Some(item);
    }

    /// Where a text is: `item_id`, `output_index` and, but for calls, the part.
    fn place(&self, item: &Item) -> String {
        let mut out = Vec::new();
        fill(&mut out, "\"item_id\":$,\"output_index\":$", &[Fill::Text(&item.id), Fill::Number(self.done)]);
        if !matches!(item.kind, Kind::Call(..)) {
            fill(&mut out, ",$:0", &[Fill::Json(item.within())]);
        }
        String::from_utf8(out).unwrap_or_default()
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        self.end("completed", out);
    }

    fn end(&mut self, status: &str, out: &mut Vec<u8>) {
        let Some(item) = self.open.take() else { return };
        // Thinking that only its provider can read has no part.
        let cut = status != "completed" && matches!(item.kind, Kind::Call(..));
        let silent = cut || item.kind == Kind::Thinking && item.text.is_empty();
        if !silent {
            let (_, name) = item.text_events();
            let place = self.place(&item);
            let (field, more) = match &item.kind {
                Kind::Text => ("\"text\"", format!(",\"logprobs\":[{}]", item.logprobs)),
                Kind::Thinking => ("\"text\"", String::new()),
                Kind::Refusal => ("\"refusal\"", String::new()),
                Kind::Call(name, _) => ("\"arguments\"", format!(",\"name\":{name}")),
            };
            let values = [Fill::Json(&place), Fill::Json(field), Fill::Text(&item.text), Fill::Json(&more)];
            self.event(name, "$,$:$$", &values, out);
        }
        if let Some((_, part)) = item.part_event().filter(|_| !silent) {
            self.part(part, &item, &item.text, out);
        }
        let json = item.json(Some(&item.text), status);
        let values = [Fill::Number(self.done), Fill::Json(&json)];
        self.event("response.output_item.done", "\"output_index\":$,\"item\":$", &values, out);
        self.output.push_str(if self.output.is_empty() { "" } else { "," });
        self.output.push_str(&json);
        self.done += 1;
    }

    /// The response at its end, and its status.
    fn whole(&self, common: &Common) -> (&'static str, String) {
        let (status, incomplete) = match common.finish {
            Some(Finish::Length) => ("incomplete", "{\"reason\":\"max_output_tokens\"}"),
            Some(Finish::Filtered | Finish::Refused) => ("incomplete", "{\"reason\":\"content_filter\"}"),
            _ => ("completed", "null"),
        };
        let mut usage = Vec::new();
        fill(
            &mut usage,
            "{\"input_tokens\":$,\"input_tokens_details\":{\"cached_tokens\":$},\"output_tokens\":$,\
             \"output_tokens_details\":{\"reasoning_tokens\":$},\"total_tokens\":$}",
            &[
                Fill::Number(common.usage.prompt.unwrap_or(0)),
                Fill::Number(common.usage.cached.unwrap_or(0)),
                Fill::Number(common.usage.completion.unwrap_or(0)),
                Fill::Number(common.usage.reasoning.unwrap_or(0)),
                Fill::Number(common.usage.total()),
            ],
        );
        let usage = String::from_utf8(usage).unwrap_or_default();
        (status, self.response(common, status, "null", incomplete, &usage))
    }

    fn response(&self, common: &Common, status: &str, error: &str, incomplete: &str, usage: &str) -> String {
        let mut out = Vec::new();
        fill(
            &mut out,
            "{\"id\":$,\"object\":\"response\",\"created_at\":$,\"status\":$,\"error\":$,\"incomplete_details\":$,\
             \"instructions\":null,\"metadata\":{},\"model\":$,\"output\":[$],\"parallel_tool_calls\":true,\
             \"temperature\":null,\"tool_choice\":\"auto\",\"tools\":[],\"top_p\":null,\"usage\":$}",
            &[
                Fill::Text(&common.id()),
                Fill::Number(common.terms.created),
                Fill::Text(status),
                Fill::Json(error),
                Fill::Json(incomplete),
                Fill::Text(&common.terms.model),
                Fill::Json(&self.output),
                Fill::Json(usage),
            ],
        );
        String::from_utf8(out).unwrap_or_default()
    }
}

impl Item {
    /// The events at the beginning and the end of its part.
    const fn part_event(&self) -> Option<(&'static str, &'static str)> {
        match self.kind {
            Kind::Text | Kind::Refusal => Some(("response.content_part.added", "response.content_part.done")),
            Kind::Thinking => {
                Some(("response.reasoning_summary_part.added", "response.reasoning_summary_part.done"))
            }
            Kind::Call(..) => None,
        }
    }

    const fn text_events(&self) -> (&'static str, &'static str) {
        match self.kind {
            Kind::Text => ("response.output_text.delta", "response.output_text.done"),
            Kind::Refusal => ("response.refusal.delta", "response.refusal.done"),
            Kind::Thinking => {
                ("response.reasoning_summary_text.delta", "response.reasoning_summary_text.done")
            }
            Kind::Call(..) => {
                ("response.function_call_arguments.delta", "response.function_call_arguments.done")
            }
        }
    }

    /// What counts its parts.
    const fn within(&self) -> &'static str {
        match self.kind {
            Kind::Thinking => "\"summary_index\"",
            Kind::Text | Kind::Refusal | Kind::Call(..) => "\"content_index\"",
        }
    }

    fn part(&self, text: &str) -> String {
        let mut out = Vec::new();
        match self.kind {
            Kind::Text => fill(
                &mut out,
                "{\"type\":\"output_text\",\"text\":$,\"annotations\":[],\"logprobs\":[$]}",
                &[Fill::Text(text), Fill::Json(&self.logprobs)],
            ),
            Kind::Refusal => fill(&mut out, "{\"type\":\"refusal\",\"refusal\":$}", &[Fill::Text(text)]),
            Kind::Thinking => fill(&mut out, "{\"type\":\"summary_text\",\"text\":$}", &[Fill::Text(text)]),
            Kind::Call(..) => {}
        }
        String::from_utf8(out).unwrap_or_default()
    }

    /// The whole item; at its beginning, before any text, without one.
    fn json(&self, text: Option<&str>, status: &str) -> String {
        let mut out = Vec::new();
        let status = Fill::Text(status);
        let id = Fill::Text(&self.id);
        let part = text.map(|text| self.part(text)).unwrap_or_default();
        match &self.kind {
            Kind::Text | Kind::Refusal => fill(
                &mut out,
                "{\"id\":$,\"type\":\"message\",\"status\":$,\"role\":\"assistant\",\"content\":[$]}",
                &[id, status, Fill::Json(&part)],
            ),
            Kind::Thinking => {
                let part = if self.text.is_empty() { "" } else { part.as_str() };
                fill(&mut out, "{\"id\":$,\"type\":\"reasoning\",\"summary\":[$]", &[id, Fill::Json(part)]);
                if !self.signature.is_empty() {
                    fill(&mut out, ",\"encrypted_content\":$", &[Fill::Text(&self.signature)]);
                }
                fill(&mut out, ",\"status\":$}", &[status]);
            }
            Kind::Call(name, call) => fill(
                &mut out,
                "{\"id\":$,\"type\":\"function_call\",\"status\":$,\"name\":$,\"arguments\":$$}",
                &[id, status, Fill::Json(name), Fill::Text(text.unwrap_or_default()), Fill::Json(call)],
            ),
        }
        String::from_utf8(out).unwrap_or_default()
    }
}

/// A whole answer: the object at the end of its stream.
pub(super) fn answer(common: &mut Common, answer: &Answer, out: &mut Vec<u8>) -> Result<(), Failure> {
    let mut stream = Stream::default();
    let mut events = Vec::new();
    for piece in answer.first() {
        stream.piece(common, piece, &mut events)?;
        events.clear();
    }
    stream.close(&mut events);
    let (_, response) = stream.whole(common);
    out.extend_from_slice(response.as_bytes());
    Ok(())
}
