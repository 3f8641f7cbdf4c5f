//! What real clients send that no reference has: it is taken, and means what it means at their servers.

use super::*;

#[test]
fn a_limit_that_is_turned_off_is_none() {
    for key in ["max_tokens", "max_completion_tokens"] {
        let mut body = chat(json!([{"role":"user","content":"Hi"}]));
        body[key] = json!(-1);
        assert_eq!(read(Dialect::OpenaiChat, &body).max_tokens, None, "{key}");
    }
    for (limit, wanted) in [(json!(-1), None), (json!(-2.0), None), (json!(128.0), Some(128))] {
        let body =
            json!({"model":"m","messages":[{"role":"user","content":"Hi"}],"options":{"num_predict":limit}});
        assert_eq!(read(Dialect::OllamaChat, &body).max_tokens, wanted, "{limit}");
    }
}

#[test]
fn a_schema_beside_json_object_is_kept() {
    let mut body = chat(json!([{"role":"user","content":"Hi"}]));
    let schema = json!({"type":"object","properties":{"a":{"type":"string"}}});
    body["response_format"] = json!({"type":"json_object","schema":schema});
    assert_eq!(go(Dialect::OpenaiChat, &body, Dialect::OllamaChat, "x")["format"], schema);
}

#[test]
fn a_picture_has_the_type_that_every_provider_knows() {
    for told in ["image/jpg", "IMAGE/JPG", "application/octet-stream"] {
        let url = format!("data:{told};base64,/9j/4AAQ");
        let body = chat(json!([{"role":"user","content":[{"type":"image_url","image_url":{"url":url}}]}]));
        let claude = go(Dialect::OpenaiChat, &body, Dialect::Anthropic, CLAUDE);
        assert_eq!(claude["messages"][0]["content"][0]["source"]["media_type"], "image/jpeg", "{told}");
    }
}

#[test]
fn what_only_vllm_takes_is_its_own() {
    for part in [
        json!({"type":"audio_url","audio_url":{"url":"https://h/a.wav"}}),
        json!({"type":"image_embeds","image_embeds":"AAAA"}),
        json!({"type":"video_url","video_url":{"url":"https://h/a.mp4"}}),
    ] {
        let body = chat(json!([{"role":"user","content":[{"type":"text","text":"What?"},part]}]));
        let cannot = encode(&read(Dialect::OpenaiChat, &body), &terms(Dialect::Gemini, GEMINI)).unwrap_err();
        assert!(matches!(cannot, Cannot::Bound(_)), "{part}");
    }
}

#[test]
fn a_result_with_an_id_finds_its_call_without_one() {
    let body = json!({"model":"m","messages":[
        {"role":"user","content":"Hi"},
        {"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{}}},{"function":{"name":"g","arguments":{}}}]},
        {"role":"tool","tool_call_id":"call_1","tool_name":"g","content":"of g"},
        {"role":"tool","tool_call_id":"call_0","content":"of f"},
    ]});
    let sent = go(Dialect::OllamaChat, &body, Dialect::OpenaiChat, "x");
    let results: Vec<_> = sent["messages"].as_array().unwrap()[2..].iter().collect();
    let calls = sent["messages"][1]["tool_calls"].as_array().unwrap();
    for (result, words) in [(0, "of g"), (1, "of f")] {
        assert_eq!(results[result]["content"], words);
        assert_eq!(results[result]["tool_call_id"], calls[1 - result]["id"]);
    }
    let orphan = json!({"model":"m","messages":[{"role":"tool","tool_call_id":"call_1","content":"x"}]});
    assert!(decode(Dialect::OllamaChat, orphan.to_string().as_bytes()).is_err());
}

#[test]
fn several_signed_thoughts_in_one_text_are_not_passed_on_as_one() {
    let signed = |text: &str| json!({"type":"reasoning.text","text":text,"signature":"c2ln","format":"anthropic-claude-v1","index":0});
    for (details, kept) in [(json!([signed("a")]), true), (json!([signed("a"), signed("b")]), false)] {
        let body = chat(json!([
            {"role":"user","content":"Hi"},
            {"role":"assistant","content":"Ho","reasoning_details":details},
            {"role":"user","content":"And?"},
        ]));
        let claude = go(Dialect::OpenaiChat, &body, Dialect::Anthropic, CLAUDE);
        assert_eq!(claude["messages"][1]["content"][0]["type"] == "thinking", kept, "{details}");
    }
}
