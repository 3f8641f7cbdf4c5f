//! A request of edgeward's own to a target, beside its clients': never a user's, and nothing that a breaker counts.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};

use super::gateway::Gateway;
use super::head;
use super::upstream::{RequestBody, SendError};
use crate::cause::{Cause, Failure};
use crate::limits;
use crate::route;

/// Asks `target` for `path`, with a JSON body or none. Its answer is read whole. It has no deadline of its own.
///
/// # Errors
/// It cannot be reached, or its answer does not end within [`limits::FACTS_BYTES`].
pub async fn ask(
    gateway: &Gateway,
    target: usize,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> Result<(StatusCode, Vec<u8>), Failure> {
    let config = gateway.config.targets.get(target).ok_or(Failure::new(Cause::Internal))?;
    let (path, body) = (route::joined_path(config, path), Bytes::from(body));
    let request = || {
        let mut request = Request::builder().method(method.clone()).uri(&path);
        if let Some(headers) = request.headers_mut() {
            head::to_upstream(headers, &HeaderMap::new(), config, &HeaderMap::new());
            if !body.is_empty() {
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            }
        }
        let body = RequestBody::new(vec![body.clone()]);
        request.body(body).map_err(|error| Failure::with(Cause::Internal, &error.to_string()))
    };
    let mut fresh = false;
    let mut reply = loop {
        let link = gateway.upstreams.connect_beside(target, fresh).await?;
        match link.send(request()?).await {
            Ok(reply) => break reply,
            Err(SendError::Stale(_)) if !fresh => fresh = true,
            Err(error) => return Err(error.into_failure()),
        }
    };
    let (status, mut said) = (reply.status, Vec::new());
    while let Some(chunk) = reply.chunk().await {
        said.extend_from_slice(&chunk?);
        if said.len() > limits::FACTS_BYTES {
            return Err(Failure::with(Cause::Overflow, "it says too much of itself"));
        }
    }
    Ok((status, said))
}
