//! `/v1/messages/count_tokens`: counted by the target that would answer, where it can; else estimated.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Response};

use super::beside;
use super::drive::Job;
use super::facts::room::Wants;
use super::head;
use super::outlet::ClientBody;
use super::server::json;
use crate::config::Kind;
use crate::dialect::request::{self, Changes};
use crate::limits;
use crate::time::now;
use crate::wire::json::Cursor;

/// Says that the number is edgeward's own guess.
const DEGRADED: HeaderName = HeaderName::from_static("x-edgeward-degraded");

/// Answers such a request. It counts for no breaker: llama.cpp and vLLM have this endpoint in some versions only.
pub async fn count(job: Job) -> Response<ClientBody> {
    let (mut response, target) = match counted(&job).await {
        Some((target, body)) => (json(body), Some(target)),
        None => {
            let mut guess = json(format!("{{\"input_tokens\":{}}}", job.call.prompt_tokens).into_bytes());
            guess.headers_mut().insert(DEGRADED, HeaderValue::from_static("estimate"));
            (guess, None)
        }
    };
    let name = target.map(|target| job.gateway.name(target));
    head::own(response.headers_mut(), &job.id, name, "");
    response
}

/// The target that counted, and its answer. No other is asked than the one that the prompt would go to.
async fn counted(job: &Job) -> Option<(usize, Vec<u8>)> {
    let plan = job.plan(Some(&Wants::of(&job.call, None)), now());
    let first = plan.candidates.first()?;
    let target = job.gateway.config.targets.get(first.target)?;
    if !matches!(target.kind, Kind::Anthropic | Kind::Vllm | Kind::Llamacpp) {
        return None;
    }
    let changes = Changes {
        model: (first.model != job.call.model).then_some(first.model.as_str()),
        ..Changes::default()
    };
    let body: Vec<Bytes> = request::apply(&job.body.bytes, job.call.edits(&changes));
    let asking = beside::ask(&job.gateway, first.target, Method::POST, &job.path, body.concat());
    let (status, said) = tokio::time::timeout(limits::COUNT_TIME, asking).await.ok()?.ok()?;
    (status.is_success() && counts(&said)).then_some((first.target, said))
}

/// Whether an answer has the number in it.
fn counts(body: &[u8]) -> bool {
    let mut found = false;
    let mut at = Cursor::new(body);
    let read = at.object(|key, at| {
        if key == b"input_tokens" {
            found = at.number()?.is_some();
        }
        Ok(())
    });
    read == Ok(true) && at.finish().is_ok() && found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_an_object_with_a_number() {
        for (body, is) in [
            (r#"{"input_tokens":12}"#, true),
            (r#"{"context_management":{"original_input_tokens":3},"input_tokens":12}"#, true),
            (r#"{"input_tokens":"12"}"#, false),
            (r#"{"error":{"message":"File Not Found","type":"not_found_error","code":404}}"#, false),
            (r#"{"input_tokens":12"#, false),
            ("[12]", false),
            ("", false),
        ] {
            assert_eq!(counts(body.as_bytes()), is, "{body}");
        }
    }
}
