//! Tools: offers, choices, calls and results of earlier turns, ids.

use super::*;

/// Two calls beside each other and their results, as each client writes it.
fn histories() -> Vec<(Dialect, Value)> {
    vec![
        (
            Dialect::OpenaiChat,
            json!({"model":"m","messages":[
                {"role":"user","content":"Weather?"},
                {"role":"assistant","content":null,"tool_calls":[
                    {"id":"call_1","type":"function","function":{"name":"w","arguments":"{\"city\":\"Oslo\"}"}},
                    {"id":"call_2","type":"function","function":{"name":"w","arguments":"{\"city\":\"Rom\"}"}}]},
                {"role":"tool","tool_call_id":"call_2","content":"warm"},
                {"role":"tool","tool_call_id":"call_1","content":[{"type":"text","text":"cold"}]},
                {"role":"user","content":"So?"}]}),
        ),
        (
            Dialect::OpenaiResponses,
            json!({"model":"m","input":[
                {"role":"user","content":"Weather?"},
                {"type":"function_call","call_id":"call_1","name":"w","arguments":"{\"city\":\"Oslo\"}"},
                {"type":"function_call","call_id":"call_2","name":"w","arguments":"{\"city\":\"Rom\"}"},
                {"type":"function_call_output","call_id":"call_2","output":"warm"},
                {"type":"function_call_output","call_id":"call_1","output":[{"type":"input_text","text":"cold"}]},
                {"role":"user","content":"So?"}]}),
        ),
        (
            Dialect::Anthropic,
            json!({"model":"m","max_tokens":9,"messages":[
                {"role":"user","content":"Weather?"},
                {"role":"assistant","content":[
                    {"type":"tool_use","id":"call_1","name":"w","input":{"city":"Oslo"}},
                    {"type":"tool_use","id":"call_2","name":"w","input":{"city":"Rom"}}]},
                {"role":"user","content":[
                    {"type":"tool_result","tool_use_id":"call_2","content":"warm"},
                    {"type":"tool_result","tool_use_id":"call_1","content":[{"type":"text","text":"cold"}]},
                    {"type":"text","text":"So?"}]}]}),
        ),
        (
            Dialect::OllamaChat,
            json!({"model":"m","messages":[
                {"role":"user","content":"Weather?"},
                {"role":"assistant","content":"","tool_calls":[
                    {"id":"call_1","function":{"name":"w","arguments":{"city":"Oslo"}}},
                    {"id":"call_2","function":{"name":"w","arguments":{"city":"Rom"}}}]},
                {"role":"tool","tool_call_id":"call_2","tool_name":"w","content":"warm"},
                {"role":"tool","tool_call_id":"call_1","tool_name":"w","content":"cold"},
                {"role":"user","content":"So?"}]}),
        ),
    ]
}

#[test]
fn calls_and_their_results_go_from_everyone_to_everyone() {
    for (client, body) in histories() {
        let openai = go(client, &body, Dialect::OpenaiChat, "x");
        assert_eq!(
            openai["messages"],
            json!([{"role":"user","content":"Weather?"},
                {"role":"assistant","content":"","tool_calls":[
                    {"id":"call_1","type":"function","function":{"name":"w","arguments":"{\"city\":\"Oslo\"}"}},
                    {"id":"call_2","type":"function","function":{"name":"w","arguments":"{\"city\":\"Rom\"}"}}]},
                {"role":"tool","tool_call_id":"call_2","content":"warm"},
                {"role":"tool","tool_call_id":"call_1","content":"cold"},
                {"role":"user","content":"So?"}]),
            "{client:?}"
        );
        let ollama = go(client, &body, Dialect::OllamaChat, "x");
        assert_eq!(ollama["messages"], histories()[3].1["messages"], "{client:?}");
        let anthropic = go(client, &body, Dialect::Anthropic, CLAUDE);
        assert_eq!(
            anthropic["messages"],
            json!([{"role":"user","content":[{"type":"text","text":"Weather?"}]},
                histories()[2].1["messages"][1],
                {"role":"user","content":[
                    {"type":"tool_result","tool_use_id":"call_2","content":"warm"},
                    {"type":"tool_result","tool_use_id":"call_1","content":"cold"},
                    {"type":"text","text":"So?"}]}]),
            "{client:?}"
        );
        let gemini = go(client, &body, Dialect::Gemini, "gemini-3-pro-preview");
        assert_eq!(
            gemini["contents"],
            json!([{"role":"user","parts":[{"text":"Weather?"}]},
                {"role":"model","parts":[
                    {"functionCall":{"id":"call_1","name":"w","args":{"city":"Oslo"}},
                        "thoughtSignature":"skip_thought_signature_validator"},
                    {"functionCall":{"id":"call_2","name":"w","args":{"city":"Rom"}}}]},
                {"role":"user","parts":[
                    {"functionResponse":{"id":"call_2","name":"w","response":{"output":"warm"}}},
                    {"functionResponse":{"id":"call_1","name":"w","response":{"output":"cold"}}},
                    {"text":"So?"}]}]),
            "{client:?}"
        );
    }
}

#[test]
fn offers_and_choices_reach_everyone() {
    let schema =
        json!({"type":"object","properties":{"b":{"type":"string"},"a":{"type":"integer"}},"required":["b"]});
    let openai = json!({"messages":[{"role":"user","content":"Hi"}],"parallel_tool_calls":false,
        "tool_choice":{"type":"function","function":{"name":"f"}},
        "tools":[{"type":"function","function":{"name":"f","description":"d","parameters":schema}},
            {"type":"function","function":{"name":"g"}}]});
    let responses = json!({"input":"Hi","parallel_tool_calls":false,"tool_choice":{"type":"function","name":"f"},
        "tools":[{"type":"function","name":"f","description":"d","parameters":schema},{"type":"function","name":"g"}]});
    let anthropic = json!({"max_tokens":9,"messages":[{"role":"user","content":"Hi"}],
        "tool_choice":{"type":"tool","name":"f","disable_parallel_tool_use":true},
        "tools":[{"name":"f","description":"d","input_schema":schema},{"name":"g","input_schema":{"type":"object","properties":{}}}]});
    for (client, body) in [
        (Dialect::OpenaiChat, &openai),
        (Dialect::OpenaiResponses, &responses),
        (Dialect::Anthropic, &anthropic),
    ] {
        let to = go(client, body, Dialect::Anthropic, CLAUDE);
        assert_eq!(to["tools"], anthropic["tools"], "{client:?}");
        assert_eq!(to["tool_choice"], anthropic["tool_choice"], "{client:?}");
        let to = go(client, body, Dialect::OpenaiChat, "x");
        assert_eq!(to["tools"][0], openai["tools"][0], "{client:?}");
        assert_eq!(to["tools"][1]["function"]["parameters"], json!({"type":"object","properties":{}}));
        assert_eq!((&to["tool_choice"], &to["parallel_tool_calls"]), (&openai["tool_choice"], &json!(false)));
        let to = go(client, body, Dialect::Gemini, GEMINI);
        let declared = &to["tools"][0]["functionDeclarations"];
        assert_eq!(declared[0], json!({"name":"f","description":"d","parametersJsonSchema":schema}));
        assert_eq!(declared[1], json!({"name":"g","description":""}));
        let calling = json!({"functionCallingConfig":{"mode":"ANY","allowedFunctionNames":["f"]}});
        assert_eq!(to["toolConfig"], calling);
        // Ollama can be offered the one tool alone, and not be made to call it.
        let to = go(client, body, Dialect::OllamaChat, "x");
        assert_eq!(to["tools"], json!([openai["tools"][0]]), "{client:?}");
        let left = left_out(client, body, &terms(Dialect::OllamaChat, "x"));
        assert_eq!(left, ["tool_choice", "parallel_tool_calls"]);
    }
    for (word, claude, google) in
        [("auto", "auto", "AUTO"), ("required", "any", "ANY"), ("none", "none", "NONE")]
    {
        let mut body = openai.clone();
        body["tool_choice"] = json!(word);
        body.as_object_mut().unwrap().remove("parallel_tool_calls");
        assert_eq!(
            go(Dialect::OpenaiChat, &body, Dialect::Anthropic, CLAUDE)["tool_choice"],
            json!({"type":claude})
        );
        let gemini = go(Dialect::OpenaiChat, &body, Dialect::Gemini, GEMINI);
        assert_eq!(gemini["toolConfig"]["functionCallingConfig"], json!({"mode":google}));
        let ollama = go(Dialect::OpenaiChat, &body, Dialect::OllamaChat, "x");
        assert_eq!(ollama.get("tools").is_none(), word == "none");
    }
}

/// A schema's order is the order in which a model fills it in.
#[test]
fn members_of_schemas_keep_their_order() {
    let text = r#"{"messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function","function":
        {"name":"f","parameters":{"type":"object","properties":{"why":{"type":"string"},"answer":{"type":"number"}}}}}]}"#;
    let talk = decode(Dialect::OpenaiChat, text.as_bytes()).unwrap();
    for to in [Dialect::OpenaiChat, Dialect::OllamaChat, Dialect::Anthropic, Dialect::Gemini] {
        let encoded = encode(&talk, &terms(to, CLAUDE)).unwrap();
        let body = String::from_utf8(encoded.body).unwrap();
        assert!(
            body.contains(r#""properties":{"why":{"type":"string"},"answer":{"type":"number"}}"#),
            "{body}"
        );
    }
}

#[test]
fn tools_of_a_provider_are_left_out_or_refused() {
    let body = json!({"input":"Hi","tools":[{"type":"web_search"},{"type":"function","name":"f"}]});
    let to = terms(Dialect::Anthropic, CLAUDE);
    let (anthropic, encoded) = write(&read(Dialect::OpenaiResponses, &body), &to);
    assert_eq!(anthropic["tools"].as_array().unwrap().len(), 1);
    assert_eq!(encoded.dropped[0].field, "web_search");
    let cannot = encode(&read(Dialect::OpenaiResponses, &body), &Terms { strict: true, ..to }).unwrap_err();
    assert!(
        cannot.words("box").contains("`web_search` is a tool of the client's own provider"),
        "{cannot:?}"
    );
    let named = chat(json!([{"role":"user","content":"Hi"}]));
    let mut odd = named.clone();
    odd["tools"] = json!([{"type":"function","function":{"name":"a b"}}]);
    let talk = read(Dialect::OpenaiChat, &odd);
    assert_eq!(encode(&talk, &to), Err(Cannot::ToolName("a b".to_owned())));
    assert!(encode(&talk, &terms(Dialect::OllamaChat, "x")).is_ok());
}

#[test]
fn errors_stay_errors() {
    let body = json!({"max_tokens":9,"messages":[{"role":"user","content":"Hi"},
        {"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"a","is_error":true,"content":"no such file"}]}]});
    let openai = go(Dialect::Anthropic, &body, Dialect::OpenaiChat, "x");
    assert_eq!(openai["messages"][2]["content"], "Error: no such file");
    let gemini = go(Dialect::Anthropic, &body, Dialect::Gemini, GEMINI);
    let response = &gemini["contents"][2]["parts"][0]["functionResponse"]["response"];
    assert_eq!(*response, json!({"error":"no such file"}));
    let back = go(Dialect::Anthropic, &body, Dialect::Anthropic, CLAUDE);
    assert_eq!(back["messages"][2], body["messages"][2]);
}

#[test]
fn arguments_that_are_no_object_go_on_as_they_can() {
    for (arguments, object) in [
        ("", json!({})),
        ("{\"a\": 1}", json!({"a":1})),
        ("{\"a\":", json!({"invalid_json":"{\"a\":"})),
        ("[1]", json!({"invalid_json":"[1]"})),
        ("{\"a\":1,\"a\":2}", json!({"invalid_json":"{\"a\":1,\"a\":2}"})),
    ] {
        let body = chat(json!([{"role":"user","content":"Hi"},
            {"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":arguments}}]},
            {"role":"tool","tool_call_id":"a","content":"ok"}]));
        let anthropic = go(Dialect::OpenaiChat, &body, Dialect::Anthropic, CLAUDE);
        assert_eq!(anthropic["messages"][1]["content"][0]["input"], object);
        let openai = go(Dialect::OpenaiChat, &body, Dialect::OpenaiChat, "x");
        let sent = openai["messages"][1]["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
        assert!(sent == arguments || arguments.is_empty() && sent == "{}");
    }
    let deep = "[".repeat(100_000);
    let body = chat(json!([{"role":"user","content":"Hi"},
        {"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":deep}}]},
        {"role":"tool","tool_call_id":"a","content":"ok"}]));
    let gemini = go(Dialect::OpenaiChat, &body, Dialect::Gemini, GEMINI);
    assert_eq!(gemini["contents"][1]["parts"][0]["functionCall"]["args"]["invalid_json"], deep);
}

#[test]
fn results_find_their_calls_without_ids() {
    let ollama = json!({"model":"m","messages":[
        {"role":"user","content":"Hi"},
        {"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{}}},{"function":{"name":"g","arguments":{}}}]},
        {"role":"tool","tool_name":"g","content":"G"},
        {"role":"tool","content":"F"},
        {"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{}}}]},
        {"role":"user","content":"Never mind"}]});
    let to = go(Dialect::OllamaChat, &ollama, Dialect::Anthropic, CLAUDE);
    let messages = to["messages"].as_array().unwrap();
    let (f, g) = (&messages[1]["content"][0]["id"], &messages[1]["content"][1]["id"]);
    assert_ne!(f, g);
    assert_eq!(messages[2]["content"][0], json!({"type":"tool_result","tool_use_id":g,"content":"G"}));
    assert_eq!(messages[2]["content"][1], json!({"type":"tool_result","tool_use_id":f,"content":"F"}));
    // Of the last call nothing is said: the provider must be told something.
    assert_eq!(messages[4]["content"][0]["is_error"], true);
    assert_eq!(messages[4]["content"][1]["text"], "Never mind");
    assert_eq!(to, go(Dialect::OllamaChat, &ollama, Dialect::Anthropic, CLAUDE), "the same ids each time");

    let older = json!({"messages":[{"role":"user","content":"Hi"},
        {"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}},
        {"role":"function","name":"f","content":"ok"}],"functions":[{"name":"f"}],"function_call":"auto"});
    let to = go(Dialect::OpenaiChat, &older, Dialect::OpenaiChat, "x");
    assert_eq!(to["messages"][1]["tool_calls"][0]["id"], to["messages"][2]["tool_call_id"]);
    assert_eq!(to["tool_choice"], "auto");
}

#[test]
fn ids_are_unique_and_of_the_form_that_is_demanded() {
    let long = "x".repeat(200);
    let body = chat(json!([{"role":"user","content":"Hi"},
        {"role":"assistant","tool_calls":[
            {"id":"call:1/é","function":{"name":"f","arguments":"{}"}},
            {"id":"same","function":{"name":"f","arguments":"{}"}},
            {"id":long,"function":{"name":"f","arguments":"{}"}}]},
        {"role":"tool","tool_call_id":"same","content":"2"},
        {"role":"tool","tool_call_id":"call:1/é","content":"1"},
        {"role":"tool","tool_call_id":long,"content":"3"},
        {"role":"assistant","tool_calls":[{"id":"same","function":{"name":"f","arguments":"{}"}}]},
        {"role":"tool","tool_call_id":"same","content":"4"}]));
    let to = go(Dialect::OpenaiChat, &body, Dialect::Anthropic, CLAUDE);
    let messages = to["messages"].as_array().unwrap();
    let id =
        |at: usize, part: usize, key: &str| messages[at]["content"][part][key].as_str().unwrap().to_owned();
    let calls = [id(1, 0, "id"), id(1, 1, "id"), id(1, 2, "id"), id(3, 0, "id")];
    let results =
        [id(2, 1, "tool_use_id"), id(2, 0, "tool_use_id"), id(2, 2, "tool_use_id"), id(4, 0, "tool_use_id")];
    assert_eq!(calls, results);
    for (at, call) in calls.iter().enumerate() {
        assert!(
            call.len() <= 64 && call.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'),
            "{call}"
        );
        assert!(!calls[..at].contains(call));
    }
    let openai = Terms { flavor: Flavor::Openai, ..terms(Dialect::OpenaiChat, "gpt-4o") };
    let (to, _) = write(&read(Dialect::OpenaiChat, &body), &openai);
    for call in to["messages"][1]["tool_calls"].as_array().unwrap() {
        assert!(call["id"].as_str().unwrap().len() <= 40);
    }
}

#[test]
fn an_id_comes_back_to_its_own_provider() {
    for id in ["call_abc", "functions.f:0", "", "a b", "é", &"y".repeat(60)] {
        let shown = ids::to_client(id);
        assert!(!shown.is_empty() && shown.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'));
        if !id.is_empty() {
            assert_eq!(ids::to_target(Dialect::OpenaiChat, Flavor::Other, &shown), id);
        }
        let elsewhere = ids::to_target(Dialect::Anthropic, Flavor::Other, &shown);
        assert_eq!(elsewhere, ids::to_target(Dialect::Anthropic, Flavor::Other, &shown));
    }
    assert_eq!(ids::to_client("call_abc"), "call_abc");
    assert_ne!(ids::fresh("a", 0), ids::fresh("a", 1));
    assert_ne!(ids::fresh("a", 0), ids::fresh("b", 0));
}

#[test]
fn geminis_signature_comes_back_through_googles_own_member() {
    let body = chat(json!([{"role":"user","content":"Hi"},
        {"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"},
            "extra_content":{"google":{"thought_signature":"c2ln"}}}]},
        {"role":"tool","tool_call_id":"a","content":"ok"}]));
    let signed = |model| {
        go(Dialect::OpenaiChat, &body, Dialect::Gemini, model)["contents"][1]["parts"][0]["thoughtSignature"]
            .clone()
    };
    assert_eq!(signed("gemini-3-pro-preview"), "c2ln");
    assert_eq!(signed(GEMINI), "c2ln");
    let (_, old) = &histories()[0];
    let unsigned = go(Dialect::OpenaiChat, old, Dialect::Gemini, GEMINI);
    assert!(unsigned["contents"][1]["parts"][0].get("thoughtSignature").is_none(), "Gemini 2.5 demands none");
}

#[test]
fn results_and_calls_that_do_not_belong_together_are_told() {
    let call = json!({"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]});
    let result = |id: &str| json!({"role":"tool","tool_call_id":id,"content":"x"});
    let user = json!({"role":"user","content":"Hi"});
    for (messages, path, words) in [
        (json!([user, result("a")]), "messages[1]", "`a` answers no open call"),
        (json!([user, call, result("b")]), "messages[2]", "`b` answers no open call"),
        (json!([user, call, result("a"), result("a")]), "messages[3]", "`a` answers no open call"),
        (json!([user, call, user]), "messages[2]", "call `a` of the tool `f` needs its result"),
        (json!([user, call]), "messages", "call `a` of the tool `f` needs its result"),
    ] {
        let bad = decode(Dialect::OpenaiChat, chat(messages).to_string().as_bytes()).unwrap_err();
        assert_eq!(bad.path, path, "{bad}");
        assert!(bad.message.contains(words), "{bad}");
    }
    // Instructions in between wait for the result.
    let between = chat(json!([user, call, {"role":"system","content":"S"}, result("a")]));
    let roles: Vec<_> = read(Dialect::OpenaiChat, &between).turns.iter().map(|turn| turn.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::System]);
}
