//! Budgets: of keys, which are refused, and of targets, which are passed over; the day's money outlives the program.

use edgeward::sim::model::healthy;
use edgeward::sim::script::parse;
use edgeward::sim::server::SimServer;

use crate::LIMIT;
use crate::program::{Answer, CHAT, Folder, Program, Wire, ask, chat, request, run, target};

const KEY: &str = "\n[[key]]\nname = \"laptop\"\nenv = \"KEY\"\n";

async fn asked(program: &Program) -> Answer {
    ask(program.addr, "POST", CHAT, &[("Authorization", "Bearer sk-laptop-has-this")], &chat(true)).await
}

async fn with_key(config: &str) -> Program {
    Program::start_in(Folder::new(), config, &[("KEY", "sk-laptop-has-this")]).await
}

#[test]
fn a_keys_requests_are_counted_and_refused_in_the_clients_own_words() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        let config = target("a", "openai", &server, "") + KEY + "budget = { requests_per_minute = 2 }\n";
        let program = with_key(&config).await;
        for status in [200, 200, 429] {
            let answer = asked(&program).await;
            assert_eq!(answer.status, status, "{}", answer.text());
            if status == 429 {
                let text = answer.text();
                assert!(
                    text.contains("\"error\"")
                        && text.contains("laptop")
                        && text.contains("2 requests a minute"),
                    "{text}"
                );
                let again: u64 = answer.header("retry-after").unwrap().parse().unwrap();
                assert!((1..=70).contains(&again), "{again}");
            }
        }
        assert_eq!(server.counts().requests, 2);
        program.logged(&["limit_hit", "limit=key_budget"]).await;
    });
}

#[test]
fn many_that_fail_over_at_once_do_not_spend_the_same_money() {
    run(LIMIT, async {
        let slow = "WAIT 500\nREPLY 503 application/json|{}";
        let (a, b) = (
            SimServer::start(parse(slow).unwrap()).await.unwrap(),
            SimServer::start(healthy("b")).await.unwrap(),
        );
        // An answer is taken to cost more than that.
        let dear = "models = { \"*\" = \"m\" }\nprice = { input = 1.0, output = 100.0 }\nbudget = { money_per_day = 0.01 }";
        let config = target("a", "openai", &a, "") + &target("b", "openai", &b, dear);
        let program = Program::start(&config).await;
        let mut wires = Vec::new();
        for stream in [true, false, true, false, true, false] {
            let mut wire = Wire::connect(program.addr).await;
            wire.write(request("POST", CHAT, &[], &chat(stream))).await;
            wires.push(wire);
        }
        let mut served = 0;
        for mut wire in wires {
            let answer = wire.answer().await;
            served += usize::from(answer.status == 200);
            assert!(answer.status == 200 || answer.text().contains("budget of money"), "{}", answer.text());
        }
        assert_eq!((served, a.counts().requests, b.counts().requests), (1, 6, 1));
    });
}

#[test]
fn a_target_without_budget_is_passed_over_while_another_can_serve() {
    run(LIMIT, async {
        let (a, b) =
            (SimServer::start(healthy("a")).await.unwrap(), SimServer::start(healthy("b")).await.unwrap());
        let few = "budget = { requests_per_minute = 1 }";
        let config = target("a", "openai", &a, few) + &target("b", "openai", &b, few);
        let program = Program::start(&config).await;
        for name in ["a", "b"] {
            let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
            assert_eq!(answer.header("x-edgeward-attempts"), Some(format!("{name}:committed").as_str()));
        }
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!(answer.status, 503);
        assert!(answer.text().contains("has used up its budget"), "{}", answer.text());
        assert!(answer.header("retry-after").is_some());
    });
}

/// A cloud at 127.0.0.1; each of the healthy model's answers has a few tokens.
fn cloud(server: &SimServer, more: &str) -> String {
    format!(
        "\n[[target]]\nname = \"cloud\"\nkind = \"openai\"\nurl = \"{}\"\nplace = \"cloud\"\ngroup = \"g\"\n\
         max_retries = 0\nmodels = {{ \"*\" = \"m\" }}\nprice = {{ input = 10000, output = 10000 }}\n{more}\n",
        server.url()
    )
}

#[test]
fn a_clouds_money_is_spent_kept_over_a_restart_and_then_it_is_asked_no_more() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        let folder = Folder::new();
        let state = folder.0.join("state");
        std::fs::create_dir(&state).unwrap();
        let env = [("STATE_DIRECTORY", state.to_str().unwrap())];
        // More than one answer costs, less than two do.
        let config = cloud(&server, "budget = { money_per_day = 0.01 }");
        let program = Program::start_in(folder, &config, &env).await;
        program.logged(&["spending_caps", "cloud 0.01"]).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!(answer.status, 503, "{}", answer.text());
        assert!(answer.text().contains("money"), "{}", answer.text());
        program.terminate();
        assert_eq!(program.exit_code().await, Some(0));
        let spent = std::fs::read_to_string(state.join("spent")).unwrap();
        assert!(spent.lines().any(|line| line.starts_with("target ") && line.ends_with(" cloud")), "{spent}");
        assert_eq!(std::fs::read_dir(&state).unwrap().count(), 1, "nothing is left beside it");

        let second = Folder::new();
        let program = Program::start_in(second, &config, &env).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!((answer.status, server.counts().requests), (503, 1), "{}", answer.text());
        drop(program);
        std::fs::write(state.join("spent"), "rubbish").unwrap();
        let program = Program::start_in(Folder::new(), &config, &env).await;
        program.logged(&["spent_unreadable"]).await;
        assert_eq!(ask(program.addr, "POST", CHAT, &[], &chat(true)).await.status, 200);
    });
}

#[test]
fn a_state_folder_that_cannot_be_written_is_said_and_clients_are_served() {
    run(LIMIT, async {
        let server = SimServer::start(healthy("a")).await.unwrap();
        let folder = Folder::new();
        let missing = folder.0.join("nowhere");
        let env = [("STATE_DIRECTORY", missing.to_str().unwrap())];
        let program = Program::start_in(folder, &cloud(&server, ""), &env).await;
        assert_eq!(ask(program.addr, "POST", CHAT, &[], &chat(true)).await.status, 200);
        program.terminate();
        program.logged(&["spent_unwritable"]).await;
        assert_eq!(program.exit_code().await, Some(0));
        assert!(program.log().matches("spent_unwritable").count() == 1);
    });
}
