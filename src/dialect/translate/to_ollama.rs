//! For Ollama's clients: lines of `/api/chat` and `/api/generate`, and their whole answers.

use std::time::Duration;

use super::answer::Answer;
use super::encoder::{Common, object, unreadable};
use super::text::{Fill, fill};
use super::{Finish, Piece};
use crate::cause::{Cause, Failure};
use crate::dialect::Dialect;
use crate::limits::CALL_BYTES;

/// A stream of either.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// A line up to what it says.
    head: Vec<u8>,
    /// The current call, which a client gets whole.
    id: String,
    name: String,
    arguments: String,
    /// A call whose arguments are no object: well if a limit cut it.
    unreadable: Option<Failure>,
}

impl Stream {
    pub(super) fn piece(
        &mut self,
        common: &mut Common,
        piece: &Piece,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        match piece {
            Piece::Text(text) | Piece::Refusal(text) => self.line(common, said(text, "", ""), out),
            Piece::Thinking(text) => self.line(common, said("", text, ""), out),
            Piece::Logprobs(next) => {
                if common.logprobs.is_some() {
                    self.line(common, said("", "", ""), out);
                }
                common.logprobs = Some(next.clone());
            }
            Piece::ToolStart { index, id, name, .. } => {
                self.id = common.call_id(*index, id);
                self.name.clone_from(name);
                self.arguments.clear();
            }
            Piece::ToolArguments { delta, .. } => {
                if self.arguments.len() + delta.len() > CALL_BYTES {
                    let words = format!(
                        "the arguments of the call of `{}` have over {CALL_BYTES} bytes, and Ollama's clients take \
                         them whole",
                        self.name
                    );
                    return Err(Failure::with(Cause::NoBuffer, &words));
                }
                self.arguments.push_str(delta);
            }
            Piece::ToolEnd { index } => match call(*index, &self.id, &self.name, &self.arguments) {
                Some(call) => self.line(common, said("", "", &call), out),
                None => self.unreadable = Some(unreadable(&self.name)),
            },
            Piece::Finish(finish) => {
                if let Some(failure) = self.unreadable.take().filter(|_| *finish != Finish::Length) {
                    return Err(failure);
                }
            }
            Piece::Done => {
                self.head(common, out);
                out.extend_from_slice(&said("", "", "").json(common.client));
                end(common, out);
                out.extend_from_slice(b"}\n");
            }
            Piece::Start { .. }
            | Piece::Choice(_)
            // Ollama has neither.
            | Piece::Signature(_)
            | Piece::Redacted(_)
            | Piece::Usage(_)
            | Piece::Error(_) => {}
        }
        Ok(())
    }

    /// The whole answer comes anew: a line without words says so, also in a member that Ollama's own client hands on.
    pub(super) fn restart(&mut self, common: &Common, told: &str, out: &mut Vec<u8>) {
        self.arguments.clear();
        self.unreadable = None;
        self.head(common, out);
        out.extend_from_slice(&said("", "", "").json(common.client));
        fill(out, ",\"edgeward\":$,\"done\":false,\"done_reason\":\"restart\"}\n", &[Fill::Json(told)]);
    }

    fn head(&mut self, common: &Common, out: &mut Vec<u8>) {
        if self.head.is_empty() {
            head(common, &mut self.head);
        }
        out.extend_from_slice(&self.head);
    }

    fn line(&mut self, common: &mut Common, said: Said<'_>, out: &mut Vec<u8>) {
        self.head(common, out);
        out.extend_from_slice(&said.json(common.client));
        if let Some(logprobs) = common.logprobs.take() {
            fill(out, ",\"logprobs\":$", &[Fill::Json(&logprobs)]);
        }
        out.extend_from_slice(b",\"done\":false}\n");
    }
}

/// Of a line, or of a whole answer.
#[derive(Clone, Copy)]
struct Said<'a> {
    text: &'a str,
    thinking: &'a str,
    /// Calls as JSON, with commas between them.
    calls: &'a str,
}

const fn said<'a>(text: &'a str, thinking: &'a str, calls: &'a str) -> Said<'a> {
    Said { text, thinking, calls }
}

impl Said<'_> {
    fn json(&self, client: Dialect) -> Vec<u8> {
        let mut out = Vec::new();
        let chat = client == Dialect::OllamaChat;
        let begin = if chat { "\"message\":{\"role\":\"assistant\",\"content\":$" } else { "\"response\":$" };
        fill(&mut out, begin, &[Fill::Text(self.text)]);
        if !self.thinking.is_empty() {
            fill(&mut out, ",\"thinking\":$", &[Fill::Text(self.thinking)]);
        }
        if !self.calls.is_empty() {
            fill(&mut out, ",\"tool_calls\":[$]", &[Fill::Json(self.calls)]);
        }
        if chat {
            out.push(b'}');
        }
        out
    }
}

fn head(common: &Common, out: &mut Vec<u8>) {
    fill(
        out,
        "{\"model\":$,\"created_at\":$,",
        &[Fill::Text(&common.terms.model), Fill::Text(&timestamp(common.terms.created))],
    );
}

/// `None` for arguments that are no object.
fn call(index: u32, id: &str, name: &str, arguments: &str) -> Option<String> {
    let mut out = Vec::new();
    fill(
        &mut out,
        "{\"id\":$,\"function\":{\"index\":$,\"name\":$,\"arguments\":$}}",
        &[Fill::Text(id), Fill::Number(u64::from(index)), Fill::Text(name), Fill::Json(&object(arguments)?)],
    );
    String::from_utf8(out).ok()
}

/// What the last line and a whole answer have besides. Durations in nanoseconds.
fn end(common: &Common, out: &mut Vec<u8>) {
    let nanos = |time: Duration| Fill::Number(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    let took = common.terms.took;
    let reason = common.finish.as_ref().map_or("stop", |finish| common.reason(finish));
    fill(
        out,
        ",\"done\":true,\"done_reason\":$,\"total_duration\":$,\"load_duration\":0,\"prompt_eval_count\":$,\
         \"prompt_eval_duration\":$,\"eval_count\":$,\"eval_duration\":$",
        &[
            Fill::Text(reason),
            nanos(took.total),
            Fill::Number(common.usage.prompt.unwrap_or(0)),
            nanos(took.first),
            Fill::Number(common.usage.completion.unwrap_or(0)),
            nanos(took.total.saturating_sub(took.first)),
        ],
    );
}

/// A whole answer.
pub(super) fn answer(common: &Common, answer: &Answer, out: &mut Vec<u8>) -> Result<(), Failure> {
    let [mut text, mut thinking, mut calls] = [const { String::new() }; 3];
    let mut logprobs = None;
    let (mut current, mut arguments) = (None, "");
    for piece in answer.first() {
        match piece {
            Piece::Text(more) | Piece::Refusal(more) => text.push_str(more),
            Piece::Thinking(more) => thinking.push_str(more),
            Piece::Logprobs(json) => logprobs = Some(json),
            Piece::ToolStart { id, name, .. } => (current, arguments) = (Some((id, name)), ""),
            Piece::ToolArguments { delta, .. } => arguments = delta,
            Piece::ToolEnd { index } => {
                let Some((id, name)) = current.take() else { continue };
                match call(*index, &common.call_id(*index, id), name, arguments) {
                    Some(call) => {
                        calls.push_str(if calls.is_empty() { "" } else { "," });
                        calls.push_str(&call);
                    }
                    None if common.finish == Some(Finish::Length) => {}
                    None => return Err(unreadable(name)),
                }
            }
            _ => {}
        }
    }
    head(common, out);
    out.extend_from_slice(&said(&text, &thinking, &calls).json(common.client));
    if let Some(logprobs) = logprobs {
        fill(out, ",\"logprobs\":$", &[Fill::Json(logprobs)]);
    }
    end(common, out);
    out.push(b'}');
    Ok(())
}

/// RFC 3339, from seconds since 1970. The calendar is Hinnant's `civil_from_days`
/// (<https://howardhinnant.github.io/date_algorithms.html>).
pub(super) fn timestamp(seconds: u64) -> String {
    // 9999-12-31T23:59:59Z: RFC 3339 has four digits.
    let seconds = seconds.min(253_402_300_799);
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    let since = days + 719_468;
    let (era, day_of_era) = (since / 146_097, since % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}
