//! A local server dies under its requests: by its pidfd, before TCP says so; a runner's end is its own model's alone.

use std::time::{Duration, Instant};

use edgeward::sim::model::healthy;
use edgeward::sim::server::SimServer;

use crate::LIMIT;
use crate::dying::{Dying, kill};
use crate::program::{CHAT, Program, Wire, ask, request, run, target, target_at};

/// A process for `kind` and a shelf beside it that answers.
async fn pair(kind: &str, more: &str) -> Option<(Dying, SimServer, Program)> {
    let Some(dying) = Dying::start(&[]).await else {
        assert!(std::env::var_os("CI").is_none(), "CI must run this where there is Python");
        eprintln!("not shown: there is no python3");
        return None;
    };
    let shelf = SimServer::start(healthy("shelf")).await.unwrap();
    let lan = target("shelf", "openai", &shelf, "").replace("place = \"local\"", "place = \"lan\"");
    let config = format!("{more}{}{lan}", target_at("box", kind, &dying.url, ""));
    let program = Program::start(&config).await;
    program.logged(&["server_found", "target=box", &format!("pid={}", dying.pid())]).await;
    Some((dying, shelf, program))
}

fn chat(model: &str) -> String {
    format!(r#"{{"model":"{model}","stream":true,"messages":[{{"role":"user","content":"hi"}}]}}"#)
}

async fn begin(program: &Program, model: &str) -> Wire {
    let mut wire = Wire::connect(program.addr).await;
    wire.write(request("POST", CHAT, &[], &chat(model))).await;
    wire
}

async fn attempts(wire: &mut Wire) -> String {
    let answer = wire.answer().await;
    assert_eq!((answer.status, answer.clean), (200, true), "{}", answer.text());
    answer.header("x-edgeward-attempts").unwrap().to_owned()
}

async fn in_flight(program: &Program) -> u64 {
    program.status().await["targets"][0]["in_flight"].as_u64().unwrap()
}

#[test]
fn all_that_wait_go_on_by_the_end_of_the_process_although_tcp_never_tells() {
    run(LIMIT, async {
        let Some((mut dying, _shelf, program)) = pair("openai", "").await else { return };
        let status = program.status().await;
        assert_eq!(status["targets"][0]["process"]["pid"], dying.pid());
        let mut wires = Vec::new();
        for _ in 0..8 {
            wires.push(begin(&program, "hold").await);
            assert_eq!(dying.says().await, "held hold");
        }
        dying.kill();
        for wire in &mut wires {
            assert_eq!(attempts(wire).await, "box:crashed,shelf:committed");
        }
        let pid = format!("pid={}", dying.pid());
        program
            .logged(&[
                "WARN  server_died",
                "target=box",
                "cause=crashed",
                &pid,
                "exit=\"signal 9\"",
                "failed_over=8",
            ])
            .await;
        assert_eq!(dying.signal().await, Some(9));
        let status = program.status().await;
        assert_eq!(status["targets"][0]["process"]["pid"], serde_json::Value::Null);
        let reason = status["targets"][0]["reason"].as_str().unwrap().to_owned();
        assert!(reason.contains("is left alone for another"), "{reason}");
        // It is not asked meanwhile.
        let mut wire = begin(&program, "hold").await;
        assert_eq!(attempts(&mut wire).await, "shelf:committed");
    });
}

#[test]
fn those_whose_connections_end_with_the_server_count_and_are_called_by_its_death() {
    run(LIMIT, async {
        let Some((mut dying, _shelf, program)) = pair("openai", "").await else { return };
        let mut wires = Vec::new();
        for _ in 0..4 {
            wires.push(begin(&program, "own").await);
            assert_eq!(dying.says().await, "held own");
        }
        dying.kill();
        for wire in &mut wires {
            let said = attempts(wire).await;
            assert!(said.ends_with(",shelf:committed"), "{said}");
        }
        // Whoever was first, TCP or the process's end.
        program.logged(&["WARN  server_died", "target=box", "cause=crashed", "failed_over=4"]).await;
        program.logged(&["request_done", "attempts=box:crashed,shelf:committed"]).await;
        let lately = program.status().await["lately"].clone();
        assert_eq!(lately["deaths"], serde_json::json!({"crashed": 1}), "{lately}");
        assert_eq!((lately["requests"].as_u64(), lately["cloud"].as_u64()), (Some(4), Some(0)), "{lately}");
    });
}

#[test]
fn a_server_that_was_restarted_is_asked_again_as_soon_as_it_answers_its_probe() {
    run(LIMIT, async {
        // Not by its turn.
        let probe = "[probe]\nevery = \"600s\"\n";
        let Some((mut dying, _shelf, program)) = pair("openai", probe).await else { return };
        dying.kill();
        assert_eq!(dying.signal().await, Some(9));
        let died = edgeward::time::now();
        program.logged(&["server_died", "target=box"]).await;
        let again = dying.again().await;
        program.logged(&["server_found", "target=box", &format!("pid={}", again.pid())]).await;
        let mut model = 0;
        loop {
            model += 1;
            let mut wire = begin(&program, &format!("m{model}")).await;
            if attempts(&mut wire).await == "box:committed" {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(died.elapsed() < edgeward::limits::DEATH_REST, "{:?}", died.elapsed());
        program.logged(&["server_back", "target=box"]).await;
    });
}

#[test]
fn a_whole_answer_goes_on_too() {
    run(LIMIT, async {
        let Some((mut dying, _shelf, program)) = pair("openai", "").await else { return };
        let mut wire = Wire::connect(program.addr).await;
        wire.write(request("POST", CHAT, &[], &chat("hold").replace("true", "false"))).await;
        assert_eq!(dying.says().await, "held hold");
        dying.kill();
        assert_eq!(attempts(&mut wire).await, "box:crashed,shelf:committed");
    });
}

#[test]
fn a_runners_end_is_its_own_models_alone_and_an_unload_is_nobodys() {
    run(LIMIT, async {
        let Some((mut dying, _shelf, program)) = pair("ollama", "").await else { return };
        let mut runners = Vec::new();
        for model in ["a", "b", "c"] {
            let mut wire = begin(&program, model).await;
            runners.push(dying.runner(model).await);
            assert_eq!(attempts(&mut wire).await, "box:committed");
            // Which is whose shows while just one is nobody's.
            let bound = async {
                while program.status().await["targets"][0]["process"]["others"] != runners.len() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(LIMIT, bound).await.unwrap();
        }
        let mut waiting = Vec::new();
        for model in ["a", "a", "b"] {
            waiting.push(begin(&program, model).await);
            assert_eq!(dying.says().await, format!("held {model}"));
        }
        let (other, own) = (waiting.pop().unwrap(), &mut waiting);
        kill(runners[2]);
        program.logged(&["INFO  runner_exited", "model=c", "failed_over=0"]).await;
        assert_eq!(in_flight(&program).await, 3, "an unload is neutral");
        kill(runners[0]);
        for wire in own {
            assert_eq!(attempts(wire).await, "box:crashed,shelf:committed");
        }
        program.logged(&["WARN  runner_exited", "model=a", "cause=crashed", "failed_over=2"]).await;
        assert_eq!(in_flight(&program).await, 1, "the other model's request still waits: {}", program.log());
        dying.kill();
        let mut other = other;
        assert_eq!(attempts(&mut other).await, "box:crashed,shelf:committed");
        program.logged(&["server_died", "failed_over=1"]).await;
    });
}

#[test]
fn a_request_that_has_a_model_started_anew_does_not_fail_by_that() {
    run(LIMIT, async {
        let Some((mut dying, shelf, program)) = pair("ollama", "").await else { return };
        let mut first = begin(&program, "a").await;
        let runner = dying.runner("a").await;
        assert_eq!(attempts(&mut first).await, "box:committed");
        let mut wire = Wire::connect(program.addr).await;
        let body = r#"{"model":"a","options":{"num_ctx":8192},"messages":[{"role":"user","content":"hi"}]}"#;
        wire.write(request("POST", "/api/chat", &[], body)).await;
        assert_eq!(dying.says().await, "held a");
        kill(runner);
        program.logged(&["INFO  runner_exited", "failed_over=0"]).await;
        assert_eq!((in_flight(&program).await, shelf.counts().requests), (1, 0));
        assert_eq!(ask(program.addr, "GET", "/edgeward/health", &[], "").await.status, 200);
    });
}

/// How long from the server's end, as this process sees it, to the other target being asked. By hand:
/// `EDGEWARD_KILLS=100 cargo test --test server deaths::how_long -- --nocapture`.
#[test]
fn how_long_from_death_to_failover() {
    let kills = std::env::var("EDGEWARD_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(1);
    let mut took: Vec<Duration> = Vec::new();
    for _ in 0..kills {
        run(LIMIT, async {
            let Some(mut dying) = Dying::start(&[]).await else { return };
            let shelf = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}", shelf.local_addr().unwrap());
            let lan = target_at("shelf", "openai", &url, "").replace("\"local\"", "\"lan\"");
            let program =
                Program::start(&format!("{}{lan}", target_at("box", "openai", &dying.url, ""))).await;
            program.logged(&["server_found", "target=box"]).await;
            let mut wires = Vec::new();
            for _ in 0..4 {
                wires.push(begin(&program, "hold").await);
                dying.says().await;
            }
            let pid = rustix::process::Pid::from_raw(dying.pid().try_into().unwrap()).unwrap();
            let held = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
            let died = std::thread::spawn(move || {
                let mut ready = [rustix::event::PollFd::new(&held, rustix::event::PollFlags::IN)];
                rustix::event::poll(&mut ready, None).unwrap();
                edgeward::time::now()
            });
            let asked = std::thread::spawn(move || {
                let accepted = |_| {
                    let connection = shelf.accept().unwrap();
                    (edgeward::time::now(), connection)
                };
                (0..4).map(accepted).map(|(at, _)| at).collect::<Vec<Instant>>()
            });
            dying.kill();
            let (died, asked) = (died.join().unwrap(), asked.join().unwrap());
            took.extend(asked.into_iter().map(|at| at.saturating_duration_since(died)));
        });
    }
    took.sort();
    let at = |permille: usize| took.get((took.len() * permille / 1000).min(took.len().saturating_sub(1)));
    eprintln!(
        "{} failovers of {kills} deaths: p50 {:?}, p99 {:?}, most {:?}",
        took.len(),
        at(500),
        at(990),
        took.last()
    );
}
