//! Lists, Ollama's other endpoints, embeddings, TLS, and what operators see.

use std::sync::Arc;

use edgeward::sim::model::healthy;
use edgeward::sim::script::{Op, Script, parse};
use edgeward::sim::server::SimServer;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::LIMIT;
use crate::program::{
    CHAT, Folder, Program, SOON, Wire, ask, chat, command, find, outcome, request, run, target,
};

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).expect("JSON")
}

#[test]
fn models_are_the_union_of_what_can_be_asked_for() {
    run(LIMIT, async {
        let box_models = SimServer::start(healthy("a").models(&["llama3.2:3b", "org/name"])).await.unwrap();
        let mapped = SimServer::start(healthy("b").models(&["hidden"])).await.unwrap();
        let dead = SimServer::start(parse("REFUSE").unwrap()).await.unwrap();
        let config = target("a", "ollama", &box_models, "")
            + &target("b", "openai", &mapped, "models = { \"llama3.2:3b\" = \"big\", fast = \"small\" }")
            + &target("c", "openai", &dead, "");
        let program = Program::start(&config).await;
        let answer = ask(program.addr, "GET", "/v1/models", &[], "").await;
        let list = json(&answer.body);
        let ids: Vec<&str> =
            list["data"].as_array().unwrap().iter().map(|m| m["id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["fast", "llama3.2:3b", "org/name"]);
        // As its server says; else by who offers it.
        assert_eq!(
            (&list["data"][1]["owned_by"], &list["data"][0]["owned_by"]),
            (&"sim".into(), &"b".into())
        );
        assert_eq!((&list["object"], &list["data"][0]["object"]), (&"list".into(), &"model".into()));
        for (id, status) in
            [("fast", 200), ("org/name", 200), ("llama3.2:3b", 200), ("hidden", 404), ("nothing", 404)]
        {
            let answer = ask(program.addr, "GET", &format!("/v1/models/{id}"), &[], "").await;
            assert_eq!(answer.status, status, "{id}");
            assert_eq!(json(&answer.body)["id"] == id, status == 200);
        }
        let version = [("anthropic-version", "2023-06-01")];
        let one = json(&ask(program.addr, "GET", "/v1/models/fast", &version, "").await.body);
        let list = json(&ask(program.addr, "GET", "/v1/models", &version, "").await.body);
        assert_eq!((&one["type"], &one["display_name"]), (&"model".into(), &"fast".into()));
        assert_eq!(list["data"][0], one);
    });
}

#[test]
fn models_keep_what_their_servers_say_of_them() {
    run(LIMIT, async {
        let entry = r#"{"id":"qwen","object":"model","created":1790000000,"owned_by":"vllm","root":"org/qwen","max_model_len":32768,"meta":{"n_ctx_train":8192},"status":{"value":"loaded"},"permission":[]}"#;
        // All but what tells of the server's inside: vLLM's path, and what llama.cpp's router tells of its own.
        let routed = r#"{"id":"routed","path":"/srv/b","root":"/srv/b","status":{"value":"failed","args":["--api-key","secret"],"preset":"model = /srv/b","exit_code":1},"tags":["b"]}"#;
        let odd = r#"{"id":"odd","root":null,"status":"loaded"}"#;
        let list = format!(
            r#"REPLY 200 application/json | {{"object":"list","data":[{entry},{routed},{odd},{{"id":"bare"}}]}}"#
        );
        let server = SimServer::start(parse(&list).unwrap()).await.unwrap();
        let more = "models = { fast = \"qwen\", \"*\" = \"*\" }";
        let program = Program::start(&target("a", "vllm", &server, more)).await;
        let listed = ask(program.addr, "GET", "/v1/models", &[], "").await;
        assert!(listed.text().contains(entry), "as it came: {}", listed.text());
        let one = ask(program.addr, "GET", "/v1/models/qwen", &[], "").await;
        assert_eq!(one.text(), entry);
        let named = ask(program.addr, "GET", "/v1/models/fast", &[], "").await;
        assert_eq!(named.text(), entry.replacen("qwen", "fast", 1), "the model that the name leads to");
        let told = json(&ask(program.addr, "GET", "/v1/models/routed", &[], "").await.body);
        assert_eq!(
            (&told["status"], &told["tags"]),
            (&serde_json::json!({"value": "failed", "exit_code": 1}), &serde_json::json!(["b"]))
        );
        assert!(!listed.text().contains("/srv") && !listed.text().contains("secret"), "{}", listed.text());
        let odd = json(&ask(program.addr, "GET", "/v1/models/odd", &[], "").await.body);
        assert!(odd.get("root").is_some_and(Value::is_null) && odd["status"] == "loaded", "{odd}");
        let bare = json(&ask(program.addr, "GET", "/v1/models/bare", &[], "").await.body);
        assert_eq!(bare, serde_json::json!({"id": "bare", "object": "model", "created": 0, "owned_by": "a"}));
    });
}

#[test]
fn health_is_what_model_servers_say() {
    run(LIMIT, async {
        let key = format!("[[key]]\nname = \"laptop\"\nsha256 = \"{}\"\n", "0".repeat(64));
        let server = SimServer::start(parse("REPLY 429 application/json;Retry-After: 60 | {}").unwrap())
            .await
            .unwrap();
        let program = Program::start(&format!("{key}{}", target("a", "openai", &server, ""))).await;
        for path in ["/health", "/v1/health"] {
            let answer = ask(program.addr, "GET", path, &[], "").await;
            assert_eq!(
                (answer.status, answer.text().as_str()),
                (200, r#"{"status":"ok"}"#),
                "no key is needed"
            );
        }
        for method in ["GET", "HEAD"] {
            let answer = ask(program.addr, method, "/", &[], "").await;
            let body = if method == "GET" { "Ollama is running" } else { "" };
            assert_eq!((answer.status, answer.text().as_str()), (200, body));
        }
        let program = Program::start(&target("a", "openai", &server, "")).await;
        assert_eq!(ask(program.addr, "POST", CHAT, &[], &chat(true)).await.status, 503);
        let answer = ask(program.addr, "GET", "/health", &[], "").await;
        assert_eq!((answer.status, answer.text().as_str()), (503, r#"{"status":"unavailable"}"#));
    });
}

#[test]
fn a_clients_mistakes_are_no_trouble_in_the_log() {
    run(LIMIT, async {
        let missing = r#"REPLY 404 application/json | {"error":{"message":"model 'typo' not found","type":"api_error"}}"#;
        let server = SimServer::start(parse(missing).unwrap()).await.unwrap();
        let config = target("a", "ollama", &server, "");
        let program = Program::start_in(Folder::new(), &config, &[("EDGEWARD_LOG", "debug")]).await;
        let typo = ask(program.addr, "POST", CHAT, &[], &chat(true).replacen("\"m\"", "\"typo\"", 1)).await;
        assert_eq!(typo.status, 404, "{}", typo.text());
        program.logged(&["INFO", "attempt_failed", "model_missing"]).await;
        program.logged(&["INFO", "request_done", "outcome=refused"]).await;
        assert_eq!(ask(program.addr, "POST", "/api/show", &[], r#"{"model":"typo"}"#).await.status, 404);
        assert_eq!(ask(program.addr, "GET", "/nope", &[], "").await.status, 404);
        program.logged(&["DEBUG", "GET /nope"]).await;
        assert_eq!(ask(program.addr, "PUT", CHAT, &[], "").await.status, 405);
        program.logged(&["DEBUG", "PUT /v1/chat/completions"]).await;
        let mut wire = Wire::connect(program.addr).await;
        wire.write("\x16\x03\x01\0\r\n\r\n").await;
        program.logged(&["DEBUG", "connection broke off"]).await;
        assert_eq!(ask(program.addr, "POST", CHAT, &[], "{").await.status, 400);
        for loud in ["WARN", "ERROR"] {
            assert!(!program.log().contains(loud), "{}", program.log());
        }
        // What the configuration itself names is its operator's to mend.
        let program = Program::start(&target("a", "ollama", &server, "models = { m = \"gone\" }")).await;
        assert_eq!(ask(program.addr, "POST", CHAT, &[], &chat(true)).await.status, 404);
        program.logged(&["ERROR", "target_misconfigured", "model_missing"]).await;
    });
}

#[test]
fn ollamas_read_endpoints_pass_and_its_writes_need_leave() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a").models(&["m", "n"])).await.unwrap();
        let other = SimServer::start(healthy("b")).await.unwrap();
        let both = target("b", "openai", &other, "") + &target("a", "ollama", &server, "");
        let program = Program::start(&both).await;
        for (method, path, body) in [
            ("GET", "/api/tags", ""),
            ("GET", "/api/ps", ""),
            ("GET", "/api/version", ""),
            ("POST", "/api/show", r#"{"model":"m"}"#),
        ] {
            let answer = ask(program.addr, method, path, &[], body).await;
            let direct = ask(server.addr(), method, path, &[], body).await;
            assert_eq!((answer.status, answer.clean), (200, true), "{path}: {}", answer.text());
            assert_eq!(answer.text(), direct.text(), "{path}");
            assert_eq!(answer.header("x-edgeward-target"), Some("a"));
            assert_eq!(answer.header("content-type"), direct.header("content-type"));
        }
        let head = ask(program.addr, "HEAD", "/", &[], "").await;
        assert_eq!(head.status, 200);
        let writes = [
            ("POST", "/api/pull"),
            ("POST", "/api/push"),
            ("POST", "/api/create"),
            ("POST", "/api/copy"),
            ("DELETE", "/api/delete"),
        ];
        let before = server.counts().requests;
        for (method, path) in writes {
            let answer = ask(program.addr, method, path, &[], r#"{"model":"m"}"#).await;
            assert_eq!(answer.status, 403, "{path}");
            assert!(answer.text().contains("ollama_writes") && json(&answer.body)["error"].is_string());
        }
        assert_eq!(server.counts().requests, before);
        server
            .set(parse("ND\nL {\"status\":\"pulling\"}\nWAIT 50\nL {\"status\":\"success\"}\nEND").unwrap());
        let program = Program::start(&format!("ollama_writes = true\n{both}")).await;
        for (method, path) in writes {
            let answer = ask(program.addr, method, path, &[], r#"{"model":"m","insecure":false}"#).await;
            assert_eq!(
                (answer.status, answer.text().as_str()),
                (200, "{\"status\":\"pulling\"}\n{\"status\":\"success\"}\n"),
                "{path}"
            );
            let request = server.requests().pop().unwrap();
            assert_eq!((request.method.as_str(), request.path.as_str()), (method, path));
            assert_eq!(request.body, br#"{"model":"m","insecure":false}"#);
        }
        assert_eq!(other.counts().accepted, 0);
    });
}

#[test]
fn a_pull_whose_client_goes_away_is_given_up() {
    run(LIMIT, async {
        let server =
            SimServer::start(parse("ND\nL {\"status\":\"pulling\"}\nHANG 60000").unwrap()).await.unwrap();
        let program = Program::start(&format!(
            "ollama_writes = true\n[limits]\ndrain = \"100ms\"\n{}",
            target("a", "ollama", &server, "")
        ))
        .await;
        let mut wire = Wire::connect(program.addr).await;
        wire.write(request("POST", "/api/pull", &[], r#"{"model":"m"}"#)).await;
        wire.until("pulling").await;
        drop(wire);
        tokio::time::timeout(SOON, server.idle()).await.unwrap();
        // And by its id.
        let mut wire = Wire::connect(program.addr).await;
        wire.write(request("POST", "/api/pull", &[], r#"{"model":"m"}"#)).await;
        let id = wire.head().await.unwrap().header("x-edgeward-request-id").unwrap().to_owned();
        wire.until("pulling").await;
        let cancelled = ask(program.addr, "DELETE", &format!("/edgeward/requests/{id}"), &[], "").await;
        assert_eq!(cancelled.status, 200, "{}", cancelled.text());
        tokio::time::timeout(SOON, server.idle()).await.expect("it is cancelled");
        let rest = wire.rest().await;
        assert!(find(&rest, b"{\"error\":").is_some() && !rest.ends_with(b"0\r\n\r\n"));
        assert_eq!(program.metric("edgeward_requests_total{outcome=\"cancelled\"}").await, 1.0);
        assert_eq!(program.metric("edgeward_requests_total{outcome=\"client_gone\"}").await, 1.0);
        assert_eq!(program.status().await["targets"][0]["failed"], 0);
        // Before it had an answer, and because of a stop.
        server.set(parse("HANG 60000").unwrap());
        let mut wire = Wire::connect(program.addr).await;
        wire.write(request("POST", "/api/show", &[], r#"{"model":"m"}"#)).await;
        server.requested(3).await;
        program.terminate();
        assert_eq!(wire.answer().await.status, 503);
        assert_eq!(program.exit_code().await, Some(0));
    });
}

#[test]
fn a_pause_that_a_target_asks_for_is_kept_here_too() {
    run(LIMIT, async {
        let Op::Reply(mut head, body) = Script::reply(429, "application/json", "{}").ops.remove(0) else {
            panic!("a reply")
        };
        head.headers.push(("Retry-After".to_owned(), "60".to_owned()));
        let script: Script = vec![Op::Reply(head, body)].into();
        let server = SimServer::start(script).await.unwrap();
        let program = Program::start(&target("a", "ollama", &server, "")).await;
        let answer = ask(program.addr, "POST", "/api/show", &[], r#"{"model":"m"}"#).await;
        let pause: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!(answer.status == 503 && (50..=60).contains(&pause), "{} {pause}", answer.status);
    });
}

#[test]
fn what_a_target_says_about_our_key_is_not_the_clients() {
    run(LIMIT, async {
        let locked = SimServer::start(parse("REPLY 401 application/json | {\"error\":\"no\"}").unwrap())
            .await
            .unwrap();
        let server = SimServer::start(healthy("b")).await.unwrap();
        let one = target("a", "ollama", &locked, "");
        let program = Program::start(&format!("{one}{}", target("b", "ollama", &server, ""))).await;
        let answer = ask(program.addr, "POST", "/api/show", &[], r#"{"model":"m"}"#).await;
        assert_eq!((answer.status, answer.header("x-edgeward-target")), (200, Some("b")));
        assert!(program.status().await["targets"][0]["reason"].as_str().unwrap().contains("misconfigured"));
        let program = Program::start(&one).await;
        let answer = ask(program.addr, "POST", "/api/show", &[], r#"{"model":"m"}"#).await;
        assert_eq!(answer.status, 502, "{}", answer.text());
        assert_eq!(program.metric("edgeward_requests_total{outcome=\"failed\"}").await, 1.0);
    });
}

#[test]
fn a_dead_pooled_connection_hides_no_models() {
    run(LIMIT, async {
        let list = || parse("REPLY 200 application/json | {\"data\":[{\"id\":\"x\"}]}").unwrap();
        let server = SimServer::start(vec![list(), parse("CUT").unwrap(), list()]).await.unwrap();
        let program = Program::start(&target("a", "openai", &server, "")).await;
        for _ in 0..2 {
            let answer = ask(program.addr, "GET", "/v1/models", &[], "").await;
            assert_eq!(json(&answer.body)["data"][0]["id"], "x", "{}", answer.text());
        }
        assert_eq!((server.counts().accepted, server.counts().requests), (2, 3));
    });
}

#[test]
fn embeddings_fail_over_within_their_family_only() {
    run(LIMIT, async {
        let dead = SimServer::start(parse("REFUSE").unwrap()).await.unwrap();
        for (families, by) in [(["x", "y", "x"], Some("c")), (["x", "y", "z"], None), (["", "", ""], None)] {
            let (two, three) = (
                SimServer::start(healthy("b")).await.unwrap(),
                SimServer::start(healthy("c")).await.unwrap(),
            );
            let more = families.map(|family| {
                if family.is_empty() { String::new() } else { format!("embeddings = \"{family}\"") }
            });
            let config = target("a", "ollama", &dead, &more[0])
                + &target("b", "ollama", &two, &more[1])
                + &target("c", "ollama", &three, &more[2]);
            let program = Program::start(&config).await;
            for (path, pointer) in [
                ("/v1/embeddings", "/data/1/embedding"),
                ("/api/embed", "/embeddings/1"),
                ("/api/embeddings", "/embedding"),
            ] {
                let answer =
                    ask(program.addr, "POST", path, &[], r#"{"model":"e","input":["a","b"],"prompt":"a"}"#)
                        .await;
                assert_eq!(answer.header("x-edgeward-target"), by, "{path} {families:?}: {}", answer.text());
                assert_eq!(answer.status, if by.is_some() { 200 } else { 502 }, "{path}");
                assert_eq!(
                    json(&answer.body).pointer(pointer).is_some(),
                    by.is_some(),
                    "{path}: {}",
                    answer.text()
                );
            }
            assert_eq!(two.counts().requests, 0);
        }
    });
}

#[test]
fn the_lan_side_speaks_tls() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        let folder = Folder::new();
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        folder.write("cert.pem", &made.cert.pem());
        folder.write("key.pem", &made.signing_key.serialize_pem());
        let config = format!(
            "admin_listen = \"admin.sock\"\n[tls]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n{}",
            target("a", "openai", &server, "")
        );
        let program = Program::start_in(folder, &config, &[]).await;
        let mut roots = rustls::RootCertStore::empty();
        roots
            .add(rustls::pki_types::CertificateDer::from_pem_slice(made.cert.pem().as_bytes()).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(client));
        let tls = async || {
            let socket = TcpStream::connect(program.addr).await.unwrap();
            connector.connect("localhost".try_into().unwrap(), socket).await.unwrap()
        };
        let mut wire = Wire::over(tls().await);
        for stream in [true, false] {
            wire.write(request("POST", CHAT, &[], &chat(stream))).await;
            let answer = wire.answer().await;
            assert_eq!((answer.status, answer.clean), (200, true));
        }
        // A hangup behind TLS cancels as well.
        server.set(parse("HANG 60000").unwrap());
        let mut gone = Wire::over(tls().await);
        gone.write(request("POST", CHAT, &[], &chat(true))).await;
        server.requested(3).await;
        drop(gone);
        tokio::time::timeout(SOON, server.aborted(1)).await.unwrap();
        drop(wire);
        // Plain HTTP gets nowhere, and harms nobody.
        let mut plain = Wire::connect(program.addr).await;
        plain.write(request("GET", "/edgeward/health", &[], "")).await;
        assert!(!String::from_utf8_lossy(&plain.rest().await).contains("ok"));
        let status = command_in(&program, "status").await;
        assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    });
}

#[test]
fn a_connection_counts_before_its_handshake() {
    run(LIMIT, async {
        let folder = Folder::new();
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        folder.write("cert.pem", &made.cert.pem());
        folder.write("key.pem", &made.signing_key.serialize_pem());
        let config = "[tls]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n[limits]\nconnections = 2\n";
        let program = Program::start_in(folder, config, &[]).await;
        let _silent = [Wire::connect(program.addr).await, Wire::connect(program.addr).await];
        let mut third = Wire::connect(program.addr).await;
        assert!(third.ends().await, "turned away");
    });
}

/// Another command on a running program's own configuration.
async fn command_in(program: &Program, verb: &str) -> std::process::Output {
    let config = std::fs::read_to_string(program.folder.0.join("edgeward.toml")).unwrap();
    let config = config.replacen("127.0.0.1:0", &program.addr.to_string(), 1);
    let mut command = command(&program.folder, verb, &config, &[]);
    tokio::time::timeout(SOON, command.output()).await.unwrap().unwrap()
}

#[test]
fn status_and_check_say_what_runs_and_by_their_code_whether() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        for admin in ["", "admin_listen = \"admin.sock\"\n"] {
            let program = Program::start(&format!("{admin}{}", target("a", "openai", &server, ""))).await;
            assert_eq!(ask(program.addr, "POST", CHAT, &[], &chat(true)).await.status, 200);
            let status = command_in(&program, "status").await;
            let text = String::from_utf8(status.stdout).unwrap();
            assert_eq!(status.status.code(), Some(0), "{text}");
            assert!(text.contains("+ a") && text.contains("answered 1, failed 0"), "{text}");
            let check = command_in(&program, "check").await;
            assert_eq!(check.status.code(), Some(0));
            let socket = program.folder.0.join("admin.sock");
            assert_eq!(socket.exists(), !admin.is_empty());
            if !admin.is_empty() {
                use std::os::unix::fs::PermissionsExt as _;
                assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o660);
            }
            program.terminate();
            assert_eq!(program.exit_code().await, Some(0));
            assert!(!socket.exists(), "its socket goes with it");
            let status = command_in(&program, "status").await;
            assert_eq!(status.status.code(), Some(1));
            assert!(String::from_utf8(status.stderr).unwrap().contains("edgeward run"));
        }
        // Where clients need a key, whoever is on the box asks without one.
        let key = format!("[[key]]\nname = \"laptop\"\nsha256 = \"{}\"\n", "0".repeat(64));
        let program = Program::start(&format!("{key}{}", target("a", "openai", &server, ""))).await;
        let status = command_in(&program, "status").await;
        assert_eq!(status.status.code(), Some(0));
        assert_eq!(ask(program.addr, "POST", "/edgeward/trace", &[], "{}").await.status, 200);
        assert_eq!(ask(program.addr, "POST", CHAT, &[], &chat(true)).await.status, 401);
        for verb in ["run", "check", "status"] {
            let bad =
                outcome(verb, "listen = [\"127.0.0.1:1\"]\nlissten = 1\n[[target]]\nname = \"A B\"\n").await;
            assert_eq!(bad.status.code(), Some(78), "{verb}");
            let said = String::from_utf8_lossy(&[bad.stdout, bad.stderr].concat()).into_owned();
            assert!(said.contains("lissten") && said.contains("A B"), "{verb}: {said}");
        }
    });
}

#[test]
fn an_address_in_use_is_said_and_fails() {
    run(LIMIT, async {
        let program = Program::start("").await;
        let taken = outcome("run", &format!("listen = [\"{}\"]\n", program.addr)).await;
        assert_eq!(taken.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&taken.stderr).contains(&program.addr.to_string()));
    });
}

#[test]
fn operators_see_what_happened() {
    run(LIMIT, async {
        let server = SimServer::start(vec![
            parse("CUT").unwrap(),
            healthy("a").answer(&edgeward::sim::server::SimRequest {
                method: "POST".into(),
                path: CHAT.into(),
                body: chat(true).into_bytes(),
                ..Default::default()
            }),
        ])
        .await
        .unwrap();
        let program = Program::start(&target("a", "openai", &server, "")).await;
        let body = chat(true).replace("hi", "zebra");
        assert_eq!(ask(program.addr, "POST", CHAT, &[], &body).await.status, 502);
        assert_eq!(ask(program.addr, "POST", CHAT, &[], &body).await.status, 200);
        let status = program.status().await;
        let target = &status["targets"][0];
        assert_eq!(
            (&target["committed"], &target["failed"], &target["candidate"]),
            (&1.into(), &1.into(), &true.into())
        );
        assert_eq!((status["requests"].clone(), status["draining"].clone()), (0.into(), false.into()));
        let metrics = program.metrics().await;
        assert_eq!(metrics["edgeward_attempts_total{target=\"a\",result=\"committed\"}"], 1.0);
        assert_eq!(metrics["edgeward_attempts_total{target=\"a\",result=\"closed\"}"], 1.0);
        assert_eq!(metrics["edgeward_requests_total{outcome=\"failed\"}"], 1.0);
        assert_eq!(metrics["edgeward_requests_total{outcome=\"answered\"}"], 1.0);
        program.logged(&["attempt_failed", "closed"]).await;
        program.logged(&["request_done", "a:committed"]).await;
        assert!(!program.log().contains("zebra"), "no prompts: {}", program.log());
    });
}

#[test]
fn no_target_at_all_is_said() {
    run(LIMIT, async {
        // Without a target it looks for local servers on their usual ports, where one may really be.
        for server in edgeward::config::LOCAL_SERVERS {
            if TcpStream::connect(("127.0.0.1", server.port)).await.is_ok() {
                return;
            }
        }
        let program = Program::start("").await;
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!(answer.status, 503, "{}", answer.text());
        assert!(answer.header("retry-after").is_some());
        assert_eq!(ask(program.addr, "GET", "/edgeward/ready", &[], "").await.status, 503);
        assert_eq!(ask(program.addr, "GET", "/edgeward/health", &[], "").await.status, 200);
        assert_eq!(
            json(&ask(program.addr, "GET", "/v1/models", &[], "").await.body)["data"],
            Value::Array(Vec::new())
        );
    });
}
