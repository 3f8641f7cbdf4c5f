//! What a request's head must not be: read in two ways, a key in its query, a body that a web page can send.

use http::{HeaderMap, Request, header};

use super::downstream::Requests;
use crate::dialect::reply::Problem;

/// HTTP/1.1 as strictly as it must be where another box in between may read it otherwise.
pub(super) fn framing<B>(requests: &Requests, request: &Request<B>) -> Result<(), Problem> {
    if let Some(why) = requests.bad_head() {
        let message = format!("the request could be read in more than one way: {why}");
        return Err(Problem::new(400, "bad_framing", message));
    }
    if request.uri().authority().is_some() {
        return Err(Problem::new(
            400,
            "absolute_target",
            "the request line must have a path alone: this is no forward proxy",
        ));
    }
    let query = request.uri().query().unwrap_or("");
    let names_key = |pair: &str| {
        let name = pair.split('=').next().unwrap_or("").to_ascii_lowercase();
        matches!(name.as_str(), "key" | "api_key" | "apikey" | "api-key" | "token" | "access_token")
    };
    if query.split('&').any(names_key) {
        return Err(Problem::new(
            400,
            "key_in_query",
            "a key in the query string ends in logs: send it as `Authorization: Bearer …` or `x-api-key: …`",
        ));
    }
    Ok(())
}

/// A web page can send other types across origins without asking; JSON it cannot.
pub(super) fn json_type(headers: &HeaderMap) -> Result<(), Problem> {
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
