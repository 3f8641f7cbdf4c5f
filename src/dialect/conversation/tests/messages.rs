//! Who said what: instructions, roles, empty turns, thinking, long histories.

use super::*;

/// One conversation as each client writes it, and what each target must then be told.
#[test]
fn a_plain_conversation_goes_from_everyone_to_everyone() {
    let clients = [
        (
            Dialect::OpenaiChat,
            json!({"model":"m","messages":[
                {"role":"system","content":"Be brief."},
                {"role":"user","content":"Hi"},
                {"role":"assistant","content":"Hello"},
                {"role":"user","content":[{"type":"text","text":"Bye"}]}]}),
        ),
        (
            Dialect::OpenaiResponses,
            json!({"model":"m","instructions":"Be brief.","input":[
                {"role":"user","content":"Hi"},
                {"type":"message","role":"assistant","content":[{"type":"output_text","text":"Hello"}]},
                {"role":"user","content":[{"type":"input_text","text":"Bye"}]}]}),
        ),
        (
            Dialect::OllamaChat,
            json!({"model":"m","stream":false,"messages":[
                {"role":"system","content":"Be brief."},
                {"role":"user","content":"Hi"},
                {"role":"assistant","content":"Hello"},
                {"role":"user","content":"Bye"}]}),
        ),
        (
            Dialect::Anthropic,
            json!({"model":"m","max_tokens":9,"system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],
                "messages":[
                {"role":"user","content":"Hi"},
                {"role":"assistant","content":[{"type":"text","text":"Hello"}]},
                {"role":"user","content":[{"type":"text","text":"Bye"}]}]}),
        ),
    ];
    for (client, body) in clients {
        let talk = read(client, &body);
        let said = json!([{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"},
            {"role":"assistant","content":"Hello"},{"role":"user","content":"Bye"}]);
        let (openai, encoded) = write(&talk, &terms(Dialect::OpenaiChat, "x"));
        assert_eq!((&openai["messages"], &openai["model"]), (&said, &json!("x")), "{client:?}");
        assert_eq!((encoded.path.as_str(), encoded.dropped.len()), ("/v1/chat/completions", 0));
        let (ollama, encoded) = write(&talk, &terms(Dialect::OllamaChat, "x"));
        assert_eq!((&ollama["messages"], &ollama["stream"]), (&said, &json!(false)), "{client:?}");
        assert_eq!(encoded.path, "/api/chat");
        let (anthropic, encoded) = write(&talk, &terms(Dialect::Anthropic, CLAUDE));
        assert_eq!(anthropic["system"], "Be brief.", "{client:?}");
        assert_eq!(
            anthropic["messages"],
            json!([{"role":"user","content":[{"type":"text","text":"Hi"}]},
                {"role":"assistant","content":[{"type":"text","text":"Hello"}]},
                {"role":"user","content":[{"type":"text","text":"Bye"}]}])
        );
        assert_eq!(encoded.path, "/v1/messages");
        let (gemini, encoded) = write(&talk, &terms(Dialect::Gemini, GEMINI));
        assert_eq!(gemini["systemInstruction"], json!({"parts":[{"text":"Be brief."}]}), "{client:?}");
        assert_eq!(
            gemini["contents"],
            json!([{"role":"user","parts":[{"text":"Hi"}]},{"role":"model","parts":[{"text":"Hello"}]},
                {"role":"user","parts":[{"text":"Bye"}]}])
        );
        assert_eq!(encoded.path, "/v1beta/models/gemini-2.5-flash:generateContent");
    }
}

#[test]
fn prompts_without_turns_become_the_users() {
    let completions = json!({"model":"m","prompt":["Once"],"max_tokens":5,"stream":true});
    let generate = json!({"model":"m","prompt":"Once","system":"Tell.","options":{"num_predict":5}});
    for (client, body) in [(Dialect::OpenaiCompletions, completions), (Dialect::OllamaGenerate, generate)] {
        let (anthropic, _) = write(&read(client, &body), &terms(Dialect::Anthropic, CLAUDE));
        assert_eq!(anthropic["messages"], json!([{"role":"user","content":[{"type":"text","text":"Once"}]}]));
        assert_eq!((&anthropic["max_tokens"], &anthropic["stream"]), (&json!(5), &json!(true)));
        assert_eq!(anthropic.get("system").is_some(), client == Dialect::OllamaGenerate);
    }
}

#[test]
fn instructions_anywhere_are_neither_lost_nor_doubled() {
    let body = chat(json!([
        {"role":"system","content":"A"},
        {"role":"developer","content":[{"type":"text","text":"B"},{"type":"text","text":"C"}]},
        {"role":"user","content":"Hi"},
        {"role":"system","content":"D"},
        {"role":"user","content":"Go"}]));
    let roles = |body: &Value| -> Vec<(String, String)> {
        let messages = body["messages"].as_array().unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        messages.iter().map(|it| (text(&it["role"]), text(&it["content"]))).collect()
    };
    let wanted = [("system", "A"), ("system", "B\nC"), ("user", "Hi"), ("system", "D"), ("user", "Go")];
    let wanted: Vec<_> = wanted.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
    for to in [Dialect::OpenaiChat, Dialect::OllamaChat] {
        assert_eq!(roles(&go(Dialect::OpenaiChat, &body, to, "x")), wanted, "in their places");
    }
    let anthropic = go(Dialect::OpenaiChat, &body, Dialect::Anthropic, CLAUDE);
    let blocks = ["A", "B", "C", "D"].map(|text| json!({"type":"text","text":text}));
    assert_eq!(anthropic["system"], json!(blocks));
    assert_eq!(anthropic["messages"].as_array().unwrap().len(), 1, "and the user's two become one");
    let gemini = go(Dialect::OpenaiChat, &body, Dialect::Gemini, GEMINI);
    assert_eq!(
        gemini["systemInstruction"]["parts"],
        json!(["A", "B", "C", "D"].map(|text| json!({"text":text})))
    );

    let later = json!({"model":"m","max_tokens":9,"messages":[
        {"role":"user","content":"Hi"},{"role":"system","content":"E"},{"role":"assistant","content":"Yes"},
        {"role":"user","content":"Go"}]});
    let openai = go(Dialect::Anthropic, &later, Dialect::OpenaiChat, "x");
    assert_eq!(openai["messages"][1], json!({"role":"system","content":"E"}));
}

#[test]
fn roles_alternate_where_they_must_and_nothing_is_empty() {
    let body = chat(json!([
        {"role":"assistant","content":"Welcome"},
        {"role":"user","content":""},
        {"role":"user","content":"  "},
        {"role":"assistant","content":""},
        {"role":"user","content":"One"},
        {"role":"user","content":"Two"}]));
    let anthropic = go(Dialect::OpenaiChat, &body, Dialect::Anthropic, CLAUDE);
    assert_eq!(
        anthropic["messages"],
        json!([{"role":"user","content":[{"type":"text","text":"."}]},
            {"role":"assistant","content":[{"type":"text","text":"Welcome"}]},
            {"role":"user","content":[{"type":"text","text":"One"},{"type":"text","text":"Two"}]}])
    );
    let gemini = go(Dialect::OpenaiChat, &body, Dialect::Gemini, GEMINI);
    let roles: Vec<_> = gemini["contents"].as_array().unwrap().iter().map(|it| it["role"].clone()).collect();
    assert_eq!(roles, ["user", "model", "user"]);

    let only = chat(json!([{"role":"system","content":"Tell a joke."}]));
    for (to, model, list) in [(Dialect::Anthropic, CLAUDE, "messages"), (Dialect::Gemini, GEMINI, "contents")]
    {
        let body = go(Dialect::OpenaiChat, &only, to, model);
        assert_eq!(body[list].as_array().unwrap().len(), 1);
        assert_eq!(body[list][0]["role"], "user");
    }
}

#[test]
fn an_answer_begun_for_the_model_goes_where_it_is_gone_on_with() {
    let body = chat(json!([{"role":"user","content":"Count"},{"role":"assistant","content":"1, 2, "}]));
    let old = go(Dialect::OpenaiChat, &body, Dialect::Anthropic, "claude-3-5-haiku-20241022");
    assert_eq!(old["messages"][1]["content"][0]["text"], "1, 2,", "without the blank that is refused");
    let talk = read(Dialect::OpenaiChat, &body);
    assert_eq!(encode(&talk, &terms(Dialect::Anthropic, "claude-opus-4-6")), Err(Cannot::Prefill));
}

#[test]
fn a_request_that_only_loads_is_ollamas_alone() {
    let load = json!({"model":"m","messages":[],"keep_alive":"10m"});
    let talk = read(Dialect::OllamaChat, &load);
    for to in [Dialect::OpenaiChat, Dialect::Anthropic, Dialect::Gemini] {
        assert_eq!(encode(&talk, &terms(to, "x")), Err(Cannot::NoMessage));
    }
    let may = Terms { loading: true, ..terms(Dialect::OllamaChat, "x") };
    let (body, _) = write(&talk, &may);
    assert_eq!((&body["messages"], &body["keep_alive"]), (&json!([]), &json!("10m")));
    let (body, encoded) = write(&talk, &terms(Dialect::OllamaChat, "x"));
    assert!(body.get("keep_alive").is_none() && encoded.dropped[0].field == "keep_alive");
    let generate = read(Dialect::OllamaGenerate, &json!({"model":"m","system":"S"}));
    assert!(generate.turns.is_empty());
}

#[test]
fn what_a_provider_keeps_is_asked_of_nobody_else() {
    for (client, body) in [
        (Dialect::OpenaiResponses, json!({"previous_response_id":"resp_1","input":"Hi"})),
        (Dialect::OpenaiResponses, json!({"conversation":"conv_1","input":"Hi"})),
        (Dialect::OpenaiResponses, json!({"prompt":{"id":"p"}})),
        (Dialect::OpenaiResponses, json!({"input":[{"type":"item_reference","id":"i"}]})),
        (Dialect::OpenaiCompletions, json!({"prompt":[1,2,3]})),
        (Dialect::OpenaiCompletions, json!({"prompt":"a","suffix":"b"})),
        (Dialect::OllamaGenerate, json!({"prompt":"a","context":[1]})),
        (Dialect::OllamaGenerate, json!({"prompt":"a","raw":true})),
        (Dialect::Anthropic, json!({"mcp_servers":[{"url":"x"}],"messages":[{"role":"user","content":"a"}]})),
    ] {
        let talk = read(client, &body);
        let cannot = encode(&talk, &terms(Dialect::OpenaiChat, "x")).unwrap_err();
        assert!(matches!(cannot, Cannot::Bound(_)), "{body}");
        assert!(cannot.words("box").contains("`box`"));
    }
}

#[test]
fn thinking_stays_with_whom_it_says_something() {
    let claude = json!({"model":"m","max_tokens":9000,"thinking":{"type":"enabled","budget_tokens":2000},
        "tools":[{"name":"f","input_schema":{"type":"object"}}],
        "messages":[{"role":"user","content":"Hi"},
        {"role":"assistant","content":[
            {"type":"thinking","thinking":"hm","signature":"c2ln"},
            {"type":"redacted_thinking","data":"c2Vj"},
            {"type":"tool_use","id":"t1","name":"f","input":{}}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"ok"}]}]});
    let back = go(Dialect::Anthropic, &claude, Dialect::Anthropic, CLAUDE);
    assert_eq!(
        back["messages"],
        json!([
        {"role":"user","content":[{"type":"text","text":"Hi"}]}, claude["messages"][1], claude["messages"][2]])
    );
    assert_eq!(back["thinking"], claude["thinking"]);
    let vllm = Terms { flavor: Flavor::Vllm, ..terms(Dialect::OpenaiChat, "x") };
    let (local, _) = write(&read(Dialect::Anthropic, &claude), &vllm);
    assert_eq!(local["messages"][1]["reasoning_content"], "hm");
    let openai = Terms { flavor: Flavor::Openai, ..terms(Dialect::OpenaiChat, "gpt-4o") };
    assert!(
        write(&read(Dialect::Anthropic, &claude), &openai).0["messages"][1]
            .get("reasoning_content")
            .is_none()
    );
    let ollama = go(Dialect::Anthropic, &claude, Dialect::OllamaChat, "x");
    assert_eq!(ollama["messages"][1]["thinking"], "hm");

    // Through a client of OpenAI's dialect and back to Claude.
    let kept = chat(json!([{"role":"user","content":"Hi"},
        {"role":"assistant","content":"Yes","reasoning_content":"hm","reasoning_details":[
            {"type":"reasoning.text","text":"","signature":"c2ln","index":0},
            {"type":"reasoning.encrypted","data":"c2Vj","index":0}]},
        {"role":"user","content":"Go"}]));
    let back = go(Dialect::OpenaiChat, &kept, Dialect::Anthropic, CLAUDE);
    assert_eq!(
        back["messages"][1]["content"],
        json!([
        {"type":"thinking","thinking":"hm","signature":"c2ln"},
        {"type":"redacted_thinking","data":"c2Vj"},
        {"type":"text","text":"Yes"}])
    );

    // Thinking that was not signed is left out.
    for block in [
        json!({"type":"thinking","thinking":"hm","signature":""}),
        json!({"type":"thinking","thinking":"hm"}),
    ] {
        let body = json!({"max_tokens":9,"messages":[{"role":"user","content":"Hi"},
            {"role":"assistant","content":[block, {"type":"text","text":"Yes"}]},{"role":"user","content":"Go"}]});
        let anthropic = go(Dialect::Anthropic, &body, Dialect::Anthropic, CLAUDE);
        assert_eq!(anthropic["messages"][1]["content"], json!([{"type":"text","text":"Yes"}]));
        assert_eq!(
            left_out(Dialect::Anthropic, &body, &terms(Dialect::Anthropic, CLAUDE)),
            ["earlier thinking"]
        );
    }
    let responses = json!({"input":[{"role":"user","content":"Hi"},
        {"type":"reasoning","id":"rs","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"x"},
        {"type":"function_call","call_id":"c","name":"f","arguments":"{}"},
        {"type":"function_call_output","call_id":"c","output":"ok"}]});
    // What was thought before the user's last word is done with: DeepSeek's first models refuse it.
    let (done, _) = write(&read(Dialect::OpenaiChat, &kept), &vllm);
    assert!(done["messages"][1].get("reasoning_content").is_none());
    let (local, _) = write(&read(Dialect::OpenaiResponses, &responses), &vllm);
    assert_eq!(local["messages"][1]["reasoning_content"], "hm");
}

#[test]
fn refusals_are_words() {
    let body =
        chat(json!([{"role":"user","content":"Hi"},{"role":"assistant","content":null,"refusal":"No."},
        {"role":"user","content":"Please"}]));
    let anthropic = go(Dialect::OpenaiChat, &body, Dialect::Anthropic, CLAUDE);
    assert_eq!(anthropic["messages"][1]["content"][0]["text"], "No.");
}

/// Quadratic work would take minutes.
#[test]
fn a_very_long_history_takes_linear_time() {
    let mut messages = Vec::new();
    for _ in 0..8_000 {
        messages.push(json!({"role":"user","content":"a"}));
        messages.push(json!({"role":"assistant","content":"","tool_calls":[
            {"id":"same","type":"function","function":{"name":"f","arguments":"{}"}}]}));
        messages.push(json!({"role":"tool","tool_call_id":"same","content":"b"}));
    }
    let talk = read(Dialect::OpenaiChat, &chat(json!(messages)));
    for (to, model) in [
        (Dialect::OpenaiChat, "x"),
        (Dialect::OllamaChat, "x"),
        (Dialect::Anthropic, CLAUDE),
        (Dialect::Gemini, GEMINI),
    ] {
        let (body, _) = write(&talk, &terms(to, model));
        let list = if to == Dialect::Gemini { "contents" } else { "messages" };
        assert!(body[list].as_array().unwrap().len() >= 16_000);
    }
}
