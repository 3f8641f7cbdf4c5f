//! For OpenAI's clients: chunks of `/v1/chat/completions` and `/v1/completions`, and their whole answers.

use super::answer::Answer;
use super::encoder::{Common, openai_usage};
use super::text::{Fill, fill, quote};
use super::view::View;
use super::{Finish, Piece, Usage};
use crate::dialect::Dialect;

/// A stream of either.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// A chunk up to its choices.
    head: Vec<u8>,
    /// Choices that have had their first chunk, one bit each.
    begun: u128,
    /// Completions: characters of each choice so far, where a token begins.
    offsets: Vec<u64>,
}

// One bit for each choice.
const _: () = assert!(crate::limits::ANSWER_CHOICES <= u128::BITS);

impl Stream {
    pub(super) fn piece(&mut self, common: &mut Common, piece: &Piece, out: &mut Vec<u8>) {
        let mut delta = Vec::new();
        match piece {
            Piece::Start { .. }
            | Piece::Choice(_)
            | Piece::Error(_)
            | Piece::Usage(_)
            | Piece::ToolEnd { .. } => {}
            Piece::Logprobs(next) => {
                if common.logprobs.is_some() {
                    // Of text that did not come in a frame of its own.
                    self.chunk(common, b"", out);
                }
                common.logprobs = Some(next.clone());
            }
            Piece::Finish(finish) => {
                if common.logprobs.is_some() {
                    self.chunk(common, b"", out);
                }
                self.finish(common, finish, out);
            }
            Piece::Done => {
                if common.terms.wants_usage && common.usage != Usage::default() {
                    self.head(common, out);
                    fill(out, "],\"usage\":$}\n\n", &[Fill::Json(&openai_usage(&common.usage))]);
                }
                out.extend_from_slice(b"data: [DONE]\n\n");
            }
            Piece::Text(_)
            | Piece::Thinking(_)
            | Piece::Signature(_)
            | Piece::Redacted(_)
            | Piece::Refusal(_)
            | Piece::ToolStart { .. }
            | Piece::ToolArguments { .. } => match common.client {
                Dialect::OpenaiCompletions => self.text(common, piece, out),
                _ => {
                    member(common, piece, &mut delta);
                    self.chunk(common, &delta, out);
                }
            },
        }
    }

    /// The whole answer comes anew: a chunk without choices says so, and choices begin as at first.
    pub(super) fn restart(&mut self, common: &Common, told: &str, out: &mut Vec<u8>) {
        self.begun = 0;
        self.offsets.clear();
        self.head(common, out);
        fill(out, "],\"edgeward\":$}\n\n", &[Fill::Json(told)]);
    }

    /// `delta`: members of the delta.
    fn chunk(&mut self, common: &mut Common, delta: &[u8], out: &mut Vec<u8>) {
        if common.client == Dialect::OpenaiCompletions {
            return self.text(common, &Piece::Text(String::new()), out);
        }
        self.role(common, out);
        self.head(common, out);
        let logprobs = logprobs(common.logprobs.take());
        fill(out, "{\"index\":$,\"delta\":{", &[Fill::Number(u64::from(common.choice))]);
        out.extend_from_slice(delta);
        fill(out, "},\"logprobs\":$,\"finish_reason\":null}]}\n\n", &[Fill::Json(&logprobs)]);
    }

    /// The first chunk of a choice says whose words they are, and nothing else.
    fn role(&mut self, common: &Common, out: &mut Vec<u8>) {
        let bit = 1_u128.checked_shl(common.choice).unwrap_or(0);
        if common.client == Dialect::OpenaiChat && self.begun & bit == 0 {
            self.begun |= bit;
            self.head(common, out);
            fill(
                out,
                "{\"index\":$,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\
                 \"finish_reason\":null}]}\n\n",
                &[Fill::Number(u64::from(common.choice))],
            );
        }
    }

    fn head(&mut self, common: &Common, out: &mut Vec<u8>) {
        if self.head.is_empty() {
            let object = if common.client == Dialect::OpenaiChat {
                "chat.completion.chunk"
            } else {
                "text_completion"
            };
            fill(
                &mut self.head,
                "data: {\"id\":$,\"object\":$,\"created\":$,\"model\":$,\"choices\":[",
                &[
                    Fill::Text(&common.id()),
                    Fill::Text(object),
                    Fill::Number(common.terms.created),
                    Fill::Text(&common.terms.model),
                ],
            );
        }
        out.extend_from_slice(&self.head);
    }

    fn finish(&mut self, common: &mut Common, finish: &Finish, out: &mut Vec<u8>) {
        self.role(common, out);
        self.head(common, out);
        let said = if common.client == Dialect::OpenaiChat { "\"delta\":{}" } else { "\"text\":\"\"" };
        fill(
            out,
            "{\"index\":$,$,\"logprobs\":null,\"finish_reason\":$$}]}\n\n",
            &[
                Fill::Number(u64::from(common.choice)),
                Fill::Json(said),
                Fill::Text(common.reason(finish)),
                Fill::Json(&sequence(finish)),
            ],
        );
    }

    /// Of a completion. It has no place for thinking and calls, and its requests ask for none.
    fn text(&mut self, common: &mut Common, piece: &Piece, out: &mut Vec<u8>) {
        let (Piece::Text(text) | Piece::Refusal(text)) = piece else { return };
        let at = common.choice as usize;
        if at >= self.offsets.len() {
            self.offsets.resize(at + 1, 0);
        }
        let offset = self.offsets.get_mut(at);
        let begins = offset.as_deref().copied().unwrap_or(0);
        if let Some(offset) = offset {
            *offset += text.chars().count() as u64;
        }
        let logprobs = old_logprobs(common.logprobs.take(), begins);
        self.head(common, out);
        fill(
            out,
            "{\"index\":$,\"text\":$,\"logprobs\":$,\"finish_reason\":null}]}\n\n",
            &[Fill::Number(u64::from(common.choice)), Fill::Text(text), Fill::Json(&logprobs)],
        );
    }
}

/// vLLM's member for the stop sequence: OpenAI has none, and its clients pass over it.
fn sequence(finish: &Finish) -> String {
    let mut out = Vec::new();
    if let Finish::Sequence(sequence) = finish {
        fill(&mut out, ",\"stop_reason\":$", &[Fill::Text(sequence)]);
    }
    String::from_utf8(out).unwrap_or_default()
}

fn logprobs(content: Option<String>) -> String {
    content.map_or_else(|| "null".to_owned(), |content| format!("{{\"content\":{content},\"refusal\":null}}"))
}

/// What a piece is in a chat's delta.
fn member(common: &Common, piece: &Piece, out: &mut Vec<u8>) {
    match piece {
        Piece::Text(text) => fill(out, "\"content\":$", &[Fill::Text(text)]),
        Piece::Thinking(text) => fill(out, "\"reasoning_content\":$", &[Fill::Text(text)]),
        Piece::Refusal(text) => fill(out, "\"refusal\":$", &[Fill::Text(text)]),
        Piece::Signature(_) | Piece::Redacted(_) => {
            out.extend_from_slice(b"\"reasoning_details\":[");
            detail(piece, out);
            out.push(b']');
        }
        Piece::ToolStart { index, id, name, signature } => {
            fill(out, "\"tool_calls\":[{\"index\":$,", &[Fill::Number(u64::from(*index))]);
            call(common, id, name, signature, *index, "", out);
            out.push(b']');
        }
        Piece::ToolArguments { index, delta } => fill(
            out,
            "\"tool_calls\":[{\"index\":$,\"function\":{\"arguments\":$}}]",
            &[Fill::Number(u64::from(*index)), Fill::Text(delta)],
        ),
        _ => {}
    }
}

/// OpenRouter's form: a signature belongs to the thinking before it.
fn detail(piece: &Piece, out: &mut Vec<u8>) {
    match piece {
        Piece::Signature(text) => fill(
            out,
            "{\"type\":\"reasoning.text\",\"text\":\"\",\"signature\":$,\"format\":\"anthropic-claude-v1\",\"index\":0}",
            &[Fill::Text(text)],
        ),
        Piece::Redacted(data) => {
            fill(
                out,
                "{\"type\":\"reasoning.encrypted\",\"data\":$,\"format\":\"anthropic-claude-v1\",\"index\":0}",
                &[Fill::Text(data)],
            );
        }
        _ => {}
    }
}

/// The rest of a call, its brace open already. Google's own member holds its signature.
fn call(
    common: &Common,
    id: &str,
    name: &str,
    signature: &str,
    index: u32,
    arguments: &str,
    out: &mut Vec<u8>,
) {
    fill(
        out,
        "\"id\":$,\"type\":\"function\",\"function\":{\"name\":$,\"arguments\":$}",
        &[Fill::Text(&common.call_id(index, id)), Fill::Text(name), Fill::Text(arguments)],
    );
    if !signature.is_empty() {
        fill(out, ",\"extra_content\":{\"google\":{\"thought_signature\":$}}", &[Fill::Text(signature)]);
    }
    out.push(b'}');
}

/// From the chat's list to the four lists of `/v1/completions`; a token's text begins at `offset` characters.
fn old_logprobs(content: Option<String>, mut offset: u64) -> String {
    let Some(content) = content else { return "null".to_owned() };
    let Some(view) = View::new(content.as_bytes()) else { return "null".to_owned() };
    let [mut tokens, mut numbers, mut tops, mut offsets] = [const { Vec::new() }; 4];
    view.each(&mut |step| {
        for list in [&mut tokens, &mut numbers, &mut tops, &mut offsets] {
            if !list.is_empty() {
                list.push(b',');
            }
        }
        let text = step.get("token").text();
        quote(&mut tokens, &text);
        numbers.extend_from_slice(step.get("logprob").raw());
        fill(&mut offsets, "$", &[Fill::Number(offset)]);
        offset += text.chars().count() as u64;
        let begins = tops.len();
        step.get("top_logprobs").each(&mut |top| {
            tops.push(if tops.len() == begins { b'{' } else { b',' });
            quote(&mut tops, &top.get("token").text());
            tops.push(b':');
            tops.extend_from_slice(top.get("logprob").raw());
        });
        tops.extend_from_slice(if tops.len() == begins { b"null" } else { b"}" });
    });
    let mut out = Vec::new();
    let lists = [tokens, numbers, tops, offsets].map(|list| String::from_utf8(list).unwrap_or_default());
    let [tokens, numbers, tops, offsets] = &lists;
    fill(
        &mut out,
        "{\"tokens\":[$],\"token_logprobs\":[$],\"top_logprobs\":[$],\"text_offset\":[$]}",
        &[Fill::Json(tokens), Fill::Json(numbers), Fill::Json(tops), Fill::Json(offsets)],
    );
    String::from_utf8(out).unwrap_or_default()
}

/// A whole answer.
pub(super) fn answer(common: &mut Common, answer: &Answer, out: &mut Vec<u8>) {
    let chat = common.client == Dialect::OpenaiChat;
    fill(
        out,
        "{\"id\":$,\"object\":$,\"created\":$,\"model\":$,\"choices\":[",
        &[
            Fill::Text(&common.id()),
            Fill::Text(if chat { "chat.completion" } else { "text_completion" }),
            Fill::Number(common.terms.created),
            Fill::Text(&common.terms.model),
        ],
    );
    let mut first = true;
    for (index, pieces) in answer.choices() {
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        common.choice = index;
        choice(common, pieces, out);
    }
    out.push(b']');
    if common.usage != Usage::default() {
        fill(out, ",\"usage\":$", &[Fill::Json(&openai_usage(&common.usage))]);
    }
    out.push(b'}');
}

fn choice(common: &Common, pieces: &[Piece], out: &mut Vec<u8>) {
    let [mut text, mut thinking, mut refusal] = [const { String::new() }; 3];
    let mut content = None;
    let (mut calls, mut details, mut arguments) = (Vec::new(), Vec::new(), "");
    let mut finish = &Finish::Stop;
    let mut open = None;
    for piece in pieces {
        match piece {
            Piece::Text(more) => text.push_str(more),
            Piece::Thinking(more) => thinking.push_str(more),
            Piece::Refusal(more) => refusal.push_str(more),
            Piece::Signature(_) | Piece::Redacted(_) => {
                if !details.is_empty() {
                    details.push(b',');
                }
                detail(piece, &mut details);
            }
            Piece::Logprobs(json) => content = Some(json.clone()),
            Piece::ToolStart { .. } => (open, arguments) = (Some(piece), ""),
            Piece::ToolArguments { delta, .. } => arguments = delta,
            Piece::ToolEnd { index } => {
                if let Some(Piece::ToolStart { id, name, signature, .. }) = open.take() {
                    calls.extend_from_slice(if calls.is_empty() { b"{" } else { b",{" });
                    call(common, id, name, signature, *index, arguments, &mut calls);
                }
            }
            Piece::Finish(why) => finish = why,
            _ => {}
        }
    }
    let index = Fill::Number(u64::from(common.choice));
    let reason = Fill::Text(common.reason(finish));
    let sequence = sequence(finish);
    if common.client != Dialect::OpenaiChat {
        text.push_str(&refusal);
        let logprobs = old_logprobs(content, 0);
        let values = [index, Fill::Text(&text), Fill::Json(&logprobs), reason, Fill::Json(&sequence)];
        return fill(out, "{\"index\":$,\"text\":$,\"logprobs\":$,\"finish_reason\":$$}", &values);
    }
    let optional = |text: &str| {
        let mut quoted = Vec::new();
        quote(&mut quoted, text);
        if text.is_empty() { "null".to_owned() } else { String::from_utf8(quoted).unwrap_or_default() }
    };
    // With nothing else an empty text is the answer.
    let nothing = calls.is_empty() && refusal.is_empty();
    let content_text = if text.is_empty() && nothing { "\"\"".to_owned() } else { optional(&text) };
    fill(
        out,
        "{\"index\":$,\"message\":{\"role\":\"assistant\",\"content\":$,\"refusal\":$",
        &[index, Fill::Json(&content_text), Fill::Json(&optional(&refusal))],
    );
    if !thinking.is_empty() {
        fill(out, ",\"reasoning_content\":$", &[Fill::Text(&thinking)]);
    }
    for (name, list) in [("reasoning_details", details), ("tool_calls", calls)] {
        if !list.is_empty() {
            fill(out, ",$:[", &[Fill::Text(name)]);
            out.extend_from_slice(&list);
            out.push(b']');
        }
    }
    fill(
        out,
        "},\"logprobs\":$,\"finish_reason\":$$}",
        &[Fill::Json(&logprobs(content)), reason, Fill::Json(&sequence)],
    );
}
