//! Which server answers on a usual port: what to ask it, and what its answers say that it is.
//!
//! A port says nothing: llama.cpp is started on 8000, vLLM on 8080, and web apps are found on either. Nobody is taken for
//! a model server who has not said so in its own words, since it would be sent prompts.

use serde::Deserialize;

use super::Kind;

/// A server that is known by what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Known {
    /// Ollama.
    Ollama,
    /// vLLM.
    Vllm,
    /// llama.cpp's llama-server, one model or its router.
    Llamacpp,
    /// SGLang.
    Sglang,
    /// LM Studio.
    Lmstudio,
    /// Another that lists models as OpenAI's API does.
    Openai,
}

impl Known {
    /// Every one, in the order of the enum.
    pub const ALL: [Known; 6] =
        [Known::Ollama, Known::Vllm, Known::Llamacpp, Known::Sglang, Known::Lmstudio, Known::Openai];

    /// What its target is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Known::Ollama => "ollama",
            Known::Vllm => "vllm",
            Known::Llamacpp => "llamacpp",
            Known::Sglang => "sglang",
            Known::Lmstudio => "lmstudio",
            Known::Openai => "openai",
        }
    }

    /// What it speaks.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Known::Ollama => Kind::Ollama,
            Known::Vllm => Kind::Vllm,
            Known::Llamacpp => Kind::Llamacpp,
            Known::Sglang | Known::Lmstudio | Known::Openai => Kind::Openai,
        }
    }

    /// Its own name, for people.
    #[must_use]
    pub const fn in_words(self) -> &'static str {
        match self {
            Known::Ollama => "Ollama",
            Known::Vllm => "vLLM",
            Known::Llamacpp => "llama.cpp",
            Known::Sglang => "SGLang",
            Known::Lmstudio => "LM Studio",
            Known::Openai => "another server with OpenAI's API",
        }
    }
}

/// What answers on a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// This server, ready or still loading.
    Server(Known),
    /// A server that lists no models without a key.
    Locked,
    /// Something else: a web app, another edgeward, no HTTP.
    Stranger,
    /// Something that accepts connections and does not answer in time.
    Silent,
}

impl Sight {
    /// In words, of what is no target; completes "There is …".
    #[must_use]
    pub const fn in_words(self) -> &'static str {
        match self {
            Sight::Server(known) => known.in_words(),
            Sight::Locked => "something that wants a key",
            Sight::Stranger => "something that is no model server known here",
            Sight::Silent => "something that accepts connections and says nothing",
        }
    }
}

/// One look at a port: a few questions, each by what the ones before it have said.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    asks: Question,
    /// It has listed models as OpenAI's API does.
    listed: bool,
    /// As llama.cpp's.
    llamacpp: bool,
    /// It wants a key.
    locked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Models,
    Root,
    Version,
    Props,
    Lmstudio,
}

/// What comes after an answer.
#[derive(Clone, Copy, Debug)]
pub enum Next {
    /// Another question.
    Ask(Look),
    /// It is known by now.
    Is(Sight),
}

impl Default for Look {
    fn default() -> Self {
        Look { asks: Question::Models, listed: false, llamacpp: false, locked: false }
    }
}

impl Look {
    /// What is asked next, by `GET`.
    #[must_use]
    pub const fn path(&self) -> &'static str {
        match self.asks {
            Question::Models => "/v1/models",
            Question::Root => "/",
            Question::Version => "/api/version",
            Question::Props => "/props",
            Question::Lmstudio => "/api/v0/models",
        }
    }

    /// Whether anything but JSON is no answer.
    #[must_use]
    pub fn asks_for_json(&self) -> bool {
        self.asks != Question::Root
    }

    /// What it answered. `body`: all of it, known to be no deeper than a parser bears; empty where it is.
    #[must_use]
    pub fn heard(mut self, status: u16, body: &[u8]) -> Next {
        // llama.cpp answers so on every path while it loads a model.
        let loading = |body| read::<Failure>(body).is_some_and(|it| it.error.message == "Loading model");
        if status == 503 && loading(body) {
            return Next::Is(Sight::Server(Known::Llamacpp));
        }
        let refused = matches!(status, 401 | 403);
        let body = if status == 200 { body } else { b"" };
        match self.asks {
            Question::Models => {
                self.locked = refused;
                if let Some(models) = read::<Models>(body).filter(|models| models.object == "list") {
                    if models.any("vllm") {
                        return Next::Is(Sight::Server(Known::Vllm));
                    }
                    if models.any("sglang") {
                        return Next::Is(Sight::Server(Known::Sglang));
                    }
                    self.listed = true;
                    self.llamacpp = models.any("llamacpp");
                }
                self.then(if self.llamacpp { Question::Props } else { Question::Root })
            }
            // Open WebUI, on 8080, has a version at the same path as Ollama.
            Question::Root if body.trim_ascii() == b"Ollama is running" => self.then(Question::Version),
            Question::Root => self.then(Question::Props),
            Question::Version if read::<Version>(body).is_some() => Next::Is(Sight::Server(Known::Ollama)),
            Question::Version => self.then(Question::Props),
            Question::Props if read::<Props>(body).is_some_and(|props| props.is_llamacpp()) => {
                Next::Is(Sight::Server(Known::Llamacpp))
            }
            // With --api-key it lists its models to everybody, and nothing else.
            Question::Props if self.llamacpp && refused => Next::Is(Sight::Locked),
            Question::Props if self.llamacpp => Next::Is(Sight::Server(Known::Llamacpp)),
            Question::Props if self.listed => self.then(Question::Lmstudio),
            Question::Lmstudio if read::<Downloads>(body).is_some_and(|it| it.are_lmstudios()) => {
                Next::Is(Sight::Server(Known::Lmstudio))
            }
            Question::Lmstudio => Next::Is(Sight::Server(Known::Openai)),
            Question::Props if self.locked => Next::Is(Sight::Locked),
            Question::Props => Next::Is(Sight::Stranger),
        }
    }

    const fn then(mut self, asks: Question) -> Next {
        self.asks = asks;
        Next::Ask(self)
    }
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Option<T> {
    serde_json::from_slice(body).ok()
}

/// Ollama: `{"version":"0.12.3"}`.
#[derive(Deserialize)]
struct Version {
    #[serde(rename = "version")]
    _version: String,
}

/// OpenAI's list of models, as every server of this family gives it.
#[derive(Deserialize)]
struct Models {
    object: String,
    data: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    #[serde(rename = "id")]
    _id: String,
    #[serde(default)]
    owned_by: Option<String>,
}

impl Models {
    fn any(&self, owner: &str) -> bool {
        self.data.iter().any(|model| model.owned_by.as_deref() == Some(owner))
    }
}

/// llama-server's `/props`; a router of several models has `role` and little else.
#[derive(Deserialize)]
struct Props {
    #[serde(default)]
    default_generation_settings: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    build_info: Option<serde::de::IgnoredAny>,
}

impl Props {
    fn is_llamacpp(&self) -> bool {
        self.default_generation_settings.is_some() || self.build_info.is_some()
    }
}

/// LM Studio's own list, of what it has downloaded.
#[derive(Deserialize)]
struct Downloads {
    data: Vec<Download>,
}

#[derive(Deserialize)]
struct Download {
    #[serde(default)]
    state: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    compatibility_type: Option<serde::de::IgnoredAny>,
}

impl Downloads {
    fn are_lmstudios(&self) -> bool {
        self.data.iter().any(|it| it.state.is_some() && it.compatibility_type.is_some())
    }
}

#[derive(Deserialize)]
struct Failure {
    error: Message,
}

#[derive(Deserialize)]
struct Message {
    message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    const VLLM: &str = r#"{"object":"list","data":[{"id":"Qwen/Qwen2.5-7B","object":"model","created":1,"owned_by":"vllm","root":"x","parent":null,"max_model_len":32768}]}"#;
    const SGLANG: &str = r#"{"object":"list","data":[{"id":"qwen","object":"model","created":1,"owned_by":"sglang","root":"qwen","max_model_len":4096}]}"#;
    const LLAMA: &str = r#"{"models":[],"object":"list","data":[{"id":"m.gguf","object":"model","owned_by":"llamacpp","meta":{"n_ctx":4096}}]}"#;
    const PROPS: &str =
        r#"{"default_generation_settings":{"id":0},"total_slots":4,"build_info":"b7000-abc"}"#;
    const LOADING: &str = r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#;
    const OLLAMA: &str = r#"{"object":"list","data":[{"id":"llama3.2:3b","object":"model","created":1,"owned_by":"library"}]}"#;
    const STUDIO: &str =
        r#"{"data":[{"id":"qwen","object":"model","owned_by":"organization_owner"}],"object":"list"}"#;
    const STUDIO_V0: &str = r#"{"object":"list","data":[{"id":"qwen","object":"model","type":"llm","publisher":"a","arch":"qwen2","compatibility_type":"gguf","quantization":"Q4_K_M","state":"not-loaded","max_context_length":32768}]}"#;
    const EMPTY: &str = r#"{"object":"list","data":[]}"#;

    /// What a server of these answers is taken for; all other paths are 404.
    fn seen(answers: &[(&str, u16, &str)]) -> (Sight, usize) {
        let mut look = Look::default();
        for asked in 1..10 {
            let answer = answers.iter().find(|(path, ..)| *path == look.path());
            let (status, body) = answer.map_or((404, "{}"), |(_, status, body)| (*status, *body));
            match look.heard(status, body.as_bytes()) {
                Next::Ask(next) => look = next,
                Next::Is(sight) => return (sight, asked),
            }
        }
        panic!("asks for ever")
    }

    #[test]
    fn each_is_known_by_what_it_says() {
        use Sight::{Locked, Server, Stranger};
        let running = ("/", 200, "Ollama is running");
        let version = ("/api/version", 200, r#"{"version":"0.12.3"}"#);
        for (answers, wanted) in [
            (&[("/v1/models", 200, VLLM)][..], Server(Known::Vllm)),
            (&[("/v1/models", 200, SGLANG)], Server(Known::Sglang)),
            (&[("/v1/models", 200, LLAMA), ("/props", 200, PROPS)], Server(Known::Llamacpp)),
            (&[("/v1/models", 200, LLAMA)], Server(Known::Llamacpp)),
            // A router that has no model yet.
            (&[("/v1/models", 200, EMPTY), ("/props", 200, PROPS)], Server(Known::Llamacpp)),
            (&[("/v1/models", 503, LOADING)], Server(Known::Llamacpp)),
            (&[("/v1/models", 200, LLAMA), ("/props", 401, "{}")], Locked),
            (&[("/v1/models", 200, OLLAMA), running, version], Server(Known::Ollama)),
            (&[("/v1/models", 200, EMPTY), running, version], Server(Known::Ollama)),
            // Before it spoke OpenAI's API.
            (&[running, version], Server(Known::Ollama)),
            (&[("/v1/models", 200, STUDIO), ("/api/v0/models", 200, STUDIO_V0)], Server(Known::Lmstudio)),
            (&[("/v1/models", 200, STUDIO)], Server(Known::Openai)),
            (&[("/v1/models", 200, EMPTY)], Server(Known::Openai)),
            (&[("/v1/models", 401, r#"{"error":"Unauthorized"}"#)], Locked),
            (&[("/v1/models", 403, "")], Locked),
            // A 401 with the right words is no answer.
            (&[("/v1/models", 401, VLLM)], Locked),
            // Open WebUI, JupyterLab, a page for every path, Triton.
            (&[("/v1/models", 200, "<html>"), ("/", 200, "<html>"), version], Stranger),
            (&[("/v1/models", 302, ""), ("/", 302, "")], Stranger),
            (&[("/v1/models", 200, r#"{"data":[]}"#)], Stranger),
            (&[("/v1/models", 200, "[]")], Stranger),
            (&[("/v1/models", 503, "<h1>Service Unavailable</h1>")], Stranger),
            (&[("/props", 200, "{}")], Stranger),
            (&[], Stranger),
        ] {
            let (sight, asked) = seen(answers);
            assert_eq!(sight, wanted, "{answers:?}");
            assert!(asked <= 5);
        }
    }

    #[test]
    fn names_are_distinct() {
        let names: std::collections::HashSet<_> = Known::ALL.iter().map(|known| known.name()).collect();
        assert_eq!(names.len(), Known::ALL.len());
    }
}
