//! Pictures and files that a request only names: held back, fetched, kept for their client, or told to be out of reach.

use edgeward::sim::model::healthy;
use edgeward::sim::script::{Script, parse};
use edgeward::sim::server::SimServer;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use crate::LIMIT;
use crate::program::{CHAT, Program, ask, run, target};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";
const PNG_URL: &str = "data:image/png;base64,iVBORw0KGgo=";
const PDF: &str = "data:application/pdf;base64,JVBERi0xLjc=";

/// Fetches from the test's own hosts.
const FETCH: &str = "[images]\nfetch = true\nprivate_hosts = [\"127.0.0.1\"]\n";

fn groups(names: &[&str]) -> String {
    format!("[router]\ngroups = {names:?}\n")
}

fn cloud(name: &str, kind: &str, server: &SimServer) -> String {
    target(name, kind, server, "models = { \"*\" = \"m\" }").replace("place = \"local\"", "place = \"cloud\"")
}

async fn pictures() -> SimServer {
    SimServer::start(Script::reply(200, "image/png", PNG)).await.unwrap()
}

fn picture(url: &str) -> String {
    chat(&json!([{"type":"text","text":"What is it?"},{"type":"image_url","image_url":{"url":url}}]))
}

fn chat(content: &Value) -> String {
    json!({"model":"m","stream":true,"top_k":3,"messages":[{"role":"user","content":content}]}).to_string()
}

fn sent(server: &SimServer) -> Value {
    serde_json::from_slice(&server.requests().pop().expect("a request").body).unwrap()
}

#[test]
fn a_url_is_held_back_from_a_server_here_and_goes_to_a_cloud_as_it_is() {
    run(LIMIT, async {
        let (here, far) =
            (SimServer::start(healthy("a")).await.unwrap(), SimServer::start(healthy("b")).await.unwrap());
        let body = picture("http://127.0.0.1:1/a.png");
        let both =
            groups(&["box", "far"]) + &target("box", "vllm", &here, "") + &cloud("far", "openai", &far);
        let program = Program::start(&both).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &body).await;
        assert_eq!((answer.status, answer.header("x-edgeward-target")), (200, Some("far")));
        assert_eq!((here.counts().requests, far.counts().requests), (0, 1));
        let asked: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(sent(&far)["messages"], asked["messages"]);

        // Nobody else is there: why is told.
        let program = Program::start(&(groups(&["box"]) + &target("box", "vllm", &here, ""))).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &body).await;
        assert!(answer.text().contains("images.local_urls"), "{}", answer.text());
        assert_eq!(here.counts().requests, 0);
        for (path, body) in [
            (
                "/v1/responses",
                json!({"model":"m","input":[{"role":"user","content":[
                    {"type":"input_image","image_url":"http://127.0.0.1:1/a.png"}]}]}),
            ),
            (
                "/v1/messages",
                json!({"model":"m","max_tokens":9,"messages":[{"role":"user","content":[
                    {"type":"image","source":{"type":"url","url":"http://127.0.0.1:1/a.png"}}]}]}),
            ),
        ] {
            let answer = ask(program.addr, "POST", path, &[], &body.to_string()).await;
            assert!(answer.status >= 400 && answer.text().contains("images.local_urls"), "{}", answer.text());
        }
        assert_eq!(here.counts().requests, 0);

        // Allowed, it passes as it is.
        let allowed = "[images]\nlocal_urls = true\n".to_owned() + &target("box", "vllm", &here, "");
        let program = Program::start(&(groups(&["box"]) + &allowed)).await;
        assert_eq!(ask(program.addr, "POST", CHAT, &[], &body).await.status, 200);
        assert_eq!(sent(&here)["messages"][0]["content"][1]["image_url"]["url"], "http://127.0.0.1:1/a.png");
    });
}

#[test]
fn a_fetched_picture_goes_along_in_every_dialect() {
    run(LIMIT, async {
        let (here, host) = (SimServer::start(healthy("a")).await.unwrap(), pictures().await);
        let url = format!("{}/a.png?x=1", host.url());
        let responses = json!({"model":"m","stream":true,"input":[{"role":"user","content":[
            {"type":"input_image","image_url":url}]}]});
        let messages = json!({"model":"m","max_tokens":9,"stream":true,"messages":[{"role":"user","content":[
            {"type":"image","source":{"type":"url","url":url}}]}]});
        for (kind, path, body, at, want) in [
            ("vllm", CHAT, picture(&url), "/messages/0/content/1/image_url/url", json!(PNG_URL)),
            ("llamacpp", CHAT, picture(&url), "/messages/0/content/1/image_url/url", json!(PNG_URL)),
            ("ollama", CHAT, picture(&url), "/messages/0/content/1/image_url/url", json!(PNG_URL)),
            ("vllm", "/v1/responses", responses.to_string(), "/input/0/content/0/image_url", json!(PNG_URL)),
            (
                "ollama",
                "/v1/responses",
                responses.to_string(),
                "/input/0/content/0/image_url",
                json!(PNG_URL),
            ),
            (
                "vllm",
                "/v1/messages",
                messages.to_string(),
                "/messages/0/content/0/source/data",
                json!("iVBORw0KGgo="),
            ),
        ] {
            let config = FETCH.to_owned() + &groups(&["box"]) + &target("box", kind, &here, "");
            let program = Program::start(&config).await;
            let answer = ask(program.addr, "POST", path, &[], &body).await;
            assert_eq!((answer.status, answer.clean), (200, true), "{kind} {path}: {}", answer.text());
            let sent = sent(&here);
            assert_eq!(sent.pointer(at), Some(&want), "{kind} {path}: {sent}");
            assert!(!sent.to_string().contains("http"), "{sent}");
            if path == CHAT {
                // What the server knows beyond its protocol stays, and no usage is shown that nobody asked for.
                assert_eq!(sent["top_k"], 3, "{sent}");
                assert!(!answer.text().contains("\"usage\":{"), "{}", answer.text());
            }
        }
        assert!(host.requests().iter().all(|request| request.header("authorization").is_none()));
    });
}

#[test]
fn a_picture_that_cannot_be_had_leaves_the_target_out_and_says_why() {
    run(LIMIT, async {
        let (here, far) =
            (SimServer::start(healthy("a")).await.unwrap(), SimServer::start(healthy("b")).await.unwrap());
        let page = SimServer::start(Script::reply(200, "text/html", "<html>")).await.unwrap();
        let box_only = groups(&["box"]) + &target("box", "vllm", &here, "");
        let program = Program::start(&(FETCH.to_owned() + &box_only)).await;
        let body = picture(&page.url());
        let answer = ask(program.addr, "POST", CHAT, &[], &body).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert!(answer.text().contains("text/html, no picture"), "{}", answer.text());
        assert!(answer.text().contains("messages[0].content[1]"), "{}", answer.text());

        // A host on this network that nobody named.
        let program = Program::start(&("[images]\nfetch = true\n".to_owned() + &box_only)).await;
        let before = page.counts().requests;
        let answer = ask(program.addr, "POST", CHAT, &[], &body).await;
        assert!(answer.text().contains("images.private_hosts"), "{}", answer.text());
        assert_eq!((page.counts().requests, here.counts().requests), (before, 0));

        // A slow one costs its time, and the next target is given the URL.
        let slow = SimServer::start(parse("HANG 20000\n").unwrap()).await.unwrap();
        let config = FETCH.to_owned()
            + "timeout = \"300ms\"\n"
            + &groups(&["box", "far"])
            + &target("box", "vllm", &here, "")
            + &cloud("far", "openai", &far);
        let program = Program::start(&config).await;
        let body = picture(&slow.url());
        let answer = ask(program.addr, "POST", CHAT, &[], &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.header("x-edgeward-attempts"), Some("box:untranslatable,far:committed"));
        assert_eq!(sent(&far)["messages"][0]["content"][1]["image_url"]["url"], slow.url());
        assert_eq!(here.counts().requests, 0);
    });
}

fn key(name: &str) -> String {
    let hash: String = digest(&SHA256, format!("{name}-0123456789abcdef").as_bytes())
        .as_ref()
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    format!("[[key]]\nname = \"{name}\"\nsha256 = \"{hash}\"\n")
}

fn bearer(name: &str) -> String {
    format!("Bearer {name}-0123456789abcdef")
}

#[test]
fn what_one_client_has_shown_is_kept_for_it_alone() {
    run(LIMIT, async {
        let (here, host) = (SimServer::start(healthy("a")).await.unwrap(), pictures().await);
        let base = key("one") + &key("two") + &groups(&["box"]) + &target("box", "vllm", &here, "");
        let program = Program::start(&(FETCH.to_owned() + &base)).await;
        let body = picture(&format!("{}/a.png", host.url()));
        for (who, fetched) in [("one", 1), ("one", 1), ("two", 2), ("one", 2), ("two", 2)] {
            let answer = ask(program.addr, "POST", CHAT, &[("Authorization", &bearer(who))], &body).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert_eq!(sent(&here)["messages"][0]["content"][1]["image_url"]["url"], PNG_URL);
            assert_eq!(host.counts().requests, fetched, "{who}");
        }
        // Off, and for clients without a key, each turn stands for itself.
        let anonymous = groups(&["box"]) + &target("box", "vllm", &here, "");
        for (config, headers) in [
            (FETCH.to_owned() + "cache = 0\n" + &base, vec![("Authorization", bearer("one"))]),
            (FETCH.to_owned() + &anonymous, vec![]),
        ] {
            let program = Program::start(&config).await;
            let before = host.counts().requests;
            let headers: Vec<(&str, &str)> =
                headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            for _ in 0..2 {
                assert_eq!(ask(program.addr, "POST", CHAT, &headers, &body).await.status, 200);
            }
            assert_eq!(host.counts().requests, before + 2);
        }
    });
}

#[test]
fn a_file_id_goes_to_its_provider_alone_or_as_the_bytes_that_were_seen() {
    run(LIMIT, async {
        let (here, far) =
            (SimServer::start(healthy("a")).await.unwrap(), SimServer::start(healthy("b")).await.unwrap());
        let file = |inner: Value| chat(&json!([{"type":"file","file":inner}]));
        let by_id = file(json!({"file_id":"file-7"}));
        let config = key("one")
            + &key("two")
            + &groups(&["claude", "far"])
            + &cloud("claude", "anthropic", &here)
            + &cloud("far", "openai", &far);
        let program = Program::start(&config).await;
        let one = [("Authorization", bearer("one"))];
        let one: Vec<(&str, &str)> = one.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let answer = ask(program.addr, "POST", CHAT, &one, &by_id).await;
        assert_eq!(
            (answer.status, answer.header("x-edgeward-target")),
            (200, Some("far")),
            "{}",
            answer.text()
        );
        assert_eq!(sent(&far)["messages"][0]["content"][0]["file"]["file_id"], "file-7");
        assert_eq!(here.counts().requests, 0);
        // Seen once with its bytes, it goes anywhere, but for nobody else.
        let whole = file(json!({"file_id":"file-7","file_data":PDF,"filename":"a.pdf"}));
        for body in [&whole, &by_id] {
            let answer = ask(program.addr, "POST", CHAT, &one, body).await;
            let who = answer.header("x-edgeward-target");
            assert_eq!((answer.status, who), (200, Some("claude")), "{}", answer.text());
            assert_eq!(sent(&here)["messages"][0]["content"][0]["source"]["data"], "JVBERi0xLjc=");
        }
        // In the client's own dialect too, and the rest of the body as it was.
        let base = key("one") + &groups(&["box"]) + &target("box", "vllm", &here, "");
        let program = Program::start(&base).await;
        for body in [&whole, &by_id] {
            let answer = ask(program.addr, "POST", CHAT, &one, body).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert_eq!(sent(&here)["messages"][0]["content"][0]["file"]["file_data"], PDF);
            assert_eq!(sent(&here)["top_k"], 3);
        }
        let program = Program::start(&config).await;
        let two = bearer("two");
        let answer = ask(program.addr, "POST", CHAT, &[("Authorization", &two)], &by_id).await;
        assert_eq!(answer.header("x-edgeward-target"), Some("far"));

        let program = Program::start(&(groups(&["claude"]) + &cloud("claude", "anthropic", &here))).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &by_id).await;
        assert!(answer.text().contains("does not know that file's id"), "{}", answer.text());
    });
}
