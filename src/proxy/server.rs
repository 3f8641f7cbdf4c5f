//! The clients' side: connections, and each request up to the point where its driver takes over.

use std::borrow::Cow;
use std::convert::Infallible;
use std::future::{Future as _, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::time::Sleep;

use super::account::Account;
use super::auth::{self, Client};
use super::cancel::Cancel;
use super::current::Current;
use super::downstream::{Downstream, Requests, Times, Turn};
use super::drive::{self, Job};
use super::endpoint::{self, Endpoint};
use super::gateway::Gateway;
use super::media::Held;
use super::outlet::{ClientBody, Drive, Flushes, Outlet, poll_caught};
use super::socket::Socket;
use super::{body, cors, counting, drills, head, models, operator, pass, refusal, strict, trace, unheard};
use crate::cause::Cause;
use crate::dialect::conversation::Conversation;
use crate::dialect::reply::Problem;
use crate::dialect::{Dialect, conversation, request};
use crate::limits;
use crate::observe::{Limit, events};
use crate::route;
use crate::time::now;

/// What is known about one client connection, as one request of it sees it.
pub struct Connection {
    /// What all requests of this configuration share.
    pub gateway: Rc<Gateway>,
    /// By which routing this one goes is picked when it is known that it goes anywhere.
    current: Rc<Current>,
    /// The other end; `None` on a Unix socket.
    pub peer: Option<SocketAddr>,
    /// On the operators' own listener.
    pub admin: bool,
    flushes: Rc<Flushes>,
    requests: Rc<Requests>,
    stop: Rc<Cancel>,
}

type Answer = Response<ClientBody>;

/// Serves one connection until it ends.
///
/// Each request takes the configuration of its time; the connection's own bounds are those of its beginning.
pub async fn serve(current: Rc<Current>, socket: Socket, peer: Option<SocketAddr>, admin: bool) {
    let gateway = current.get();
    let flushes = Rc::new(Flushes::default());
    let requests = Rc::new(Requests::default());
    let stop = Rc::new(Cancel::default());
    let limits = gateway.config.limits.clone();
    let times = Times { head: limits.header_time, idle: limits.idle_time, write: limits.write_time };
    let io = Downstream::new(socket, Rc::clone(&flushes), Rc::clone(&requests), times);
    let mut builder = http1::Builder::new();
    builder
        // Its own would count the time between two requests as a head's.
        .header_read_timeout(None)
        .max_headers(limits.max_headers)
        .max_buf_size(limits.header_bytes)
        .keep_alive(true);
    let mut closing = gateway.process.closing.subscribe();
    // A connection may idle for long; what a reload has replaced is let go of meanwhile.
    drop(gateway);
    let (at_end, kept_requests, kept_stop) = (Rc::clone(&current), Rc::clone(&requests), Rc::clone(&stop));
    let service = service_fn(move |request| {
        let connection = Connection {
            gateway: current.get(),
            current: Rc::clone(&current),
            peer,
            admin,
            flushes: Rc::clone(&flushes),
            requests: Rc::clone(&kept_requests),
            stop: Rc::clone(&kept_stop),
        };
        let turn = Turn::new(Rc::clone(&connection.requests));
        async move {
            let response = answer(&connection, request).await;
            Ok::<_, Infallible>(response.map(|body| turn.of(body)))
        }
    });
    let mut serving = pin!(builder.serve_connection(TokioIo::new(io), service));
    let mut closing = pin!(async move { closing.wait_for(|closing| *closing).await.is_ok() });
    // Once the connection is to end: how long its first request may be on its way.
    let (mut told, mut end) = (false, None::<Pin<Box<Sleep>>>);
    // An error here is the client's: bad HTTP, a closed socket, a timeout. hyper has answered what can be.
    let ended = poll_fn(|cx| {
        if stop.poll(cx).is_some() {
            return Poll::Ready(Ok(()));
        }
        loop {
            if end.is_none() && closing.as_mut().poll(cx).is_ready() {
                end = Some(Box::pin(tokio::time::sleep(limits::FIRST_BYTES)));
            }
            // hyper drops a connection that has not said anything yet, and with it the request on its way.
            let due = |end: &mut Pin<Box<Sleep>>| requests.begun() || end.as_mut().poll(cx).is_ready();
            if !told && end.as_mut().is_some_and(due) {
                told = true;
                serving.as_mut().graceful_shutdown();
            }
            let polled = serving.as_mut().poll(cx);
            if polled.is_ready() || told || end.is_none() || !requests.begun() {
                return polled;
            }
        }
    })
    .await;
    let hit = match ended {
        _ if requests.stalled() => Limit::WriteTime,
        _ if requests.dawdled() => Limit::HeaderTime,
        Err(error) if error.is_parse_too_large() => {
            let many = requests.fields() as usize > limits.max_headers;
            if many { Limit::MaxHeaders } else { Limit::HeaderBytes }
        }
        Ok(()) => return,
        // Scanners, TLS where there is none, a client that went away in the midst of a request.
        Err(error) => return unheard::broke_off(peer, &error),
    };
    limit_hit(&at_end.get(), hit, None);
}

fn limit_hit(gateway: &Gateway, limit: Limit, id: Option<&str>) {
    gateway.metrics.limit(limit);
    events::limit_hit(limit, id);
}

/// One request, from its head to its response's head.
async fn answer(connection: &Connection, request: Request<Incoming>) -> Answer {
    let began = now();
    let gateway = &connection.gateway;
    let id = gateway.request_id();
    let dialect = endpoint::dialect_of(request.uri().path());
    let origin = cors::origin(&gateway.config, request.headers());
    let mut response = match find(connection, request, id.clone(), began).await {
        Ok(response) => response,
        Err(problem) => own(&problem, dialect),
    };
    head::own(response.headers_mut(), &id, None, "");
    cors::allow(response.headers_mut(), origin);
    if gateway.process.draining.get() || connection.requests.bad_head().is_some() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

async fn find(
    connection: &Connection,
    request: Request<Incoming>,
    id: String,
    began: Instant,
) -> Result<Answer, Problem> {
    let gateway = &connection.gateway;
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    // What is no request for a model has no line of its own but this one.
    let unheard = |problem: &Problem| unheard::refused(&method, &path, connection.peer, &problem.message);
    screen(connection, &request).inspect_err(unheard)?;
    if method == Method::OPTIONS {
        return cors::preflight(&gateway.config, request.headers()).inspect_err(unheard);
    }
    let found = endpoint::find(&method, &path);
    match found {
        Endpoint::Health => return Ok(text(StatusCode::OK, "ok\n")),
        Endpoint::Ready => return Ok(operator::ready(gateway)),
        Endpoint::ServerHealth => return Ok(operator::server_health(gateway)),
        // Word for word what Ollama says, which its clients look for.
        Endpoint::Root => return Ok(text(StatusCode::OK, "Ollama is running")),
        Endpoint::WrongMethod(allow) => {
            let problem = Problem::new(405, "method_not_allowed", format!("{path} takes {allow}"));
            unheard(&problem);
            return Ok(wrong_method(&problem, &path, allow));
        }
        Endpoint::Unknown => return Err(unknown(&path)).inspect_err(unheard),
        _ => {}
    }
    let client = if connection.admin {
        Client { operator: true, ..Client::default() }
    } else if found.is_operators() {
        auth::operator(&gateway.config, request.headers(), connection.peer).inspect_err(unheard)?
    } else {
        let known = auth::client(&gateway.config, request.headers(), connection.peer);
        known.inspect_err(|problem| match found.dialect() {
            Some(dialect) => refused(gateway, &id, None, dialect, began, problem),
            None => unheard(problem),
        })?
    };
    match found {
        Endpoint::Status => operator::only(&client, || operator::status(gateway, &request)),
        Endpoint::Metrics => operator::only(&client, || operator::metrics(gateway)),
        Endpoint::Events => operator::only(&client, operator::events),
        Endpoint::Config => operator::only(&client, || operator::config(gateway)),
        Endpoint::Trace => trace::answer(gateway, &client, &request),
        Endpoint::Drill => drills::answer(gateway, &client, request).await,
        Endpoint::Cancel(id) => operator::cancel(gateway, &client, request.headers(), id),
        Endpoint::Models => Ok(models::list(gateway, request.headers()).await),
        Endpoint::Model(id) => models::one(gateway, request.headers(), id).await.inspect_err(unheard),
        Endpoint::Answer(dialect) => {
            let job = job(connection, request, client, id, began, dialect).await?;
            Ok(driven(job).await)
        }
        Endpoint::CountTokens => {
            let job = job(connection, request, client, id, began, Dialect::Anthropic).await?;
            Ok(counting::count(job).await)
        }
        Endpoint::OllamaWrite if !gateway.config.ollama_writes => Err(Problem::new(
            403,
            "forbidden",
            format!(
                "{path} changes the models on this box and is not passed on; its operator can allow it with `ollama_writes = true`"
            ),
        ))
        .inspect_err(unheard),
        Endpoint::OllamaRead | Endpoint::OllamaWrite => {
            let job = job(connection, request, client, id, began, Dialect::OllamaChat).await?;
            Ok(passed(job).await)
        }
        Endpoint::Health
        | Endpoint::Ready
        | Endpoint::ServerHealth
        | Endpoint::Root
        | Endpoint::WrongMethod(_)
        | Endpoint::Unknown => Err(unknown(&path)),
    }
}

/// What no request may be, whatever it asks for.
fn screen(connection: &Connection, request: &Request<Incoming>) -> Result<(), Problem> {
    strict::framing(&connection.requests, request)?;
    if connection.admin { Ok(()) } else { auth::host(&connection.gateway.config, request.headers()) }
}

/// Makes a request's job, or accounts for its refusal.
async fn job(
    connection: &Connection,
    request: Request<Incoming>,
    client: Client,
    id: String,
    began: Instant,
    dialect: Dialect,
) -> Result<Job, Problem> {
    let name = client.name.clone();
    let read = read(connection, request, client, id.clone(), began, dialect).await;
    read.inspect_err(|problem| refused(&connection.gateway, &id, name, dialect, began, problem))
}

/// A request that came to no attempt has its line in the log as well.
fn refused(
    gateway: &Rc<Gateway>,
    id: &str,
    client: Option<String>,
    dialect: Dialect,
    began: Instant,
    problem: &Problem,
) {
    let call = request::Call::bare(dialect, "");
    let mut account = Account::new(Rc::clone(gateway), id, client, &call, began);
    account.status(problem.status);
    account.end(refusal::outcome(problem), None);
}

/// Reads and decodes a request's body.
async fn read(
    connection: &Connection,
    request: Request<Incoming>,
    client: Client,
    id: String,
    began: Instant,
    dialect: Dialect,
) -> Result<Job, Problem> {
    let gateway = &connection.gateway;
    let (parts, incoming) = request.into_parts();
    let has_body = matches!(parts.method, Method::POST | Method::DELETE);
    if has_body {
        head::json_type(&parts.headers)?;
    }
    let egress = route::egress_asked(&parts.headers)
        .map_err(|message| Problem::new(400, "invalid_request", message))?
        .max(client.local_only);
    let on_break = drive::on_break_asked(&parts.headers)
        .map_err(|message| Problem::new(400, "invalid_request", message))?;
    // From here on, its body included: a stop finds a request whose client is still sending.
    let cancel = Rc::new(Cancel::default());
    cancel.on_connection(&connection.stop);
    let registered = gateway.process.live.enter(&id, &cancel, client.key);
    let held = tokio::select! {
        biased;
        _cause = poll_fn(|cx| cancel.poll(cx).map_or(Poll::Pending, Poll::Ready)) => return Err(refusal::stopped()),
        held = body::read(incoming, &gateway.config.limits, &gateway.bodies) => held,
    };
    let held = held.map_err(|fault| {
        if let Some(limit) = fault.limit {
            limit_hit(gateway, limit, Some(&id));
        }
        fault.problem
    })?;
    if gateway.config.log_prompts {
        events::request_body(&id, &held.bytes);
    }
    let answer = matches!(endpoint::find(&parts.method, parts.uri.path()), Endpoint::Answer(_));
    let (call, talk) = if has_body {
        decode(dialect, answer, &held.bytes).map_err(|bad| {
            if bad.too_deep {
                limit_hit(gateway, Limit::JsonDepth, Some(&id));
            }
            let param = if bad.path.is_empty() { bad.param.map(Cow::from) } else { Some(bad.path.into()) };
            Problem { param, ..Problem::new(400, "invalid_request", bad.message) }
        })?
    } else {
        (request::Call::bare(dialect, ""), None)
    };
    let media = Rc::new(Held::new(client.key));
    let named = call.needs.files || call.needs.named;
    let files = named && talk.is_some_and(|talk| media.knows_files(gateway, &talk));
    // It is read, and from here on goes by one routing.
    let gateway = &connection.current.pick(answer);
    Ok(Job {
        gateway: Rc::clone(gateway),
        registered,
        id,
        client: client.name,
        method: parts.method,
        path: parts.uri.path().to_owned(),
        call,
        body: held,
        media,
        files,
        headers: head::from_client(&parts.headers),
        credential: head::credential(&parts.headers),
        routing: head::for_routing(&parts.headers, &gateway.config.routes),
        egress,
        priority: client.priority,
        on_break,
        outlet: Outlet::new(Rc::clone(&connection.flushes)),
        cancel,
        began,
    })
}

/// What a request asks for. All of a conversation is read, whoever may answer it: what no provider would take reaches
/// no target.
fn decode(
    dialect: Dialect,
    answer: bool,
    body: &Bytes,
) -> Result<(request::Call, Option<Conversation>), request::BadRequest> {
    let call = request::decode(dialect, body)?;
    let converses = answer && dialect.converses();
    let talk = if converses { Some(conversation::decode_shared(dialect, body)?) } else { None };
    Ok((call, talk))
}

/// Runs a driver until its response has a head; the rest of it lives in the response's body.
async fn driven(job: Job) -> Answer {
    let outlet = job.outlet.clone();
    let dialect = job.call.dialect;
    run(Box::pin(drive::drive(job)), outlet, dialect).await
}

async fn passed(job: Job) -> Answer {
    let outlet = job.outlet.clone();
    let dialect = job.call.dialect;
    run(Box::pin(pass::pass(job)), outlet, dialect).await
}

async fn run(drive: Drive, outlet: Outlet, dialect: Dialect) -> Answer {
    let mut drive = Some(drive);
    let head = poll_fn(|cx| {
        if let Some(running) = drive.as_mut()
            && poll_caught(running, cx).is_ready()
        {
            drive = None;
        }
        match (outlet.take_head(), &drive) {
            (None, Some(_)) => Poll::Pending,
            (head, _) => Poll::Ready(head),
        }
    })
    .await;
    let Some(head) = head else {
        return own(
            &Problem::new(500, Cause::Internal.as_str(), "edgeward failed on this request; its log says why"),
            dialect,
        );
    };
    let body = match head.whole {
        Some(bytes) => ClientBody::Whole(Some(bytes)),
        None => ClientBody::Driven { drive, outlet },
    };
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    response
}

fn wrong_method(problem: &Problem, path: &str, allow: &'static str) -> Answer {
    let mut response = own(problem, endpoint::dialect_of(path));
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allow));
    response
}

fn unknown(path: &str) -> Problem {
    Problem::new(404, "not_found", format!("there is no endpoint {} here", unheard::beginning(path)))
}

/// edgeward's own answer.
pub(super) fn own(problem: &Problem, dialect: Dialect) -> Answer {
    let mut response = Response::new(ClientBody::whole(problem.body(dialect)));
    *response.status_mut() =
        StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    refusal::headers(problem, None, response.headers_mut());
    response
}

/// A short answer in plain text.
pub(super) fn text(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(ClientBody::whole(text));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// An answer in JSON.
pub(super) fn json(bytes: Vec<u8>) -> Answer {
    let mut response = Response::new(ClientBody::whole(bytes));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
