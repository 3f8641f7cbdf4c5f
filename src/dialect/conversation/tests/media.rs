//! Pictures, documents and sounds: where their bytes are, and who takes them how.

use super::*;

const PNG: &str = "iVBORw0KGgo=";
const PDF: &str = "JVBERi0xLjc=";

fn openai(url: &str) -> Value {
    chat(
        json!([{"role":"user","content":[{"type":"text","text":"What?"},{"type":"image_url","image_url":{"url":url}}]}]),
    )
}

#[test]
fn a_picture_in_base64_goes_from_everyone_to_everyone() {
    let clients = [
        (Dialect::OpenaiChat, openai(&format!("data:image/png;base64,{PNG}"))),
        (
            Dialect::OpenaiResponses,
            json!({"input":[{"role":"user","content":[{"type":"input_text","text":"What?"},
                {"type":"input_image","image_url":format!("data:image/png;base64,{PNG}")}]}]}),
        ),
        (
            Dialect::Anthropic,
            json!({"max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"What?"},
                {"type":"image","source":{"type":"base64","media_type":"image/png","data":PNG}}]}]}),
        ),
        (Dialect::OllamaChat, json!({"messages":[{"role":"user","content":"What?","images":[PNG]}]})),
        (
            Dialect::OllamaGenerate,
            json!({"prompt":"What?","images":[format!("data:image/png;base64,{PNG}")]}),
        ),
    ];
    for (client, body) in clients {
        let to = go(client, &body, Dialect::OpenaiChat, "x");
        let part = json!({"type":"image_url","image_url":{"url":format!("data:image/png;base64,{PNG}")}});
        assert_eq!(to["messages"][0]["content"], json!([{"type":"text","text":"What?"}, part]), "{client:?}");
        let to = go(client, &body, Dialect::Anthropic, CLAUDE);
        let source = json!({"type":"base64","media_type":"image/png","data":PNG});
        assert_eq!(to["messages"][0]["content"][1], json!({"type":"image","source":source}), "{client:?}");
        let to = go(client, &body, Dialect::OllamaChat, "x");
        assert_eq!(to["messages"][0], json!({"role":"user","content":"What?","images":[PNG]}), "{client:?}");
        let to = go(client, &body, Dialect::Gemini, GEMINI);
        let data = json!({"inlineData":{"mimeType":"image/png","data":PNG}});
        assert_eq!(to["contents"][0]["parts"], json!([{"text":"What?"}, data]), "{client:?}");
    }
}

#[test]
fn a_url_goes_where_it_may_and_as_bytes_where_they_are_held() {
    let talk = read(Dialect::OpenaiChat, &openai("https://h/a.png?x=1"));
    let told: Vec<_> = talk.references().collect();
    assert_eq!(told, [("messages[0].content[1]", Reference::Url("https://h/a.png?x=1"))]);
    let all = [
        (Dialect::OpenaiChat, "x"),
        (Dialect::OllamaChat, "x"),
        (Dialect::Anthropic, CLAUDE),
        (Dialect::Gemini, GEMINI),
    ];
    for (to, model) in all {
        let cannot = encode(&talk, &terms(to, model)).unwrap_err();
        assert_eq!(cannot, Cannot::Url { at: "messages[0].content[1]".to_owned() }, "{to:?}");
        assert!(cannot.words("box").contains("`box` does not fetch"));
        let held = |reference: Reference<'_>| {
            assert_eq!(reference, Reference::Url("https://h/a.png?x=1"));
            Some(Blob { media_type: "image/png".to_owned(), bytes: Bytes::from_static(b"\x89PNG\r\n\x1a\n") })
        };
        let (_, encoded) = write(&talk, &Terms { resolve: &held, ..terms(to, model) });
        assert!(String::from_utf8(encoded.body).unwrap().contains(PNG), "{to:?}");
        let urls = Terms { urls: true, ..terms(to, model) };
        match to {
            Dialect::OllamaChat => assert!(encode(&talk, &urls).is_err()),
            _ => {
                let (_, encoded) = write(&talk, &urls);
                assert!(String::from_utf8(encoded.body).unwrap().contains("https://h/a.png?x=1"), "{to:?}");
            }
        }
    }
}

#[test]
fn a_file_that_only_its_provider_knows_cannot_travel() {
    let file = chat(json!([{"role":"user","content":[{"type":"file","file":{"file_id":"file-1"}}]}]));
    let talk = read(Dialect::OpenaiChat, &file);
    for (to, model) in [(Dialect::Anthropic, CLAUDE), (Dialect::Gemini, GEMINI), (Dialect::OllamaChat, "x")] {
        let cannot = encode(&talk, &Terms { files: true, ..terms(to, model) }).unwrap_err();
        assert_eq!(cannot, Cannot::File { at: "messages[0].content[0]".to_owned() });
        assert!(cannot.words("box").contains("file id, which `box` does not know"));
    }
    let own = Terms { files: true, flavor: Flavor::Openai, ..terms(Dialect::OpenaiChat, "gpt-4o") };
    let (to, _) = write(&talk, &own);
    assert_eq!(to["messages"][0]["content"][0], json!({"type":"file","file":{"file_id":"file-1"}}));
    let held = |reference: Reference<'_>| {
        assert_eq!(reference, Reference::File(Dialect::OpenaiChat, "file-1"));
        Some(Blob { media_type: "application/pdf".to_owned(), bytes: Bytes::from_static(b"%PDF-1.7") })
    };
    let (to, _) = write(&talk, &Terms { resolve: &held, ..terms(Dialect::Anthropic, CLAUDE) });
    let source = json!({"type":"base64","media_type":"application/pdf","data":PDF});
    assert_eq!(to["messages"][0]["content"][0], json!({"type":"document","source":source}));
}

#[test]
fn documents_and_sounds_go_where_they_are_taken() {
    let pdf = chat(json!([{"role":"user","content":[{"type":"file","file":
        {"filename":"a.pdf","file_data":format!("data:application/pdf;base64,{PDF}")}}]}]));
    let talk = read(Dialect::OpenaiChat, &pdf);
    let openai = Terms { flavor: Flavor::Openai, ..terms(Dialect::OpenaiChat, "gpt-4o") };
    assert_eq!(write(&talk, &openai).0["messages"], pdf["messages"]);
    let anthropic = write(&talk, &terms(Dialect::Anthropic, CLAUDE)).0;
    assert_eq!(anthropic["messages"][0]["content"][0]["title"], "a.pdf");
    for to in [Dialect::OpenaiChat, Dialect::OllamaChat] {
        let cannot = encode(&talk, &terms(to, "x")).unwrap_err();
        assert!(cannot.words("box").contains("messages[0].content[0] is a document"), "{cannot:?}");
    }
    let text = json!({"max_tokens":9,"messages":[{"role":"user","content":[
        {"type":"document","title":"T","source":{"type":"text","media_type":"text/plain","data":"words"}}]}]});
    assert_eq!(go(Dialect::Anthropic, &text, Dialect::OllamaChat, "x")["messages"][0]["content"], "T\nwords");
    let text = chat(
        json!([{"role":"user","content":[{"type":"file","file":{"file_data":"data:text/plain;base64,d29yZHM="}}]}]),
    );
    for (to, list) in [
        (Dialect::OpenaiChat, "messages"),
        (Dialect::OllamaChat, "messages"),
        (Dialect::Anthropic, "messages"),
    ] {
        assert!(go(Dialect::OpenaiChat, &text, to, CLAUDE)[list].to_string().contains("words"), "{to:?}");
    }
    let sound = chat(
        json!([{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}]}]),
    );
    assert_eq!(go(Dialect::OpenaiChat, &sound, Dialect::OpenaiChat, "x")["messages"], sound["messages"]);
    assert_eq!(
        go(Dialect::OpenaiChat, &sound, Dialect::Gemini, GEMINI)["contents"][0]["parts"][0]["inlineData"]["mimeType"],
        "audio/wav"
    );
    let talk = read(Dialect::OpenaiChat, &sound);
    assert!(matches!(
        encode(&talk, &terms(Dialect::Anthropic, CLAUDE)),
        Err(Cannot::Media { what: "a sound", .. })
    ));
    assert!(matches!(
        encode(&talk, &terms(Dialect::OllamaChat, "x")),
        Err(Cannot::Media { what: "a sound", .. })
    ));
    let odd = read(Dialect::OllamaChat, &json!({"messages":[{"role":"user","images":["Qk1A"]}]}));
    assert!(matches!(encode(&odd, &terms(Dialect::Anthropic, CLAUDE)), Err(Cannot::Media { .. })), "a BMP");
}

#[test]
fn pictures_in_results_follow_them_where_results_are_words() {
    let body = json!({"max_tokens":9,"messages":[{"role":"user","content":"Look"},
        {"role":"assistant","content":[{"type":"tool_use","id":"a","name":"shot","input":{}}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"done"},
            {"type":"image","source":{"type":"base64","media_type":"image/png","data":PNG}}]}]}]});
    let back = go(Dialect::Anthropic, &body, Dialect::Anthropic, CLAUDE);
    assert_eq!(back["messages"][2], body["messages"][2]);
    let openai = go(Dialect::Anthropic, &body, Dialect::OpenaiChat, "x");
    assert_eq!(openai["messages"][2], json!({"role":"tool","tool_call_id":"a","content":"done"}));
    assert_eq!(openai["messages"][3]["content"][1]["type"], "image_url");
    let ollama = go(Dialect::Anthropic, &body, Dialect::OllamaChat, "x");
    assert_eq!(ollama["messages"][3]["images"], json!([PNG]));
    let data = json!({"inlineData":{"mimeType":"image/png","data":PNG}});
    let new = go(Dialect::Anthropic, &body, Dialect::Gemini, "gemini-3-flash-preview");
    assert_eq!(new["contents"][2]["parts"][0]["functionResponse"]["parts"], json!([data]));
    let old = go(Dialect::Anthropic, &body, Dialect::Gemini, GEMINI);
    assert_eq!(old["contents"][2]["parts"][1], data);
}

#[test]
fn a_large_picture_is_not_copied_out_of_the_body() {
    let data = "QUJD".repeat(limits::LONG_TEXT_BYTES / 3);
    for (client, body) in [
        (Dialect::OpenaiChat, openai(&format!("data:image/png;base64,{data}"))),
        (
            Dialect::OpenaiResponses,
            json!({"input":[{"role":"user","content":[{"type":"input_image","image_url":format!("data:image/png;base64,{data}")}]}]}),
        ),
        (
            Dialect::Anthropic,
            json!({"max_tokens":9,"messages":[{"role":"user","content":[
                {"type":"image","source":{"type":"base64","media_type":"image/png","data":data}}]}]}),
        ),
        (Dialect::OllamaChat, json!({"messages":[{"role":"user","content":"","images":[data]}]})),
        (
            Dialect::OpenaiChat,
            chat(json!([{"role":"user","content":[{"type":"file","file":{"file_data":data}}]}])),
        ),
    ] {
        let body = Bytes::from(body.to_string());
        let talk = decode_shared(client, &body).unwrap();
        assert_eq!(talk, decode(client, &body).unwrap(), "{client:?}");
        let media: Vec<_> = talk.media().collect();
        let [Media { source: Source::Data { base64, .. }, .. }] = media[..] else { panic!("{media:?}") };
        assert_eq!(**base64, data);
        assert!(body.as_ptr_range().contains(&base64.as_ptr()), "{client:?}");
    }
    // Long words are words, and a long text where none belongs is told as any other.
    let body = chat(json!([{"role":"user","content":data}])).to_string();
    let talk = decode_shared(Dialect::OpenaiChat, &body.into()).unwrap();
    assert_eq!(talk.turns[0].parts, [Part::Text(data.clone())]);
    let bad = json!({"model":"m","messages":[{"role":"user","content":"a"}],"tools":data}).to_string();
    let told = decode_shared(Dialect::OpenaiChat, &bad.into()).unwrap_err();
    assert_eq!(told.message, "`tools`: must be an array, not a string");
    let stops = json!({"model":"m","messages":[{"role":"user","content":"a"}],"stop":[data]}).to_string();
    assert_eq!(decode_shared(Dialect::OpenaiChat, &stops.into()).unwrap().stop, [data]);
}

#[test]
fn bytes_beside_an_id_are_told_with_it() {
    let file = json!({"type":"file","file":{"file_id":"file-1","file_data":PDF,"filename":"a.pdf"}});
    let talk = read(Dialect::OpenaiChat, &chat(json!([{"role":"user","content":[file]}])));
    let named: Vec<_> = talk.named_bytes().collect();
    let id = Reference::File(Dialect::OpenaiChat, "file-1");
    assert_eq!(named, [(id, "application/pdf", b"%PDF-1.7".to_vec())]);
    assert_eq!(talk.references().count(), 0, "nothing is missing");
}
