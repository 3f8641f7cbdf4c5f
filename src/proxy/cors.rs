//! Browsers from other origins: refused unless configured.

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};

use super::outlet::ClientBody;
use crate::config::Config;
use crate::dialect::reply::Problem;

/// The request's origin, if it is one of `cors.origins`.
#[must_use]
pub fn origin(config: &Config, headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    let text = origin.to_str().ok()?;
    let allowed = config.cors_origins.iter().any(|known| known == "*" || known.eq_ignore_ascii_case(text));
    allowed.then(|| origin.clone())
}

/// Lets the page at `origin` read the response.
pub fn allow(headers: &mut HeaderMap, origin: Option<HeaderValue>) {
    let Some(origin) = origin else { return };
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    headers.insert(
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static(
            "x-edgeward-request-id, x-edgeward-target, x-edgeward-attempts, x-edgeward-fitted, retry-after",
        ),
    );
}

/// Answers a preflight.
///
/// # Errors
/// 403 for an origin that is not configured.
pub fn preflight(config: &Config, headers: &HeaderMap) -> Result<Response<ClientBody>, Problem> {
    if origin(config, headers).is_none() {
        return Err(Problem::new(
            403,
            "origin_not_allowed",
            "pages of this origin may not call this server; its operator can add it to `cors.origins`",
        ));
    }
    let mut response = Response::new(ClientBody::Whole(None));
    *response.status_mut() = StatusCode::NO_CONTENT;
    let fields = response.headers_mut();
    fields.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE"));
    // What the page wants to send is what it may send: credentials among it are checked as everyone's are.
    let wanted = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let default = HeaderValue::from_static("authorization, content-type, x-api-key");
    fields.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.unwrap_or(default));
    fields.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    Ok(response)
}
