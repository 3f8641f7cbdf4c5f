//! An Anthropic stream without its beginning.

use super::to_anthropic;

/// What a stream of Anthropic's lacks at its beginning; `None`: nothing. llama.cpp sends `message_start` with the
/// model's first token, and not at all where that token is a part of a character; Anthropic's clients then fail.
/// `held` is the stream up to its first words. An `id` without its prefix.
#[must_use]
pub fn anthropic_begun(held: &[u8], id: &str, model: &str) -> Option<Vec<u8>> {
    // Inside of a string its quotes would be escaped.
    if held.is_empty() || memchr::memmem::find(held, b"\"message_start\"").is_some() {
        return None;
    }
    let mut start = Vec::new();
    to_anthropic::start(&format!("msg_{id}"), model, "{\"input_tokens\":0,\"output_tokens\":0}", &mut start);
    Some(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_stream_that_lacks_its_beginning_is_given_one() {
        let whole = b"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{}}\n\n";
        assert_eq!(anthropic_begun(whole, "a", "m"), None);
        assert_eq!(anthropic_begun(b"", "a", "m"), None);
        let words = br#"event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"say \"message_start\""}}

"#;
        let start = String::from_utf8(anthropic_begun(words, "a", "m \"1\"").unwrap()).unwrap();
        let data = start.strip_prefix("event: message_start\ndata: ").unwrap();
        let event: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(
            (&event["message"]["id"], &event["message"]["model"]),
            (&"msg_a".into(), &"m \"1\"".into())
        );
        assert_eq!(event["message"]["usage"]["input_tokens"], 0);
        assert!(start.ends_with("}\n\n"));
    }
}
