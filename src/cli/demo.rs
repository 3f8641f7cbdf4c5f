//! `edgeward demo`: a box that dies, a cloud that does not, the gateway before them, and a client that asks.

use std::io::{self, IsTerminal, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{LocalSet, spawn_local};

use super::{EXIT_FAILED, EXIT_GOOD, serving};
use crate::config::{self, DEFAULT_PORT};
use crate::limits;
use crate::proxy::current::Current;
use crate::proxy::gateway::Gateway;
use crate::proxy::listen;
use crate::proxy::upstream::ProxyRules;
use crate::sim::demo::{self, Frame, Frames, HEALTHY, Promise, SCENES, Scene, Seen, Style, Teller, Timeline};
use crate::sim::model::{Model, healthy};
use crate::sim::server::{RefusedPort, SimEvent, SimServer, refused_port};
use crate::time::now;

/// Set to `1`: end after the last scene instead of serving on.
const ONCE: &str = "EDGEWARD_DEMO_ONCE";
/// What happens and is not told yet; what is more is lost.
const HAPPENINGS_MAX: usize = 4096;
/// A scene that takes longer is broken.
const SCENE: Duration = Duration::from_secs(10);
/// After the answer's end, for a hang-up that was not seen yet.
const HANG_UP: Duration = Duration::from_millis(500);
/// A request this long after the last happening begins a new timeline.
const PAUSE: Duration = Duration::from_secs(2);
/// Tokens of a healthy answer.
const TOKENS: usize = 13;
/// From a request to a healthy answer's first token.
const FIRST_TOKEN: Duration = Duration::from_millis(15);
/// Between two of its tokens.
const BETWEEN: Duration = Duration::from_millis(15);
/// The servers' names, in the order of their numbers.
const SERVERS: [&str; 2] = ["box", "cloud"];
/// The cloud's place among the configuration's targets.
const CLOUD: usize = 2;

/// Plays every scene, then serves until Ctrl-C. Returns the exit code.
///
/// # Errors
/// Only when stdout or stderr cannot be written.
pub fn demo(out: &mut dyn Write, err: &mut dyn Write) -> io::Result<u8> {
    let colours = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(limits::BLOCKING_THREADS)
        .build()?;
    LocalSet::new().block_on(&runtime, async {
        let mut stage = match Stage::set(colours).await {
            Ok(stage) => stage,
            Err(why) => {
                writeln!(err, "edgeward demo: {why}")?;
                return Ok(EXIT_FAILED);
            }
        };
        let mut code = EXIT_GOOD;
        tokio::select! {
            done = stage.perform(out, &mut code) => done?,
            _ = tokio::signal::ctrl_c() => writeln!(out)?,
        }
        Ok(code)
    })
}

/// What a client or a server saw, and when.
type Happening = (Instant, What);

enum What {
    Server(usize, SimEvent),
    Head(http::response::Parts),
    Body(Bytes),
    /// Whether the body's end was said.
    End(bool),
}

struct Stage {
    colours: bool,
    addr: SocketAddr,
    models: [Model; 2],
    servers: [SimServer; 2],
    happenings: mpsc::Receiver<Happening>,
    tell: mpsc::Sender<Happening>,
    _off: RefusedPort,
}

impl Stage {
    async fn set(colours: bool) -> Result<Stage, String> {
        let no_socket = |error: io::Error| format!("no socket on 127.0.0.1: {error}");
        let models = SERVERS.map(|name| healthy(name).paced(TOKENS, FIRST_TOKEN, BETWEEN));
        let [local, cloud] = models.clone();
        let names: Vec<&str> = demo::models().collect();
        let servers = [
            SimServer::start(demo::boxes(local.models(&names))).await.map_err(no_socket)?,
            SimServer::start(cloud).await.map_err(no_socket)?,
        ];
        let off = refused_port().map_err(no_socket)?;
        let (tell, happenings) = mpsc::channel(HAPPENINGS_MAX);
        for (n, server) in servers.iter().enumerate() {
            let tell = tell.clone();
            server.tell(move |event| {
                // A reader that is so far behind does without.
                let _full = tell.try_send((now(), What::Server(n, event)));
            });
        }
        let listener = bind().map_err(no_socket)?;
        let addr = listener.local_addr().map_err(no_socket)?;
        let [local, cloud] = [servers[0].addr(), servers[1].addr()];
        let text = demo::config(addr, local, off.addr(), cloud);
        let loaded = config::parse(&text, Path::new("the demo's own configuration"), &demo::env)
            .map_err(|problems| problems.to_string())?;
        let gateway =
            Gateway::new(loaded.config, &ProxyRules::builder().build(), None).map_err(|e| e.to_string())?;
        let gateway = Rc::new(gateway);
        serving::warm(Rc::clone(&gateway), CLOUD).await;
        spawn_local(serving::keep_connections(Rc::clone(&gateway)));
        spawn_local(listen::clients(Current::new(gateway, None), Rc::new(listener)));
        Ok(Stage { colours, addr, models, servers, happenings, tell, _off: off })
    }

    /// Every scene, the summary, and then whatever its readers ask. `code` is set before it goes on serving.
    async fn perform(&mut self, out: &mut dyn Write, code: &mut u8) -> io::Result<()> {
        writeln!(
            out,
            "edgeward stands at http://{} before two simulated servers: box, which dies in\n\
             scripted ways, and cloud, which does not. It holds each stream until its first real token: if\n\
             the box dies before that, the cloud answers, and the client never notices.",
            self.addr
        )?;
        let (mut whole, mut broken, mut wrong) = (0, 0, 0);
        for (n, scene) in SCENES.iter().filter(|scene| scene.played).enumerate() {
            match (self.play(out, n + 1, scene).await?, scene.promise) {
                (false, _) => wrong += 1,
                (true, Promise::Broken) => broken += 1,
                (true, _) => whole += 1,
            }
        }
        let total = whole + broken + wrong;
        let (style, verdict) = if wrong > 0 {
            *code = EXIT_FAILED;
            (Style::Bad, format!("{wrong} of {total} requests did not get what is promised."))
        } else {
            let words =
                format!("{total} requests: {whole} answered whole, {broken} broke midway and said so.");
            (Style::Good, words)
        };
        writeln!(out, "\n{}", style.paint(self.colours, &verdict))?;
        if std::env::var(ONCE).is_ok_and(|once| once == "1") {
            return out.flush();
        }
        self.invite(out)?;
        self.watch(out).await
    }

    /// Plays one scene; whether the client saw what is promised.
    async fn play(&mut self, out: &mut dyn Write, number: usize, scene: &Scene) -> io::Result<bool> {
        while self.happenings.try_recv().is_ok() {}
        let heading = format!("{number}  {:<14} {}", scene.model, scene.title);
        let mut timeline = Timeline::new(self.colours);
        writeln!(out, "\n{}", Style::Bold.paint(self.colours, &heading))?;
        out.write_all(timeline.head().as_bytes())?;
        let began = now();
        let request = format!("POST /v1/chat/completions {}", scene.model);
        out.write_all(timeline.client(Duration::ZERO, Style::Plain, &request).as_bytes())?;
        if scene.off() {
            let rows = timeline.deed(Duration::ZERO, SERVERS[0], "is off: nobody listens at its port");
            out.write_all(rows.as_bytes())?;
        }
        out.flush()?;
        let client = spawn_local(ask(self.addr, scene.model, self.tell.clone())).abort_handle();

        let (mut seen, mut tellers, mut frames) =
            (Seen::default(), [Teller::default(), Teller::default()], Frames::default());
        let mut until = began + SCENE;
        let mut ended = false;
        while !ended || (scene.hung_up && !seen.hung_up) {
            let next = tokio::time::timeout_at(until.into(), self.happenings.recv()).await;
            let Ok(Some((at, what))) = next else { break };
            let at = at.saturating_duration_since(began);
            let rows = match what {
                What::Server(n, event) => {
                    seen.hung_up |= n == 0 && event == SimEvent::HungUp;
                    self.deed(&mut timeline, &mut tellers, at, n, &event)
                }
                What::Head(head) => headed(&mut timeline, &mut seen, at, &head),
                What::Body(bytes) => {
                    let frames = frames.push(&bytes);
                    frames.into_iter().map(|frame| framed(&mut timeline, &mut seen, at, frame)).collect()
                }
                What::End(clean) => {
                    (ended, seen.clean) = (true, clean);
                    until = now() + HANG_UP;
                    ending(&mut timeline, &seen, at)
                }
            };
            out.write_all(rows.as_bytes())?;
            out.flush()?;
        }
        client.abort();
        let whole = match scene.promise {
            Promise::Cloud => self.models[1].text(),
            Promise::Box => self.models[0].text(),
            Promise::Broken => demo::HALF.to_owned(),
        };
        let faults = demo::faults(scene, &seen, &whole);
        let (style, verdict) = if faults.is_empty() {
            let first = seen.first_text.unwrap_or_default().as_secs_f64() * 1000.0;
            let how = match scene.promise {
                Promise::Broken => "broken off, and the client knows it",
                Promise::Box | Promise::Cloud => "answered whole",
            };
            (Style::Good, format!("✓ {how}; first token after {first:.1} ms"))
        } else {
            (Style::Bad, format!("✗ this does not hold: {}", faults.join("; ")))
        };
        writeln!(out, "{}{:9}{}", timeline.end(), "", style.paint(self.colours, &verdict))?;
        Ok(faults.is_empty())
    }

    fn deed(
        &self,
        timeline: &mut Timeline,
        tellers: &mut [Teller; 2],
        at: Duration,
        n: usize,
        event: &SimEvent,
    ) -> String {
        let aborted = self.servers[n].counts().aborted;
        let told = tellers[n].tell(event, aborted);
        told.map(|told| timeline.deed(at, SERVERS[n], &told)).unwrap_or_default()
    }

    fn invite(&self, out: &mut dyn Write) -> io::Result<()> {
        let others: Vec<&str> = demo::models().filter(|model| *model != HEALTHY).collect();
        writeln!(
            out,
            "\nIt goes on serving until Ctrl-C. The model picks what the box does: {HEALTHY} is healthy; there are\n\
             {}.\n",
            others.join(" ")
        )?;
        for (path, body) in [
            ("/v1/chat/completions", format!(r#"{{"model":"{HEALTHY}","stream":true,{HI}}}"#)),
            ("/v1/chat/completions", format!(r#"{{"model":"die:oom","stream":true,{HI}}}"#)),
            ("/v1/chat/completions", format!(r#"{{"model":"die:silence","stream":true,{HI}}}"#)),
        ] {
            writeln!(
                out,
                "curl -iN http://{}{path} -H content-type:application/json \\\n  -d '{body}'",
                self.addr
            )?;
        }
        writeln!(out)?;
        out.flush()
    }

    /// Tells what really happens to requests that others make. Those at the same time share a timeline.
    async fn watch(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let (mut timeline, mut tellers) = (Timeline::new(self.colours), <[Teller; 2]>::default());
        let (mut began, mut last) = (now(), None);
        while let Some((at, what)) = self.happenings.recv().await {
            let What::Server(n, event) = what else { continue };
            let paused = last.is_none_or(|last| at.saturating_duration_since(last) > PAUSE);
            if matches!(event, SimEvent::Requested(_)) && paused {
                (tellers, began) = (tellers.map(Teller::anew), at);
                out.write_all(timeline.head().as_bytes())?;
            }
            if !matches!(event, SimEvent::Accepted(_)) {
                last = Some(at);
            }
            let since = at.saturating_duration_since(began);
            let rows = self.deed(&mut timeline, &mut tellers, since, n, &event);
            out.write_all(rows.as_bytes())?;
            out.flush()?;
        }
        Ok(())
    }
}

/// What every client asks.
const HI: &str = r#""messages":[{"role":"user","content":"hi"}]"#;

/// The usual port, or any where it is taken.
fn bind() -> io::Result<TcpListener> {
    let at = |port| listen::bind((Ipv4Addr::LOCALHOST, port).into(), false);
    at(DEFAULT_PORT).or_else(|_| at(0))
}

/// A client: one request on a connection of its own. Tells what it gets.
async fn ask(addr: SocketAddr, model: &'static str, tell: mpsc::Sender<Happening>) {
    let clean = stream(addr, model, &tell).await.is_ok();
    let _nobody_listens = tell.send((now(), What::End(clean))).await;
}

async fn stream(
    addr: SocketAddr,
    model: &str,
    tell: &mpsc::Sender<Happening>,
) -> Result<(), Box<dyn std::error::Error>> {
    let socket = TcpStream::connect(addr).await?;
    socket.set_nodelay(true)?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
    spawn_local(async move {
        // How it ended is told by the body.
        let _told = connection.await;
    });
    let body = format!(r#"{{"model":"{model}","stream":true,{HI}}}"#);
    let request = http::Request::post("/v1/chat/completions")
        .header("host", addr.to_string())
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body)))?;
    let (head, mut body) = sender.send_request(request).await?.into_parts();
    tell.send((now(), What::Head(head))).await?;
    while let Some(frame) = body.frame().await {
        if let Ok(bytes) = frame?.into_data() {
            tell.send((now(), What::Body(bytes))).await?;
        }
    }
    Ok(())
}

fn headed(timeline: &mut Timeline, seen: &mut Seen, at: Duration, head: &http::response::Parts) -> String {
    let field = |name: &str| {
        head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    seen.status = head.status.as_u16();
    seen.target = field("x-edgeward-target");
    seen.attempts = field("x-edgeward-attempts");
    let mut rows = String::new();
    if !seen.target.is_empty() {
        rows += &timeline.deed(at, "gate", &format!("commits to {}", seen.target));
    }
    rows += &timeline.client(
        at,
        Style::Plain,
        &format!("{}  x-edgeward-target: {}", head.status.as_u16(), seen.target),
    );
    rows + &timeline.client(at, Style::Plain, &format!("x-edgeward-attempts: {}", seen.attempts))
}

fn framed(timeline: &mut Timeline, seen: &mut Seen, at: Duration, frame: Frame) -> String {
    match frame {
        Frame::Text(text) => {
            seen.first_text.get_or_insert(at);
            seen.text.push_str(&text);
            timeline.text(at, &text)
        }
        Frame::Error(message) | Frame::Strange(message) => {
            let row = timeline.client(at, Style::Bad, &format!("error: {message}"));
            seen.errors.push(message);
            row
        }
        Frame::Done => {
            seen.done = true;
            String::new()
        }
        Frame::Quiet => String::new(),
    }
}

fn ending(timeline: &mut Timeline, seen: &Seen, at: Duration) -> String {
    let done = if seen.done { "[DONE]" } else { "no [DONE]" };
    let end = if seen.clean { "and a clean end" } else { "and the connection breaks" };
    let style = if seen.done && seen.clean { Style::Plain } else { Style::Bad };
    timeline.client(at, style, &format!("{done}, {end}"))
}
