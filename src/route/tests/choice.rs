//! Among several who could: weights, regions, what they can do, how far a prompt may go, where a conversation is.

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

use super::*;
use crate::config::{After, Hours, Place};
use crate::dialect::request::{Conversation, Needs};

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A configuration and what goes on with it.
struct Table {
    config: Config,
    store: Store,
    state: State,
    now: Instant,
}

impl Table {
    fn new(text: &str) -> Table {
        let config = config(text);
        let (store, state) = (store(&config), State::new(&config, 7));
        Table { config, store, state, now: crate::time::now() }
    }

    fn plan(&mut self, ask: &Ask<'_>) -> Plan {
        let (config, store) = (&self.config, &self.store);
        let full = |target: usize| {
            let most = config.targets[target].max_concurrent;
            most.is_some_and(|most| store.get(target).unwrap().in_flight >= most as usize)
        };
        plan(config, store, &mut self.state, &Ask { full: &full, ..*ask }, self.now)
    }

    fn names(&mut self, call: &Call) -> Vec<String> {
        let plan = self.plan(&Ask::bare(call));
        names(&self.config, &plan).into_iter().map(str::to_owned).collect()
    }

    fn first(&mut self, call: &Call) -> String {
        self.names(call).into_iter().next().unwrap_or_default()
    }

    /// The first of the plan answers.
    fn served(&mut self, call: &Call) -> String {
        let plan = self.plan(&Ask::bare(call));
        let first = &plan.candidates[0];
        self.state.committed(&plan, first.target, Before::Nothing, self.now);
        self.config.targets[first.target].name.clone()
    }

    /// A 429 for so many seconds.
    fn pauses(&mut self, name: &str, time: u64) {
        let target = self.config.targets.iter().position(|target| target.name == name).unwrap();
        self.fails(target, Cause::RateLimited, Some(secs(time)));
    }

    /// An attempt fails, if it lets itself be asked.
    fn fails(&mut self, target: usize, cause: Cause, retry_after: Option<Duration>) {
        if let Ok(ticket) = self.store.begin(target, "m", false, self.now) {
            self.store.end(ticket, Ended::Failed(cause, retry_after), self.now);
        }
    }
}

fn weighted(all: &[(&str, u32, &str)]) -> String {
    let target =
        |(name, weight, more): &(&str, u32, &str)| target(name, &format!("weight = {weight}\n{more}"));
    all.iter().map(target).collect()
}

#[test]
fn inside_a_group_the_first_goes_by_weight_and_the_others_follow_by_theirs() {
    let mut table = Table::new(&weighted(&[("a", 1, ""), ("b", 5, ""), ("c", 2, "")]));
    let mut had = [("a", 0), ("b", 0), ("c", 0)];
    for _ in 0..80 {
        let order = table.names(&chat("m"));
        had.iter_mut().for_each(|(name, count)| *count += i32::from(order[0] == *name));
        let rest: Vec<_> = ["b", "c", "a"].into_iter().filter(|name| order[0] != *name).collect();
        assert_eq!(order[1..], rest);
    }
    assert_eq!(had, [("a", 10), ("b", 50), ("c", 20)]);
}

#[test]
fn models_asked_for_in_alternation_are_spread_each() {
    let mut table = Table::new(&weighted(&[("a", 1, ""), ("b", 1, "")]));
    let firsts: Vec<_> = (0..4).map(|_| ["m", "n"].map(|model| table.first(&chat(model)))).collect();
    for model in 0..2 {
        assert_eq!(firsts.iter().filter(|first| first[model] == "a").count(), 2, "{firsts:?}");
    }
}

#[test]
fn among_equals_a_failures_load_falls_on_all() {
    let mut table = Table::new(&weighted(&[("a", 1, ""), ("b", 1, ""), ("c", 1, "")]));
    let orders: Vec<_> = (0..3).map(|_| table.names(&chat("m")).concat()).collect();
    assert_eq!(orders, ["abc", "bca", "cab"]);
}

#[test]
fn another_region_is_asked_first_only_when_the_own_has_nobody() {
    let more = |region| format!("group = \"primary\"\nregion = \"{region}\"");
    let (edge, far) = (more("edge"), more("far"));
    let targets = weighted(&[("far", 1000, &far), ("a", 1, &edge), ("b", 1, &edge)]);
    let mut table = Table::new(&format!("[router]\nregion = \"edge\"\n{targets}"));
    for _ in 0..6 {
        let order = table.names(&chat("m"));
        assert_eq!(order[2], "far", "a weight says nothing across regions");
    }
    table.pauses("a", 9);
    assert_eq!(table.names(&chat("m")), ["b", "far"]);
    table.pauses("b", 9);
    assert_eq!(table.names(&chat("m")), ["far"]);
    table.now += secs(9);
    assert_eq!(table.names(&chat("m")).len(), 3);
    assert_ne!(table.first(&chat("m")), "far");
}

#[test]
fn who_rests_is_asked_last_and_once() {
    let mut table = Table::new(&weighted(&[("a", 1, "max_retries = 2"), ("b", 1, "max_retries = 2")]));
    for _ in 0..3 {
        table.fails(0, Cause::Http5xx, None);
    }
    let plan = table.plan(&Ask::bare(&chat("m")));
    let terms: Vec<_> =
        plan.candidates.iter().map(|one| (one.target, one.last_resort, one.max_retries)).collect();
    assert_eq!(terms, [(1, false, 2), (0, true, 0)]);
}

#[test]
fn a_reload_keeps_the_turns_of_those_who_stay() {
    let mut table = Table::new(&weighted(&[("a", 2, ""), ("b", 3, "")]));
    let mut same = Table::new(&weighted(&[("a", 2, ""), ("b", 3, "")]));
    let mut reloaded = Vec::new();
    let mut undisturbed = Vec::new();
    for _ in 0..8 {
        reloaded.push(table.first(&chat("m")));
        undisturbed.push(same.first(&chat("m")));
        // The other way round in the file: places change, names stay.
        table.config = config(&match table.config.targets[0].name.as_str() {
            "a" => weighted(&[("b", 3, ""), ("a", 2, "")]),
            _ => weighted(&[("a", 2, ""), ("b", 3, "")]),
        });
        table.state = table.state.renewed(&table.config);
    }
    assert_eq!(reloaded, undisturbed);
}

#[test]
fn who_cannot_what_is_asked_for_is_passed_over_and_says_so() {
    let mut table = Table::new(&weighted(&[("a", 1, "context = 1000"), ("b", 1, ""), ("c", 1, "")]));
    table.config.targets[0].capabilities.tools = Some(false);
    table.config.targets[1].capabilities.images = Some(false);
    table.config.targets[2].capabilities.json = Some(false);
    let asks = |needs: Needs, tokens: u64| {
        let mut call = chat("m");
        (call.needs, call.prompt_tokens) = (needs, tokens);
        call
    };
    let none = Needs::default();
    let mut check = |call: Call, want: &[&str], name: &str, reason: Option<Passed>| {
        let plan = table.plan(&Ask::bare(&call));
        let mut names = names(&table.config, &plan);
        names.sort_unstable();
        assert_eq!((names.as_slice(), why(&table.config, &plan, name)), (want, reason), "{call:?}");
    };
    check(asks(none, 10), &["a", "b", "c"], "a", None);
    let tools = asks(Needs { tools: true, ..none }, 10);
    check(tools, &["b", "c"], "a", Some(Passed::Lacks(Capability::Tools)));
    let images = asks(Needs { images: true, ..none }, 10);
    check(images, &["a", "c"], "b", Some(Passed::Lacks(Capability::Images)));
    let json = asks(Needs { json: true, ..none }, 10);
    check(json, &["a", "b"], "c", Some(Passed::Lacks(Capability::Json)));
    // The estimate is good to a factor of two.
    check(asks(none, 2001), &["a", "b", "c"], "a", None);
    check(asks(none, 2002), &["b", "c"], "a", Some(Passed::Context(1000)));
    let plan = table.plan(&Ask::bare(&asks(none, 1001)));
    assert_eq!(names(&table.config, &plan)[2], "a", "in doubt it is asked after those who surely can");
    assert!(plan.candidates[2].reluctant && !plan.candidates[0].reluctant);
}

#[test]
fn who_is_full_is_passed_over_and_waited_for_when_nobody_fit_is_left() {
    let mut table = Table::new(&weighted(&[("a", 9, ""), ("b", 1, "")]));
    table.config.targets[0].max_concurrent = Some(2);
    let tickets: Vec<_> = (0..2).map(|_| table.store.begin(0, "m", false, table.now).unwrap()).collect();
    let plan = table.plan(&Ask::bare(&chat("m")));
    assert_eq!(
        (names(&table.config, &plan), why(&table.config, &plan, "a")),
        (vec!["b"], Some(Passed::Full))
    );
    assert!(plan.waits_for().is_none() && plan.full.len() == 1);
    table.pauses("b", 9);
    let plan = table.plan(&Ask::bare(&chat("m")));
    assert_eq!(plan.waits_for().map(|full| full.target), Some(0));
    // Who will most likely refuse is no reason not to wait.
    table.now += secs(9);
    fail(&mut table.store, 1, "m", Cause::Unauthorized, None, table.now);
    let plan = table.plan(&Ask::bare(&chat("m")));
    assert_eq!((names(&table.config, &plan), plan.waits_for().map(|full| full.target)), (vec!["b"], Some(0)));
    assert!(plan.first_choice.is_none());
    for ticket in tickets {
        table.store.end(ticket, Ended::Well, table.now);
    }
    assert_eq!(table.names(&chat("m")), ["a", "b"]);
}

#[test]
fn a_barred_target_is_passed_over_and_tells_until_when() {
    let mut table = Table::new(&weighted(&[("a", 9, ""), ("b", 1, "")]));
    let reason = Passed::Budget(BudgetWhat::Money, Some(secs(40)));
    let barred = |target: usize| (target == 0).then_some(reason);
    let call = chat("m");
    let plan = table.plan(&Ask { barred: &barred, ..Ask::bare(&call) });
    assert_eq!((names(&table.config, &plan), why(&table.config, &plan, "a")), (vec!["b"], Some(reason)));
    table.pauses("b", 9);
    let plan = table.plan(&Ask { barred: &barred, ..Ask::bare(&call) });
    assert!(plan.candidates.is_empty());
    assert_eq!(plan.retry_after(), Some(secs(9)), "the soonest");
}

#[test]
fn terms_come_from_the_route_the_target_the_group_and_the_default() {
    let mut table = Table::new(&weighted(&[("a", 1, "deadlines = { load = \"7s\" }\nmax_retries = 2")]));
    table.config.deadlines.connect = secs(1);
    let deadlines = crate::config::DeadlineOverrides {
        first_token: Some(secs(5)),
        load: Some(secs(5)),
        ..crate::config::DeadlineOverrides::default()
    };
    table.config.groups.push(crate::config::Group {
        name: "primary".to_owned(),
        deadlines,
        max_retries: None,
    });
    let plan = table.plan(&Ask::bare(&chat("m")));
    let terms = plan.candidates[0].deadlines;
    assert_eq!((terms.connect, terms.first_token, terms.load), (secs(1), secs(5), secs(7)));
    assert_eq!((plan.candidates[0].max_retries, plan.candidates[0].place), (2, Place::Local));
}

#[test]
fn hedges_go_to_the_next_who_is_fit_and_only_where_they_are_allowed() {
    let mut table = Table::new(&weighted(&[("a", 9, ""), ("b", 5, ""), ("c", 1, "")]));
    let hedges = |table: &mut Table| -> Vec<bool> {
        table.plan(&Ask::bare(&chat("m"))).candidates.iter().map(|candidate| candidate.hedge).collect()
    };
    assert_eq!(hedges(&mut table), [false, false, false], "off by default");
    table.config.hedge.enabled = true;
    assert_eq!(hedges(&mut table), [true, true, false]);
    fail(&mut table.store, 2, "m", Cause::Unauthorized, None, table.now);
    assert_eq!(hedges(&mut table), [true, false, false]);
}

const TWO_ROUTES: &str = "[[route]]\nmodel = \"*\"\ngroups = [\"second\"]\n";

fn routed() -> Table {
    Table::new(
        &[
            "[router]\ngroups = [\"first\", \"second\"]\n",
            &target("a", "group = \"first\""),
            &target("b", "group = \"second\""),
            TWO_ROUTES,
        ]
        .concat(),
    )
}

#[test]
fn routes_match_by_header_by_key_and_by_the_hour() {
    let call = chat("m");
    let headers = |name: &'static str, value: &'static str| {
        HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static(value))])
    };
    let mut table = routed();
    table.config.routes[0].headers = vec![("x-team".to_owned(), "vision*".to_owned())];
    for (name, value, want) in [
        ("x-team", "vision-2", &["b"][..]),
        ("x-team", "vision", &["b"]),
        ("x-team", "speech", &["a", "b"]),
        ("x-other", "vision", &["a", "b"]),
    ] {
        let headers = headers(name, value);
        let plan = table.plan(&Ask { headers: &headers, ..Ask::bare(&call) });
        assert_eq!(names(&table.config, &plan), want, "{name}: {value}");
        assert_eq!(plan.route, (want.len() == 1).then_some(0));
    }
    let mut table = routed();
    table.config.routes[0].keys = vec!["cam".to_owned(), "arm".to_owned()];
    for (client, want) in [(Some("arm"), 1), (Some("desk"), 2), (None, 2)] {
        let plan = table.plan(&Ask { client, ..Ask::bare(&call) });
        assert_eq!(plan.candidates.len(), want, "{client:?}");
    }
    let mut table = routed();
    table.config.routes[0].hours = Some(Hours { from: 22 * 60, to: 6 * 60 });
    for (minute, want) in [(23 * 60, 1), (60, 1), (12 * 60, 2)] {
        let plan = table.plan(&Ask { minute, ..Ask::bare(&call) });
        assert_eq!(plan.candidates.len(), want, "{minute}");
    }
}

/// One of each place, all good for anything.
fn places() -> Table {
    let cloud = CLOUD.to_owned() + "models = { \"*\" = \"g\" }\n";
    let lan = target("lan", "").replace("place = \"local\"", "place = \"lan\"");
    Table::new(&[target("box", ""), lan, cloud].concat())
}

#[test]
fn the_strictest_word_on_egress_counts() {
    use Egress::{Anywhere, Box, Lan};
    for (asked, route, want) in [
        (Anywhere, None, 3),
        (Lan, None, 2),
        (Box, None, 1),
        (Anywhere, Some(Lan), 2),
        (Box, Some(Lan), 1),
        (Lan, Some(Box), 1),
        (Lan, Some(Anywhere), 2),
    ] {
        let mut table = places();
        if let Some(route) = route {
            let mut routes =
                config(&[target("a", ""), "[[route]]\nmodel = \"*\"\n".to_owned()].concat()).routes;
            routes[0].local_only = route;
            table.config.routes = routes;
        }
        let call = chat("m");
        let plan = table.plan(&Ask { egress: asked, ..Ask::bare(&call) });
        assert_eq!(plan.candidates.len(), want, "{asked:?} {route:?}");
        let strictest = asked.max(route.unwrap_or_default());
        assert_eq!(plan.egress, strictest);
        let reason = (want < 3).then_some(Passed::LocalOnly(strictest));
        assert_eq!(why(&table.config, &plan, "cloud"), reason);
    }
}

fn turn(key: u64, later: bool) -> Call {
    let mut call = chat("m");
    call.conversation = Some(Conversation { key, later });
    call
}

#[test]
fn a_conversation_stays_with_who_answered_its_first_turn() {
    let mut table = Table::new(&weighted(&[("a", 1, ""), ("b", 1, "")]));
    let mut at: Vec<_> = (0..6).map(|key| table.served(&turn(key, false))).collect();
    assert_eq!(at.concat(), "ababab", "first turns go by weight");
    for round in 0..3 {
        table.now += secs(60);
        let now: Vec<_> = (0..6).rev().map(|key| table.served(&turn(key, true))).rev().collect();
        assert_eq!(now, at, "{round}");
    }
    assert_eq!(table.names(&turn(2, true)).concat(), "ab", "the others stay behind it");
    // Silent for too long, its cache is gone.
    table.now += table.config.sticky.idle;
    at.truncate(1);
    assert_eq!(table.served(&turn(7, false)), "a", "turns of conversations moved no wheel");
    assert_eq!(table.served(&turn(0, true)), "b");
    table.state = table.state.renewed(&table.config);
    assert_eq!(table.served(&turn(0, true)), "b", "a reload forgets none");
    let mut off = Table::new(&weighted(&[("a", 1, ""), ("b", 1, "")]));
    off.config.sticky.enabled = false;
    off.state = State::new(&off.config, 1);
    let turns: Vec<_> = (0..4).map(|_| off.served(&turn(1, true))).collect();
    assert_eq!(turns.concat(), "abab");
}

#[test]
fn conversations_from_before_an_outage_do_not_flood_who_comes_back() {
    let two = [target("home", "group = \"primary\""), target("away", "group = \"fallback\"")].concat();
    let mut table = Table::new(&two);
    (0..41).for_each(|key| assert_eq!(table.served(&turn(key, false)), "home"));
    for _ in 0..3 {
        table.fails(0, Cause::Http5xx, None);
    }
    table.now += secs(11);
    let trial = table.store.begin(0, "m", false, table.now).expect("its rest is over");
    table.store.end(trial, Ended::Well, table.now);
    // One is on its way home: of the others a tenth, as of requests that are no conversation's.
    let coming = table.plan(&Ask::bare(&turn(0, true)));
    assert_eq!(coming.candidates[0].target, 0);
    let at: Vec<_> = (1..41).map(|key| table.first(&turn(key, true))).collect();
    assert_eq!(at.iter().filter(|at| *at == "home").count(), 4, "a tenth, as of others");
    // It is there: the next one comes, however small the share still is.
    table.state.committed(&coming, 0, Before::Nothing, table.now);
    assert_eq!((table.first(&turn(1, true)), table.first(&turn(1, true))), ("home".into(), "home".into()));
    assert!((2..12).map(|key| table.first(&turn(key, true))).filter(|at| at == "home").count() < 3);
    // Nobody waits for one that never arrives.
    table.now += limits::HOMECOMING;
    assert_eq!(table.served(&turn(2, true)), "home");
    let next: Vec<_> = (0..40).map(|key| table.served(&turn(key, true))).collect();
    assert!(next.iter().all(|at| at == "home"), "{next:?}");
}

#[test]
fn a_session_is_its_clients_own_and_its_models() {
    let mut table = Table::new(&weighted(&[("a", 1, ""), ("b", 1, "")]));
    let session = HeaderMap::from_iter([(SESSION, HeaderValue::from_static("s1"))]);
    let mut ask = |client, model: &str| {
        let call = chat(model);
        let plan = table.plan(&Ask { client, headers: &session, ..Ask::bare(&call) });
        table.state.committed(&plan, plan.candidates[0].target, Before::Nothing, table.now);
        plan.candidates[0].target
    };
    let asked = [ask(Some("x"), "m"), ask(Some("y"), "m"), ask(Some("y"), "n"), ask(None, "m")];
    assert_eq!(asked, [0, 1, 0, 0]);
    for _ in 0..3 {
        assert_eq!([ask(Some("x"), "m"), ask(Some("y"), "m"), ask(Some("y"), "n"), ask(None, "m")], asked);
    }
}

#[test]
fn after_a_failover_a_conversation_goes_home_once_and_then_in_time() {
    let two = [target("home", "group = \"primary\""), target("away", "group = \"fallback\"")].concat();
    let mut table = Table::new(&two);
    assert_eq!(table.served(&turn(1, false)), "home");
    let fails = |table: &mut Table| {
        let plan = table.plan(&Ask::bare(&turn(1, true)));
        assert_eq!(plan.candidates[0].target, 0);
        // It fails at home, and the next one answers.
        table.state.committed(&plan, 1, Before::Failed, table.now);
    };
    fails(&mut table);
    table.pauses("home", 5);
    assert_eq!(table.served(&turn(1, true)), "away", "home is not well");
    table.now += secs(6);
    assert_eq!(table.served(&turn(1, true)), "home", "it is well again");
    // What fails there again may do so each time.
    fails(&mut table);
    let start = table.now;
    while table.now < start + table.config.sticky.away {
        assert_eq!(table.served(&turn(1, true)), "away", "home is well, and yet");
        assert_eq!(table.first(&turn(2, true)), "home", "others are at home");
        table.now += secs(60);
    }
    assert_eq!(table.served(&turn(1, true)), "home");
}

#[test]
fn a_conversation_that_began_at_the_fallback_goes_nearer_once_its_home_is_back() {
    let cloud = target("away", "group = \"fallback\"\nmodels = { \"*\" = \"m\" }")
        .replace("place = \"local\"", "place = \"cloud\"");
    let mut table = Table::new(&[target("home", "group = \"primary\""), cloud].concat());
    (0..3).for_each(|_| table.fails(0, Cause::Http5xx, None));
    assert_eq!(table.served(&turn(1, false)), "away");
    assert_eq!(table.served(&turn(1, true)), "away", "it rests");
    table.now += secs(11);
    // Where only conversations come, one of them is the trial, and it is not held against it if that fails.
    for _ in 0..3 {
        let plan = table.plan(&Ask::bare(&turn(1, true)));
        assert_eq!(plan.candidates[0].target, 0);
        assert_eq!(table.first(&turn(2, true)), "home", "one that is nobody's yet");
        table.state.committed(&plan, 1, Before::Failed, table.now);
    }
    let trial = table.store.begin(0, "m", false, table.now).expect("its rest is over");
    table.store.end(trial, Ended::Well, table.now);
    assert_eq!(table.served(&turn(1, true)), "away", "its share is on its way back");
    table.now += table.config.health.breaker.recovery + secs(60);
    table.store.tick(table.now);
    assert_eq!(table.served(&turn(1, true)), "home");
}

#[test]
fn a_conversation_is_at_home_that_was_only_answered_elsewhere_for_now() {
    let two = [target("home", "group = \"primary\""), target("away", "group = \"fallback\"")].concat();
    let mut table = Table::new(&two);
    for before in [Before::Left, Before::Nothing] {
        let key = u64::from(before == Before::Left);
        table.config.targets[0].max_concurrent = (before == Before::Nothing).then_some(0);
        let plan = table.plan(&Ask::bare(&turn(key, false)));
        table.state.committed(&plan, 1, before, table.now);
        table.config.targets[0].max_concurrent = None;
        assert_eq!(table.served(&turn(key, true)), "home", "{before:?}");
    }
}

/// What happens to a conversation's two targets.
fn trouble() -> impl Strategy<Value = Vec<(bool, bool, u64)>> {
    prop::collection::vec((prop::bool::weighted(0.3), prop::bool::weighted(0.1), 1_u64..120), 1..120)
}

proptest! {
    #[test]
    fn no_conversation_flaps(rounds in trouble()) {
        let two = [target("home", "group = \"primary\""), target("away", "group = \"fallback\"")].concat();
        let mut table = Table::new(&two);
        let call = turn(1, true);
        let (mut last, mut left_home): (Option<usize>, [Option<Instant>; 2]) = (None, [None; 2]);
        for (home_out, away_out, pause) in rounds {
            if home_out {
                table.pauses("home", 20);
            }
            if away_out {
                table.pauses("away", 20);
            }
            let plan = table.plan(&Ask::bare(&call));
            if let Some(first) = plan.candidates.first() {
                let moved = last.is_some_and(|last| last != first.target);
                let was_fit = last.is_some_and(|last| plan.candidates.iter().any(|c| c.target == last));
                if moved && was_fit {
                    // Of its own accord it moves only home, and soon after it left only once.
                    prop_assert_eq!(first.target, 0);
                    let away = table.config.sticky.away;
                    if let [Some(before), Some(left)] = left_home && table.now - left < away {
                        prop_assert!(left - before >= away, "{:?}", left - before);
                    }
                }
                if first.target != 0 && last != Some(first.target) {
                    left_home = [left_home[1], Some(table.now)];
                }
                last = Some(first.target);
                table.state.committed(&plan, first.target, Before::Nothing, table.now);
            }
            table.now += secs(pause);
        }
    }

    #[test]
    fn whatever_happens_no_prompt_leaves_the_place_that_it_must_stay_in(
        rounds in prop::collection::vec(
            (0_usize..3, 0_u8..6, 0_u64..4, prop::sample::select(vec![Egress::Anywhere, Egress::Lan, Egress::Box])),
            1..60,
        ),
    ) {
        let mut table = places();
        table.config.targets[0].max_concurrent = Some(1);
        for (target, what, key, egress) in rounds {
            let now = table.now;
            match what {
                0 => table.fails(target, Cause::RateLimited, Some(secs(30))),
                1 => table.fails(target, Cause::Unauthorized, None),
                2 => table.fails(target, Cause::Http5xx, None),
                3 => drop(table.store.begin(0, "m", false, now)),
                4 => { table.store.probed(target, Err(Cause::Refused), now); }
                _ => { table.store.probed(target, Ok(()), now); }
            }
            // Conversations that were in the cloud a moment ago, too.
            let call = turn(key, true);
            let plan = table.plan(&Ask { egress, ..Ask::bare(&call) });
            for candidate in plan.candidates.iter().chain(&plan.full) {
                let place = table.config.targets[candidate.target].place;
                prop_assert_eq!(place, candidate.place);
                let kept = match egress {
                    Egress::Anywhere => true,
                    Egress::Lan => place != Place::Cloud,
                    Egress::Box => place == Place::Local,
                };
                prop_assert!(kept, "{egress:?} {place:?}");
            }
            if let Some(last) = plan.candidates.last() {
                table.state.committed(&plan, last.target, Before::Failed, now);
            }
            table.now += secs(7);
        }
    }
}

#[test]
fn who_is_nearer_and_busy_is_awaited_and_once_more_asked_behind() {
    let more = "models = { \"*\" = \"m\" }\ngroup = ";
    let placed = |name: &str, group: &str, place: &str| {
        target(name, &format!("{more}\"{group}\""))
            .replace("place = \"local\"", &format!("place = \"{place}\""))
    };
    let (lan, cloud, never) = (secs(2), secs(10), "[elsewhere]\nafter = { cloud = \"never\" }\n");
    let time = |time| Some(After::Time(time));
    for (text, others, busy, awaits) in [
        ("", vec![("b", "fallback", "cloud")], true, time(cloud)),
        (never, vec![("b", "fallback", "cloud")], true, Some(After::Never)),
        (never, vec![("b", "primary", "lan"), ("c", "fallback", "cloud")], true, time(lan)),
        ("", vec![("b", "fallback", "local")], true, None),
        // One that is free is known to be awaited, should it be busy by the time that it is asked.
        ("", vec![("b", "fallback", "cloud")], false, time(cloud)),
        ("", vec![("b", "fallback", "local"), ("c", "fallback", "cloud")], false, None),
        ("", vec![], true, None),
    ] {
        let others: Vec<_> = others.iter().map(|(name, group, place)| placed(name, group, place)).collect();
        let mut table = Table::new(&format!("{text}{}{}", placed("a", "primary", "local"), others.concat()));
        table.config.targets[0].max_concurrent = busy.then_some(0);
        let mut plan = table.plan(&Ask::bare(&chat("m")));
        assert_eq!(plan.first_choice.as_ref().and_then(|it| it.patience), awaits, "{text} {others:?}");
        let before = names(&table.config, &plan).concat();
        plan.home_first();
        let (after, again) =
            (names(&table.config, &plan).concat(), plan.candidates.last().map(|it| it.again));
        if awaits.is_some() {
            assert_eq!((after, again), (format!("a{}a", before.replace('a', "")), Some(true)));
            assert!(plan.waits_for().is_none());
        } else {
            assert_eq!(after, before);
        }
    }
    // One that has failed lately gets its share and no more: it is not waited for.
    let two = [placed("a", "primary", "local"), placed("b", "fallback", "cloud")].concat();
    let mut table = Table::new(&two);
    (0..3).for_each(|_| table.fails(0, Cause::Http5xx, None));
    table.now += secs(11);
    let trial = table.store.begin(0, "m", false, table.now).expect("its rest is over");
    table.store.end(trial, Ended::Well, table.now);
    table.config.targets[0].max_concurrent = Some(0);
    let plan = table.plan(&Ask::bare(&chat("m")));
    assert_eq!(plan.first_choice.and_then(|it| it.patience), time(Duration::ZERO));
}

#[test]
fn a_box_that_fails_its_probe_is_not_awaited_though_it_is_busy_too() {
    let more = "models = { \"*\" = \"m\" }\ngroup = ";
    let a = target("a", &format!("{more}\"primary\""));
    let b = target("b", &format!("{more}\"fallback\"")).replace("place = \"local\"", "place = \"cloud\"");
    for memory in [NoRoom::Busy(secs(1)), NoRoom::Loading] {
        let busy = |target: usize| if target == 0 { Admission::Not(memory) } else { Admission::Goes };
        for down in [false, true] {
            let mut table = Table::new(&format!("{a}{b}"));
            for _ in 0..(if down { 3 } else { 0 }) {
                table.store.probed(0, Err(Cause::TimeoutConnect), table.now);
            }
            assert_eq!(table.store.probe_down(0).is_some(), down);
            let call = chat("m");
            let mut plan = table.plan(&Ask { memory: &busy, ..Ask::bare(&call) });
            assert_eq!(plan.first_choice.is_none(), down, "{memory:?}");
            plan.home_first();
            let order = names(&table.config, &plan).concat();
            assert_eq!(order, if down { "ba" } else { "aba" });
        }
    }
}

#[test]
fn what_a_server_must_not_fetch_is_held_back_from_it_or_goes_along() {
    let targets = [
        target("box", ""),
        target("shelf", "").replace("place = \"local\"", "place = \"lan\""),
        target("cloud", "models = { \"*\" = \"m\" }")
            .replace("place = \"local\"", "place = \"cloud\"")
            .replace("vllm", "openai")
            .replace("http://127.0.0.1:8000", "https://api.example.com/v1"),
    ]
    .concat();
    let body = |part: &str| format!(r#"{{"model":"m","messages":[{{"role":"user","content":[{part}]}}]}}"#);
    let url = body(r#"{"type":"image_url","image_url":{"url":"https://h/a.png"}}"#);
    let file = body(r#"{"type":"file","file":{"file_id":"file-1"}}"#);
    let input = url.replace("messages", "input").replace(
        r#""image_url","image_url":{"url":"https://h/a.png"}"#,
        r#""input_image","image_url":"https://h/a.png""#,
    );
    let asked = |images: &str, dialect: Dialect, body: &str, files: bool| {
        let config = config(&format!("{images}{targets}"));
        let call = crate::dialect::request::decode(dialect, body.as_bytes()).unwrap();
        let mut state = State::new(&config, 1);
        let ask = Ask { files, ..Ask::bare(&call) };
        let plan = plan(&config, &store(&config), &mut state, &ask, crate::time::now());
        let all: Vec<_> = plan.candidates.iter().map(|it| (it.target, it.wire, it.inlined)).collect();
        let passed: Vec<_> = plan.passed.iter().map(|(_, why)| *why).collect();
        (all, passed)
    };
    let chat = Dialect::OpenaiChat;
    assert_eq!(asked("", chat, &url, false), (vec![(2, chat, false)], vec![Passed::Urls; 2]));
    let fetch = "[images]\nfetch = true\n";
    let all = vec![(0, chat, true), (1, chat, true), (2, chat, false)];
    assert_eq!(asked(fetch, chat, &url, false), (all, vec![]));
    let responses = Dialect::OpenaiResponses;
    let all = vec![(0, responses, true), (1, responses, true), (2, responses, false)];
    assert_eq!(asked(fetch, responses, &input, false), (all, vec![]));
    let all = vec![(0, chat, false), (1, chat, false), (2, chat, false)];
    assert_eq!(asked("[images]\nlocal_urls = true\n", chat, &url, false), (all, vec![]));
    let embeddings = Dialect::OpenaiEmbeddings;
    let (candidates, passed) = asked(fetch, embeddings, &url, false);
    assert_eq!((candidates, passed), (vec![(2, embeddings, false)], vec![Passed::Urls; 2]));

    assert_eq!(asked("", chat, &file, false), (vec![(2, chat, false)], vec![Passed::Files; 2]));
    let all = vec![(0, chat, true), (1, chat, true), (2, chat, false)];
    assert_eq!(asked("", chat, &file, true), (all, vec![]));
}
