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
use crate::config::{Config, Look, Next, Sight, Target, TargetUrl, local_name};
use crate::health::Standing;
use crate::limits;
use crate::observe::discovery_events as events;
use crate::task;
use crate::time::now;

/// How long a port may take to say who it is, all questions together.
const PATIENCE: Duration = Duration::from_secs(2);

/// What was seen on the usual ports, each at most once: as many as there are discovered targets.
#[derive(Debug, Default)]
pub struct Sights {
    seen: RefCell<Vec<(u16, Sight, Instant)>>,
    /// A target is not what answers in its place.
    differs: Notify,
}

impl Sights {
    /// What answered on `port` when it was last asked.
    #[must_use]
    pub fn on(&self, port: u16) -> Option<Sight> {
        self.seen.borrow().iter().find(|(of, ..)| *of == port).map(|(_, sight, _)| *sight)
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
        let before = self.on(port);
        let mut seen = self.seen.borrow_mut();
        seen.retain(|(of, ..)| *of != port);
        seen.extend(sight.map(|sight| (port, sight, at)));
        before != sight
    }

    /// Whether it was asked not long ago, and said what does not change often.
    fn is_fresh(&self, port: u16, at: Instant) -> bool {
        let within = |since: Instant| at.saturating_duration_since(since) < limits::STRANGER_INTERVAL;
        self.seen.borrow().iter().any(|(of, _, since)| *of == port && within(*since))
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
                (failed || !is_fit(gateway, index, at)) && !sights.is_fresh(port, at)
            }
            // A stranger's log is not filled with our questions.
            Some(_) => matches!(sights.on(port), None | Some(Sight::Server(_))) || !sights.is_fresh(port, at),
            None => false,
        };
        if due {
            let gateway = Rc::clone(gateway);
            task::start_in(&mut looking, async move {
                if let Ok(sight) = tokio::time::timeout(PATIENCE, sight(&gateway, index)).await {
                    tell(&gateway, index, port, sight);
                }
            });
        }
    }
    while looking.join_next().await.is_some() {}
    let differs = |target: &Target| {
        let port = target.discovered.then(|| port(target)).flatten()?;
        match gateway.process.sights.on(port)? {
            Sight::Server(known) => Some(target.name != local_name(known, port)),
            Sight::Locked | Sight::Stranger => None,
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
        tokio::time::sleep(limits::DISCOVERY_INTERVAL).await;
    }
}

fn tell(gateway: &Gateway, index: usize, port: u16, sight: Option<Sight>) {
    let Some(target) = gateway.config.targets.get(index) else { return };
    let sights = &gateway.process.sights;
    let absent = gateway.store.borrow().get(index).is_none_or(|health| health.absent);
    // One that was found and does not answer keeps its kind: its health says the rest.
    if !absent && !matches!(sight, Some(Sight::Server(_))) {
        if let Some(before) = sights.on(port) {
            sights.saw(port, Some(before), now());
        }
        return;
    }
    let news = sights.saw(port, sight, now());
    match sight {
        // Told once all have been looked at.
        Some(Sight::Server(known)) if target.name != local_name(known, port) => {}
        Some(Sight::Server(known)) => {
            if gateway.store.borrow_mut().set_absent(index, false) {
                events::target_found(&target.name, known.in_words(), &target.url.to_string());
                deaths::look_now(&gateway.process);
            }
        }
        Some(sight) if news => events::stranger_found(port, sight.in_words(), sight == Sight::Locked),
        Some(_) | None => {}
    }
}

/// What answers; `None`: nothing does.
async fn sight(gateway: &Gateway, index: usize) -> Option<Sight> {
    let mut look = Look::default();
    loop {
        // Whoever does not answer is not there; whoever answers something else is a stranger.
        let link = gateway.upstreams.connect(index, true).await.ok()?;
        let target = gateway.config.targets.get(index)?;
        let mut request = Request::builder().method(Method::GET).uri(look.path());
        head::to_upstream(request.headers_mut()?, &HeaderMap::new(), target, &HeaderMap::new());
        let Ok(mut reply) = link.send(request.body(RequestBody::empty()).ok()?).await else {
            return Some(Sight::Stranger);
        };
        // Another edgeward, or this one: requests would go in circles.
        if reply.headers.contains_key(head::REQUEST_ID) {
            return Some(Sight::Stranger);
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
            Next::Is(sight) => return Some(sight),
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
    use crate::cause::Cause;
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
            says.set(&[]);
            look(&gateway).await;
            assert_eq!(sights.on(port), Some(Sight::Server(Known::Ollama)), "its health says that it fails");
            says.set(VLLM);
            long_ago(Sight::Server(Known::Ollama));
            look(&gateway).await;
            assert_eq!(sights.on(port), Some(Sight::Server(Known::Vllm)));
            sights.differ().await;
            server.abort();
        });
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
