//! Tests of request decoding and edits.

use super::*;
use proptest::prelude::*;

fn apply(body: &[u8], edits: &[Edit]) -> String {
    let slices = super::apply(&Bytes::copy_from_slice(body), edits.to_vec());
    String::from_utf8(slices.concat()).unwrap()
}

fn all<'a>() -> Changes<'a> {
    Changes { model: Some("real"), ask_stream: false, ask_usage: true, ask_progress: true, max_tokens: None }
}

fn edited(body: &str) -> serde_json::Value {
    let call = decode(Dialect::OpenaiChat, body.as_bytes()).unwrap();
    serde_json::from_str(&apply(body.as_bytes(), &call.edits(&all()))).unwrap()
}

#[test]
fn unknown_fields_survive_byte_for_byte() {
    let body = "{ \"x\" : [1.50, {\"y\":\"\\u00e9\"}],\n \"model\":\"a\", \"stream\":true , \"z\":1e+2 }";
    let call = decode(Dialect::OpenaiChat, body.as_bytes()).unwrap();
    assert_eq!(call.model, "a");
    assert!(call.stream);
    let only_model = Changes { model: Some("b\"q"), ..Changes::default() };
    let got = apply(body.as_bytes(), &call.edits(&only_model));
    assert_eq!(got, body.replace("\"a\"", "\"b\\\"q\""));
    assert_eq!(apply(body.as_bytes(), &call.edits(&Changes::default())), body);
}

#[test]
fn usage_and_progress_are_asked_for_in_every_shape() {
    for options in [
        "",
        r#","stream_options":null"#,
        r#","stream_options":{}"#,
        r#","stream_options":{"include_usage":false}"#,
        r#","stream_options":{"other":{"include_usage":false}}"#,
        r#","return_progress":false"#,
    ] {
        let value = edited(&format!(r#"{{"model":"m","stream":true{options}}}"#));
        assert_eq!(value["stream_options"]["include_usage"], true, "{options}");
        assert_eq!(value["return_progress"], true, "{options}");
        assert_eq!(value["model"], "real", "{options}");
    }
    let value = edited(r#"{"stream":true}"#);
    assert_eq!(value["model"], "real");
    let unasked = edited(r#"{"model":"m","stream":false}"#);
    assert!(unasked.get("stream_options").is_none());
}

#[test]
fn a_client_that_asks_itself_is_left_alone() {
    let body =
        r#"{"model":"m","stream":true,"stream_options":{"include_usage":true},"return_progress":true}"#;
    let call = decode(Dialect::OpenaiChat, body.as_bytes()).unwrap();
    assert!(call.wants_usage && call.wants_progress);
    assert!(call.edits(&Changes { model: None, ..all() }).is_empty());
}

#[test]
fn an_empty_object_takes_members() {
    assert_eq!(
        apply(b"{}", &decode(Dialect::OpenaiChat, b"{}").unwrap().edits(&all())),
        r#"{"model":"real"}"#
    );
}

#[test]
fn keys_are_compared_decoded_and_never_twice() {
    let call = decode(Dialect::OpenaiChat, br#"{"mod\u0065l":"a"}"#).unwrap();
    assert_eq!(call.model, "a");
    for body in [r#"{"model":"a","mod\u0065l":"b"}"#, r#"{"x":1,"x":2}"#] {
        let bad = decode(Dialect::OpenaiChat, body.as_bytes()).unwrap_err();
        assert!(bad.message.contains("twice"), "{bad}");
    }
    let twice = br#"{"stream_options":{"include_usage":true,"include_usag\u0065":false}}"#;
    assert!(decode(Dialect::OpenaiChat, twice).is_err());
}

#[test]
fn bad_bodies_name_their_fault() {
    let deep = format!("{{\"a\":{}", "[".repeat(200_000));
    for (body, words) in [
        ("", "not valid JSON"),
        ("[]", "not valid JSON"),
        ("{\"model\":1}", "`model` must be a string"),
        ("{\"stream\":\"yes\"}", "`stream` must be true or false"),
        ("{\"stream_options\":3}", "`stream_options` must be an object"),
        ("{\"model\":\"a\"} x", "not valid JSON"),
        ("{\"model\":\"a\"", "not valid JSON"),
        (deep.as_str(), "nested deeper"),
    ] {
        let bad = decode(Dialect::OpenaiChat, body.as_bytes()).unwrap_err();
        assert!(bad.message.contains(words), "{body:.40}: {bad}");
    }
    assert!(decode(Dialect::OpenaiChat, b"{\"model\":\"\xff\"}").is_err());
}

#[test]
fn a_limit_that_does_not_fit_is_lowered_wherever_it_stands() {
    for (dialect, body, sent) in [
        (Dialect::OpenaiChat, r#"{"max_tokens":4000,"model":"m"}"#, r#"{"max_tokens":300,"model":"m"}"#),
        (
            Dialect::OpenaiChat,
            r#"{"max_completion_tokens": 4000 , "max_tokens":20}"#,
            r#"{"max_completion_tokens": 300 , "max_tokens":20}"#,
        ),
        (Dialect::OpenaiResponses, r#"{"max_output_tokens":301}"#, r#"{"max_output_tokens":300}"#),
        (
            Dialect::OllamaChat,
            r#"{"options":{"num_ctx":9000, "num_predict" : 4000},"x":4000}"#,
            r#"{"options":{"num_ctx":9000, "num_predict" : 300},"x":4000}"#,
        ),
        (Dialect::Anthropic, r#"{"max_tokens":300,"model":"m"}"#, r#"{"max_tokens":300,"model":"m"}"#),
        (Dialect::OpenaiChat, r#"{"max_tokens":null}"#, r#"{"max_tokens":null}"#),
        (Dialect::OllamaChat, r#"{"options":{"num_predict":-1}}"#, r#"{"options":{"num_predict":-1}}"#),
        (Dialect::OpenaiChat, r#"{"model":"m"}"#, r#"{"model":"m"}"#),
    ] {
        let call = decode(dialect, body.as_bytes()).unwrap();
        let changes = Changes { max_tokens: Some(300), ..Changes::default() };
        assert_eq!(apply(body.as_bytes(), &call.edits(&changes)), sent);
    }
}

#[test]
fn dialects_differ_in_what_is_default() {
    assert!(decode(Dialect::OllamaChat, b"{\"model\":\"m\"}").unwrap().stream);
    assert!(!decode(Dialect::OpenaiChat, b"{\"model\":\"m\"}").unwrap().stream);
    assert!(!decode(Dialect::OpenaiEmbeddings, b"{\"stream\":true}").unwrap().stream);
    let limited = decode(Dialect::OllamaChat, br#"{"options":{"num_predict":1}}"#).unwrap();
    assert_eq!(limited.max_tokens, Some(1));
    let unlimited = decode(Dialect::OllamaChat, br#"{"options":{"num_predict":-1}}"#).unwrap();
    assert_eq!(unlimited.max_tokens, None);
}

#[test]
fn options_that_load_a_model_anew_are_read() {
    let options = |text: &str| {
        let body = format!("{{\"model\":\"m\",\"options\":{text}}}");
        decode(Dialect::OllamaGenerate, body.as_bytes()).unwrap().options
    };
    let all = Options { num_ctx: Some(8192), num_batch: Some(512), num_gpu: Some(20) };
    assert_eq!(
        options(r#"{"temperature":0.1,"num_ctx":8192,"stop":["a"],"num_batch":512,"num_gpu":20}"#),
        all
    );
    // As many layers as fit is the server's own choice.
    assert_eq!(
        options(r#"{"num_gpu":-1,"num_ctx":8192}"#),
        Options { num_ctx: Some(8192), ..Options::default() }
    );
    for other in ["null", "[]", "7", r#"{"num_ctx":"8192"}"#, r#"{"num_ctx":99999999999}"#] {
        assert_eq!(options(other), Options::default(), "{other}");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(Dialect::OpenaiChat, &body);
    }

    #[test]
    fn edits_keep_every_other_member(
        keys in proptest::collection::btree_map("[a-z\\\\\"]{1,6}", any::<i32>(), 0..6),
        model in proptest::option::of("[a-z:]{0,8}"),
        stream in any::<bool>(),
    ) {
        let mut object = serde_json::Map::new();
        for (key, value) in &keys {
            object.insert(format!("x{key}"), (*value).into());
        }
        if let Some(model) = &model {
            object.insert("model".into(), model.clone().into());
        }
        object.insert("stream".into(), stream.into());
        let body = serde_json::to_string(&object).unwrap();
        let value = edited(&body);
        for (key, expected) in object.iter().filter(|(key, _)| *key != "model") {
            prop_assert_eq!(&value[key], expected);
        }
        prop_assert_eq!(&value["model"], "real");
    }
}

#[test]
fn choices_are_counted() {
    for (body, choices) in
        [(r#"{"n":3}"#, 3), (r#"{"n":null}"#, 1), (r#"{"n":0}"#, 1), (r#"{"n":"2"}"#, 1), ("{}", 1)]
    {
        assert_eq!(decode(Dialect::OpenaiChat, body.as_bytes()).unwrap().choices, choices, "{body}");
    }
}

#[test]
fn what_a_body_only_names_is_replaced_where_it_stands_and_nothing_else_is() {
    let inlined = |dialect, body: &str, keep: &str| {
        let call = decode(dialect, body.as_bytes()).unwrap();
        let give = |is_url: bool, text: &str| match text {
            _ if text == keep => Ok(None),
            "https://h/a.png" | "file-1" => {
                assert_eq!(is_url, text != "file-1");
                Ok(Some(("image/png".to_owned(), "aGk=".to_owned())))
            }
            other => Err(other.to_owned()),
        };
        let edits = call.edits_inlined(&Changes::default(), body.as_bytes(), give)?;
        Ok::<_, Option<String>>(apply(body.as_bytes(), &edits))
    };
    let data = r#""data:image/png;base64,aGk=""#;
    let source = r#"{"type":"base64","media_type":"image/png","data":"aGk="}"#;
    for (dialect, before, after) in [
        (
            Dialect::OpenaiChat,
            r#"{ "messages": [{"role":"user","content":[ {"image_url":{"url" : "https:\/\/h/a.png","x":1},"type":"image_url"} , {"type":"text","text":"https://h/a.png"}],"name":"n"}], "y":[1e3] }"#.to_owned(),
            format!(r#"{{ "messages": [{{"role":"user","content":[ {{"image_url":{{"url" : {data},"x":1}},"type":"image_url"}} , {{"type":"text","text":"https://h/a.png"}}],"name":"n"}}], "y":[1e3] }}"#),
        ),
        (
            Dialect::OpenaiChat,
            r#"{"messages":[{"content":[{"type":"file","file":{"filename":"a","file_id" :"file-1"}}]}]}"#.to_owned(),
            format!(r#"{{"messages":[{{"content":[{{"type":"file","file":{{"filename":"a","file_data":{data}}}}}]}}]}}"#),
        ),
        (
            Dialect::OpenaiResponses,
            r#"{"input":[{"content":[{"file_id":"file-1","type":"input_image"},{"type":"input_image","image_url":"https://h/a.png"}]}]}"#.to_owned(),
            format!(r#"{{"input":[{{"content":[{{"image_url":{data},"type":"input_image"}},{{"type":"input_image","image_url":{data}}}]}}]}}"#),
        ),
        (
            Dialect::Anthropic,
            r#"{"messages":[{"content":[{"type":"tool_result","content":[{"source": {"url":"https://h/a.png","type":"url"},"type":"image"}]},{"type":"tool_use","input":{"url":"https://h/a.png"}}]}]}"#.to_owned(),
            format!(r#"{{"messages":[{{"content":[{{"type":"tool_result","content":[{{"source": {source},"type":"image"}}]}},{{"type":"tool_use","input":{{"url":"https://h/a.png"}}}}]}}]}}"#),
        ),
    ] {
        assert_eq!(inlined(dialect, &before, ""), Ok(after), "{before}");
    }
    let url = |url: &str| format!(r#"{{"messages":[{{"content":[{{"image_url":"{url}"}}]}}]}}"#);
    assert_eq!(inlined(Dialect::OpenaiChat, &url("http://other"), ""), Err(Some("http://other".to_owned())));
    assert_eq!(inlined(Dialect::OpenaiChat, &url("http://other"), "http://other"), Ok(url("http://other")));
    let part = r#"{"image_url":"https://h/a.png"},"#.repeat(limits::NAMED_MAX + 1);
    let many = format!(r#"{{"messages":[{{"content":[{}]}}]}}"#, part.trim_end_matches(','));
    assert_eq!(inlined(Dialect::OpenaiChat, &many, ""), Err(None), "some would go as they are");
}
