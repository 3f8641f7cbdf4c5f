//! Every fault case through the built program: a client gets a whole good answer, or an honest end.
//!
//! Each case has a pair of targets of its own, `ID-local` that plays it and `ID-cloud` that is
//! healthy, and a model name of its own, so that one running program serves many cases at once.
//! Gemini's cases are not here: no endpoint takes its requests, so only the gate's own tests play them.
#![cfg(feature = "sim")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers may fail the test"
)]

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use edgeward::dialect::Dialect;
use edgeward::sim::cases::{self, Case, End, TIME_DIVISOR};
use edgeward::sim::model::{Model, healthy};
use edgeward::sim::script::{Op, Script, parse};
use edgeward::sim::server::{Behaviour, SimServer, refused_port};
use support::{Answer, Edgeward, Said, post, run, said};
use tokio::task::JoinSet;

mod support;

/// For all cases of one file.
const LIMIT: Duration = Duration::from_secs(120);
/// Cases for one running program: two targets each, of at most 64.
const BATCH: usize = 32;
/// A cancelled attempt's connection is closed within this time after the answer's end.
const CANCEL: Duration = Duration::from_millis(500);
/// What the issue promises for a client that goes away.
const DISCONNECT: Duration = Duration::from_millis(50);
/// What marks an answer as a script's rather than the healthy server's.
const MARKS: [&str; 4] = ["\"c1\"", "chatcmpl-7", "Compute error", "out of memory"];

const CONFIG: &str = r#"
listen = ["127.0.0.1:0"]

[deadlines]
connect = "700ms"
first_token = "700ms"
first_token_per_1k = "0s"
between_tokens = "600ms"
total = "15s"

[router]
groups = ["primary", "fallback"]
"#;

/// One `[[target]]`, for one model only.
fn target(
    name: &str,
    kind: &str,
    addr: SocketAddr,
    place: &str,
    model: &str,
    first_token: Duration,
) -> String {
    let group = if place == "local" { "primary" } else { "fallback" };
    let ms = first_token.as_millis();
    format!(
        "\n[[target]]\nname = \"{name}\"\nkind = \"{kind}\"\nurl = \"http://{addr}\"\nplace = \"{place}\"\n\
         group = \"{group}\"\nmax_retries = 0\nmodels = {{ \"{model}\" = \"m\" }}\ndeadlines = {{ first_token = \"{ms}ms\" }}\n"
    )
}

/// Whether an endpoint takes this dialect's requests.
fn served(dialect: Dialect) -> bool {
    match dialect {
        Dialect::OpenaiChat
        | Dialect::OpenaiCompletions
        | Dialect::OpenaiResponses
        | Dialect::OllamaChat
        | Dialect::OllamaGenerate
        | Dialect::Anthropic => true,
        Dialect::Gemini | Dialect::OpenaiEmbeddings | Dialect::OllamaEmbed => false,
    }
}

fn path(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::OpenaiCompletions => "/v1/completions",
        Dialect::OpenaiResponses => "/v1/responses",
        Dialect::OllamaChat => "/api/chat",
        Dialect::OllamaGenerate => "/api/generate",
        Dialect::Anthropic => "/v1/messages",
        Dialect::OpenaiChat | Dialect::Gemini | Dialect::OpenaiEmbeddings | Dialect::OllamaEmbed => {
            "/v1/chat/completions"
        }
    }
}

fn body(dialect: Dialect, stream: bool, model: &str) -> String {
    let asked = match dialect {
        Dialect::OpenaiCompletions | Dialect::OllamaGenerate => r#""prompt":"hi""#,
        Dialect::OpenaiResponses => r#""input":"hi""#,
        Dialect::Anthropic => r#""max_tokens":100,"messages":[{"role":"user","content":"hi"}]"#,
        _ => r#""messages":[{"role":"user","content":"hi"}]"#,
    };
    format!(r#"{{"model":"{model}","stream":{stream},{asked}}}"#)
}

/// A case with its two servers.
struct Pair {
    case: Case,
    local: SimServer,
    cloud: SimServer,
    model: Model,
}

impl Pair {
    async fn start(case: Case) -> Pair {
        let model = healthy("cloud");
        let local = SimServer::start(case.script.clone().faster(TIME_DIVISOR)).await.unwrap();
        let cloud = SimServer::start(model.clone()).await.unwrap();
        Pair { case, local, cloud, model }
    }

    fn name(&self) -> String {
        self.case.id.to_ascii_lowercase()
    }

    fn asked(&self) -> String {
        format!("case-{}", self.name())
    }

    fn targets(&self) -> String {
        let (name, kind, asked) = (self.name(), self.case.kind, self.asked());
        let first_token = self.case.first_token / TIME_DIVISOR;
        target(&format!("{name}-local"), kind, self.local.addr(), "local", &asked, first_token)
            + &target(&format!("{name}-cloud"), kind, self.cloud.addr(), "cloud", &asked, first_token)
    }

    async fn ask(&self, edgeward: SocketAddr) -> Answer {
        let request = body(self.case.dialect, self.case.stream, &self.asked());
        post(edgeward, path(self.case.dialect), &request, &[]).await
    }

    /// Whether the local server would still be speaking or holding on, had nobody hung up.
    fn holds(&self) -> bool {
        let holds = |op: &Op| match op {
            Op::Hang(_) => true,
            Op::Every { gap, .. } => !gap.is_zero(),
            _ => false,
        };
        self.case.script.ops.iter().any(holds)
    }

    /// What is wrong with the answer; nothing if it is as the case wants it.
    async fn faults(&self, answer: &Answer) -> Vec<String> {
        let said = said(self.case.dialect, self.case.stream, &answer.body);
        let mut faults = Faults::default();
        faults.equal("late", answer.late, false);
        match self.case.end {
            End::Failover => self.failed_over(answer, &said, &mut faults).await,
            End::Pass => self.passed(answer, &said, &mut faults),
            End::MidstreamError => self.broke_honestly(answer, &said, &mut faults),
            End::ClientFault => self.given_back(answer, &mut faults),
        }
        faults.0
    }

    async fn failed_over(&self, answer: &Answer, said: &Said, faults: &mut Faults) {
        faults.equal("status", answer.status, 200);
        faults.equal("clean end", answer.clean, true);
        faults.equal("text", said.text.as_str(), self.model.text().as_str());
        faults.equal("the dialect's end", said.ended, true);
        faults.equal("errors", said.errors.join("; "), "");
        faults.equal("junk", said.junk.join("; "), "");
        faults
            .check("the model's name is the asked one", said.models.iter().all(|name| *name == self.asked()));
        for mark in MARKS {
            faults.check("nothing of the failed attempt", !answer.text().contains(mark));
        }
        let name = self.name();
        faults.equal("target", answer.header("x-edgeward-target"), Some(format!("{name}-cloud").as_str()));
        let attempts = answer.header("x-edgeward-attempts").unwrap_or_default();
        let allowed: Vec<String> = self
            .case
            .causes
            .iter()
            .map(|cause| format!("{name}-local:{cause},{name}-cloud:committed"))
            .collect();
        faults.check(
            &format!("attempts are `{attempts}`, one of {allowed:?}"),
            allowed.iter().any(|one| one == attempts),
        );
        faults.equal("requests at the cloud", self.cloud.counts().requests, 1);
        // The failed attempt is over at its server too: played out, or hung up on.
        let over = self.local.until(|counts| {
            let ended = counts.completed + counts.aborted == 1 && (counts.aborted == 0 || counts.open() == 0);
            if self.case.script.refuses() { counts.closed >= 1 } else { ended }
        });
        let over = tokio::time::timeout(CANCEL, over).await;
        faults.check(&format!("the failed attempt is cancelled: {:?}", self.local.counts()), over.is_ok());
        if self.holds() {
            faults.equal("hung up on", self.local.counts().aborted, 1);
        }
    }

    fn passed(&self, answer: &Answer, said: &Said, faults: &mut Faults) {
        let name = self.name();
        faults.equal("status", answer.status, 200);
        faults.equal("clean end", answer.clean, true);
        faults.equal("target", answer.header("x-edgeward-target"), Some(format!("{name}-local").as_str()));
        let attempts = format!("{name}-local:committed");
        faults.equal("attempts", answer.header("x-edgeward-attempts"), Some(attempts.as_str()));
        faults.equal("errors", said.errors.join("; "), "");
        faults.equal("junk", said.junk.join("; "), "");
        if let Some(text) = &self.case.text {
            faults.equal("text", said.text.as_str(), text.as_str());
        }
        let tools = self.case.script.payload().concat();
        let tools = support::find(&tools, b"\"name\":\"f\"").is_some();
        faults.equal("a tool call", said.tools.join(","), if tools { "f" } else { "" });
        faults.equal("requests at the cloud", self.cloud.counts().requests, 0);
    }

    fn broke_honestly(&self, answer: &Answer, said: &Said, faults: &mut Faults) {
        let name = self.name();
        faults.equal("status", answer.status, 200);
        faults.equal("clean end", answer.clean, false);
        faults.equal("the dialect's end", said.ended, false);
        faults.equal("errors", said.errors.len(), 1);
        faults.equal("text", Some(said.text.as_str()), self.case.text.as_deref());
        faults.equal("target", answer.header("x-edgeward-target"), Some(format!("{name}-local").as_str()));
        faults.equal("requests at the cloud", self.cloud.counts().requests, 0);
    }

    fn given_back(&self, answer: &Answer, faults: &mut Faults) {
        let Some(Op::Reply(head, body)) = self.case.script.ops.last() else {
            return faults.check("the case is a reply", false);
        };
        faults.equal("status", answer.status, head.status);
        faults.equal("body", answer.text(), String::from_utf8_lossy(body).into_owned());
        faults.equal("clean end", answer.clean, true);
        faults.equal("requests at the cloud", self.cloud.counts().requests, 0);
    }
}

/// Everything that is wrong with one answer, so that one run shows it all.
#[derive(Default)]
struct Faults(Vec<String>);

impl Faults {
    fn check(&mut self, what: &str, good: bool) {
        if !good {
            self.0.push(format!("not so: {what}"));
        }
    }

    fn equal<A: PartialEq<B> + std::fmt::Debug, B: std::fmt::Debug>(&mut self, what: &str, is: A, wanted: B) {
        if is != wanted {
            let (is, wanted) = (short(&is), short(&wanted));
            self.0.push(format!("{what}: {is}, wanted {wanted}"));
        }
    }
}

fn short(value: &impl std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    if text.chars().count() > 300 { text.chars().take(300).chain("…".chars()).collect() } else { text }
}

/// Plays all cases that `wanted` picks, a batch at a time, each batch at once; fails with all that is wrong.
fn play(wanted: impl Fn(&Case) -> bool) {
    run(LIMIT, async {
        let cases: Vec<Case> =
            cases::all().unwrap().into_iter().filter(|case| served(case.dialect) && wanted(case)).collect();
        assert!(!cases.is_empty());
        let mut report = String::new();
        for batch in cases.chunks(BATCH) {
            play_batch(batch, &mut report).await;
        }
        assert!(report.is_empty(), "\n{report}");
    });
}

async fn play_batch(batch: &[Case], report: &mut String) {
    let mut pairs = Vec::new();
    for case in batch {
        pairs.push(Pair::start(case.clone()).await);
    }
    let config = pairs.iter().fold(CONFIG.to_owned(), |config, pair| config + &pair.targets());
    let edgeward = Edgeward::start(&config).await;
    let mut all = JoinSet::new();
    for pair in pairs {
        let addr = edgeward.addr;
        all.spawn_local(async move {
            let answer = pair.ask(addr).await;
            let faults = pair.faults(&answer).await;
            (pair, answer, faults)
        });
    }
    let mut failed = false;
    while let Some(done) = all.join_next().await {
        let (pair, answer, faults) = done.unwrap();
        if faults.is_empty() {
            continue;
        }
        failed = true;
        writeln!(report, "{} ({}), wanted {:?}:", pair.case.id, pair.case.title, pair.case.end).unwrap();
        for fault in faults {
            writeln!(report, "    {fault}").unwrap();
        }
        let (status, took) = (answer.status, answer.took());
        writeln!(report, "    answer: {status} in {took:?}: {}", short(&answer.text())).unwrap();
    }
    if failed {
        writeln!(report, "edgeward printed:\n{}", edgeward.log()).unwrap();
    }
}

#[test]
fn reported_faults() {
    play(|case| case.id.starts_with('B'));
}

#[test]
fn chat_streams() {
    play(|case| ["chat-", "text-"].iter().any(|prefix| case.id.starts_with(prefix)));
}

#[test]
fn ollama_streams() {
    play(|case| ["nd-", "generate-"].iter().any(|prefix| case.id.starts_with(prefix)));
}

#[test]
fn whole_answers() {
    play(|case| case.id.starts_with("whole-"));
}

/// No case of the data is forgotten by the tests above.
#[test]
fn every_served_case_is_played() {
    for case in cases::all().unwrap() {
        let prefixes = ["B", "chat-", "text-", "nd-", "generate-", "whole-"];
        assert!(prefixes.iter().any(|prefix| case.id.starts_with(prefix)), "{}", case.id);
    }
}

/// The client of these tests, without edgeward between, reads what the cases say is to be read.
#[test]
fn the_tests_own_client_reads_right() {
    run(LIMIT, async {
        let mut read = 0;
        for case in cases::all().unwrap() {
            let ends = !case.script.ops.iter().any(|op| matches!(op, Op::Hang(_) | Op::Every { .. }));
            let Some(text) = case.text.clone().filter(|_| ends && !case.script.gzip) else { continue };
            let server = SimServer::start(case.script.clone().faster(1000)).await.unwrap();
            let answer = post(server.addr(), "/", "{}", &[]).await;
            let said = said(case.dialect, case.stream, &answer.body);
            assert_eq!(said.text, text, "{}", case.id);
            if case.end == End::Pass {
                assert_eq!((said.errors, said.junk), (vec![], vec![]), "{}", case.id);
            }
            read += 1;
        }
        assert!(read > 60, "{read}");
    });
}

/// A local and a cloud server behind one running program, for the model `x`.
async fn pair(local: SocketAddr, cloud: SocketAddr) -> Edgeward {
    let deadline = Duration::from_millis(700);
    let config = CONFIG.to_owned()
        + &target("local", "openai", local, "local", "x", deadline)
        + &target("cloud", "openai", cloud, "cloud", "x", deadline);
    Edgeward::start(&config).await
}

const CHAT: &str = "/v1/chat/completions";

fn chat(stream: bool) -> String {
    body(Dialect::OpenaiChat, stream, "x")
}

async fn cloud() -> SimServer {
    SimServer::start(healthy("cloud")).await.unwrap()
}

fn script(text: &str) -> Script {
    parse(text).unwrap()
}

#[test]
fn a_port_where_nobody_listens_is_refused() {
    run(LIMIT, async {
        let (port, cloud) = (refused_port().unwrap(), cloud().await);
        let edgeward = pair(port.addr(), cloud.addr()).await;
        for stream in [true, false] {
            let answer = post(edgeward.addr, CHAT, &chat(stream), &[]).await;
            assert_eq!(answer.header("x-edgeward-attempts"), Some("local:refused,cloud:committed"));
            let said = said(Dialect::OpenaiChat, stream, &answer.body);
            assert_eq!((said.text, answer.clean), (healthy("cloud").text(), true));
        }
    });
}

#[test]
fn when_all_fail_one_error_names_each_target_and_cause() {
    run(LIMIT, async {
        let local = SimServer::start(script("REFUSE")).await.unwrap();
        let oom = script("REPLY 500 application/json | {\"error\":{\"message\":\"CUDA out of memory\"}}");
        let cloud = SimServer::start(oom).await.unwrap();
        let edgeward = pair(local.addr(), cloud.addr()).await;
        let answer = post(edgeward.addr, CHAT, &chat(true), &[]).await;
        assert_eq!((answer.status, answer.clean), (502, true), "{}", answer.text());
        let error: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        let message = error["error"]["message"].as_str().expect("an error in OpenAI's shape");
        for part in ["local", "cloud", "out of memory"] {
            assert!(message.contains(part), "{part} in {message}");
        }
    });
}

#[test]
fn a_client_that_goes_away_cancels_whoever_is_answering() {
    run(LIMIT, async {
        let token =
            "D {\"id\":\"c1\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"}}]}\n";
        for (script_text, committed) in [
            ("HANG 60000", false),
            ("SSE\nHANG 60000", false),
            (&format!("SSE\n{token}HANG 60000") as &str, true),
        ] {
            let local = SimServer::start(script(script_text)).await.unwrap();
            let cloud = cloud().await;
            let edgeward = pair(local.addr(), cloud.addr()).await;
            let mut client = support::send(edgeward.addr, CHAT, &chat(true), &[]).await;
            local.requested(1).await;
            if committed {
                let mut seen = Vec::new();
                while support::find(&seen, b"hi").is_none() {
                    assert_ne!(tokio::io::AsyncReadExt::read_buf(&mut client, &mut seen).await.unwrap(), 0);
                }
            }
            drop(client);
            let gone = tokio::time::timeout(DISCONNECT, local.aborted(1)).await;
            assert!(gone.is_ok(), "{script_text}: {:?}", local.counts());
            assert_eq!(cloud.counts().requests, 0, "{script_text}");
        }
    });
}

#[test]
fn a_dead_pooled_connection_is_no_failed_target() {
    run(LIMIT, async {
        let good = || healthy("local").answer(&asked());
        let local = SimServer::start(vec![good(), script("CUT"), good()]).await.unwrap();
        let cloud = cloud().await;
        let edgeward = pair(local.addr(), cloud.addr()).await;
        for _ in 0..2 {
            let answer = post(edgeward.addr, CHAT, &chat(true), &[]).await;
            assert_eq!(answer.header("x-edgeward-attempts"), Some("local:committed"));
            assert_eq!(said(Dialect::OpenaiChat, true, &answer.body).text, healthy("local").text());
        }
        assert_eq!(
            (local.counts().accepted, local.counts().requests),
            (2, 3),
            "the connection was reused once"
        );
        assert_eq!(cloud.counts().requests, 0);
    });
}

/// A streaming chat request as a server receives it.
fn asked() -> edgeward::sim::server::SimRequest {
    edgeward::sim::server::SimRequest {
        method: "POST".to_owned(),
        path: CHAT.to_owned(),
        body: chat(true).into_bytes(),
        ..Default::default()
    }
}

#[test]
fn a_rate_limited_target_is_left_alone_for_the_time_that_it_named() {
    run(LIMIT, async {
        let limited =
            script("REPLY 429 application/json; Retry-After: 30 | {\"error\":{\"message\":\"slow down\"}}");
        let local = SimServer::start(limited).await.unwrap();
        let cloud = cloud().await;
        let edgeward = pair(local.addr(), cloud.addr()).await;
        for _ in 0..3 {
            let answer = post(edgeward.addr, CHAT, &chat(true), &[]).await;
            assert_eq!(answer.header("x-edgeward-target"), Some("cloud"));
        }
        assert_eq!((local.counts().requests, cloud.counts().requests), (1, 3));
    });
}

#[test]
fn what_goes_upstream_is_clean() {
    run(LIMIT, async {
        let local = SimServer::start(Behaviour::from(healthy("local"))).await.unwrap();
        let cloud = cloud().await;
        let edgeward = pair(local.addr(), cloud.addr()).await;
        let dirty = [
            ("Connection", "Upgrade, HTTP2-Settings"),
            ("Upgrade", "h2c"),
            ("HTTP2-Settings", "AAMAAABkAAQAoAAAAAIAAAAA"),
            ("X-Conversation-Id", "1"),
            ("Authorization", "Bearer client"),
            ("X-Api-Key", "client"),
            ("Cookie", "a=b"),
            ("X-Edgeward-Something", "1"),
            ("Accept-Encoding", "gzip, br"),
        ];
        let answer = post(edgeward.addr, CHAT, &chat(true), &dirty).await;
        assert_eq!((answer.status, answer.header("x-edgeward-target")), (200, Some("local")));
        let request = local.requests().remove(0);
        for (name, _) in dirty.iter().filter(|(name, _)| !["Connection", "Accept-Encoding"].contains(name)) {
            assert_eq!(request.header(name), None, "{name}");
        }
        assert!(
            !request.header("connection").is_some_and(|value| value.to_ascii_lowercase().contains("upgrade"))
        );
        assert_eq!(request.header("accept-encoding"), Some("identity"));
        assert_eq!(request.header("transfer-encoding"), None);
        assert_eq!(request.header("content-length"), Some(request.body.len().to_string().as_str()));
        let sent = request.json();
        assert_eq!((&sent["model"], &sent["messages"][0]["content"]), (&"m".into(), &"hi".into()));
    });
}

/// Who answers in a row of the README's table of what clients see.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Row {
    Cloud,
    /// The cloud too; the box's port is closed.
    Off,
    Box,
    /// The box, a client that wants the whole answer.
    BoxWhole,
    /// The cloud, such a client.
    CloudWhole,
    /// The box's beginning, then an error and an unclean end.
    Broken,
    /// The box's own 400.
    GivenBack,
    /// One error for all.
    Error,
}

/// What the box does in each row, by words of its first column.
const ROWS: [(&str, Row, &str); 13] = [
    ("is not running", Row::Off, "REFUSE"),
    ("killed while it reads the prompt", Row::Cloud, "SSE\nWAIT 60\nRST"),
    (
        "CUDA out of memory",
        Row::Cloud,
        "SSE\nWAIT 30\nD {\"error\":{\"message\":\"CUDA out of memory. Tried to allocate 2.00 GiB\",\"code\":500}}\nEND",
    ),
    ("its role, and hangs", Row::Cloud, "SSE\nD {ROLE}\nHANG 60000"),
    ("keep-alive comments", Row::Cloud, "SSE\nEVERY 100 600 C : keep-alive\\n\\n\nCUT"),
    ("ends at once with nothing", Row::Cloud, "SSE\nD [DONE]\nEND"),
    // Longer than the deadline for a first token.
    (
        "is seen to work",
        Row::Box,
        "SSE\nWAIT 400\nD {PROGRESS 100}\nWAIT 400\nD {PROGRESS 200}\nWAIT 400\nD {TOKEN}\nD {STOP}\nD [DONE]\nEND",
    ),
    (
        "computes a long whole answer",
        Row::BoxWhole,
        "SSE\nWAIT 100\nD {TOKEN}\nEVERY 300 6 D {NOTHING}\nD {STOP}\nD [DONE]\nEND",
    ),
    ("dies in the middle of that whole answer", Row::CloudWhole, "SSE\nD {TOKEN}\nWAIT 30\nRST"),
    (
        "cannot serve this one",
        Row::Cloud,
        "REPLY 400 application/json | {\"error\":{\"message\":\"\\\"auto\\\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set\"}}",
    ),
    ("dies in mid-answer", Row::Broken, "SSE\nD {TOKEN}\nWAIT 30\nCUT"),
    (
        "refuses the request as invalid",
        Row::GivenBack,
        "REPLY 400 application/json | {\"error\":{\"message\":\"temperature is not a number\"}}",
    ),
    ("everybody fails, and again", Row::Error, BROKEN),
];

const BROKEN: &str = "REPLY 500 application/json | {\"error\":{\"message\":\"an internal error\"}}";

/// Its frames are written short above.
fn row_script(text: &str) -> Script {
    let frame =
        |rest: &str| format!("{{\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",{rest}}}");
    let delta = |delta: &str, finish: &str| {
        frame(&format!("\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]"))
    };
    let progress = |done: u32| {
        frame(&format!(
            "\"choices\":[],\"prompt_progress\":{{\"total\":900,\"cache\":0,\"processed\":{done},\"time_ms\":1}}"
        ))
    };
    let text = text
        .replace("{ROLE}", &delta("{\"role\":\"assistant\",\"content\":\"\"}", "null"))
        .replace("{TOKEN}", &delta("{\"content\":\"the box\"}", "null"))
        .replace("{NOTHING}", &delta("{\"content\":\"\"}", "null"))
        .replace("{STOP}", &delta("{}", "\"stop\""))
        .replace("{PROGRESS 100}", &progress(100))
        .replace("{PROGRESS 200}", &progress(200));
    script(&text)
}

/// Each row of the README's table is what happens: who answers, and the header letter for letter.
#[test]
fn the_readme_says_what_clients_see() {
    let readme = include_str!("../README.md");
    let table = readme.split("## What the client sees when").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains("`box:"))
        .map(|line| line.trim_matches('|').rsplitn(3, '|').map(str::trim).collect())
        .collect();
    run(LIMIT, async {
        let mut played = Vec::new();
        for row in rows {
            let [attempts, _, what] = row[..] else { panic!("not three columns: {row:?}") };
            // What a healthy box does that is busy, or loads, is shown with a real one: tests/real/healthy.py.
            if ["busy", "load"].iter().any(|word| what.contains(word) || attempts.contains(word)) {
                continue;
            }
            // Which depends on the request, or on the box: tests/server/refusals.rs, watchdog.rs.
            if what.contains("`max_tokens`") || attempts.contains("low_memory") {
                continue;
            }
            let (words, who, text) = *ROWS
                .iter()
                .find(|(words, ..)| what.contains(words))
                .unwrap_or_else(|| panic!("no script for the README's row \"{what}\""));
            play_row(what, who, text, attempts.trim_matches('`')).await;
            played.push(words);
        }
        let all = ROWS.map(|(words, ..)| words);
        assert!(
            all.iter().all(|words| played.contains(words)),
            "rows without a line in the README: {played:?}"
        );
    });
}

async fn play_row(what: &str, who: Row, text: &str, attempts: &str) {
    let cloud =
        if who == Row::Error { SimServer::start(script(BROKEN)).await.unwrap() } else { cloud().await };
    let (off, server) = (refused_port().unwrap(), SimServer::start(row_script(text)).await.unwrap());
    let addr = if who == Row::Off { off.addr() } else { server.addr() };
    let target = |name: &str, kind: &str, addr: SocketAddr, place: &str| {
        format!(
            "\n[[target]]\nname = \"{name}\"\nkind = \"{kind}\"\nurl = \"http://{addr}\"\nplace = \"{place}\"\n\
             models = {{ \"x\" = \"m\" }}\n"
        )
    };
    // Its script is for requests alone.
    let quiet = "\n[memory]\nenabled = false\n[probe]\nenabled = false\n";
    let config = CONFIG.to_owned()
        + quiet
        + &target("box", if who == Row::Box { "llamacpp" } else { "openai" }, addr, "local")
        + &target("cloud", "openai", cloud.addr(), "cloud");
    let edgeward = Edgeward::start(&config).await;
    let streams = !matches!(who, Row::BoxWhole | Row::CloudWhole);
    let answer = post(edgeward.addr, CHAT, &chat(streams), &[]).await;
    let said = said(Dialect::OpenaiChat, streams && answer.status == 200, &answer.body);
    let told = format!("{what}: {} {:?} {}", answer.status, said.errors, answer.text());
    let got = answer.header("x-edgeward-attempts").unwrap_or_default();
    if who == Row::Error {
        // Whose back-off is shorter is asked again first.
        let sorted = |list: &str| {
            let mut all: Vec<String> = list.split(',').map(str::to_owned).collect();
            all.sort();
            all
        };
        assert_eq!(sorted(got), sorted(attempts), "{told}");
    } else {
        assert_eq!(got, attempts, "{told}");
    }
    let (status, clean) = (answer.status, answer.clean);
    match who {
        Row::Cloud | Row::Off => {
            assert_eq!((status, clean, said.text), (200, true, healthy("cloud").text()), "{told}")
        }
        Row::BoxWhole => assert_eq!((status, clean, said.text.as_str()), (200, true, "the box"), "{told}"),
        Row::CloudWhole => {
            assert_eq!((status, clean, said.text), (200, true, healthy("cloud").text()), "{told}")
        }
        Row::Box => assert_eq!((status, clean, said.text.as_str()), (200, true, "the box"), "{told}"),
        Row::Broken => {
            assert_eq!(
                (status, clean, said.text.as_str(), said.ended),
                (200, false, "the box", false),
                "{told}"
            );
            assert_eq!(said.errors.len(), 1, "{told}");
        }
        Row::GivenBack => {
            assert!(status == 400 && answer.text().contains("temperature is not a number"), "{told}")
        }
        Row::Error => {
            assert!(
                status == 502 && ["box", "cloud"].iter().all(|name| answer.text().contains(name)),
                "{told}"
            );
        }
    }
    let asked = match who {
        Row::Cloud | Row::CloudWhole | Row::Off => 1,
        Row::Error => 2,
        Row::Box | Row::BoxWhole | Row::Broken | Row::GivenBack => 0,
    };
    assert_eq!(cloud.counts().requests, asked, "{told}");
}
