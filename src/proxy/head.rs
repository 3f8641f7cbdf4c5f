//! Response and request heads: what they promise, and which fields may cross.

use std::time::Duration;

use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::config::{Kind, Route, Target};
use crate::dialect::Dialect;
use crate::dialect::reply::Problem;
use crate::route::SESSION;
use crate::wire::Framing;

/// By which each answer of edgeward says its request.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-edgeward-request-id");
const TARGET: HeaderName = HeaderName::from_static("x-edgeward-target");
const ATTEMPTS: HeaderName = HeaderName::from_static("x-edgeward-attempts");
const FITTED: HeaderName = HeaderName::from_static("x-edgeward-fitted");
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Of a target's response, the client gets these fields and no others.
const TO_CLIENT: [HeaderName; 4] = [
    header::CONTENT_TYPE,
    header::RETRY_AFTER,
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("request-id"),
];

/// Of a client's request, a target gets these fields and no others. Everything hop-by-hop, every credential,
/// `Expect`, `Upgrade` and llama.cpp's `X-Conversation-Id` (which makes it go on after a disconnect) stay here.
const TO_UPSTREAM: [HeaderName; 7] = [
    header::CONTENT_TYPE,
    header::ACCEPT,
    header::USER_AGENT,
    HeaderName::from_static("anthropic-version"),
    HeaderName::from_static("anthropic-beta"),
    HeaderName::from_static("openai-beta"),
    HeaderName::from_static("idempotency-key"),
];

/// What a response's head says about what follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadKind {
    /// A stream in the request's dialect.
    Stream,
    /// A whole JSON answer.
    Answer,
    /// A refusal, or JSON where a stream was due: the text says why.
    Error,
    /// Not what was asked for; in words.
    Alien(String),
}

/// Judges a response's head. A 2xx alone is no evidence of anything (WIRE.md 0.1).
#[must_use]
pub fn kind(dialect: Dialect, stream: bool, status: StatusCode, headers: &HeaderMap) -> HeadKind {
    if status.is_redirection() {
        return HeadKind::Alien(format!("a redirect ({status}), which is not followed"));
    }
    if !status.is_success() {
        return HeadKind::Error;
    }
    let full = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = full.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    let json = essence == "application/json" || essence.ends_with("+json");
    let alien = || HeadKind::Alien(format!("content type `{essence}`"));
    match (stream, dialect.framing(), essence.as_str()) {
        (true, Framing::Sse, "text/event-stream" | "") => HeadKind::Stream,
        (true, Framing::Sse, _) if json => HeadKind::Error,
        (true, Framing::Ndjson, "application/x-ndjson" | "application/ndjson" | "") => HeadKind::Stream,
        // Ollama's replies to a load, and its errors.
        (true, Framing::Ndjson, _) if json => HeadKind::Stream,
        (true, _, _) => alien(),
        (false, _, "" | "text/plain") => HeadKind::Answer,
        (false, _, _) if json => HeadKind::Answer,
        (false, _, _) => alien(),
    }
}

/// The fields of a target's response that the client gets.
#[must_use]
pub fn to_client(from: &HeaderMap) -> HeaderMap {
    pick(from, &TO_CLIENT)
}

/// The fields of a client's request that a target may get.
#[must_use]
pub fn from_client(from: &HeaderMap) -> HeaderMap {
    pick(from, &TO_UPSTREAM)
}

/// The client's own credential, for targets that are configured to be given it.
#[must_use]
pub fn credential(from: &HeaderMap) -> HeaderMap {
    pick(from, &[header::AUTHORIZATION, HeaderName::from_static("x-api-key")])
}

/// The fields of a client's request that decide its route, or name its conversation. They do not leave edgeward.
#[must_use]
pub fn for_routing(from: &HeaderMap, routes: &[Route]) -> HeaderMap {
    let named = |name: &HeaderName| {
        *name == SESSION || routes.iter().any(|r| r.headers.iter().any(|(wanted, _)| wanted == name.as_str()))
    };
    let fields = from.iter().filter(|(name, _)| named(name));
    fields.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn pick(from: &HeaderMap, names: &[HeaderName]) -> HeaderMap {
    names.iter().filter_map(|name| from.get(name).map(|value| (name.clone(), value.clone()))).collect()
}

/// Writes an upstream request's fields: the client's allowed ones, and the target's own credential.
pub fn to_upstream(headers: &mut HeaderMap, client: &HeaderMap, target: &Target, credential: &HeaderMap) {
    headers.extend(client.clone());
    if client.contains_key(header::CONTENT_TYPE) {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if target.forward_key {
        headers.extend(credential.clone());
    } else if let Some(key) = &target.key {
        let (name, text) = match target.kind {
            Kind::Anthropic => (HeaderName::from_static("x-api-key"), key.expose().to_owned()),
            Kind::Gemini => (HeaderName::from_static("x-goog-api-key"), key.expose().to_owned()),
            Kind::Ollama | Kind::Vllm | Kind::Llamacpp | Kind::Openai => {
                (header::AUTHORIZATION, format!("Bearer {}", key.expose()))
            }
        };
        if let Ok(mut value) = HeaderValue::from_str(&text) {
            value.set_sensitive(true);
            headers.insert(name, value);
        }
    }
    if target.kind == Kind::Anthropic && !headers.contains_key("anthropic-version") {
        headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
    }
}

/// The same for a request that was written anew in the target's dialect: the client's fields are about its own.
pub fn to_other_dialect(
    headers: &mut HeaderMap,
    client: &HeaderMap,
    target: &Target,
    credential: &HeaderMap,
) {
    let mut kept = pick(client, &[header::USER_AGENT, HeaderName::from_static("idempotency-key")]);
    kept.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    to_upstream(headers, &kept, target, credential);
}

/// The key that `target` is sent, its own or the client's.
#[must_use]
pub fn key_sent<'a>(target: &'a Target, credential: &'a HeaderMap) -> Option<&'a [u8]> {
    if !target.forward_key {
        return target.key.as_ref().map(|key| key.expose().as_bytes());
    }
    let value = credential.values().next()?.as_bytes();
    Some(value.strip_prefix(b"Bearer ").unwrap_or(value))
}

/// edgeward's own fields on a response.
pub fn own(headers: &mut HeaderMap, id: &str, target: Option<&str>, attempts: &str) {
    for (name, text) in [(REQUEST_ID, Some(id)), (TARGET, target), (ATTEMPTS, Some(attempts))] {
        if let Some(Ok(value)) = text.filter(|text| !text.is_empty()).map(HeaderValue::from_str) {
            headers.insert(name, value);
        }
    }
}

/// Says which limit of its answer's length the target was given instead of the client's.
pub fn fitted(headers: &mut HeaderMap, tokens: u64) {
    if let Ok(value) = HeaderValue::from_str(&format!("max_tokens={tokens}")) {
        headers.insert(FITTED, value);
    }
}

/// What the body is now, whatever the target said of its own: a stream, or JSON.
pub fn typed(headers: &mut HeaderMap, stream: Option<Framing>) {
    let content_type = match stream {
        Some(Framing::Sse) => "text/event-stream",
        Some(Framing::Ndjson) => "application/x-ndjson",
        None => "application/json",
    };
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
}

/// What a stream's head needs: its type, where the target did not say it or has not spoken yet, and what keeps
/// boxes in between from buffering it.
pub fn for_stream(headers: &mut HeaderMap, framing: Framing) {
    let content_type = match framing {
        Framing::Sse => "text/event-stream",
        Framing::Ndjson => "application/x-ndjson",
    };
    headers.entry(header::CONTENT_TYPE).or_insert(HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
}

/// Retry-After, in either of its forms; a date in the past is zero. A date is held against the server's own clock, where
/// it tells it: this box's may not be set yet.
#[must_use]
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(text).ok()?;
    let theirs = headers.get(header::DATE).and_then(|date| date.to_str().ok());
    let theirs = theirs.and_then(|date| httpdate::parse_http_date(date.trim()).ok());
    let own = crate::time::wall();
    Some(at.duration_since(theirs.unwrap_or(own)).unwrap_or_default())
}

/// A web page can send other types across origins without asking; JSON it cannot.
///
/// # Errors
/// 415 for another type.
pub fn json_type(headers: &HeaderMap) -> Result<(), Problem> {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = value.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    if essence == "application/json" || essence.ends_with("+json") {
        return Ok(());
    }
    let got = if essence.is_empty() { "none".to_owned() } else { format!("`{essence}`") };
    Err(Problem::new(
        415,
        "unsupported_media_type",
        format!("the body must have the header `Content-Type: application/json` (got {got})"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(content_type: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_str(content_type).unwrap());
        headers
    }

    #[test]
    fn heads_are_told_apart() {
        let chat = |stream, status: u16, content_type: &str| {
            kind(Dialect::OpenaiChat, stream, StatusCode::from_u16(status).unwrap(), &typed(content_type))
        };
        assert_eq!(chat(true, 200, "text/event-stream; charset=utf-8"), HeadKind::Stream);
        assert_eq!(chat(true, 200, "application/json"), HeadKind::Error);
        assert!(matches!(chat(true, 200, "text/html"), HeadKind::Alien(_)));
        assert_eq!(chat(false, 200, "application/json; charset=utf-8"), HeadKind::Answer);
        assert!(matches!(chat(false, 200, "text/event-stream"), HeadKind::Alien(_)));
        assert!(matches!(chat(true, 302, "text/html"), HeadKind::Alien(_)));
        assert_eq!(chat(true, 500, "text/html"), HeadKind::Error);
        let ollama = kind(Dialect::OllamaChat, true, StatusCode::OK, &typed("application/json"));
        assert_eq!(ollama, HeadKind::Stream);
    }

    #[test]
    fn only_allowed_fields_cross() {
        let mut from = HeaderMap::new();
        for name in
            ["authorization", "x-api-key", "cookie", "upgrade", "http2-settings", "x-conversation-id", "te"]
        {
            from.insert(HeaderName::from_static(name), HeaderValue::from_static("secret"));
        }
        from.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
        let crossed = from_client(&from);
        assert_eq!(crossed.len(), 1);
        assert!(to_client(&from).is_empty());
    }

    #[test]
    fn routing_sees_what_routes_name_and_the_session() {
        let config = "[[target]]\nname = \"t\"\nkind = \"vllm\"\nurl = \"http://127.0.0.1:1\"\n[[route]]\nmodel = \"*\"\n";
        let parsed = crate::config::parse(config, std::path::Path::new("test"), &|_| None).expect(config);
        let mut routes = parsed.config.routes;
        routes[0].headers = vec![("x-team".to_owned(), "a".to_owned())];
        let mut from = HeaderMap::new();
        for name in ["authorization", "cookie", "x-edgeward-session", "x-other"] {
            from.insert(HeaderName::from_static(name), HeaderValue::from_static("v"));
        }
        for value in ["a", "b"] {
            from.append("x-team", HeaderValue::from_static(value));
        }
        let seen = for_routing(&from, &routes);
        assert_eq!((seen.len(), seen.get_all("x-team").iter().count()), (3, 2));
        assert!(seen.contains_key("x-edgeward-session") && from_client(&from).is_empty());
        assert_eq!(for_routing(&from, &[]).len(), 1);
    }

    #[test]
    fn retry_after_is_read_in_both_forms() {
        let with = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, HeaderValue::from_str(text).unwrap());
            retry_after(&headers)
        };
        assert_eq!(with("7"), Some(Duration::from_secs(7)));
        assert_eq!(with("Fri, 31 Dec 1999 23:59:59 GMT"), Some(Duration::ZERO));
        assert_eq!(with("soon"), None);
        let mut headers = HeaderMap::new();
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("Fri, 31 Dec 1999 23:59:59 GMT"));
        headers.insert(header::DATE, HeaderValue::from_static("Fri, 31 Dec 1999 23:59:50 GMT"));
        assert_eq!(retry_after(&headers), Some(Duration::from_secs(9)), "by the server's clock");
    }
}
