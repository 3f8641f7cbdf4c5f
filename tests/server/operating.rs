//! What operators do: drills, and the bundle for a bug report.

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Output, Stdio};

use edgeward::sim::model::healthy;
use edgeward::sim::script::parse;
use edgeward::sim::server::SimServer;
use serde_json::Value;
use tokio::process::Command;

use crate::LIMIT;
use crate::program::{CHAT, Folder, Program, SOON, ask, chat, run, target};
use crate::reload::rewrite;

const DRILL: &str = "/edgeward/drill";
const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

/// Another command on a running program's own configuration, in its folder.
fn beside(program: &Program, args: &[&str], env: &[(&str, &str)]) -> Command {
    let file = program.folder.0.join("edgeward.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    let config = config.replacen("127.0.0.1:0", &program.addr.to_string(), 1);
    let beside = program.folder.write("beside.toml", &config);
    let mut command = Command::new(env!("CARGO_BIN_EXE_edgeward"));
    command
        .args(args)
        .arg("--config")
        .arg(beside)
        .env_clear()
        .envs(env.iter().copied())
        .current_dir(&program.folder.0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

async fn said(mut command: Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } =
        tokio::time::timeout(SOON * 3, command.output()).await.unwrap().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

async fn drill(program: &Program, method: &str, body: &str) -> (u16, Value) {
    let answer = ask(program.addr, method, DRILL, &JSON, body).await;
    (answer.status, serde_json::from_slice(&answer.body).unwrap())
}

#[test]
fn a_drill_shows_what_clients_would_see() {
    run(LIMIT, async {
        let (one, two) =
            (SimServer::start(healthy("a")).await.unwrap(), SimServer::start(healthy("b")).await.unwrap());
        let config = target("box", "openai", &one, "") + &target("cloud", "openai", &two, "");
        let program = Program::start(&config).await;
        let child = beside(&program, &["drill", "--requests", "2"], &[]).spawn().unwrap();
        program.logged(&["drill_started", "target=box"]).await;
        for _ in 0..2 {
            let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
            assert_eq!((answer.status, answer.clean), (200, true));
            assert_eq!(answer.header("x-edgeward-attempts"), Some("box:drill,cloud:committed"));
        }
        // The drill is over; the box is asked again, and nothing is held against it.
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!(answer.header("x-edgeward-attempts"), Some("box:committed"));
        assert_eq!((one.counts().requests, two.counts().requests), (1, 2));
        let status = program.status().await;
        assert_eq!(status["targets"][0]["failed"], 0, "{status}");
        let output = tokio::time::timeout(SOON, child.wait_with_output()).await.unwrap().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{text}");
        assert!(text.starts_with("2 of 2 requests were answered by `cloud`. First token after "), "{text}");
        assert!(text.contains("Clients noticed nothing."), "{text}");
        program.logged(&["drill_ended", "drilled=2"]).await;
        program.logged(&["attempt_failed", "cause=drill"]).await;
        program.logged(&["request_done", "place=local", "box:drill"]).await;
    });
}

#[test]
fn a_drill_leaves_nothing_behind() {
    run(LIMIT, async {
        let (one, two) =
            (SimServer::start(healthy("a")).await.unwrap(), SimServer::start(healthy("b")).await.unwrap());
        let config = format!(
            "[breaker]\nconsecutive = 1\n{}{}",
            target("box", "openai", &one, "max_concurrent = 1"),
            target("cloud", "openai", &two, "")
        );
        let program = Program::start(&config).await;
        assert_eq!(drill(&program, "POST", r#"{"requests":3}"#).await.0, 200);
        // One conversation, told by its header: it goes home as soon as the drill is over.
        let session = [("x-edgeward-session", "s")];
        for by in ["cloud", "cloud", "cloud", "box", "box"] {
            let answer = ask(program.addr, "POST", CHAT, &session, &chat(true)).await;
            assert_eq!((answer.status, answer.header("x-edgeward-target")), (200, Some(by)));
        }
        let status = program.status().await;
        let on_the_box = &status["targets"][0];
        assert_eq!((&on_the_box["failed"], &on_the_box["in_flight"]), (&0.into(), &0.into()), "{status}");
        assert_eq!(on_the_box["models"][0]["breaker"], "closed", "{status}");
        assert_eq!(status["drill"], Value::Null);
    });
}

#[test]
fn a_drill_is_bounded_and_one_at_a_time() {
    run(LIMIT, async {
        let (one, two) =
            (SimServer::start(healthy("a")).await.unwrap(), SimServer::start(healthy("b")).await.unwrap());
        let config = target("box", "openai", &one, "") + &target("cloud", "openai", &two, "");
        let program = Program::start(&config).await;
        assert_eq!(drill(&program, "GET", "").await.0, 404);
        assert_eq!(drill(&program, "DELETE", "").await.0, 404);
        for (bad, word) in [
            (r#"{"requests":0}"#, "1 to 1000"),
            (r#"{"share_permille":1001,"for_ms":1}"#, "100%"),
            (r#"{"share_permille":100,"for_ms":600001}"#, "10 minutes"),
            (r#"{"share_permille":100}"#, "a share and a time"),
            (r#"{"target":"nobody"}"#, "there are box, cloud"),
            (r#"{"targte":"box"}"#, "targte"),
            ("{", "no drill"),
        ] {
            let (status, said) = drill(&program, "POST", bad).await;
            assert_eq!(status, 400, "{bad}");
            assert!(said["error"]["message"].as_str().unwrap().contains(word), "{bad}: {said}");
        }
        let (status, begun) = drill(&program, "POST", r#"{"share_permille":500,"for_ms":600000}"#).await;
        assert_eq!((status, &begun["target"], &begun["stage"]), (200, &"box".into(), &"running".into()));
        let (status, said) = drill(&program, "POST", "{}").await;
        assert_eq!(status, 409);
        assert!(said["error"]["message"].as_str().unwrap().contains("running already"), "{said}");
        for _ in 0..4 {
            assert_eq!(ask(program.addr, "POST", CHAT, &[], &chat(false)).await.status, 200);
        }
        assert_eq!((one.counts().requests, two.counts().requests), (2, 2), "every second one");
        let (_, report) = drill(&program, "DELETE", "").await;
        assert_eq!(
            (&report["stage"], &report["met"], &report["drilled"]),
            (&"over".into(), &4.into(), &2.into())
        );
        assert_eq!(report["answered"][0]["count"], 2);
        // A page, a form or who is no operator begins none.
        let origin = [JSON[0], ("origin", "http://evil.example")];
        assert_eq!(ask(program.addr, "POST", DRILL, &origin, "{}").await.status, 403);
        let form = [("content-type", "application/x-www-form-urlencoded")];
        assert_eq!(ask(program.addr, "POST", DRILL, &form, "{}").await.status, 415);
    });
}

#[test]
fn a_drill_without_a_fallback_needs_a_yes() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        let program = Program::start(&target("box", "openai", &server, "")).await;
        let (code, text, err) = said(beside(&program, &["drill"], &[])).await;
        assert_eq!((code, text.as_str()), (Some(1), ""));
        assert!(err.contains("clients would see errors") && err.contains("--yes"), "{err}");
        let child = beside(&program, &["drill", "--yes"], &[]).spawn().unwrap();
        program.logged(&["drill_started"]).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!((answer.status, server.counts().requests), (502, 0), "{}", answer.text());
        assert!(answer.text().contains("failed on purpose by a drill"), "{}", answer.text());
        let output = tokio::time::timeout(SOON, child.wait_with_output()).await.unwrap().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(text, "1 of 1 request was answered with an error: nobody else could answer.\n");
        // Ctrl-C ends it.
        let child =
            beside(&program, &["drill", "--yes", "--share", "100%", "--for", "10m"], &[]).spawn().unwrap();
        program.logged(&["drill_started", "100% of the requests for 600 s"]).await;
        let pid = child.id().unwrap().to_string();
        let waiting = child.wait_with_output();
        assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let output = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.starts_with("No request was to go there, so nothing was tried"), "{text}");
        assert_eq!(drill(&program, "GET", "").await.1["stage"], "over");
        assert_eq!(ask(program.addr, "POST", CHAT, &[], &chat(true)).await.status, 200);
    });
}

/// Where a drill would only show errors, or nothing at all, it says so first.
#[test]
fn a_drill_asks_first_where_it_would_hurt_or_show_nothing() {
    run(LIMIT, async {
        let (one, two) = (
            SimServer::start(parse("CUT").unwrap()).await.unwrap(),
            SimServer::start(healthy("b")).await.unwrap(),
        );
        let key = |name: &str| format!("[[key]]\nname = \"{name}\"\nenv = \"{}\"\n", name.to_uppercase());
        let cloud = target("cloud", "openai", &two, "price = { input = 0, output = 0 }");
        let cloud = cloud.replace("place = \"local\"", "place = \"cloud\"\nmodels = { \"*\" = \"m\" }");
        let config = format!(
            "[breaker]\nconsecutive = 1\n{}local_only = true\n{}{}{cloud}",
            key("shop"),
            key("free"),
            target("box", "openai", &one, "max_retries = 0")
        );
        let env = [("SHOP", "shop-0123456789abcdef"), ("FREE", "free-0123456789abcdef")];
        let program = Program::start_in(Folder::new(), &config, &env).await;
        let free = [("authorization", "Bearer free-0123456789abcdef"), JSON[0]];
        let begin = async |body: &str| {
            let answer = ask(program.addr, "POST", DRILL, &free, body).await;
            (answer.status, answer.text())
        };
        let (status, said) = begin("{}").await;
        assert!(status == 409 && said.contains("requests of the key `shop` (local_only)"), "{said}");
        let answer = ask(program.addr, "POST", CHAT, &free, &chat(true)).await;
        assert_eq!(answer.header("x-edgeward-target"), Some("cloud"));
        let (status, said) = begin("{}").await;
        assert!(status == 409 && said.contains("`box` is not asked at present"), "{said}");
        assert!(said.contains("rests for another") && said.contains("--yes"), "{said}");
        assert_eq!(begin(r#"{"yes":true}"#).await.0, 200);
        // Without a socket for operators its commands ask as clients, and on the box need no key.
        let (code, text, err) = self::said(beside(&program, &["status"], &env)).await;
        assert!(code == Some(0) && text.contains("cloud"), "{err}");
        let (code, _, err) = self::said(beside(&program, &["drill"], &env)).await;
        assert!(code == Some(1) && !err.contains("401") && err.contains("is not asked at present"), "{err}");
    });
}

#[test]
fn the_support_bundle_has_everything_but_secrets_and_prompts() {
    run(LIMIT, async {
        const SECRETS: [&str; 4] =
            ["sk-in-env-1111", "sk-in-file-2222", "sk-in-credential-3333", "zebra-prompt"];
        let folder = Folder::new();
        folder.write("file.key", SECRETS[1]);
        folder.write("cred", SECRETS[2]);
        let credentials = folder.0.to_string_lossy().into_owned();
        // One that repeats our key and the prompt to us.
        let rude = parse(&format!(
            "REPLY 500 application/json | {{\"error\":{{\"message\":\"bad key {}\"}}}}",
            SECRETS[0]
        ));
        let rude = SimServer::start(rude.unwrap()).await.unwrap();
        let fine = SimServer::start(healthy("b")).await.unwrap();
        let config = format!(
            "log_prompts = true\nadmin_listen = \"admin.sock\"\n[[key]]\nname = \"shop\"\nsha256 = \"{}\"\n{}{}{}",
            "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8",
            target("a", "openai", &rude, "key = { env = \"A_KEY\" }"),
            target("b", "openai", &fine, "key = { file = \"file.key\" }"),
            target("c", "openai", &fine, "key = { credential = \"cred\" }"),
        );
        let env = [("A_KEY", SECRETS[0]), ("CREDENTIALS_DIRECTORY", credentials.as_str())];
        let program = Program::start_in(folder, &config, &env).await;
        let body = chat(true).replace("hi", SECRETS[3]);
        let key = [("authorization", "Bearer password")];
        assert_eq!(ask(program.addr, "POST", CHAT, &key, &body).await.status, 200);
        program.logged(&["request_body", SECRETS[3]]).await;
        assert!(!program.log().contains(SECRETS[0]), "what the target repeated: {}", program.log());
        let (code, text, err) = said(beside(&program, &["support", "--output", "bundle.txt"], &env)).await;
        assert_eq!((code, text.as_str()), (Some(0), "bundle.txt\n"), "{err}");
        let path = program.folder.0.join("bundle.txt");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let bundle = std::fs::read_to_string(path).unwrap();
        for secret in SECRETS.into_iter().chain(["password", "5e884898da28"]) {
            assert!(!bundle.contains(secret), "{secret} in:\n{bundle}");
        }
        for part in [
            "== versions\nedgeward ",
            "kernel: Linux",
            "== configuration\nin use:\n",
            "target \"a\".key = ***",
            "== check\n",
            "== status\n{\"version\"",
            "== metrics\n# HELP",
            "== recent events\n",
            "attempt_failed request=",
            "bad key ***",
            "request_done request=",
            "== last drill\nnone since",
            "== unit\n",
            "== journal\n",
        ] {
            assert!(bundle.contains(part), "no {part:?} in:\n{bundle}");
        }
        // It writes over nothing.
        let (code, _, err) = said(beside(&program, &["support", "--output", "bundle.txt"], &env)).await;
        assert!(code == Some(1) && err.contains("bundle.txt") && err.contains("--output"), "{err}");
        // By default a file with the date in its name; `-` is the terminal. A wrong configuration and nobody running
        // are told of, and are no failure.
        let (code, name, _) = said(beside(&program, &["support"], &env)).await;
        assert!(
            code == Some(0) && name.starts_with("edgeward-support-2") && name.ends_with("Z.txt\n"),
            "{name}"
        );
        assert!(program.folder.0.join(name.trim()).exists());
        program.terminate();
        assert_eq!(program.exit_code().await, Some(0));
        let (code, text, _) = said(beside(&program, &["support", "--output=-"], &[])).await;
        assert_eq!(code, Some(0));
        assert!(text.contains("\nas the file has it:\n") && text.contains("A_KEY"), "{text}");
        assert!(text.contains("== status\nnot to be had: "), "{text}");
        rewrite(&program, "[limit]\n");
        let (code, text, _) = said(beside(&program, &["support", "--output=-"], &[])).await;
        assert_eq!(code, Some(0));
        assert!(text.contains("the file has mistakes") && text.contains("limit: is not a key"), "{text}");
    });
}

#[test]
fn recent_events_are_for_operators() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        let program = Program::start(&target("a", "openai", &server, "")).await;
        assert_eq!(ask(program.addr, "POST", CHAT, &[], &chat(true)).await.status, 200);
        program.logged(&["request_done"]).await;
        let answer = ask(program.addr, "GET", "/edgeward/events", &[], "").await;
        assert_eq!(answer.status, 200);
        assert!(answer.header("content-type").unwrap().starts_with("text/plain"));
        let text = answer.text();
        assert!(text.lines().any(|line| line.contains(" started ")), "{text}");
        assert!(text.lines().last().unwrap().contains(" request_done "), "{text}");
    });
}

#[test]
fn a_mistake_in_the_file_keeps_nobody_from_asking_and_status_tells_of_it() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        let program = Program::start(&format!(
            "admin_listen = \"admin.sock\"\n{}",
            target("box", "openai", &server, "")
        ))
        .await;
        let file = program.folder.0.join("edgeward.toml");
        let good = std::fs::read_to_string(&file).unwrap();
        assert_eq!(program.status().await["config_refused"], Value::Null);
        let line = good.lines().count() + 1;
        rewrite(&program, &format!("{good}[limit]\n[[target]]\nname = \"A B\"\n"));
        program.logged(&["reload_failed", "limit"]).await;
        let status = program.status().await;
        let refused = &status["config_refused"];
        assert_eq!((&refused["line"], &refused["more"]), (&line.into(), &3.into()), "{refused}");
        assert_eq!(refused["file"], file.to_str().unwrap());
        assert!(refused["mistake"].as_str().unwrap().starts_with("limit: is not a key"), "{refused}");
        assert!(
            refused["since"].as_str().unwrap().ends_with('Z') && refused["since_secs"].is_u64(),
            "{refused}"
        );

        let (code, text, err) = said(beside(&program, &["status"], &[])).await;
        let flowing = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(code == Some(0) && flowing.contains("is refused since 2"), "{text}{err}");
        assert!(flowing.contains(&format!("line {line}: limit: is not a key")), "{text}");
        assert!(
            err.contains("in spite of the file") && err.contains("(and 3 more: edgeward check)"),
            "{err}"
        );
        let (code, _, err) = said(beside(&program, &["record", "--for", "1ms", "memory.trace"], &[])).await;
        // Tests watch no memory.
        assert!(code == Some(1) && err.contains("recording the one that runs"), "{err}");
        assert!(err.contains("0 samples in memory.trace") && err.contains("memory.enabled"), "{err}");
        let (code, _, err) = said(beside(&program, &["boards"], &[])).await;
        assert!(code == Some(0) && err.contains("in spite of the file"), "{err}");
        let (code, text, err) = said(beside(&program, &["support", "--output=-"], &[])).await;
        assert!(code == Some(0) && text.contains("== configuration\nin use:\n"), "{text}{err}");
        let child = beside(&program, &["drill", "--yes"], &[]).spawn().unwrap();
        program.logged(&["drill_started"]).await;
        assert_eq!(ask(program.addr, "POST", CHAT, &[], &chat(true)).await.status, 502);
        let output = tokio::time::timeout(SOON, child.wait_with_output()).await.unwrap().unwrap();
        assert!(output.status.code() == Some(1) && !output.stdout.is_empty());
        assert_eq!(said(beside(&program, &["check"], &[])).await.0, Some(78));

        // It goes by the first refusal, and ends with the first file that is good.
        let since = refused["since"].clone();
        rewrite(&program, &format!("{good}[limt]\n"));
        program.logged(&["reload_failed", "limt"]).await;
        let refused = program.status().await["config_refused"].clone();
        assert_eq!((&refused["since"], &refused["more"]), (&since, &0.into()), "{refused}");
        rewrite(&program, &good);
        program.logged(&["reloaded", "nothing changed"]).await;
        assert_eq!(program.status().await["config_refused"], Value::Null);
    });
}

/// Ollama has some models computed elsewhere: what the box passed on has left it.
#[test]
fn a_model_that_a_local_server_has_from_a_cloud_is_logged_as_there() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        let program = Program::start(&target(
            "box",
            "openai",
            &server,
            "models = { big = \"glm:cloud\", \"*\" = \"*\" }",
        ))
        .await;
        for (model, place) in [("big", "cloud"), ("gpt-oss:120b-cloud", "cloud"), ("gpt-oss:20b", "local")] {
            let body =
                format!("{{\"model\":\"{model}\",\"messages\":[{{\"role\":\"user\",\"content\":\"hi\"}}]}}");
            assert_eq!(ask(program.addr, "POST", CHAT, &[], &body).await.status, 200);
            program.logged(&["request_done", &format!("model={model} "), &format!("place={place} ")]).await;
        }
    });
}

#[test]
fn an_operators_shell_need_not_have_the_units_keys() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        let config = format!(
            "admin_listen = \"admin.sock\"\n{}{}",
            target("box", "openai", &server, "key = { env = \"A_KEY\" }"),
            target("cloud", "openai", &server, "")
        );
        let program = Program::start_in(Folder::new(), &config, &[("A_KEY", "sk-12345678")]).await;
        let env = [];
        let (code, text, err) = said(beside(&program, &["status"], &env)).await;
        assert!(code == Some(0) && text.contains("+ box") && err.is_empty(), "{text}{err}");
        let (code, text, err) = said(beside(&program, &["check"], &env)).await;
        assert!(
            code == Some(0) && text.contains("\"A_KEY\" is not set; that is for the service"),
            "{text}{err}"
        );
        let (_, text, _) = said(beside(&program, &["support", "--output=-"], &env)).await;
        assert!(
            text.contains("== configuration\nin use:\n") && text.contains("target \"box\".key = ***"),
            "{text}"
        );
        let child = beside(&program, &["drill"], &env).spawn().unwrap();
        program.logged(&["drill_started"]).await;
        assert_eq!(ask(program.addr, "POST", CHAT, &[], &chat(true)).await.status, 200);
        let output = tokio::time::timeout(SOON, child.wait_with_output()).await.unwrap().unwrap();
        assert_eq!(output.status.code(), Some(0));
    });
}

/// `tests/run` gets it; its folder there, or the PATH.
fn promtool() -> std::path::PathBuf {
    let cache = std::env::var_os("EDGEWARD_TEST_CACHE").map(std::path::PathBuf::from);
    let caches = std::env::var_os("XDG_CACHE_HOME").map(std::path::PathBuf::from);
    let home = || Some(std::path::Path::new(&std::env::var_os("HOME")?).join(".cache"));
    let usual = || Some(caches.or_else(home)?.join("edgeward"));
    let kept = cache.or_else(usual).map(|cache| cache.join("tools/bin/promtool"));
    kept.filter(|path| path.exists()).unwrap_or_else(|| "promtool".into())
}

#[test]
fn prometheus_takes_the_metrics_without_a_complaint() {
    run(LIMIT, async {
        let fine = SimServer::start(healthy("a")).await.unwrap();
        let bad = SimServer::start(parse("CUT").unwrap()).await.unwrap();
        let config = target("box", "openai", &bad, "")
            + &target("cloud", "openai", &fine, "price = { input = 5, output = 25 }\nmax_concurrent = 4")
                .replace("place = \"local\"", "place = \"cloud\"\nmodels = { \"*\" = \"m\" }");
        let program = Program::start(&config).await;
        for _ in 0..4 {
            assert_eq!(ask(program.addr, "POST", CHAT, &[], &chat(true)).await.status, 200);
        }
        program.until_metric("edgeward_target_standings{target=\"box\",standing=\"out\"}", 1.0).await;
        let page = ask(program.addr, "GET", "/edgeward/metrics", &[], "").await.text();
        let check = async |page: String| {
            let mut child = Command::new(promtool())
                .args(["check", "metrics"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap_or_else(|error| {
                    panic!("promtool does not start ({error}): run tests/run, which gets it")
                });
            let mut stdin = child.stdin.take().unwrap();
            tokio::io::AsyncWriteExt::write_all(&mut stdin, page.as_bytes()).await.unwrap();
            drop(stdin);
            let output = child.wait_with_output().await.unwrap();
            let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            (output.status.code(), said)
        };
        assert_eq!(check(page.clone()).await, (Some(0), String::new()), "{page}");
        // It would say so.
        let (code, told) = check(page.replace("edgeward_retries_total", "edgeward_retries")).await;
        assert!(code != Some(0) && told.contains("edgeward_retries"), "{told}");
        // And it is said what has become of each.
        let metrics = program.metrics().await;
        for (series, value) in [
            ("edgeward_health_changes_total{target=\"box\",change=\"opened\"}", 1.0),
            ("edgeward_target_breakers{target=\"box\",state=\"open\"}", 1.0),
            ("edgeward_target_candidate{target=\"box\"}", 0.0),
            ("edgeward_target_candidate{target=\"cloud\"}", 1.0),
            ("edgeward_egress_requests_total{target=\"box\"}", 0.0),
            ("edgeward_egress_requests_total{target=\"cloud\"}", 4.0),
        ] {
            assert_eq!(metrics.get(series), Some(&value), "{series}");
        }
        let status = program.status().await;
        let (on_the_box, off) = (&status["targets"][0], &status["targets"][1]);
        assert_eq!((&on_the_box["candidate"], &on_the_box["sent_today"]), (&false.into(), &Value::Null));
        assert!(on_the_box["reason"].as_str().unwrap().starts_with("rests for another"), "{status}");
        assert_eq!(on_the_box["models"][0]["breaker"], "open");
        assert_eq!(
            (&off["sent_today"]["requests"], &off["models"][0]["standing"]),
            (&4.into(), &"fit".into())
        );
        assert!(off["sent_today"]["prompt_tokens"].as_u64().unwrap() >= 4, "{status}");
        let (code, text, _) = said(beside(&program, &["status"], &[])).await;
        assert_eq!(code, Some(0), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let flowing = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flowing.contains("- box openai local http"), "{text}");
        assert!(flowing.contains("sent off this box today: 4 requests"), "{text}");
    });
}

#[test]
fn status_tells_what_became_of_requests_since_a_time() {
    run(LIMIT, async {
        let (here, cloud) =
            (SimServer::start(healthy("a")).await.unwrap(), SimServer::start(healthy("b")).await.unwrap());
        let far = target(
            "cloud",
            "openai",
            &cloud,
            "models = { \"*\" = \"m\" }\nprice = { input = 1.0, output = 1.0 }",
        )
        .replace("place = \"local\"", "place = \"cloud\"");
        let program = Program::start(&(target("box", "openai", &here, "") + &far)).await;
        let post = async |body: &str| ask(program.addr, "POST", CHAT, &[], body).await.status;
        assert_eq!(post(&chat(true)).await, 200);
        // A failover is one request.
        here.set(parse("REPLY 500 application/json | {\"error\":\"no\"}").unwrap());
        assert_eq!(post(&chat(true)).await, 200);
        assert_eq!(post(&chat(false)).await, 200);
        // Lost; and what its client does wrong, or only asks about, is not.
        cloud.set(parse("REPLY 500 application/json | {\"error\":\"no\"}").unwrap());
        assert_eq!(post(&chat(true)).await, 502);
        assert_eq!(post("{").await, 400);
        assert_eq!(ask(program.addr, "GET", "/v1/models", &[], "").await.status, 200);
        let lately = program.status().await["lately"].clone();
        assert_eq!(
            serde_json::json!([lately["requests"], lately["cloud"], lately["lost"], lately["begins"]]),
            serde_json::json!([4, 2, 1, "start"]),
            "{lately}"
        );
        assert_eq!(lately["why"], serde_json::json!({"failed": 2}));
        assert_eq!(lately["causes"], serde_json::json!({"http_5xx": 2}));
        assert!(lately["spent_micros"].as_u64().unwrap() > 0, "{lately}");
        let status = |since| said(beside(&program, &["status", "--since", since], &[]));
        let (code, page, _) = status("1h").await;
        assert_eq!(code, Some(0), "{page}");
        let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            page.contains(": 4 requests, 2 at the cloud (failed 2: http_5xx 2), 0 deaths, 1 lost, "),
            "{page}"
        );
        assert!(page.contains(" since its start at "), "{page}");
        let (code, _, why) = status("2999-01-01T00:00").await;
        assert_eq!(code, Some(2));
        assert!(why.starts_with("edgeward: since: that is yet to come: it is "), "{why}");
        let (code, _, why) = status("noon").await;
        assert_eq!(code, Some(2));
        assert!(why.contains("--since 22:00"), "{why}");
        let answer = ask(program.addr, "GET", "/edgeward/status?since=noon", &[], "").await;
        assert_eq!((answer.status, answer.text().contains("write 22:00")), (400, true));
        let answer = ask(program.addr, "GET", "/edgeward/status?since=0%3A00", &[], "").await;
        assert_eq!(answer.status, 200);
    });
}
