//! The configuration where there is no file: local servers on their usual ports, clouds by their usual variables.

use std::net::SocketAddr;

use super::credential::check_secret;
use super::identify::Known;
use super::problem::Loaded;
use super::target::Placed;
use super::walk::{Env, Spot, Walk};
use super::{
    CommitOn, Config, Deadlines, Kind, Limits, LockMemory, ModelMap, ModelName, OnEmptyStop, Place, Router,
    Target, TargetUrl, checks, client, load, url,
};

/// A port on which a local server is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalServer {
    /// Whose usual port it is; another may answer there.
    pub usual: Known,
    /// On 127.0.0.1.
    pub port: u16,
}

/// Their usual ports, in the order in which they are preferred.
pub const LOCAL_SERVERS: [LocalServer; 5] = [
    // OLLAMA_HOST's default.
    LocalServer { usual: Known::Ollama, port: 11434 },
    // `vllm serve --port`'s default.
    LocalServer { usual: Known::Vllm, port: 8000 },
    // `llama-server --port`'s default.
    LocalServer { usual: Known::Llamacpp, port: 8080 },
    // `sglang.launch_server --port`'s default.
    LocalServer { usual: Known::Sglang, port: 30000 },
    // LM Studio's local server.
    LocalServer { usual: Known::Lmstudio, port: 1234 },
];

/// What the target of such a server on that port is called: by its name alone where it is usual.
#[must_use]
pub fn local_name(known: Known, port: u16) -> String {
    if LOCAL_SERVERS.contains(&LocalServer { usual: known, port }) {
        known.name().to_owned()
    } else {
        format!("{}-{port}", known.name())
    }
}

impl Target {
    /// What was discovered on `port` is this server.
    pub fn become_known(&mut self, known: Known, port: u16) {
        self.name = local_name(known, port);
        self.kind = known.kind();
        self.url = local_url(known, port);
    }
}

fn local_url(known: Known, port: u16) -> TargetUrl {
    let base = if known.kind() == Kind::Openai { "/v1" } else { "" };
    TargetUrl::Http { host: "127.0.0.1".to_owned(), port, base: base.to_owned() }
}

/// A cloud whose key is looked for in the environment.
struct Cloud {
    name: &'static str,
    kind: Kind,
    key: &'static str,
    base: &'static str,
    /// The variable by which the cloud's own SDK is sent elsewhere, where it has one.
    base_env: Option<&'static str>,
    /// `*` is the stand-in for the box's models: the vendor's small, cheap one. The others keep
    /// names that only this cloud has: no open model that a box may run begins like that.
    models: &'static [(&'static str, &'static str)],
}

/// Addresses and names as the vendors' own pages had them in November 2026. Model names age: each
/// vendor's list of deprecations says when; the plan prints the map, and a file replaces it.
const CLOUDS: [Cloud; 7] = [
    // developers.openai.com/api/docs/deprecations: gpt-4o-mini and gpt-4.1-mini end on 2027-01-14, replaced by
    // gpt-6-luna. `gpt-*` would also be gpt-oss, which runs on boxes.
    Cloud {
        name: "openai",
        kind: Kind::Openai,
        key: "OPENAI_API_KEY",
        base: "https://api.openai.com/v1",
        base_env: Some("OPENAI_BASE_URL"),
        models: &[
            ("*", "gpt-6-luna"),
            ("gpt-4*", "*"),
            ("gpt-5*", "*"),
            ("gpt-6*", "*"),
            ("chatgpt-*", "*"),
            ("text-embedding-3-*", "*"),
        ],
    },
    // platform.claude.com/docs, models overview: Haiku 5.5 is the current small model.
    Cloud {
        name: "anthropic",
        kind: Kind::Anthropic,
        key: "ANTHROPIC_API_KEY",
        base: "https://api.anthropic.com",
        base_env: Some("ANTHROPIC_BASE_URL"),
        models: &[("*", "claude-haiku-5-5"), ("claude-*", "*")],
    },
    // ai.google.dev/gemini-api/docs/openai (address) and /deprecations: 2.5 ends on 2026-12-01, replaced by this.
    Cloud {
        name: "gemini",
        kind: Kind::Openai,
        key: "GEMINI_API_KEY",
        base: "https://generativelanguage.googleapis.com/v1beta/openai",
        base_env: None,
        models: &[("*", "gemini-3.5-flash-lite"), ("gemini-*", "*")],
    },
    // api-docs.deepseek.com: deepseek-chat and deepseek-reasoner ended on 2026-07-24. `deepseek-*` would also be
    // deepseek-r1 and others that run on boxes.
    Cloud {
        name: "deepseek",
        kind: Kind::Openai,
        key: "DEEPSEEK_API_KEY",
        base: "https://api.deepseek.com/v1",
        base_env: None,
        models: &[("*", "deepseek-v4-flash"), ("deepseek-v4-flash", "*"), ("deepseek-v4-pro", "*")],
    },
    // openrouter.ai/docs: openrouter/auto is its own router's name, and stays. Vendors' prefixes that are
    // also Hugging Face organisations (google/, meta-llama/) are left out: vLLM serves under such names.
    Cloud {
        name: "openrouter",
        kind: Kind::Openai,
        key: "OPENROUTER_API_KEY",
        base: "https://openrouter.ai/api/v1",
        base_env: None,
        models: &[
            ("*", "openrouter/auto"),
            ("openrouter/*", "*"),
            ("openai/gpt-4*", "*"),
            ("openai/gpt-5*", "*"),
            ("openai/gpt-6*", "*"),
            ("anthropic/*", "*"),
            ("google/gemini-*", "*"),
            ("x-ai/*", "*"),
        ],
    },
    // help.aliyun.com/model-studio: qwen-plus is a name that moves with the models. Keys of the international
    // site need dashscope-intl.aliyuncs.com: a [[target]] of their own.
    Cloud {
        name: "dashscope",
        kind: Kind::Openai,
        key: "DASHSCOPE_API_KEY",
        base: "https://dashscope.aliyuncs.com/compatible-mode/v1",
        base_env: None,
        models: &[
            ("*", "qwen-plus"),
            ("qwen-plus*", "*"),
            ("qwen-flash*", "*"),
            ("qwen-turbo*", "*"),
            ("qwen-max*", "*"),
        ],
    },
    // docs.siliconflow.cn quick start. Keys of the international site need api.siliconflow.com.
    Cloud {
        name: "siliconflow",
        kind: Kind::Openai,
        key: "SILICONFLOW_API_KEY",
        base: "https://api.siliconflow.cn/v1",
        base_env: None,
        models: &[("*", "Qwen/Qwen3-8B"), ("Pro/*", "*")],
    },
];

/// The variables that give a cloud target, for messages.
pub(super) fn cloud_variables() -> impl Iterator<Item = &'static str> {
    CLOUDS.iter().map(|cloud| cloud.key)
}

/// The configuration of a box without a file: every default, `local` as discovered targets (not candidates
/// until something answers there), and a cloud for each usual variable of `env` that is set.
#[must_use]
pub fn discover(env: &Env<'_>, local: &[LocalServer]) -> Loaded {
    let mut walk = Walk::new("", None, env);
    let listen = vec![client::LISTEN];
    let clouds = cloud_targets(&mut walk, &listen);
    let placed: Vec<_> = local_targets(local).into_iter().chain(clouds).map(Placed::without_line).collect();
    let health = super::Health::default();
    checks::targets(&mut walk, &placed, &health.probe);
    let config = Config {
        source: None,
        admin_listen: client::default_admin(&walk),
        listen,
        allow_anonymous: true,
        hosts: Vec::new(),
        model_name: ModelName::Asked,
        on_empty_stop: OnEmptyStop::FailoverOnce,
        commit_on: CommitOn::Any,
        heartbeat: None,
        ollama_writes: false,
        drop_anonymous_reasoning: true,
        log_prompts: false,
        lock_memory: LockMemory::Auto,
        tls: None,
        cors_origins: Vec::new(),
        keys: Vec::new(),
        limits: Limits::default(),
        deadlines: Deadlines::default(),
        targets: placed.into_iter().map(|placed| placed.target).collect(),
        router: Router { groups: vec!["primary".to_owned(), "fallback".to_owned()], region: None },
        routes: Vec::new(),
        groups: Vec::new(),
        health,
        retry: super::Retry::default(),
        hedge: super::Hedge::default(),
        queue: super::Queue::default(),
        elsewhere: super::Elsewhere::default(),
        sticky: super::Sticky::default(),
        translation: super::Translation::default(),
        images: super::Images::default(),
        on_break: super::OnBreak::default(),
        resume: super::Resume::default(),
        repetition: super::Repetition::default(),
        rollout: None,
        memory: super::Memory::default(),
    };
    // Nothing that discovery makes is a mistake; a problem in the environment leaves its target out.
    let mut warnings = walk.warnings;
    warnings.extend(walk.problems);
    Loaded { config, warnings }
}

pub(super) fn local_targets(servers: &[LocalServer]) -> Vec<Target> {
    let one = |&LocalServer { usual, port }: &LocalServer| {
        let target = Target::plain(&local_name(usual, port), usual.kind(), local_url(usual, port));
        Target { discovered: true, ..target }
    };
    servers.iter().map(one).collect()
}

pub(super) fn cloud_targets(walk: &mut Walk<'_>, listen: &[SocketAddr]) -> Vec<Target> {
    CLOUDS.iter().filter_map(|cloud| cloud_target(walk, cloud, listen)).collect()
}

fn cloud_target(walk: &mut Walk<'_>, cloud: &Cloud, listen: &[SocketAddr]) -> Option<Target> {
    let at = |name: &str| Spot { key: format!("${name}"), line: None };
    // A variable set to nothing is how people unset one in a unit file.
    let key = (walk.env)(cloud.key).filter(|key| !key.trim().is_empty())?;
    let key = match check_secret(key.as_bytes()) {
        Ok(key) => key,
        Err(fault) => {
            walk.warn(
                &at(cloud.key),
                format_args!("{}; {} is left out", fault.what, cloud.name),
                "set it to the key alone",
            );
            return None;
        }
    };
    let moved = cloud
        .base_env
        .and_then(|name| Some((name, (walk.env)(name).filter(|base| !base.trim().is_empty())?)));
    let base = moved.as_ref().map_or(cloud.base, |(_, base)| base.trim());
    let url = match url::parse(base, Some(cloud.kind)) {
        Ok(url) => url,
        Err(fault) => {
            let name = moved.map_or("", |(name, _)| name);
            walk.warn(
                &at(name),
                format_args!("{}; {} is left out", fault.what, cloud.name),
                fault.hint.unwrap_or_default(),
            );
            return None;
        }
    };
    if let (Some((name, _)), true) = (&moved, load::points_here(&url, listen)) {
        let what = format!(
            "is edgeward's own address, as a client on this box needs it; {} is left out",
            cloud.name
        );
        walk.warn(&at(name), what, "unset it for edgeward itself, or write a [[target]]");
        return None;
    }
    let mut target = Target { key: Some(key), ..Target::plain(cloud.name, cloud.kind, url) };
    let own = url::parse(cloud.base, Some(cloud.kind)).ok()?;
    if is_host_of(&target.url, &own) {
        let owned = |(asked, given): &(&str, &str)| ((*asked).to_owned(), (*given).to_owned());
        target.models = ModelMap { entries: cloud.models.iter().map(owned).collect() };
    } else if let (Some((name, _)), Place::Cloud) = (&moved, target.place) {
        walk.warn(
            &at(name),
            "names another server, whose models are not known here",
            "write a [[target]] with models = { … }",
        );
    }
    Some(target)
}

/// Whether `url` is at `own`'s host or a regional name below it, such as eu.api.openai.com.
fn is_host_of(url: &TargetUrl, own: &TargetUrl) -> bool {
    match (url, own) {
        (TargetUrl::Https { host, .. }, TargetUrl::Https { host: own, .. }) => {
            host == own || host.strip_suffix(own.as_str()).is_some_and(|front| front.ends_with('.'))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn with(vars: &[(&str, &str)]) -> Loaded {
        let vars: Vec<(String, String)> =
            vars.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let env = move |name: &str| vars.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone());
        discover(&env, &LOCAL_SERVERS)
    }

    fn names(loaded: &Loaded) -> Vec<&str> {
        loaded.config.targets.iter().map(|target| &*target.name).collect()
    }

    #[test]
    fn a_bare_box_has_five_places_to_look() {
        let loaded = with(&[]);
        assert_eq!(names(&loaded), ["ollama", "vllm", "llamacpp", "sglang", "lmstudio"]);
        assert!(loaded.config.targets.iter().all(|target| target.discovered && target.place == Place::Local));
        assert_eq!(loaded.config.targets[3].url.to_string(), "http://127.0.0.1:30000/v1");
        assert_eq!(loaded.config.targets[0].url.to_string(), "http://127.0.0.1:11434");
        assert!(loaded.config.allow_anonymous);
        assert_eq!(loaded.config.listen, ["127.0.0.1:8484".parse().expect("address")]);
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    }

    #[test]
    fn a_first_start_says_what_clients_need() {
        let text = config::plan_text(&with(&[]).config, &[]);
        for said in [
            "base_url=\"http://BOX:8484/v1\"",
            "OPENAI_BASE_URL=http://BOX:8484/v1",
            "ANTHROPIC_BASE_URL=http://BOX:8484;",
            "OLLAMA_HOST=http://BOX:8484\n",
            "NO_PROXY",
            "[[key]]",
            "[[target]]",
            "ports 11434, 8000, 8080, 30000, 1234",
        ] {
            assert!(text.contains(said), "{said}:\n{text}");
        }
        assert!(text.lines().all(|line| line.get(9..10) == Some(" ")), "each word stands apart:\n{text}");
    }

    #[test]
    fn a_port_s_target_becomes_what_answers_there() {
        let mut names = std::collections::HashSet::new();
        for (at, local) in LOCAL_SERVERS.iter().enumerate() {
            for known in Known::ALL {
                let mut target = with(&[]).config.targets.swap_remove(at);
                let before = target.clone();
                target.become_known(known, local.port);
                assert_eq!(target.kind, known.kind());
                assert_eq!(target == before, known == local.usual, "{target:?}");
                assert!(names.insert(target.name), "each has its own name");
            }
        }
        assert!(names.contains("llamacpp-11434") && names.contains("openai-8000") && names.contains("vllm"));
    }

    #[test]
    fn each_variable_gives_its_cloud_with_a_map() {
        for cloud in &CLOUDS {
            let loaded = with(&[(cloud.key, "sk-0123456789")]);
            let target = loaded.config.targets.last().expect("a target");
            assert_eq!(target.name, cloud.name);
            assert_eq!((target.place, &*target.group), (Place::Cloud, "fallback"), "{}", cloud.name);
            assert_eq!(target.url.to_string(), cloud.base, "the table has the base as it is used");
            assert!(target.spare && !target.discovered);
            assert_eq!(target.never_a_candidate(), None);
            let stand_in = target.models.resolve("llama3.2:3b").expect("a stand-in");
            assert_ne!(stand_in, "llama3.2:3b");
            assert_eq!(
                target.models.resolve(stand_in),
                Some(stand_in),
                "{}: a cloud's own name stays",
                cloud.name
            );
            assert!(!format!("{loaded:?}").contains("0123456789"));
        }
    }

    #[test]
    fn names_of_open_models_go_to_the_stand_in() {
        for (key, open) in [
            ("OPENAI_API_KEY", "gpt-oss:20b"),
            ("DEEPSEEK_API_KEY", "deepseek-r1:8b"),
            ("OPENROUTER_API_KEY", "google/gemma-3-4b-it"),
            ("OPENROUTER_API_KEY", "openai/gpt-oss-20b"),
            ("DASHSCOPE_API_KEY", "qwen2.5:7b"),
            ("GEMINI_API_KEY", "gemma3:4b"),
        ] {
            let loaded = with(&[(key, "k")]);
            assert_ne!(loaded.config.targets[5].models.resolve(open), Some(open), "{key} {open}");
        }
    }

    #[test]
    fn bases_and_keys_that_cannot_be_used_are_said_and_left_out() {
        let here = with(&[("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", "http://localhost:8484/v1")]);
        assert_eq!(names(&here).len(), 5);
        assert!(here.warnings[0].what.contains("edgeward's own address"));

        let broken = with(&[("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", "https://h/?key=hunter2")]);
        assert_eq!(names(&broken).len(), 5);
        assert_eq!(broken.warnings[0].key, "$OPENAI_BASE_URL");
        assert!(!format!("{broken:?}").contains("hunter2"));

        let torn = with(&[("OPENAI_API_KEY", "hunter2 hunter2")]);
        assert_eq!(names(&torn).len(), 5);
        assert!(torn.warnings[0].to_string().starts_with("environment: $OPENAI_API_KEY: "));
        assert!(!format!("{torn:?}").contains("hunter2"));

        assert_eq!(names(&with(&[("OPENAI_API_KEY", " ")])).len(), 5);
    }

    #[test]
    fn a_moved_base_keeps_the_map_only_at_the_same_vendor() {
        let region = with(&[("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", "https://eu.api.openai.com/v1/")]);
        assert_eq!(region.config.targets[5].never_a_candidate(), None);

        let other = with(&[("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", "https://llm.example.com/v1")]);
        assert!(other.config.targets[5].never_a_candidate().is_some());
        assert!(other.warnings.iter().any(|warning| warning.key == "$OPENAI_BASE_URL"));

        let lan = with(&[("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", "http://10.0.0.9:8000/v1")]);
        let target = &lan.config.targets[5];
        assert_eq!((target.place, target.never_a_candidate()), (Place::Lan, None));
        assert!(lan.warnings.iter().any(|warning| warning.what.contains("in clear")));
    }
}
