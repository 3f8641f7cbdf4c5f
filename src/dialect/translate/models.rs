//! Models in Anthropic's shape.

use super::text::{Fill, fill};
use super::to_ollama::timestamp;

/// The body of `GET /v1/models` for a request with `anthropic-version`: every name on one page, each with the same
/// date (`created`, in seconds since 1970), for no server of ours tells one.
#[must_use]
pub fn anthropic_models(names: &[&str], created: u64) -> Vec<u8> {
    let mut out = b"{\"data\":[".to_vec();
    for (at, name) in names.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.append(&mut anthropic_model(name, created));
    }
    let name = |name: Option<&&'_ str>| match name {
        None => "null".to_owned(),
        Some(name) => {
            let mut quoted = Vec::new();
            super::text::quote(&mut quoted, name);
            String::from_utf8(quoted).unwrap_or_default()
        }
    };
    fill(
        &mut out,
        "],\"has_more\":false,\"first_id\":$,\"last_id\":$}",
        &[Fill::Json(&name(names.first())), Fill::Json(&name(names.last()))],
    );
    out
}

/// The body of `GET /v1/models/{id}` in the same shape.
#[must_use]
pub fn anthropic_model(name: &str, created: u64) -> Vec<u8> {
    let mut out = Vec::new();
    fill(
        &mut out,
        "{\"type\":\"model\",\"id\":$,\"display_name\":$,\"created_at\":$}",
        &[Fill::Text(name), Fill::Text(name), Fill::Text(&timestamp(created))],
    );
    out
}
