//! A small HTTP/1.1 client, which notes whether an answer ended as it should, and reads its event stream.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// No answer here takes longer between two bytes, on the slowest machine that the tests run on.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// An answer, read to its end.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: String,
    /// The last chunk came, or every byte that Content-Length promised.
    pub complete: bool,
}

impl Answer {
    /// The value of a header, empty where it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("not JSON ({e}): {self:?}"))
    }

    /// The events' JSON, in order, and whether `[DONE]` was the last one.
    pub fn events(&self) -> (Vec<Value>, bool) {
        let mut events = Vec::new();
        let mut done = false;
        for line in self.body.lines().filter_map(|line| line.strip_prefix("data: ")) {
            assert!(!done, "an event after [DONE]: {self:?}");
            if line == "[DONE]" {
                done = true;
            } else {
                events.push(serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")));
            }
        }
        (events, done)
    }

    /// The frames without what differs from one run to the next: ids, dates and measured times.
    pub fn comparable(&self) -> Vec<Value> {
        let (mut events, done) = self.events();
        assert!(done && self.complete, "the stream has no end: {self:?}");
        for event in &mut events {
            let fields = event.as_object_mut().unwrap_or_else(|| panic!("not an object: {self:?}"));
            for varying in ["id", "created", "timings"] {
                fields.remove(varying);
            }
        }
        events
    }

    /// The text of a chat stream that came whole: an end, a finish reason, no error.
    pub fn chat_text(&self) -> String {
        let events = self.comparable();
        let mut text = String::new();
        let mut finished = 0;
        for event in &events {
            assert!(event.get("error").is_none(), "an error in the stream: {self:?}");
            let choice = &event["choices"][0];
            text.push_str(choice["delta"]["content"].as_str().unwrap_or(""));
            finished += usize::from(choice["finish_reason"].is_string());
        }
        assert_eq!(finished, 1, "finish reasons: {self:?}");
        text
    }
}

/// `GET` from a port on 127.0.0.1.
pub fn get(port: u16, path: &str) -> std::io::Result<Answer> {
    exchange(port, "GET", path, "")
}

/// `POST` of a JSON body.
pub fn post(port: u16, path: &str, body: &Value) -> std::io::Result<Answer> {
    exchange(port, "POST", path, &body.to_string())
}

/// Sends a `POST` and leaves its answer unread; dropping the stream leaves the server.
pub fn send(port: u16, path: &str, body: &Value) -> std::io::Result<TcpStream> {
    send_request(port, "POST", path, &body.to_string())
}

fn send_request(port: u16, method: &str, path: &str, body: &str) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    Ok(stream)
}

fn exchange(port: u16, method: &str, path: &str, body: &str) -> std::io::Result<Answer> {
    let mut reader = BufReader::new(send_request(port, method, path, body)?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status = line
        .split_whitespace()
        .nth(1)
        .and_then(|code| code.parse().ok())
        .ok_or_else(|| std::io::Error::other(format!("no status line: {line:?}")))?;
    let mut headers = Vec::new();
    loop {
        let line = read_line(&mut reader)?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.push((name.to_owned(), value.trim().to_owned()));
    }

    let mut answer = Answer { status, headers, body: String::new(), complete: false };
    let mut bytes = Vec::new();
    answer.complete = if answer.header("transfer-encoding") == "chunked" {
        read_chunks(&mut reader, &mut bytes).is_ok()
    } else if let Ok(length) = answer.header("content-length").parse() {
        reader.take(length).read_to_end(&mut bytes)? as u64 == length
    } else {
        false
    };
    answer.body = String::from_utf8(bytes).map_err(std::io::Error::other)?;
    Ok(answer)
}

fn read_chunks(reader: &mut impl BufRead, body: &mut Vec<u8>) -> std::io::Result<()> {
    loop {
        let size = u64::from_str_radix(&read_line(reader)?, 16).map_err(std::io::Error::other)?;
        let got = reader.take(size).read_to_end(body)?;
        if got as u64 != size || !read_line(reader)?.is_empty() {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if size == 0 {
            return Ok(());
        }
    }
}

fn read_line(reader: &mut impl BufRead) -> std::io::Result<String> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
