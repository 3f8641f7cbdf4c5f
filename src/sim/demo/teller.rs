//! A server's events in words, as short as they can be: what says nothing new is counted, not told.

use serde_json::Value;

use crate::sim::server::SimEvent;

/// A silence longer than this is told, in milliseconds; shorter ones lie between tokens.
const SILENCE_MS: u128 = 1000;
/// Connections that are remembered as new.
const CONNECTIONS_MAX: usize = 64;

/// Tells what one server does for one request.
#[derive(Debug, Default)]
pub struct Teller {
    /// Accepted and not asked over yet.
    accepted: Vec<u64>,
    /// Said and not told yet: head, role and token of one moment are one sentence.
    pending: Vec<String>,
    /// An error or a whole reply was told, so its end says nothing new.
    answered: bool,
    tokens: usize,
    last_comment: Option<String>,
    comments: usize,
}

/// What a piece of an answer is.
enum Said {
    Words(String),
    Error(String),
    Comment(String),
    Token(String),
    Nothing,
}

impl Teller {
    /// The same server at its next request.
    #[must_use]
    pub fn anew(self) -> Self {
        Teller { accepted: self.accepted, ..Teller::default() }
    }

    /// A sentence about `event`, if there is something to tell now. `aborted`: the server's own count of peers that
    /// hung up on it.
    pub fn tell(&mut self, event: &SimEvent, aborted: u64) -> Option<String> {
        match event {
            SimEvent::Accepted(connection) => {
                if self.accepted.len() < CONNECTIONS_MAX {
                    self.accepted.push(*connection);
                }
                None
            }
            SimEvent::Requested(connection) => {
                let before = self.accepted.len();
                self.accepted.retain(|accepted| accepted != connection);
                let new = self.accepted.len() < before;
                Some(
                    if new { "is asked, on a new connection" } else { "is asked, on a warm connection" }
                        .into(),
                )
            }
            SimEvent::Writing(bytes) => self.say(&String::from_utf8_lossy(bytes)),
            SimEvent::Pausing(time) => {
                if time.as_millis() > SILENCE_MS {
                    self.pending.push("falls silent".into());
                }
                self.told()
            }
            SimEvent::Kept => match self.tokens {
                0 if self.answered => None,
                0 => self.then("ends it, without a token"),
                n => self.then(&format!("is done: {n} tokens")),
            },
            SimEvent::Closing => self.then("breaks off: closes the connection"),
            SimEvent::Resetting => self.then("is gone: resets the connection"),
            SimEvent::HungUp => {
                let comments = match self.comments {
                    0 => String::new(),
                    n => format!("after {n} comments "),
                };
                self.then(&format!("{comments}is cancelled: its own count says {aborted}"))
            }
        }
    }

    fn then(&mut self, what: &str) -> Option<String> {
        self.pending.push(what.to_owned());
        self.told()
    }

    fn told(&mut self) -> Option<String> {
        let told = std::mem::take(&mut self.pending).join(", ");
        (!told.is_empty()).then_some(told)
    }

    fn say(&mut self, written: &str) -> Option<String> {
        if let Some(head) = written.strip_prefix("HTTP/1.1 ") {
            let (words, whole) = response(head);
            self.pending.push(format!("says {words}"));
            self.answered = whole;
            return if whole { self.told() } else { None };
        }
        // `size CRLF text CRLF`; all of this server's events are one chunk each.
        let text = written.split_once("\r\n").map_or(written, |(_, text)| text);
        match said(text.trim()) {
            Said::Nothing => None,
            Said::Words(words) => {
                self.pending.push(words);
                None
            }
            Said::Error(message) => {
                self.answered = true;
                self.then(&format!("error: {message}"))
            }
            Said::Comment(comment) => {
                self.comments += 1;
                if self.last_comment.as_ref() != Some(&comment) {
                    self.pending.push(format!("comment `{comment}`"));
                    self.last_comment = Some(comment);
                }
                None
            }
            Said::Token(text) => {
                self.tokens += 1;
                // After the role, whose frame is one with the first token's to who reads it.
                self.pending.retain(|words| words != ROLE);
                if self.tokens == 1 { self.then(&format!("first token `{text}`")) } else { None }
            }
        }
    }
}

const ROLE: &str = "a role without a token";

/// Status, content type unless it is a stream's, and what the body says; whether it is here already.
fn response(head: &str) -> (String, bool) {
    let status = head.get(..3).unwrap_or(head);
    let (head, body) = head.split_once("\r\n\r\n").unwrap_or((head, ""));
    let kind = head
        .split("\r\n")
        .find_map(|line| line.strip_prefix("Content-Type: "))
        .map_or("", |kind| kind.split(';').next().unwrap_or_default());
    match serde_json::from_str::<Value>(body).ok().as_ref().and_then(error) {
        Some(message) => (format!("{status}: {message}"), true),
        None if kind == "text/event-stream" => (status.to_owned(), !body.is_empty()),
        None => (format!("{status} {kind}"), !body.is_empty()),
    }
}

fn error(value: &Value) -> Option<String> {
    let error = value.get("error")?;
    Some(error.get("message").unwrap_or(error).as_str()?.to_owned())
}

fn said(text: &str) -> Said {
    if let Some(comment) = text.strip_prefix(':') {
        return Said::Comment(format!(":{comment}"));
    }
    let Some(data) = text.strip_prefix("data: ") else { return Said::Nothing };
    let Ok(value) = serde_json::from_str::<Value>(data) else { return Said::Nothing };
    if let Some(message) = error(&value) {
        return Said::Error(message);
    }
    let Some(delta) = value.pointer("/choices/0/delta") else { return Said::Nothing };
    let text = |key| delta.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    match (text("reasoning_content").or(text("content")), delta.get("role")) {
        (Some(text), _) => Said::Token(text.trim().to_owned()),
        (None, Some(_)) => Said::Words(ROLE.to_owned()),
        (None, None) => Said::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sim::demo::SCENES;
    use crate::sim::model::healthy;
    use crate::sim::play::Step;
    use crate::sim::script::Script;
    use crate::sim::server::SimRequest;

    fn told(script: &Script, hung_up: bool) -> String {
        let mut events = vec![SimEvent::Accepted(3), SimEvent::Requested(3)];
        events.extend(script.steps().take(9).map(|step| match step {
            Step::Write(bytes) => SimEvent::Writing(bytes),
            Step::Wait(time) => SimEvent::Pausing(time),
            Step::Keep => SimEvent::Kept,
            Step::Close => SimEvent::Closing,
            Step::Reset => SimEvent::Resetting,
        }));
        if hung_up {
            events.retain(|event| *event != SimEvent::Closing);
            events.push(SimEvent::HungUp);
        }
        let mut teller = Teller::default();
        events.iter().filter_map(|event| teller.tell(event, 2)).collect::<Vec<_>>().join(" | ")
    }

    #[test]
    fn each_death_is_told() {
        let asked = "is asked, on a new connection | ";
        for (model, wanted) in [
            ("die:oom", "says 500: CUDA out of memory. Tried to allocate 2.00 GiB"),
            ("die:error", "says 200 | error: failed to decode the batch"),
            ("die:killed", "says 200 | is gone: resets the connection"),
            (
                "die:silence",
                "says 200, a role without a token, falls silent | is cancelled: its own count says 2",
            ),
            (
                "die:keepalive",
                "says 200, comment `: keep-alive` | after 4 comments is cancelled: its own count says 2",
            ),
            ("die:midway", "says 200, first token `[box] half an` | breaks off: closes the connection"),
            ("die:empty", "says 200 | ends it, without a token"),
            ("die:html", "says 200 text/html"),
        ] {
            let scene = SCENES.iter().find(|scene| scene.model == model).unwrap();
            assert_eq!(told(&scene.script().unwrap(), scene.hung_up), [asked, wanted].concat());
        }
    }

    #[test]
    fn a_healthy_answer_is_two_sentences() {
        let request = SimRequest {
            method: "POST".into(),
            path: "/v1/chat/completions".into(),
            body: br#"{"model":"x","stream":true}"#.to_vec(),
            ..SimRequest::default()
        };
        let model = healthy("box").paced(3, Duration::ZERO, Duration::ZERO);
        let all = told(&model.answer(&request), false);
        assert_eq!(all, "is asked, on a new connection | says 200, first token `[box]` | is done: 3 tokens");
    }

    #[test]
    fn a_connection_that_stood_before_is_warm() {
        let mut teller = Teller::default();
        teller.tell(&SimEvent::Accepted(1), 0);
        for (connection, wanted) in [(0, "warm"), (1, "new"), (1, "warm")] {
            let told = teller.tell(&SimEvent::Requested(connection), 0).unwrap();
            assert!(told.contains(wanted), "{connection}: {told}");
            teller = teller.anew();
        }
    }
}
