//! What a request's head must not be: readable in two ways, with a key in its query.

use http::Request;

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
