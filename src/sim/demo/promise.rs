//! What a client gets, read without the program's own readers, and whether it is what was promised.

use std::time::Duration;

use serde_json::Value;

use super::scenes::{Promise, Scene};

/// An event of a chat stream, as a client reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Content or thinking.
    Text(String),
    /// An error in the stream.
    Error(String),
    /// `[DONE]`.
    Done,
    /// No chat stream has this.
    Strange(String),
    /// A role, a finish reason, usage, a comment.
    Quiet,
}

/// Cuts a stream into [`Frame`]s.
#[derive(Debug, Default)]
pub struct Frames(Vec<u8>);

impl Frames {
    /// The frames that are whole with these bytes.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Frame> {
        self.0.extend_from_slice(bytes);
        let mut frames = Vec::new();
        while let Some(end) = self.0.windows(2).position(|two| two == b"\n\n") {
            let event: Vec<u8> = self.0.drain(..end + 2).collect();
            frames.push(frame(String::from_utf8_lossy(&event).trim()));
        }
        frames
    }
}

fn frame(event: &str) -> Frame {
    if event.starts_with(':') || event.is_empty() {
        return Frame::Quiet;
    }
    let strange = || Frame::Strange(event.to_owned());
    let Some(data) = event.strip_prefix("data:").map(str::trim) else { return strange() };
    if data == "[DONE]" {
        return Frame::Done;
    }
    let Ok(value) = serde_json::from_str::<Value>(data) else { return strange() };
    if let Some(error) = value.get("error") {
        let message = error.get("message").and_then(Value::as_str).unwrap_or("an error without words");
        return Frame::Error(message.to_owned());
    }
    let delta = value.pointer("/choices/0/delta");
    let text = |key| delta?.get(key)?.as_str().filter(|text| !text.is_empty());
    text("reasoning_content").or(text("content")).map_or(Frame::Quiet, |text| Frame::Text(text.to_owned()))
}

/// What the client saw of one answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The status; 0 where no head came.
    pub status: u16,
    /// `x-edgeward-target`.
    pub target: String,
    /// `x-edgeward-attempts`.
    pub attempts: String,
    /// All text.
    pub text: String,
    /// Errors in the stream, and what no chat stream has.
    pub errors: Vec<String>,
    /// `[DONE]` came.
    pub done: bool,
    /// The body's end was said, by its last chunk.
    pub clean: bool,
    /// From the request to its first text.
    pub first_text: Option<Duration>,
    /// The box saw that it was hung up on.
    pub hung_up: bool,
}

/// What is not as promised; nothing if all is. `whole`: the text that the promised target gives.
#[must_use]
pub fn faults(scene: &Scene, seen: &Seen, whole: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut hold = |what: &str, holds: bool| {
        if !holds {
            faults.push(what.to_owned());
        }
    };
    hold("the status is 200", seen.status == 200);
    hold(&format!("{} answers", scene.target()), seen.target == scene.target());
    hold(&format!("the attempts are {}", scene.attempts), seen.attempts == scene.attempts);
    if scene.promise == Promise::Broken {
        hold("what came before the break is there", !seen.text.is_empty() && whole.starts_with(&seen.text));
        hold("the stream says that it broke", seen.errors.len() == 1);
        hold("no good end is faked", !seen.done && !seen.clean);
    } else {
        hold("the answer is whole, and from one", seen.text == whole);
        hold("there is no error in it", seen.errors.is_empty());
        hold("it ends well", seen.done && seen.clean);
    }
    hold("the box is hung up on", !scene.hung_up || seen.hung_up);
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::demo::SCENES;

    fn scene(model: &str) -> Scene {
        *SCENES.iter().find(|scene| scene.model == model).unwrap()
    }

    fn good() -> Seen {
        Seen {
            status: 200,
            target: "cloud".into(),
            attempts: "box:timeout_first_token,cloud:committed".into(),
            text: "all of it".into(),
            done: true,
            clean: true,
            hung_up: true,
            ..Seen::default()
        }
    }

    #[test]
    fn frames_are_found_however_the_bytes_are_cut() {
        let stream = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n: x\n\n\
                      data: {\"choices\":[{\"delta\":{\"content\":\"hé\"}}]}\n\n\
                      data: {\"error\":{\"message\":\"broke\"}}\n\n<html>\n\ndata: [DONE]\n\ndata: {";
        for size in 1..stream.len() {
            let mut frames = Frames::default();
            let all: Vec<Frame> =
                stream.as_bytes().chunks(size).flat_map(|piece| frames.push(piece)).collect();
            let wanted = [
                Frame::Quiet,
                Frame::Quiet,
                Frame::Text("hé".into()),
                Frame::Error("broke".into()),
                Frame::Strange("<html>".into()),
                Frame::Done,
            ];
            assert_eq!(all, wanted);
        }
    }

    #[test]
    fn each_part_of_a_promise_is_held() {
        let silence = scene("die:silence");
        assert_eq!(faults(&silence, &good(), "all of it"), Vec::<String>::new());
        let breaks: [fn(&mut Seen); 8] = [
            |seen| seen.status = 502,
            |seen| seen.target = "box".into(),
            |seen| seen.attempts.clear(),
            |seen| seen.text.push('!'),
            |seen| seen.errors.push("e".into()),
            |seen| seen.done = false,
            |seen| seen.clean = false,
            |seen| seen.hung_up = false,
        ];
        for change in breaks {
            let mut seen = good();
            change(&mut seen);
            assert_eq!(faults(&silence, &seen, "all of it").len(), 1, "{seen:?}");
        }
    }

    #[test]
    fn a_break_in_the_middle_must_be_said() {
        let midway = scene("die:midway");
        let honest = Seen {
            target: "box".into(),
            attempts: "box:committed".into(),
            text: "all".into(),
            errors: vec!["broke".into()],
            done: false,
            clean: false,
            ..good()
        };
        assert_eq!(faults(&midway, &honest, "all of it"), Vec::<String>::new());
        let faked = Seen { clean: true, ..honest.clone() };
        assert_eq!(faults(&midway, &faked, "all of it"), ["no good end is faked"]);
        let silent = Seen { errors: Vec::new(), ..honest };
        assert_eq!(faults(&midway, &silent, "all of it"), ["the stream says that it broke"]);
    }
}
