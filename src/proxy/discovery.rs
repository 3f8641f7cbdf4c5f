//! Looks for local servers on their usual ports, at the start and from time to time, until they are there.
//!
//! A server is known by what it says, so a port's target may turn out to be of another kind than is usual there: the
//! configuration is renewed then, as by a reload.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use http::{HeaderMap, Method, Request};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::deaths;
use super::gateway::Gateway;
use super::head;
use super::upstream::RequestBody;
use crate::cause::Cause;
use crate::config::{Config, Look, Next, Sight, Target, TargetUrl, local_name};
use crate::health::Standing;
use crate::limits;
use crate::observe::discovery_events as events;
use crate::task;
use crate::time::now;

/// How long a port may take to say who it is, all questions together.
const PATIENCE: Duration = Duration::from_secs(2);
/// A server that was found and says something strange is asked once more after this.
const AGAIN: Duration = Duration::from_millis(250);

/// What was seen on the usual ports, each at most once: as many as there are discovered targets.
#[derive(Debug, Default)]
pub struct Sights {
    seen: RefCell<Vec<Seen>>,
    /// Ports that are being asked, and whether their servers have ended since.
    asking: RefCell<Vec<(u16, bool)>>,
    /// A target is not what answers in its place.
    differs: Notify,
}

#[derive(Debug)]
struct Seen {
    port: u16,
    sight: Option<Sight>,
    /// When it was first seen so.
    since: Instant,
    /// When it was last seen.
    asked: Instant,
    /// It was seen, and does not answer since then.
    gone: bool,
}

impl Seen {
    fn is_young(&self, at: Instant) -> bool {
        at.saturating_duration_since(self.since) < limits::STRANGER_YOUNG
    }
}

/// A port is being asked, by one look at a time.
struct Asking<'a>(&'a Sights, u16);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.asking.borrow_mut().retain(|(port, _)| *port != self.1);
    }
}

impl Sights {
    /// What answered on `port` when it was last asked; the server that was found there, if nothing answers since.
    #[must_use]
    pub fn on(&self, port: u16) -> Option<Sight> {
        self.seen.borrow().iter().find(|seen| seen.port == port).and_then(|seen| seen.sight)
    }

    /// Waits until a target is to be another one.
    pub async fn differ(&self) {
        self.differs.notified().await;
    }

    /// Makes each discovered target what was seen in its place.
    pub fn apply(&self, config: &mut Config) {
        for target in config.targets.iter_mut().filter(|target| target.discovered) {
            if let Some(port) = port(target)
                && let Some(Sight::Server(known)) = self.on(port)
            {
                target.become_known(known, port);
            }
        }
    }

    /// What answers on `port`; `None`: nothing does. Returns whether that is news.
    pub fn saw(&self, port: u16, sight: Option<Sight>, at: Instant) -> bool {
        let mut seen = self.seen.borrow_mut();
        let before = seen.iter().find(|seen| seen.port == port).map(|seen| (seen.sight, seen.since));
        let since = before.filter(|(before, _)| *before == sight).map_or(at, |(_, since)| since);
        seen.retain(|seen| seen.port != port);
        seen.push(Seen { port, sight, since, asked: at, gone: false });
        before.and_then(|(before, _)| before) != sight
    }

    /// The server on `port` has ended, or does not answer: it is asked for every second at first.
    fn is_gone(&self, port: u16, at: Instant) {
        if let Some(seen) = self.seen.borrow_mut().iter_mut().find(|seen| seen.port == port) {
            seen.asked = at;
            if !std::mem::replace(&mut seen.gone, true) {
                seen.since = at;
            }
        }
    }

    /// Whether it is asked again by now.
    fn is_due(&self, port: u16, found: bool, at: Instant) -> bool {
        let seen = self.seen.borrow();
        let Some(seen) = seen.iter().find(|seen| seen.port == port) else { return true };
        let pause = match seen.sight {
            _ if found => limits::STRANGER_INTERVAL,
            // It may have become another target, which takes one more look.
            Some(Sight::Server(_)) if !seen.gone => Duration::ZERO,
            Some(Sight::Server(_)) if seen.is_young(at) => limits::GONE_INTERVAL,
            // A stranger's log is not filled with our questions; one that has just started may be about to answer.
            Some(Sight::Locked | Sight::Stranger | Sight::Silent) if !seen.is_young(at) => {
                limits::STRANGER_INTERVAL
            }
            _ => limits::DISCOVERY_INTERVAL,
        };
        at.saturating_duration_since(seen.asked) >= pause
    }

    /// `None`: another look at it is under way.
    fn ask(&self, port: u16) -> Option<Asking<'_>> {
        let mut asking = self.asking.borrow_mut();
        if asking.iter().any(|(of, _)| *of == port) {
            return None;
        }
        asking.push((port, false));
        Some(Asking(self, port))
    }

    /// Sets whether the server on `port` has ended since a look at it began, if one is under way; returns what was set.
    fn ended(&self, port: u16, ended: bool) -> bool {
        let mut asking = self.asking.borrow_mut();
        let of = asking.iter_mut().find(|(of, _)| *of == port);
        of.is_some_and(|(_, has)| std::mem::replace(has, ended))
    }
}

/// Of a discovered target.
pub(super) fn port(target: &Target) -> Option<u16> {
    match &target.url {
        TargetUrl::Http { port, .. } => Some(*port),
        _ => None,
    }
}

/// Looks once at every discovered target that is not there yet, and at those that may have become another.
pub async fn look(gateway: &Rc<Gateway>) {
    let mut looking = JoinSet::new();
    let at = now();
    for (index, target) in gateway.config.targets.iter().enumerate().filter(|(_, target)| target.discovered) {
        let Some(port) = port(target) else { continue };
        let sights = &gateway.process.sights;
        let due = match gateway.store.borrow().get(index) {
            // What is not well may have been stopped for another.
            Some(health) if !health.absent => {
                let failed = health.last_failure.map(|(failed, _)| failed) > health.last_commit;
                (failed || !is_fit(gateway, index, at)) && sights.is_due(port, true, at)
            }
            Some(_) => sights.is_due(port, false, at),
            None => false,
        };
        if due {
            let gateway = Rc::clone(gateway);
            task::start_in(&mut looking, async move { look_at(&gateway, index, port).await });
        }
    }
    while looking.join_next().await.is_some() {}
    tell_others(gateway);
}

/// Says so where a target is not what answers in its place.
fn tell_others(gateway: &Gateway) {
    let differs = |target: &Target| {
        let port = target.discovered.then(|| port(target)).flatten()?;
        match gateway.process.sights.on(port)? {
            Sight::Server(known) => Some(target.name != local_name(known, port)),
            Sight::Locked | Sight::Stranger | Sight::Silent => None,
        }
    };
    if gateway.config.targets.iter().any(|target| differs(target) == Some(true)) {
        gateway.process.sights.differs.notify_one();
    }
}

fn is_fit(gateway: &Gateway, index: usize, at: Instant) -> bool {
    matches!(gateway.store.borrow().summary(index, "", 0, at).standing, Standing::Fit)
}

/// Looks again and again.
pub async fn keep_looking(gateway: Rc<Gateway>) {
    if !gateway.config.targets.iter().any(|target| target.discovered) {
        return;
    }
    loop {
        look(&gateway).await;
        tokio::time::sleep(limits::GONE_INTERVAL).await;
    }
}

/// The server of `target` has ended, or refuses connections: if it was found by itself, what answers there next may be
/// anything, and gets nothing until it has said that it is a model server.
pub(super) fn ended(gateway: &Rc<Gateway>, target: usize) {
    let Some(port) = found_on(gateway, target) else { return };
    gateway.store.borrow_mut().set_absent(target, true);
    let sights = &gateway.process.sights;
    sights.is_gone(port, now());
    sights.ended(port, true);
    look_soon(gateway, target, port);
}

/// An attempt at `target` has failed so. Where that may be because something else answers there by now, it is looked
/// at without delay.
pub(super) fn failed(gateway: &Rc<Gateway>, target: usize, cause: Cause) {
    match cause {
        Cause::Refused => ended(gateway, target),
        // A web app knows no such path, or answers with a page.
        Cause::Unsupported
        | Cause::Unauthorized
        | Cause::Protocol
        | Cause::Closed
        | Cause::Reset
        | Cause::Truncated => {
            if let Some(port) = found_on(gateway, target) {
                look_soon(gateway, target, port);
            }
        }
        _ => {}
    }
}

fn found_on(gateway: &Gateway, target: usize) -> Option<u16> {
    let found = gateway.store.borrow().get(target).is_some_and(|health| !health.absent);
    gateway.config.targets.get(target).filter(|target| found && target.discovered).and_then(port)
}

fn look_soon(gateway: &Rc<Gateway>, target: usize, port: u16) {
    let gateway = Rc::clone(gateway);
    task::start(async move {
        look_at(&gateway, target, port).await;
        tell_others(&gateway);
    });
}

async fn look_at(gateway: &Gateway, index: usize, port: u16) {
    let sights = &gateway.process.sights;
    let Some(_asking) = sights.ask(port) else { return };
    let mut strange = false;
    loop {
        let at = now();
        let seen = tokio::time::timeout(PATIENCE, sight(gateway, index)).await;
        // It may be the old server that has answered.
        if sights.ended(port, false) {
            continue;
        }
        let Ok(sight) = seen.unwrap_or(Ok(Some(Sight::Silent))) else { return };
        // One that was found may say something strange once, and be well.
        let found = gateway.store.borrow().get(index).is_some_and(|health| !health.absent);
        if found && !strange && matches!(sight, Some(Sight::Locked | Sight::Stranger)) {
            strange = true;
            tokio::time::sleep(AGAIN).await;
            continue;
        }
        return tell(gateway, index, port, sight, at);
    }
}

fn tell(gateway: &Gateway, index: usize, port: u16, sight: Option<Sight>, at: Instant) {
    let Some(target) = gateway.config.targets.get(index) else { return };
    let sights = &gateway.process.sights;
    let before = sights.on(port);
    let was_found = matches!(before, Some(Sight::Server(_)));
    let found = gateway.store.borrow().get(index).is_some_and(|health| !health.absent);
    match sight {
        // One that was found and is gone keeps its kind, for when it is back.
        None if was_found => {
            gateway.store.borrow_mut().set_absent(index, true);
            sights.is_gone(port, at);
            return;
        }
        // It may be busy: its health says the rest.
        Some(Sight::Silent) if found => {
            sights.saw(port, before, at);
            return;
        }
        _ => {}
    }
    let news = sights.saw(port, sight, at);
    match sight {
        // Told once all have been looked at.
        Some(Sight::Server(known)) if target.name != local_name(known, port) => {}
        Some(Sight::Server(known)) => {
            let back = gateway.store.borrow_mut().set_absent(index, false);
            if back {
                events::target_found(&target.name, known.in_words(), &target.url.to_string());
                deaths::look_now(&gateway.process);
            }
        }
        Some(sight) => {
            gateway.store.borrow_mut().set_absent(index, true);
            if news {
                events::stranger_found(port, sight.in_words(), sight == Sight::Locked);
            }
        }
        None => {}
    }
}

/// What answers; `None`: nothing does.
///
/// # Errors
/// It could not be asked, which says nothing of it.
async fn sight(gateway: &Gateway, index: usize) -> Result<Option<Sight>, Cause> {
    let mut look = Look::default();
    loop {
        let link = match gateway.upstreams.connect(index, true).await {
            Ok(link) => link,
            Err(failure) if failure.cause == Cause::Exhausted => return Err(failure.cause),
            Err(_) => return Ok(None),
        };
        let target = gateway.config.targets.get(index).ok_or(Cause::Internal)?;
        let mut request = Request::builder().method(Method::GET).uri(look.path());
        let headers = request.headers_mut().ok_or(Cause::Internal)?;
        head::to_upstream(headers, &HeaderMap::new(), target, &HeaderMap::new());
        let request = request.body(RequestBody::empty()).map_err(|_| Cause::Internal)?;
        let mut reply = match link.send(request).await {
            Ok(reply) => reply,
            // A published port of a container accepts, and closes, while nothing listens in the container.
            Err(error) => {
                let nothing = matches!(error.into_failure().cause, Cause::Closed | Cause::Reset);
                return Ok((!nothing).then_some(Sight::Stranger));
            }
        };
        // Another edgeward, or this one: requests would go in circles.
        if reply.headers.contains_key(head::REQUEST_ID) {
            return Ok(Some(Sight::Stranger));
        }
        let mut body = Vec::new();
        while let Some(Ok(chunk)) = reply.chunk().await {
            body.extend_from_slice(&chunk);
            if body.len() > limits::CLIENT_FAULT_BODY_BYTES {
                body.clear();
                break;
            }
        }
        if look.asks_for_json() && crate::wire::json::profile(&body).is_err() {
            body.clear();
        }
        look = match look.heard(reply.status.as_u16(), &body) {
            Next::Ask(next) => next,
            Next::Is(sight) => return Ok(Some(sight)),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::task::LocalSet;

    use super::*;
    use crate::config::{self, Known, LOCAL_SERVERS, LocalServer};
    use crate::health::Ended;
    use crate::proxy::upstream::ProxyRules;

    /// What is said on which path; all others are 404.
    type Says = &'static [(&'static str, &'static str)];

    /// Answers as `says` does at that time; every answer has `header`.
    async fn serve(listener: TcpListener, says: Rc<Cell<Says>>, header: &str) {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(socket.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap();
            let path = head.split(' ').nth(1).unwrap();
            let said = says.get().iter().find(|(of, _)| *of == path);
            let (status, body) = said.map_or(("404 Not Found", "{}"), |(_, body)| ("200 OK", *body));
            let length = body.len();
            let answer = format!("HTTP/1.1 {status}\r\n{header}content-length: {length}\r\n\r\n{body}");
            socket.write_all(answer.as_bytes()).await.unwrap();
        }
    }

    /// What becomes of the target that `usual` has, where `says` is what answers.
    async fn found(usual: Known, says: Says, header: &'static str) -> (Target, bool, Option<Sight>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::task::spawn_local(serve(listener, Rc::new(Cell::new(says)), header));
        let config = config::discover(&|_: &str| None, &[LocalServer { usual, port }]).config;
        let mut gateway = Rc::new(Gateway::new(config, &ProxyRules::from_env(), None).unwrap());
        look(&gateway).await;
        let mut config = gateway.config.clone();
        gateway.process.sights.apply(&mut config);
        if config != gateway.config {
            gateway.process.sights.differ().await;
            gateway = Rc::new(gateway.renewed(config, &ProxyRules::from_env()).unwrap());
            look(&gateway).await;
        }
        server.abort();
        let there = gateway.store.borrow().get(0).is_some_and(|health| !health.absent);
        (gateway.config.targets[0].clone(), there, gateway.process.sights.on(port))
    }

    const VLLM: Says =
        &[("/v1/models", r#"{"object":"list","data":[{"id":"m","owned_by":"vllm","max_model_len":8}]}"#)];
    const SGLANG: Says = &[("/v1/models", r#"{"object":"list","data":[{"id":"m","owned_by":"sglang"}]}"#)];
    const LLAMACPP: Says = &[
        ("/v1/models", r#"{"object":"list","data":[{"id":"m","owned_by":"llamacpp"}]}"#),
        ("/props", r#"{"default_generation_settings":{},"build_info":"b1"}"#),
    ];
    const OLLAMA: Says = &[
        ("/v1/models", r#"{"object":"list","data":[{"id":"m","owned_by":"library"}]}"#),
        ("/", "Ollama is running"),
        ("/api/version", r#"{"version":"0.12.3"}"#),
    ];
    const LMSTUDIO: Says = &[
        ("/v1/models", r#"{"object":"list","data":[{"id":"m","owned_by":"organization_owner"}]}"#),
        ("/api/v0/models", r#"{"data":[{"id":"m","state":"loaded","compatibility_type":"gguf"}]}"#),
    ];
    const OPENAI: Says = &[("/v1/models", r#"{"object":"list","data":[{"id":"m"}]}"#)];

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, test);
    }

    #[test]
    fn every_server_is_found_on_every_port() {
        run(async {
            for LocalServer { usual, .. } in LOCAL_SERVERS {
                for (known, says) in
                    Known::ALL.into_iter().zip([OLLAMA, VLLM, LLAMACPP, SGLANG, LMSTUDIO, OPENAI])
                {
                    let (target, there, _) = found(usual, says, "").await;
                    assert!(there, "{known:?} where {usual:?} is usual");
                    assert_eq!(target.kind, known.kind());
                    assert!(target.name.starts_with(known.name()), "{} is {known:?}", target.name);
                    assert_eq!(target.url.to_string().ends_with("/v1"), known.kind() == config::Kind::Openai);
                }
            }
        });
    }

    #[test]
    fn what_was_found_may_be_stopped_for_another() {
        run(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let says = Rc::new(Cell::new(OLLAMA));
            let server = tokio::task::spawn_local(serve(listener, Rc::clone(&says), ""));
            let config =
                config::discover(&|_: &str| None, &[LocalServer { usual: Known::Ollama, port }]).config;
            let gateway = Rc::new(Gateway::new(config, &ProxyRules::from_env(), None).unwrap());
            let sights = &gateway.process.sights;
            let long_ago = |sight| sights.saw(port, Some(sight), now() - 2 * limits::STRANGER_INTERVAL);
            look(&gateway).await;
            says.set(VLLM);
            long_ago(Sight::Server(Known::Ollama));
            look(&gateway).await;
            assert_eq!(sights.on(port), Some(Sight::Server(Known::Ollama)), "one that is well is let be");
            let ticket = gateway.store.borrow_mut().begin(0, "m", true, now()).unwrap();
            gateway.store.borrow_mut().end(ticket, Ended::Failed(Cause::Protocol, None), now());
            says.set(VLLM);
            long_ago(Sight::Server(Known::Ollama));
            look(&gateway).await;
            assert_eq!(sights.on(port), Some(Sight::Server(Known::Vllm)));
            sights.differ().await;
            server.abort();
        });
    }

    /// Ollama, found on a port of its own, and the task that answers there.
    async fn ollama() -> (Rc<Gateway>, u16, Rc<Cell<Says>>, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let says = Rc::new(Cell::new(OLLAMA));
        let server = tokio::task::spawn_local(serve(listener, Rc::clone(&says), ""));
        let config = config::discover(&|_: &str| None, &[LocalServer { usual: Known::Ollama, port }]).config;
        let gateway = Rc::new(Gateway::new(config, &ProxyRules::from_env(), None).unwrap());
        look(&gateway).await;
        assert!(is_there(&gateway));
        (gateway, port, says, server)
    }

    fn is_there(gateway: &Gateway) -> bool {
        gateway.store.borrow().get(0).is_some_and(|health| !health.absent)
    }

    /// Waits for the look that has been asked for.
    async fn looked(gateway: &Gateway) {
        tokio::task::yield_now().await;
        while !gateway.process.sights.asking.borrow().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[test]
    fn a_stranger_in_a_servers_place_gets_nothing() {
        run(async {
            for cause in [Cause::Unsupported, Cause::Refused, Cause::Closed] {
                let (gateway, port, says, server) = ollama().await;
                failed(&gateway, 0, cause);
                assert_eq!(is_there(&gateway), cause != Cause::Refused, "nothing goes there unseen");
                looked(&gateway).await;
                assert!(is_there(&gateway), "it is well");
                says.set(&[("/", "<html>")]);
                failed(&gateway, 0, cause);
                looked(&gateway).await;
                assert!(!is_there(&gateway), "{cause:?}");
                assert_eq!(gateway.process.sights.on(port), Some(Sight::Stranger));
                assert!(gateway.store.borrow_mut().begin(0, "m", true, now()).is_err());
                server.abort();
            }
        });
    }

    #[test]
    fn what_is_gone_keeps_its_kind_and_is_no_target_until_it_is_back() {
        run(async {
            let (gateway, port, _, server) = ollama().await;
            server.abort();
            assert!(server.await.is_err());
            failed(&gateway, 0, Cause::Closed);
            looked(&gateway).await;
            let sights = &gateway.process.sights;
            assert!(!is_there(&gateway));
            assert_eq!(sights.on(port), Some(Sight::Server(Known::Ollama)));
            assert!(
                !sights.is_due(port, false, now())
                    && sights.is_due(port, false, now() + limits::GONE_INTERVAL)
            );
            let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
            let server = tokio::task::spawn_local(serve(listener, Rc::new(Cell::new(OLLAMA)), ""));
            sights.is_gone(port, now() - limits::GONE_INTERVAL);
            look(&gateway).await;
            assert!(is_there(&gateway));
            server.abort();
        });
    }

    #[test]
    fn a_closed_connection_is_nobody_and_a_silent_one_is_named() {
        run(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let config =
                config::discover(&|_: &str| None, &[LocalServer { usual: Known::Ollama, port }]).config;
            let gateway = Rc::new(Gateway::new(config, &ProxyRules::from_env(), None).unwrap());
            let closes = async {
                let (mut socket, _) = listener.accept().await.unwrap();
                socket.read_u8().await.unwrap();
            };
            tokio::join!(look(&gateway), closes);
            let sights = &gateway.process.sights;
            assert_eq!(sights.on(port), None);
            assert!(sights.is_due(port, false, now() + limits::DISCOVERY_INTERVAL));
            sights.saw(port, None, now() - limits::DISCOVERY_INTERVAL);
            look(&gateway).await;
            assert_eq!(sights.on(port), Some(Sight::Silent));
            let told = crate::proxy::standing::absent(&gateway, 0);
            assert!(told.contains("says nothing"), "{told}");
        });
    }

    #[test]
    fn a_new_stranger_is_asked_often() {
        let (sights, at) = (Sights::default(), now());
        let due = |after| sights.is_due(1, false, at + after);
        sights.saw(1, Some(Sight::Stranger), at);
        assert!(!due(limits::DISCOVERY_INTERVAL / 2) && due(limits::DISCOVERY_INTERVAL));
        let old = at + limits::STRANGER_YOUNG;
        sights.saw(1, Some(Sight::Stranger), old);
        let due = |after| sights.is_due(1, false, old + after);
        assert!(!due(limits::STRANGER_INTERVAL / 2) && due(limits::STRANGER_INTERVAL));
    }

    #[test]
    fn nothing_else_is_called_found() {
        run(async {
            let page: Says =
                &[("/v1/models", "<html>"), ("/", "<html>"), ("/api/version", r#"{"version":"1"}"#)];
            let own = "x-edgeward-request-id: 1\r\n";
            for (says, header) in [(page, ""), (OLLAMA, own), (OPENAI, own), (&[], "")] {
                let (target, there, sight) = found(Known::Ollama, says, header).await;
                assert!(!there && target.name.starts_with("ollama"), "{says:?} {header}");
                assert_eq!(sight, Some(Sight::Stranger));
            }
        });
    }
}
