//! Probes: what they ask, what counts as an answer, and what they leave alone.

use edgeward::sim::model::healthy;
use edgeward::sim::script::{Script, parse};
use edgeward::sim::server::{Behaviour, SimServer};

use crate::LIMIT;
use crate::program::{CHAT, Program, ask, chat, run, target};

const OFTEN: &str = "[probe]\nevery = \"1s\"\nevery_cloud = \"1s\"\ntimeout = \"1s\"\n";

fn counted(target: &str, result: &str) -> String {
    format!("edgeward_probes_total{{target=\"{target}\",result=\"{result}\"}}")
}

fn reply(status: u16) -> Script {
    Script::reply(status, "application/json", "{}")
}

#[test]
fn each_kind_is_asked_what_costs_it_least_with_its_own_key() {
    run(LIMIT, async {
        let kinds = [
            ("ollama", "/api/version", ""),
            ("vllm", "/health", ""),
            ("llamacpp", "/health", ""),
            ("openai", "/v1/models", "key = { env = \"KEY\" }"),
            ("anthropic", "/v1/models", "key = { env = \"KEY\" }"),
            ("openai", "/up", "probe = { path = \"/up\" }"),
            ("openai", "", "probe = false"),
        ];
        let mut config = OFTEN.to_owned();
        let mut servers = Vec::new();
        for (n, (kind, _, more)) in kinds.iter().enumerate() {
            let server = SimServer::start(reply(200)).await.unwrap();
            config += &target(&format!("t{n}"), kind, &server, more);
            servers.push(server);
        }
        let program =
            Program::start_in(crate::program::Folder::new(), &config, &[("KEY", "sk-probes-own-key")]).await;
        for (n, (server, (kind, path, more))) in servers.iter().zip(kinds).enumerate() {
            if path.is_empty() {
                continue;
            }
            server.requested(1).await;
            let asked = server.requests().remove(0);
            assert_eq!((asked.method.as_str(), asked.path.as_str()), ("GET", path));
            if kind == "ollama" {
                server.requested(2).await;
                assert_eq!(server.requests()[1].path, "/api/ps");
            }
            let key = if kind == "anthropic" { "x-api-key" } else { "authorization" };
            assert_eq!(
                asked.header(key).is_some_and(|key| key.ends_with("sk-probes-own-key")),
                !more.is_empty() && more.contains("key")
            );
            program.until_metric_is(&counted(&format!("t{n}"), "ok"), |count| count >= 1.0).await;
        }
        assert_eq!(servers[6].counts().accepted, 0, "probe = false");
        let status = program.status().await;
        for target in status["targets"].as_array().unwrap() {
            assert_eq!(
                (&target["committed"], &target["failed"], &target["in_flight"]),
                (&0.into(), &0.into(), &0.into())
            );
        }
    });
}

#[test]
fn whoever_answers_is_there_and_who_loads_or_breaks_is_not() {
    run(LIMIT, async {
        let cases = [
            ("openai", 401, "ok", ""),
            ("openai", 403, "ok", ""),
            ("openai", 429, "ok", ""),
            ("openai", 404, "ok", ""),
            ("openai", 501, "ok", ""),
            ("openai", 501, "failed", "probe = { path = \"/up\" }"),
            ("openai", 404, "failed", "probe = { path = \"/up\" }"),
            ("llamacpp", 503, "failed", ""),
            ("vllm", 500, "failed", ""),
            ("openai", 302, "failed", ""),
        ];
        let mut config = OFTEN.to_owned();
        let mut servers = Vec::new();
        for (n, (kind, status, _, more)) in cases.iter().enumerate() {
            let server = SimServer::start(reply(*status)).await.unwrap();
            config += &target(&format!("t{n}"), kind, &server, more);
            servers.push(server);
        }
        let silent = SimServer::start(parse("HANG 60000").unwrap()).await.unwrap();
        config += &target("silent", "openai", &silent, "");
        let program = Program::start(&config).await;
        for (n, (_, _, result, _)) in cases.iter().enumerate() {
            let (name, other) = (format!("t{n}"), if *result == "ok" { "failed" } else { "ok" });
            program.until_metric_is(&counted(&name, result), |count| count >= 1.0).await;
            assert_eq!(program.metric(&counted(&name, other)).await, 0.0, "{n}");
        }
        program.until_metric_is(&counted("silent", "failed"), |count| count >= 1.0).await;
        drop(servers);
    });
}

#[test]
fn a_probe_takes_no_connection_that_a_request_could_use() {
    run(LIMIT, async {
        let good = healthy("a");
        // A probe that is never answered holds its connection to its deadline.
        let server = SimServer::start(Behaviour::by(move |request| {
            if request.path == CHAT { good.answer(request) } else { parse("HANG 60000").unwrap() }
        }))
        .await
        .unwrap();
        let config = format!("{OFTEN}{}", target("a", "openai", &server, ""));
        let program = Program::start(&config).await;
        assert_eq!(ask(program.addr, "POST", CHAT, &[], &chat(true)).await.status, 200);
        server.until(|counts| counts.requests >= 2).await;
        assert_eq!(server.counts().accepted, 2, "the probe has one of its own");
        assert_eq!(ask(program.addr, "POST", CHAT, &[], &chat(true)).await.status, 200);
        assert_eq!(server.counts().accepted, 2, "the request has the one from before");
    });
}
