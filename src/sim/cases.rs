//! Faults and healthy answers as data: who says what, and how it must end for the client.
//!
//! A case is a line `@ id | dialect | stream or whole | end | causes | title [| key=value …]`, then
//! optionally `= text` (what a client must get to read: content and thinking, in order; the form
//! `=* n letter` is one letter n times), then its script in the language of [`super::script`].
//! Times in scripts are as reported; tests play them [`TIME_DIVISOR`] times faster.

use std::fmt;
use std::time::Duration;

use crate::cause::Cause;
use crate::dialect::Dialect;

use super::script::{self, Script};

/// Tests divide each wait, and each case's deadline, by this.
pub const TIME_DIVISOR: u32 = 3;
/// The first-token deadline that the cases are written for, in their own time.
pub const FIRST_TOKEN: Duration = Duration::from_millis(2100);

const FILES: [(&str, &str); 4] = [
    ("reported", include_str!("cases/reported.txt")),
    ("chat", include_str!("cases/chat.txt")),
    ("ollama", include_str!("cases/ollama.txt")),
    ("whole", include_str!("cases/whole.txt")),
];

/// How a case must end for the client, another target being healthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A whole good answer from the next target, nothing of this one.
    Failover,
    /// This target's answer, whole and cleanly ended.
    Pass,
    /// This target's beginning, then an error in the client's dialect and an unclean end.
    MidstreamError,
    /// This target's 4xx unchanged; nobody else is asked.
    ClientFault,
}

/// One case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Unique, `[A-Za-z0-9-]+`.
    pub id: &'static str,
    /// What the client asks in, and what the script answers in.
    pub dialect: Dialect,
    /// Whether the client asks for a stream.
    pub stream: bool,
    /// How it must end.
    pub end: End,
    /// Causes that are right for it; empty for [`End::Pass`] and [`End::ClientFault`].
    pub causes: Vec<Cause>,
    /// In a few words.
    pub title: &'static str,
    /// The target's `kind`, as the config writes it.
    pub kind: &'static str,
    /// The first-token deadline that it is written for, in its own time.
    pub first_token: Duration,
    /// What a client must get to read: all of it for [`End::Pass`], all that came before the fault
    /// for [`End::MidstreamError`]. `None`: not compared.
    pub text: Option<String>,
    /// What the server does.
    pub script: Script,
}

/// A case that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseError {
    /// Which of the data files, and the line, from 1.
    pub place: (&'static str, usize),
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for CaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, line) = self.place;
        write!(f, "cases/{file}.txt, line {line}: {}", self.what)
    }
}

impl std::error::Error for CaseError {}

/// Every case.
///
/// # Errors
/// A mistake in the data; a test holds that there is none.
pub fn all() -> Result<Vec<Case>, CaseError> {
    let mut cases = Vec::new();
    for (file, text) in FILES {
        let mut line = 1;
        // Each block begins after a header's `@ `; the first is the file's own comment.
        for (index, block) in text.split("\n@ ").enumerate() {
            if index > 0 {
                let fail = |(at, what)| CaseError { place: (file, line + at), what };
                cases.push(read(block).map_err(fail)?);
            }
            line += block.matches('\n').count() + 1;
        }
    }
    Ok(cases)
}

/// The case of this id; `None` where there is none.
///
/// # Errors
/// As [`all`].
pub fn find(id: &str) -> Result<Option<Case>, CaseError> {
    Ok(all()?.into_iter().find(|case| case.id == id))
}

/// A mistake is given with its line, from 0.
fn read(block: &'static str) -> Result<Case, (usize, String)> {
    let (header, mut text) = block.split_once('\n').ok_or((0, "no script".to_owned()))?;
    let mut case = read_header(header).map_err(|what| (0, what))?;
    let mut script_line = 1;
    if let Some(rest) = text.strip_prefix('=') {
        let (said, rest) = rest.split_once('\n').ok_or((1, "no script".to_owned()))?;
        case.text = Some(read_text(said).ok_or((1, "`=` needs a text".to_owned()))?);
        (text, script_line) = (rest, 2);
    }
    case.script = script::parse(text).map_err(|error| (script_line + error.line - 1, error.what))?;
    Ok(case)
}

fn read_text(said: &str) -> Option<String> {
    if let Some(repeated) = said.strip_prefix("* ") {
        let (times, letter) = repeated.split_once(' ')?;
        return Some(letter.repeat(times.parse().ok()?));
    }
    Some(said.strip_prefix(' ')?.to_owned())
}

fn read_header(header: &'static str) -> Result<Case, String> {
    let mut fields = header.split('|').map(str::trim);
    let mut next = |what: &str| fields.next().ok_or(format!("no {what}"));
    let id = next("id")?;
    let (dialect, kind) = match next("dialect")? {
        "openai_chat" => (Dialect::OpenaiChat, "openai"),
        "openai_completions" => (Dialect::OpenaiCompletions, "openai"),
        "responses" => (Dialect::OpenaiResponses, "openai"),
        "ollama_chat" => (Dialect::OllamaChat, "ollama"),
        "ollama_generate" => (Dialect::OllamaGenerate, "ollama"),
        "anthropic" => (Dialect::Anthropic, "anthropic"),
        "gemini" => (Dialect::Gemini, "gemini"),
        other => return Err(format!("`{other}` is no dialect")),
    };
    let stream = match next("mode")? {
        "stream" => true,
        "whole" => false,
        other => return Err(format!("`{other}` is neither `stream` nor `whole`")),
    };
    let end = match next("end")? {
        "failover" => End::Failover,
        "pass" => End::Pass,
        "midstream_error" => End::MidstreamError,
        "client_fault" => End::ClientFault,
        other => return Err(format!("`{other}` is no end")),
    };
    let cause = |word: &str| {
        let found = Cause::ALL.into_iter().find(|cause| cause.as_str() == word);
        found.ok_or(format!("`{word}` is no cause"))
    };
    let causes = next("causes")?.split_whitespace().map(cause).collect::<Result<Vec<_>, _>>()?;
    let title = next("title")?;
    let script = Script::default();
    let mut case =
        Case { id, dialect, stream, end, causes, title, kind, first_token: FIRST_TOKEN, text: None, script };
    for field in fields {
        match field.split_once('=') {
            Some(("kind", kind)) => case.kind = kind,
            Some(("first_token", ms)) => {
                let ms = ms.parse().map_err(|_| format!("`{ms}` is no number of milliseconds"))?;
                case.first_token = Duration::from_millis(ms);
            }
            _ => return Err(format!("`{field}` is no setting of a case")),
        }
    }
    Ok(case)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_case_can_be_read_and_is_consistent() {
        let cases = all().unwrap_or_else(|error| panic!("{error}"));
        let reported = cases.iter().filter(|case| case.id.starts_with('B')).count();
        assert_eq!(reported, 56, "one a script in the list of reports");
        assert!(cases.len() > 250, "{}", cases.len());
        let ids: BTreeSet<&str> = cases.iter().map(|case| case.id).collect();
        assert_eq!(ids.len(), cases.len(), "ids are unique");
        for case in &cases {
            let id = case.id;
            assert!(id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'), "{id}");
            let fails = matches!(case.end, End::Failover | End::MidstreamError);
            assert_eq!(fails, !case.causes.is_empty(), "{id}: causes where it fails, and only there");
            assert_eq!(case.end == End::MidstreamError, case.text.is_some() && fails, "{id}: text");
            assert!(!case.title.is_empty(), "{id}");
        }
    }

    #[test]
    fn each_end_is_there_in_each_dialect_that_is_served() {
        let cases = all().unwrap();
        for dialect in [Dialect::OpenaiChat, Dialect::OllamaChat] {
            for end in [End::Failover, End::Pass, End::MidstreamError, End::ClientFault] {
                assert!(cases.iter().any(|case| case.dialect == dialect && case.stream && case.end == end));
            }
            for end in [End::Failover, End::Pass, End::ClientFault] {
                assert!(cases.iter().any(|case| case.dialect == dialect && !case.stream && case.end == end));
            }
        }
    }

    #[test]
    fn settings_texts_and_scripts_reach_the_case() {
        let case = find("B81").unwrap().unwrap();
        assert_eq!((case.first_token.as_millis(), case.text.as_deref()), (6000, Some("x")));
        assert_eq!(find("B15").unwrap().unwrap().kind, "llamacpp");
        assert_eq!(find("B55").unwrap().unwrap().text.unwrap().len(), 300_000);
        assert_eq!(find("B36").unwrap().unwrap().text.as_deref(), Some(""));
        assert_eq!(find("B07").unwrap().unwrap().causes, [Cause::CudaOom]);
        let nested = find("B03").unwrap().unwrap().script.payload().concat();
        let value: serde_json::Value = serde_json::from_slice(&nested).unwrap();
        assert_eq!(value["error"], r#"POST predict: Post "http://127.0.0.1:41233/completion": EOF"#);
        assert!(find("nowhere").unwrap().is_none());
    }

    /// The values of all keys that carry text, in order, whatever the framing.
    fn said(body: &str) -> String {
        let mut said = String::new();
        let mut rest = body;
        while let Some(at) = rest.find("\":\"") {
            let (before, after) = (&rest[..at], &rest[at + 3..]);
            let key = before.rsplit('"').next().unwrap_or_default();
            if ["content", "text", "thinking", "reasoning", "reasoning_content", "response"].contains(&key) {
                said.push_str(after.split('"').next().unwrap_or_default());
            }
            rest = after;
        }
        said
    }

    #[test]
    fn texts_are_what_the_scripts_say() {
        let mut compared = 0;
        for case in all().unwrap() {
            let Some(text) = case.text else { continue };
            let pieces = case.script.payload().concat();
            let bytes = if pieces.is_empty() { case.script.wire() } else { pieces };
            assert_eq!(said(&String::from_utf8(bytes).unwrap()), text, "{}", case.id);
            compared += 1;
        }
        assert!(compared > 70, "{compared}");
    }

    #[test]
    fn mistakes_name_their_line() {
        let error = |text| read(text).expect_err(text);
        assert_eq!(error("x | openai_chat | stream | pass | | t\n= a\nSSE\nFOO").0, 3);
        assert_eq!(error("x | openai_chat | stream | pass | | t\nFOO").0, 1);
        assert_eq!(error("x | klingon | stream | pass | | t\nSSE").1, "`klingon` is no dialect");
        assert_eq!(error("x | gemini | stream | failover | tired | t\nSSE").1, "`tired` is no cause");
        assert_eq!(error("x | gemini | stream | pass | | t | a=b\nSSE").1, "`a=b` is no setting of a case");
    }
}
