//! Who is asked, in which order, on which terms.

use std::path::Path;

use super::*;
use crate::cause::Cause;
use crate::config::parse;
use crate::health::store::Store;
use crate::health::{Ended, Why};
use crate::limits::CANDIDATES_MAX;
use crate::memory::admit::NoRoom;

fn config(text: &str) -> Config {
    parse(text, Path::new("/etc/edgeward/edgeward.toml"), &|_| None)
        .unwrap_or_else(|problems| panic!("{problems}"))
        .config
}

fn store(config: &Config) -> Store {
    Store::new(&config.health, 1, config.targets.iter().map(|_| false))
}

fn fail(
    store: &mut Store,
    target: usize,
    model: &str,
    cause: Cause,
    retry_after: Option<Duration>,
    now: Instant,
) {
    let ticket = store.begin(target, model, false, now).expect("it is asked");
    store.end(ticket, Ended::Failed(cause, retry_after), now);
}

fn commit(store: &mut Store, target: usize, model: &str, now: Instant) {
    let ticket = store.begin(target, model, false, now).expect("it is asked");
    store.answered(&ticket, 10, None, now);
    store.end(ticket, Ended::Well, now);
}

fn chat(model: &str) -> Call {
    Call::bare(Dialect::OpenaiChat, model)
}

/// The names of the candidates, in order.
fn names<'a>(config: &'a Config, plan: &Plan) -> Vec<&'a str> {
    plan.candidates.iter().map(|candidate| config.targets[candidate.target].name.as_str()).collect()
}

fn planned(config: &Config, call: &Call) -> Plan {
    planned_with(config, &store(config), call, crate::time::now())
}

fn planned_with(config: &Config, store: &Store, call: &Call, now: Instant) -> Plan {
    plan(config, store, &mut State::new(config, 1), &Ask::bare(call), now)
}

fn why(config: &Config, plan: &Plan, name: &str) -> Option<Passed> {
    plan.passed.iter().find(|(target, _)| config.targets[*target].name == name).map(|(_, why)| *why)
}

fn target(name: &str, rest: &str) -> String {
    format!(
        "[[target]]\nname = \"{name}\"\nkind = \"vllm\"\nurl = \"http://127.0.0.1:8000\"\nplace = \"local\"\n{rest}\n"
    )
}

mod choice;
mod scenes;
mod simulation;

const THREE_GROUPS: &str = "[router]\ngroups = [\"first\", \"second\"]\nregion = \"edge\"\n";

fn five() -> Config {
    config(
        &[
            THREE_GROUPS.to_owned(),
            target("a", "group = \"second\"\nregion = \"edge\""),
            target("b", "group = \"first\"\nregion = \"far\""),
            target("c", "group = \"first\"\nregion = \"edge\""),
            target("d", "group = \"first\"\nregion = \"edge\""),
            target("e", "group = \"first\""),
        ]
        .concat(),
    )
}

#[test]
fn groups_then_region_then_the_files_order() {
    let config = five();
    assert_eq!(names(&config, &planned(&config, &chat("m"))), ["c", "d", "b", "e", "a"]);
}

#[test]
fn without_a_region_of_its_own_the_files_order_stands() {
    let mut config = five();
    config.router.region = None;
    assert_eq!(names(&config, &planned(&config, &chat("m"))), ["b", "c", "d", "e", "a"]);
}

#[test]
fn a_misconfigured_target_comes_last_of_all_until_it_answers() {
    let config = five();
    let (mut store, now) = (store(&config), crate::time::now());
    fail(&mut store, 2, "other", Cause::Unauthorized, None, now);
    assert_eq!(names(&config, &planned_with(&config, &store, &chat("m"), now)), ["d", "b", "e", "a", "c"]);
    commit(&mut store, 2, "m", now);
    assert_eq!(names(&config, &planned_with(&config, &store, &chat("m"), now)), ["c", "d", "b", "e", "a"]);
    fail(&mut store, 2, "typo", Cause::ModelMissing, None, now);
    assert_eq!(names(&config, &planned_with(&config, &store, &chat("typo"), now)), ["d", "b", "e", "a", "c"]);
    assert_eq!(names(&config, &planned_with(&config, &store, &chat("m"), now)), ["c", "d", "b", "e", "a"]);
}

#[test]
fn who_is_absent_or_cooling_down_is_no_candidate_and_says_so() {
    let config = five();
    let (mut store, now) = (store(&config), crate::time::now());
    store.set_absent(1, true);
    fail(&mut store, 2, "m", Cause::RateLimited, Some(Duration::from_secs(9)), now);
    fail(&mut store, 3, "m", Cause::RateLimited, Some(Duration::from_secs(4)), now);
    let later = planned_with(&config, &store, &chat("m"), now + Duration::from_secs(1));
    assert_eq!(names(&config, &later), ["e", "a"]);
    assert_eq!(why(&config, &later, "b"), Some(Passed::Health(Why::Absent)));
    assert_eq!(why(&config, &later, "c"), Some(Passed::Health(Why::CoolingDown(Duration::from_secs(8)))));
    assert_eq!(later.retry_after(), Some(Duration::from_secs(3)));
    let over = planned_with(&config, &store, &chat("m"), now + Duration::from_secs(4));
    assert_eq!(names(&config, &over), ["d", "e", "a"], "a pause ends at its time");
    assert_eq!(over.retry_after(), Some(Duration::from_secs(5)));
    assert_eq!(planned(&config, &chat("m")).retry_after(), None);
}

#[test]
fn a_route_has_its_own_groups_and_terms_and_the_first_match_wins() {
    let routes = "[[route]]\nmodel = \"big*\"\ngroups = [\"second\"]\nheartbeat = \"5s\"\ncommit_on = \"content\"\non_empty_stop = \"pass\"\nmodel_name = \"real\"\ndeadlines = { first_token = \"90s\" }\n[[route]]\nmodel = \"bigger\"\ngroups = [\"first\"]\n";
    let config = config(
        &[
            THREE_GROUPS,
            "[deadlines]\nfirst_token = \"30s\"\nconnect = \"2s\"\n",
            &target("a", "group = \"second\"\ndeadlines = { connect = \"3s\", first_token = \"40s\" }"),
            &target("b", "group = \"first\"\ncontext = 8192"),
            routes,
        ]
        .concat(),
    );
    let big = planned(&config, &chat("bigger"));
    assert_eq!(names(&config, &big), ["a"]);
    assert_eq!(why(&config, &big, "b"), Some(Passed::Group));
    let terms = (big.commit_on, big.on_empty_stop, big.model_name, big.heartbeat);
    assert_eq!(terms, (CommitOn::Content, OnEmptyStop::Pass, ModelName::Real, Some(Duration::from_secs(5))));
    let seconds = |candidate: &Candidate| {
        (candidate.deadlines.connect.as_secs(), candidate.deadlines.first_token.as_secs())
    };
    assert_eq!(seconds(&big.candidates[0]), (3, 90), "the route's over the target's over the default");
    let small = planned(&config, &chat("small"));
    assert_eq!(names(&config, &small), ["b", "a"]);
    assert_eq!(small.candidates.iter().map(seconds).collect::<Vec<_>>(), [(2, 30), (3, 40)]);
    assert_eq!(small.candidates[0].context, Some(8192));
    let terms = (small.commit_on, small.on_empty_stop, small.model_name, small.heartbeat);
    assert_eq!(terms, (CommitOn::Any, OnEmptyStop::FailoverOnce, ModelName::Asked, None));
}

const CLOUD: &str = "[[target]]\nname = \"cloud\"\nkind = \"openai\"\nurl = \"https://api.example.com/v1\"\nplace = \"cloud\"\ngroup = \"fallback\"\n";

#[test]
fn models_are_mapped_and_who_has_no_entry_is_passed_over() {
    let config = config(
        &[
            target("box", "group = \"primary\"").as_str(),
            CLOUD,
            "models = { \"llama*\" = \"gpt-4o\", \"llama3.2:3b\" = \"gpt-4o-mini\", \"same\" = \"*\" }\n",
        ]
        .concat(),
    );
    let models =
        |asked| planned(&config, &chat(asked)).candidates.into_iter().map(|c| c.model).collect::<Vec<_>>();
    assert_eq!(models("llama3.2:3b"), ["llama3.2:3b", "gpt-4o-mini"]);
    assert_eq!(models("llama3"), ["llama3", "gpt-4o"]);
    assert_eq!(models("same"), ["same", "same"]);
    let other = planned(&config, &chat("qwen"));
    assert_eq!(names(&config, &other), ["box"]);
    assert_eq!(why(&config, &other, "cloud"), Some(Passed::Model));
}

#[test]
fn a_cloud_without_a_map_is_never_asked() {
    let mut config = config(
        &[target("box", "group = \"primary\"").as_str(), CLOUD, "models = { \"*\" = \"g\" }\n"].concat(),
    );
    assert_eq!(names(&config, &planned(&config, &chat("m"))), ["box", "cloud"]);
    config.targets[1].models.entries.clear();
    let plan = planned(&config, &chat("m"));
    assert_eq!((names(&config, &plan), why(&config, &plan, "cloud")), (vec!["box"], Some(Passed::Model)));
}

#[test]
fn each_is_asked_in_a_dialect_that_it_speaks() {
    use Dialect::{
        Anthropic, Gemini, OllamaChat, OllamaEmbed, OllamaGenerate, OpenaiChat, OpenaiCompletions,
        OpenaiEmbeddings, OpenaiResponses,
    };
    let openai = [OpenaiChat, OpenaiCompletions, OpenaiEmbeddings, OpenaiResponses];
    let ollama = [OllamaChat, OllamaGenerate, OllamaEmbed];
    for (kind, speaks_openai, speaks_ollama, speaks_anthropic, speaks_gemini) in [
        (Kind::Ollama, true, true, true, false),
        (Kind::Vllm, true, false, true, false),
        (Kind::Llamacpp, true, false, true, false),
        (Kind::Openai, true, false, false, false),
        (Kind::Anthropic, false, false, true, false),
        (Kind::Gemini, false, false, false, true),
    ] {
        assert!(openai.iter().all(|dialect| speaks(kind, *dialect) == speaks_openai), "{kind:?}");
        assert!(ollama.iter().all(|dialect| speaks(kind, *dialect) == speaks_ollama), "{kind:?}");
        assert_eq!(speaks(kind, Anthropic), speaks_anthropic, "{kind:?}");
        assert_eq!(speaks(kind, Gemini), speaks_gemini, "{kind:?}");
    }
    let config = five();
    let plan = planned(&config, &Call::bare(OllamaChat, "m"));
    assert!(!plan.candidates.is_empty());
    assert!(plan.candidates.iter().all(|candidate| candidate.wire == OpenaiChat), "translated");
    let alone = plan.speaking(OllamaChat);
    assert!(alone.candidates.is_empty() && alone.passed.iter().all(|(_, why)| *why == Passed::Dialect));
    let plan = planned(&config, &Call::bare(OllamaEmbed, "m"));
    assert!(plan.candidates.is_empty() && plan.passed.iter().all(|(_, why)| *why == Passed::Dialect));
    for (kind, dialect, asked_in) in [
        (Kind::Vllm, OpenaiResponses, Some(OpenaiResponses)),
        (Kind::Gemini, OpenaiChat, Some(Gemini)),
        (Kind::Anthropic, OllamaGenerate, Some(Anthropic)),
        (Kind::Ollama, Anthropic, Some(Anthropic)),
        (Kind::Openai, Anthropic, Some(OpenaiChat)),
        (Kind::Openai, OllamaEmbed, None),
        (Kind::Anthropic, OpenaiEmbeddings, None),
    ] {
        assert_eq!(wire(kind, dialect), asked_in, "{kind:?} {dialect:?}");
    }
}

/// Two of one embedding family, one of another, one of none.
fn families() -> Config {
    let all = [
        ("a", "embeddings = \"nomic\""),
        ("b", "embeddings = \"bge\""),
        ("c", "embeddings = \"nomic\""),
        ("d", ""),
    ];
    config(&all.map(|(name, rest)| target(name, &format!("group = \"primary\"\n{rest}"))).concat())
}

#[test]
fn embeddings_stay_in_the_family_of_who_would_be_asked_first() {
    let config = families();
    let embed = Call::bare(Dialect::OpenaiEmbeddings, "m");
    let healthy = planned(&config, &embed);
    assert_eq!(names(&config, &healthy), ["a", "c"]);
    assert_eq!(why(&config, &healthy, "b"), Some(Passed::EmbeddingFamily));
    assert_eq!(why(&config, &healthy, "d"), Some(Passed::EmbeddingFamily));
    assert_eq!(names(&config, &planned(&config, &chat("m"))), ["a", "b", "c", "d"]);
    let now = crate::time::now();
    let mut paused = store(&config);
    fail(&mut paused, 0, "m", Cause::RateLimited, None, now);
    assert_eq!(
        names(&config, &planned_with(&config, &paused, &embed, now)),
        ["c"],
        "a pause makes no other family right"
    );
    let mut wrong = store(&config);
    fail(&mut wrong, 0, "m", Cause::Unauthorized, None, now);
    assert_eq!(names(&config, &planned_with(&config, &wrong, &embed, now)), ["c", "a"]);
    let mut absent = store(&config);
    absent.set_absent(0, true);
    absent.set_absent(1, true);
    assert_eq!(
        names(&config, &planned_with(&config, &absent, &embed, now)),
        ["c"],
        "who was never there decides nothing"
    );
}

#[test]
fn without_a_family_embeddings_have_one_target() {
    let mut config = families();
    config.targets[0].embeddings = None;
    let embed = Call::bare(Dialect::OpenaiEmbeddings, "m");
    assert_eq!(names(&config, &planned(&config, &embed)), ["a"], "no family is nobody's family");
    let (mut paused, now) = (store(&config), crate::time::now());
    fail(&mut paused, 0, "m", Cause::RateLimited, Some(Duration::from_secs(9)), now);
    let plan = planned_with(&config, &paused, &embed, now);
    assert!(plan.candidates.is_empty());
    assert_eq!(plan.retry_after(), Some(Duration::from_secs(9)));
}

#[test]
fn a_plan_is_bounded() {
    let all: String =
        (0..CANDIDATES_MAX + 4).map(|n| target(&format!("t{n}"), "group = \"primary\"")).collect();
    let config = config(&all);
    assert_eq!(planned(&config, &chat("m")).candidates.len(), CANDIDATES_MAX);
}

#[test]
fn only_ollama_loads_inside_a_request() {
    let config = config(
        "[[target]]\nname = \"o\"\nkind = \"ollama\"\nurl = \"http://127.0.0.1:1\"\nplace = \"local\"\n[[target]]\nname = \"v\"\nkind = \"vllm\"\nurl = \"http://127.0.0.1:2\"\nplace = \"local\"\n",
    );
    assert_eq!(
        planned(&config, &chat("m")).candidates.iter().map(|c| c.loads).collect::<Vec<_>>(),
        [true, false]
    );
}

#[test]
fn a_path_is_joined_to_the_base_as_its_users_write_it() {
    for (kind, url, path, want) in [
        ("openai", "https://api.example.com/v1", "/v1/chat/completions", "/v1/chat/completions"),
        ("openai", "https://api.example.com/api/v3", "/v1/models", "/api/v3/models"),
        ("openai", "http://127.0.0.1:1", "/v1/embeddings", "/v1/embeddings"),
        ("vllm", "http://127.0.0.1:1", "/v1/chat/completions", "/v1/chat/completions"),
        ("llamacpp", "http://127.0.0.1:1/llama", "/v1/messages", "/llama/v1/messages"),
        ("ollama", "http://127.0.0.1:1", "/api/chat", "/api/chat"),
        ("anthropic", "https://api.example.com", "/v1/messages", "/v1/messages"),
        ("vllm", "unix:/run/vllm.sock", "/v1/completions", "/v1/completions"),
        ("openai", "unix:/run/o.sock", "/v1/completions", "/v1/completions"),
    ] {
        let models = "models = { \"*\" = \"m\" }";
        let place = if url.contains("example.com") { "cloud" } else { "local" };
        let config = config(&format!(
            "[[target]]\nname = \"t\"\nkind = \"{kind}\"\nurl = \"{url}\"\nplace = \"{place}\"\n{models}\n"
        ));
        assert_eq!(joined_path(&config.targets[0], path), want, "{kind} {url}");
    }
}

#[test]
fn a_box_without_memory_is_asked_only_where_nobody_else_is_left() {
    let config = five();
    let (mut store, now) = (store(&config), crate::time::now());
    store.set_pressure(2, crate::health::Pressure::Red);
    let plan = planned_with(&config, &store, &chat("m"), now);
    assert_eq!(names(&config, &plan), ["d", "b", "e", "a", "c"]);
    let last = plan.candidates.last().unwrap();
    // It does not rest: as soon as there is memory its breaker bounds nothing.
    assert_eq!((last.memory, last.last_resort), (Admission::Not(NoRoom::Red), false));
    assert_eq!(plan.shed().map(|shed| shed.target), Some(2));
    store.set_pressure(2, crate::health::Pressure::Green);
    assert_eq!(names(&config, &planned_with(&config, &store, &chat("m"), now))[0], "c");
}

/// A plan where the memory of these targets says so, and everyone else's has room.
fn remembered(config: &Config, store: &Store, says: &[(usize, Admission)]) -> Plan {
    let call = chat("m");
    let memory = |target: usize| {
        let said = says.iter().find(|(index, _)| *index == target);
        said.map_or(Admission::Goes, |(_, said)| *said)
    };
    let ask = Ask { memory: &memory, ..Ask::bare(&call) };
    plan(config, store, &mut State::new(config, 1), &ask, crate::time::now())
}

#[test]
fn memory_moves_a_target_back_and_says_whom_to_warm() {
    let mut config = five();
    let plan = remembered(&config, &store(&config), &[(2, Admission::Loads(7))]);
    assert!(plan.first_choice.is_none(), "another server of this box has it");
    for target in [0, 1, 3, 4] {
        config.targets[target].place = Place::Lan;
    }
    let good = store(&config);
    let not = Admission::Not;
    let plan = remembered(&config, &good, &[(2, Admission::Loads(7))]);
    assert_eq!(names(&config, &plan), ["d", "b", "e", "a", "c"]);
    let awaits = |plan: &Plan| plan.first_choice.as_ref().map(|it| (it.target, it.patience));
    let (lan, none) = (Some(config.elsewhere.lan), None);
    assert_eq!(awaits(&plan), Some((2, lan)), "the one that would be first");
    assert!(plan.candidates[4].reluctant && plan.candidates[4].memory == Admission::Loads(7));

    let busy = [(2, not(NoRoom::Busy(Duration::from_secs(3)))), (3, not(NoRoom::Loading))];
    let plan = remembered(&config, &good, &busy);
    assert_eq!((names(&config, &plan), awaits(&plan)), (vec!["b", "e", "a", "c", "d"], Some((2, lan))));
    // Short of memory is worse than busy.
    let plan = remembered(&config, &good, &[(2, not(NoRoom::NotResident)), (3, not(NoRoom::Tokens))]);
    assert_eq!(names(&config, &plan), ["b", "e", "a", "d", "c"]);
    assert_eq!(plan.shed().map(|shed| shed.target), Some(3), "one is told of");

    // One that is away from home is not warmed, and whoever rests comes after who has to load.
    let plan = remembered(&config, &good, &[(0, Admission::Loads(7))]);
    assert_eq!(awaits(&plan), Some((2, lan)), "it is free, and may not be any more when it is asked");
    assert!(plan.shed().is_none());
    let (mut resting, now) = (store(&config), crate::time::now());
    for target in [3, 1, 4, 0] {
        for _ in 0..20 {
            fail(&mut resting, target, "m", Cause::Refused, None, now);
            if !matches!(resting.summary(target, "m", 0, now).standing, crate::health::Standing::Fit) {
                break;
            }
        }
    }
    let plan = remembered(&config, &resting, &[(2, Admission::Loads(7))]);
    assert_eq!((names(&config, &plan)[0], awaits(&plan)), ("c", none), "the request loads it itself");
    let plan = remembered(&config, &resting, &[(2, not(NoRoom::NotSmall(9)))]);
    assert_eq!(names(&config, &plan).last(), Some(&"c"));
    // Nobody gets it in its place: the request is not sent away.
    let all: Vec<_> = (0..5).map(|target| (target, not(NoRoom::Red))).collect();
    assert!(remembered(&config, &good, &all).shed().is_none());
}

#[test]
fn what_memory_keeps_away_passes_and_says_why() {
    let words = |why| Passed::Memory(why).in_words();
    let needs = NoRoom::TooLarge { need: 9 << 20, free: 5 << 20 };
    assert_eq!(words(needs), "would have to load this model, which needs 9216 MiB where 5120 MiB are free");
    assert!(words(NoRoom::Busy(Duration::ZERO)).contains("about 1 s"));
    assert!(Passed::Memory(NoRoom::Red).passes() && Passed::Memory(needs).is_told());
    let busy = Passed::Memory(NoRoom::Busy(Duration::from_secs(3)));
    assert_eq!((busy.left(), Passed::Memory(NoRoom::Red).left()), (Some(Duration::from_secs(3)), None));
}
