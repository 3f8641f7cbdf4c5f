//! Who may come in: keys, Host, origins, operators; and which paths and methods there are.

use edgeward::sim::model::healthy;
use edgeward::sim::script::parse;
use edgeward::sim::server::SimServer;
use ring::digest::{SHA256, digest};

use crate::LIMIT;
use crate::program::{CHAT, Folder, Program, Wire, ask, chat, outcome, request, run, target};

fn sha256(key: &str) -> String {
    digest(&SHA256, key.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_key_in_each_of_its_forms_opens_and_nothing_else_does() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        let folder = Folder::new();
        folder.write("file.key", "key-in-a-file-0123456789\n");
        let config = format!(
            "[[key]]\nname = \"one\"\nsha256 = \"{}\"\n[[key]]\nname = \"two\"\nfile = \"file.key\"\n\
             [[key]]\nname = \"three\"\nenv = \"KEY_THREE\"\n{}",
            sha256("key-by-its-hash-0123456789"),
            target("a", "ollama", &server, "key = { env = \"UPSTREAM\" }")
        );
        let env = [("KEY_THREE", "key-in-the-environment-01"), ("UPSTREAM", "the-targets-own")];
        let program = Program::start_in(folder, &config, &env).await;
        let chat = chat(true);
        for key in ["key-by-its-hash-0123456789", "key-in-a-file-0123456789", "key-in-the-environment-01"] {
            for (name, value) in [("Authorization", format!("Bearer {key}")), ("X-Api-Key", key.to_owned())] {
                let answer = ask(program.addr, "POST", CHAT, &[(name, &value)], &chat).await;
                assert_eq!(answer.status, 200, "{name}: {value}");
                let request = server.requests().pop().unwrap();
                assert_eq!(request.header("authorization"), Some("Bearer the-targets-own"));
                assert_eq!(request.header("x-api-key"), None);
            }
        }
        let before = server.counts().requests;
        for headers in [
            &[][..],
            &[("Authorization", "Bearer wrong")],
            &[("X-Api-Key", "wrong")],
            &[("Authorization", "Basic a2V5LWluLWEtZmlsZQ==")],
            &[("Authorization", "Bearer")],
            &[("Authorization", "Bearer ")],
            &[("X-Api-Key", "")],
            &[("Authorization", "Bearer wrong"), ("X-Api-Key", "key-in-a-file-0123456789")],
        ] {
            for (path, body, pointer, kind) in [
                (CHAT, chat.as_str(), "/error/code", "invalid_api_key"),
                ("/api/chat", r#"{"model":"m"}"#, "", ""),
                (
                    "/v1/messages",
                    r#"{"model":"m","max_tokens":9,"messages":[]}"#,
                    "/error/type",
                    "authentication_error",
                ),
            ] {
                let answer = ask(program.addr, "POST", path, headers, body).await;
                assert_eq!(answer.status, 401, "{path} {headers:?}");
                let error: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
                if pointer.is_empty() {
                    assert!(error["error"].is_string(), "{error}");
                } else {
                    assert_eq!(error.pointer(pointer).unwrap(), kind, "{error}");
                }
                assert!(answer.header("x-edgeward-request-id").is_some());
                assert!(answer.header("www-authenticate").is_some_and(|value| value.starts_with("Bearer")));
            }
        }
        assert_eq!(server.counts().requests, before);
        assert!(!program.log().contains("key-in"), "{}", program.log());
        // Open to all, and saying no more than that.
        for (path, body) in [("/edgeward/health", "ok\n"), ("/edgeward/ready", "ready\n")] {
            assert_eq!(ask(program.addr, "GET", path, &[], "").await.text(), body);
        }
        // For operators: on the box itself without a key, but not for a page or another's request that is passed on.
        for path in ["status", "metrics", "events", "config", "drill"] {
            let path = format!("/edgeward/{path}");
            let get =
                async |headers: &[(&str, &str)]| ask(program.addr, "GET", &path, headers, "").await.status;
            assert_eq!(get(&[]).await, if path.ends_with("drill") { 404 } else { 200 }, "{path}");
            for foreign in [
                ("Origin", "http://page"),
                ("X-Forwarded-For", "203.0.113.9"),
                ("X-Api-Key", "wrong-key-0123456789"),
            ] {
                assert_eq!(get(&[foreign]).await, 401, "{path} {foreign:?}");
            }
        }
    });
}

#[test]
fn a_target_may_be_given_the_clients_own_key() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        let program = Program::start(&target("a", "openai", &server, "forward_key = true")).await;
        let headers = [("Authorization", "Bearer mine"), ("Cookie", "a=b")];
        assert_eq!(ask(program.addr, "POST", CHAT, &headers, &chat(false)).await.status, 200);
        let request = server.requests().pop().unwrap();
        assert_eq!(request.header("authorization"), Some("Bearer mine"));
        assert_eq!(request.header("cookie"), None);
    });
}

#[test]
fn what_a_client_sends_beside_its_request_ends_here() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        let program = Program::start(&target("a", "openai", &server, "")).await;
        let dirty = [
            ("Expect", "100-continue"),
            ("TE", "trailers"),
            ("Connection", "TE, keep-alive, X-Secret"),
            ("X-Secret", "1"),
            ("Proxy-Authorization", "Basic eA=="),
            ("X-Forwarded-For", "1.2.3.4"),
            ("Origin", "http://page"),
            ("Accept-Encoding", "gzip"),
            ("Range", "bytes=0-1"),
            ("User-Agent", "test"),
        ];
        let mut wire = Wire::connect(program.addr).await;
        wire.write(request("POST", CHAT, &dirty, &chat(false))).await;
        assert_eq!(wire.head().await.unwrap().status, 100);
        assert_eq!(wire.answer().await.status, 200);
        let request = server.requests().remove(0);
        let mut names: Vec<String> =
            request.headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
        names.sort_unstable();
        assert_eq!(names, ["accept-encoding", "content-length", "content-type", "host", "user-agent"]);
        assert_eq!(request.header("host"), Some(server.addr().to_string().as_str()));
    });
}

#[test]
fn a_host_that_nobody_configured_is_refused() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        let config = format!("hosts = [\"box.lan\"]\n{}", target("a", "openai", &server, ""));
        let program = Program::start(&config).await;
        for (host, status) in [
            ("localhost", 200),
            ("LOCALHOST:8484", 200),
            ("127.0.0.1:1", 200),
            ("192.168.1.5", 200),
            ("[::1]:8484", 200),
            ("box.lan", 200),
            ("Box.LAN.:80", 200),
            ("evil.example", 403),
            ("127.0.0.1.evil.example", 403),
            ("localhost.evil.example:80", 403),
            ("evil@localhost", 403),
            ("0x7f.1", 403),
            ("", 403),
        ] {
            let answer = ask(program.addr, "GET", "/v1/models", &[("Host", host)], "").await;
            assert_eq!(answer.status, status, "{host}: {}", answer.text());
            // Not even health tells a page that it is there.
            assert_eq!(
                ask(program.addr, "GET", "/edgeward/health", &[("Host", host)], "").await.status,
                status
            );
        }
        let twice = [("Host", "localhost"), ("Host", "localhost")];
        assert_eq!(ask(program.addr, "GET", "/v1/models", &twice, "").await.status, 400);
        let absolute = ask(program.addr, "GET", "http://evil.example/v1/models", &[], "").await;
        assert_eq!(absolute.status, 400);
    });
}

#[test]
fn paths_methods_and_types_are_exact() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        let program = Program::start(&target("a", "ollama", &server, "")).await;
        let ask = async |method: &str, path: &str, headers: &[(&str, &str)], body: &str| {
            ask(program.addr, method, path, headers, body).await
        };
        for path in [
            "/v1/chat/completions/",
            "/v1//chat/completions",
            "/v1/%63hat/completions",
            "/v1/../v1/models",
            "/nowhere",
            "/v1",
        ] {
            assert_eq!(ask("POST", path, &[], &chat(true)).await.status, 404, "{path}");
        }
        for (method, path, allow) in [
            ("GET", CHAT, "POST"),
            ("POST", "/v1/models", "GET, HEAD"),
            ("PUT", "/api/tags", "GET, HEAD"),
            ("GET", "/edgeward/requests/ab", "DELETE"),
        ] {
            let answer = ask(method, path, &[], "").await;
            assert_eq!((answer.status, answer.header("allow")), (405, Some(allow)), "{method} {path}");
        }
        for query in ["key=a", "x=1&API_KEY=a", "token=a", "access_token=a"] {
            let answer = ask("POST", &format!("{CHAT}?{query}"), &[], &chat(true)).await;
            assert_eq!(answer.status, 400, "{query}");
        }
        assert_eq!(ask("POST", &format!("{CHAT}?beta=true"), &[], &chat(true)).await.status, 200);
        assert_eq!(server.requests().pop().unwrap().path, CHAT, "no query goes upstream");
        for kind in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "application/jsonp",
            "",
            "multipart/form-data; application/json",
        ] {
            let answer = ask("POST", CHAT, &[("Content-Type", kind)], &chat(true)).await;
            assert_eq!(answer.status, 415, "{kind}");
        }
        assert_eq!(
            ask("POST", CHAT, &[("Content-Type", "Application/JSON; charset=utf-8")], &chat(true))
                .await
                .status,
            200
        );
        for path in ["/v1/models", "/edgeward/health", "/edgeward/status", "/", "/api/version"] {
            let answer = ask("HEAD", path, &[], "").await;
            assert_eq!((answer.status, answer.body.len()), (200, 0), "{path}");
        }
    });
}

#[test]
fn only_configured_origins_may_call_from_a_browser() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        let config =
            format!("[cors]\norigins = [\"https://chat.lan\"]\n{}", target("a", "openai", &server, ""));
        let program = Program::start(&config).await;
        let ask = async |method: &str, origin: &str| {
            let headers = [
                ("Origin", origin),
                ("Access-Control-Request-Method", "POST"),
                ("Access-Control-Request-Headers", "x-a, content-type"),
            ];
            let body = if method == "POST" { chat(true) } else { String::new() };
            ask(program.addr, method, CHAT, &headers, &body).await
        };
        let good = ask("OPTIONS", "https://chat.lan").await;
        assert_eq!(
            (good.status, good.header("access-control-allow-origin")),
            (204, Some("https://chat.lan"))
        );
        assert_eq!(good.header("access-control-allow-headers"), Some("x-a, content-type"));
        assert!(good.header("access-control-allow-methods").unwrap().contains("POST"));
        assert_eq!(good.header("content-length"), None, "RFC 9110 8.6: not in a 204");
        let bad = ask("OPTIONS", "https://evil.example").await;
        assert_eq!((bad.status, bad.header("access-control-allow-origin")), (403, None));
        let good = ask("POST", "https://chat.lan").await;
        assert_eq!(
            (good.status, good.header("access-control-allow-origin")),
            (200, Some("https://chat.lan"))
        );
        assert!(good.header("access-control-expose-headers").unwrap().contains("x-edgeward-request-id"));
        assert!(good.header("vary").unwrap().contains("origin"));
        let bad = ask("POST", "https://evil.example").await;
        assert_eq!(bad.header("access-control-allow-origin"), None);
    });
}

#[test]
fn open_to_the_network_without_keys_is_refused_at_the_start() {
    run(LIMIT, async {
        for verb in ["run", "check"] {
            let output = outcome(verb, "listen = [\"0.0.0.0:0\"]\n").await;
            let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            assert_eq!(output.status.code(), Some(78), "{text}");
            assert!(text.contains("allow_anonymous"), "{text}");
        }
    });
}

/// A target that repeats its key in an error: the log and the client have it without.
#[test]
fn a_key_that_its_target_repeats_stays_here() {
    run(LIMIT, async {
        const KEY: &str = "sk-ours-0123456789";
        let said = format!("{{\"error\":{{\"message\":\"bad key {KEY}\"}}}}");
        for (script, status) in [
            (format!("REPLY 400 application/json | {said}"), 400),
            (format!("REPLY 500 application/json | {said}"), 502),
            (format!("SSE\nD {said}\nEND"), 502),
        ] {
            let server = SimServer::start(parse(&script).unwrap()).await.unwrap();
            let config = target("a", "openai", &server, "key = { env = \"A_KEY\" }");
            let program = Program::start_in(Folder::new(), &config, &[("A_KEY", KEY)]).await;
            let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
            assert_eq!(answer.status, status, "{script}: {}", answer.text());
            assert!(answer.text().contains("bad key ***"), "{script}: {}", answer.text());
            program.logged(&["request_done"]).await;
            assert!(!answer.text().contains(KEY) && !program.log().contains(KEY), "{script}");
        }
    });
}
