//! Which server answers on a usual port: what to ask, and whether the answer is that server's.

use serde::Deserialize;

use super::Kind;

/// The path that tells a local server of this kind apart; whole, without a target's base before it.
#[must_use]
pub const fn probe_path(kind: Kind) -> &'static str {
    match kind {
        Kind::Ollama => "/api/version",
        Kind::Llamacpp => "/props",
        Kind::Vllm | Kind::Openai | Kind::Anthropic | Kind::Gemini => "/v1/models",
    }
}

/// Whether an answer to a GET of `path` comes from a server of this kind, ready or still loading.
/// Ports such as 8000 and 8080 have many users; a stranger must not be sent prompts.
#[must_use]
pub fn identify(kind: Kind, path: &str, status: u16, body: &[u8]) -> bool {
    match (kind, path) {
        (Kind::Ollama, "/api/version") => status == 200 && read::<Version>(body).is_some(),
        (Kind::Vllm, "/v1/models") => status == 200 && owners(body).is_some_and(|owners| owners.any("vllm")),
        (Kind::Llamacpp, "/v1/models") => {
            status == 200 && owners(body).is_some_and(|owners| owners.any("llamacpp"))
        }
        (Kind::Llamacpp, "/props") if status == 200 => {
            read::<Props>(body).is_some_and(|props| props.is_llamacpp())
        }
        (Kind::Llamacpp, "/health") if status == 200 => {
            read::<Health>(body).is_some_and(|it| it.status == "ok")
        }
        // llama.cpp answers so on every path while it loads a model.
        (Kind::Llamacpp, _) if status == 503 => {
            read::<Failure>(body).is_some_and(|failure| failure.error.message == "Loading model")
        }
        (Kind::Openai, "/v1/models") => status == 200 && owners(body).is_some(),
        _ => false,
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

fn owners(body: &[u8]) -> Option<Models> {
    read::<Models>(body).filter(|models| models.object == "list")
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

#[derive(Deserialize)]
struct Health {
    status: String,
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
    const LLAMA: &str = r#"{"models":[],"object":"list","data":[{"id":"m.gguf","object":"model","owned_by":"llamacpp","meta":{"n_ctx":4096}}]}"#;
    const PROPS: &str =
        r#"{"default_generation_settings":{"id":0},"total_slots":4,"build_info":"b7000-abc"}"#;
    const LOADING: &str = r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#;

    #[test]
    fn each_is_known_by_its_own_answer() {
        for (kind, path, status, body, wanted) in [
            (Kind::Ollama, "/api/version", 200, r#"{"version":"0.12.3"}"#, true),
            (Kind::Ollama, "/api/version", 404, r#"{"version":"0.12.3"}"#, false),
            (Kind::Ollama, "/api/version", 200, r#"{"version":3}"#, false),
            (Kind::Ollama, "/api/version", 200, "<html>", false),
            (Kind::Ollama, "/", 200, "Ollama is running", false),
            (Kind::Vllm, "/v1/models", 200, VLLM, true),
            (Kind::Vllm, "/v1/models", 401, VLLM, false),
            (Kind::Vllm, "/v1/models", 200, LLAMA, false),
            (Kind::Vllm, "/v1/models", 200, r#"{"object":"list","data":[]}"#, false),
            (Kind::Llamacpp, "/v1/models", 200, LLAMA, true),
            (Kind::Llamacpp, "/v1/models", 200, VLLM, false),
            (Kind::Llamacpp, "/props", 200, PROPS, true),
            (Kind::Llamacpp, "/props", 200, "{}", false),
            (Kind::Llamacpp, "/props", 503, LOADING, true),
            (Kind::Llamacpp, "/props", 503, "<h1>Service Unavailable</h1>", false),
            (Kind::Llamacpp, "/health", 200, r#"{"status":"ok"}"#, true),
            (Kind::Llamacpp, "/health", 503, LOADING, true),
            (Kind::Openai, "/v1/models", 200, VLLM, true),
            (Kind::Openai, "/v1/models", 200, r#"{"object":"list","data":[]}"#, true),
            (Kind::Openai, "/v1/models", 200, r#"{"data":[]}"#, false),
            (Kind::Openai, "/v1/models", 200, "[]", false),
            (Kind::Anthropic, "/v1/models", 200, VLLM, false),
        ] {
            assert_eq!(
                identify(kind, path, status, body.as_bytes()),
                wanted,
                "{kind:?} {path} {status} {body}"
            );
        }
    }

    #[test]
    fn each_probe_can_identify() {
        for (kind, body) in [
            (Kind::Ollama, r#"{"version":"1"}"#),
            (Kind::Vllm, VLLM),
            (Kind::Llamacpp, PROPS),
            (Kind::Openai, VLLM),
        ] {
            assert!(identify(kind, probe_path(kind), 200, body.as_bytes()));
        }
    }

    #[test]
    fn deep_nesting_is_no_answer() {
        let deep = format!("{}{}", r#"{"object":"list","data":[],"x":"#, "[".repeat(200_000));
        assert!(!identify(Kind::Openai, "/v1/models", 200, deep.as_bytes()));
    }
}
