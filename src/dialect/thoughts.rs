//! Thinking in the history of an Anthropic client that another server than Anthropic showed it.

use crate::wire::json::{Cursor, Stop};

/// Whether a body of `/v1/messages` bears thinking whose signature cannot be Anthropic's, which refuses such a body:
/// none, or an empty one (llama.cpp, Ollama). A translated answer brings no other provider's.
#[must_use]
pub fn any_foreign(body: &[u8]) -> bool {
    // Few bodies have any: a search costs less than a look at the JSON.
    if memchr::memmem::find(body, b"\"thinking\"").is_none() {
        return false;
    }
    let mut foreign = false;
    let mut at = Cursor::new(body);
    let seen = at.object(|key, at| match key {
        b"messages" => at.array(|at| message(at, &mut foreign)).map(|_| ()),
        _ => Ok(()),
    });
    // It is JSON, which was checked; of another form it is its target's to judge.
    let _other_form = seen;
    foreign
}

fn message(at: &mut Cursor<'_>, foreign: &mut bool) -> Result<(), Stop> {
    at.object(|key, at| match key {
        b"content" => at.array(|at| block(at, foreign)).map(|_| ()),
        _ => Ok(()),
    })
    .map(|_| ())
}

fn block(at: &mut Cursor<'_>, foreign: &mut bool) -> Result<(), Stop> {
    let (mut thinks, mut own) = (false, false);
    at.object(|key, at| {
        match key {
            b"type" => thinks = at.string()?.is_some_and(|kind| kind.is(b"thinking")),
            b"signature" => {
                let signature = at.string()?;
                own = signature.is_some_and(|it| !it.raw.is_empty());
            }
            _ => {}
        }
        Ok(())
    })?;
    *foreign |= thinks && !own;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_signature_of_another_server_or_none_is_foreign() {
        let body = |block: &str| {
            format!(
                r#"{{"model":"m","thinking":{{"type":"enabled"}},"messages":[{{"role":"user","content":"\"thinking\""}},
                {{"role":"assistant","content":[{block},{{"type":"text","text":"A"}}]}}]}}"#
            )
        };
        for (block, foreign) in [
            (r#"{"type":"thinking","thinking":"A","signature":"EqQBCkYIBxgC"}"#, false),
            (r#"{"type":"redacted_thinking","data":"EqQBCkYIBxgC"}"#, false),
            (r#"{"type":"text","text":"thinking"}"#, false),
            (r#"{"type":"thinking","thinking":"A","signature":""}"#, true),
            (r#"{"signature":null,"type":"thinking","thinking":"A"}"#, true),
            (r#"{"type":"thinking","thinking":"A"}"#, true),
        ] {
            assert_eq!(any_foreign(body(block).as_bytes()), foreign, "{block}");
        }
        assert!(!any_foreign(b"{\"thinking\":1,\"messages\":7}"));
        assert!(!any_foreign(b"{\"thinking\""));
    }
}
