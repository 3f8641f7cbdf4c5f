//! The morning line by the box's clock: once a day, whatever that clock does.

use std::time::Duration;

use edgeward::sim::model::healthy;
use edgeward::sim::server::SimServer;

use crate::LIMIT;
use crate::program::{CHAT, Folder, Program, ask, chat, run, target, target_at};
use crate::wall::{LONG_AGO, WallClock};

const MINUTE: u64 = 60;
const DAY: u64 = 24 * 3600;
/// 2030-01-02 07:00 where it is an hour later than in Greenwich.
const SEVEN: u64 = 21_916 * DAY + 6 * 3600;

#[test]
fn the_morning_line_comes_once_a_day_at_seven_by_the_boxs_clock() {
    run(LIMIT, async {
        let cloud = SimServer::start(healthy("c")).await.unwrap();
        let folder = Folder::new();
        let clock = WallClock::new(&folder);
        let set = |to: u64| clock.set(Duration::from_secs(to));
        clock.set(LONG_AGO);
        let far = target("cloud", "openai", &cloud, "models = { \"*\" = \"m\" }")
            .replace("place = \"local\"", "place = \"cloud\"");
        let config = target_at("box", "openai", "http://127.0.0.1:1", "") + &far;
        let [preload, file] = clock.env().map(|(name, value)| (name, value.to_owned()));
        let env = [("TZ", "CET-1"), (preload.0, preload.1.as_str()), (file.0, file.1.as_str())];
        let program = Program::start_in(folder, &config, &env).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(true)).await;
        assert_eq!(answer.header("x-edgeward-attempts"), Some("box:refused,cloud:committed"));
        let lately = program.status().await["lately"].clone();
        assert_eq!((lately["since"].as_str(), lately["cloud"].as_u64()), (None, Some(1)), "{lately}");
        let answer = ask(program.addr, "GET", "/edgeward/status?since=22:00", &[], "").await;
        assert_eq!(answer.status, 400);
        assert!(answer.text().contains("this box's clock is wrong"), "{}", answer.text());

        // It is set: before seven by the box's zone, after it by Greenwich.
        let mut sets = 0;
        let mut seen = async |to| {
            set(to);
            sets += 1;
            let steps = || program.log().matches("clock_set").count();
            while steps() < sets {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        seen(SEVEN - 10 * MINUTE).await;
        let lately = program.status().await["lately"].clone();
        let since = lately["since"].as_str().unwrap();
        assert!(["2030-01-02 06:49", "2030-01-02 06:50"].contains(&since), "by the clock as it is: {lately}");
        assert_eq!(lately["begins"], "start");
        assert!(!program.log().contains(" morning "), "{}", program.log());
        seen(SEVEN + MINUTE / 2).await;
        let parts =
            ["INFO", " morning ", "requests=1", "cloud=1", "why=dead:1", "causes=refused:1", "lost=0"];
        program.logged(&parts).await;
        program.logged(&[" morning ", "since=\"its start at 2030-01-02 07:00\""]).await;
        // Set back over seven, and there again: no other line. The next day's has what came since.
        seen(SEVEN - 10 * MINUTE).await;
        seen(SEVEN).await;
        let answer = ask(program.addr, "POST", CHAT, &[], &chat(false)).await;
        assert_eq!(answer.status, 200);
        seen(SEVEN + DAY).await;
        let lines = async {
            while program.log().matches(" morning ").count() < 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LIMIT / 2, lines).await.expect("the next day's");
        assert_eq!(program.log().matches("requests=1 cloud=1").count(), 2, "{}", program.log());
    });
}
