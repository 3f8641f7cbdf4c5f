//! The endpoints that exist. Paths match exactly: no encoded, dotted or slash-doubled variants.

use http::Method;

use crate::dialect::Dialect;

/// What a request line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint<'a> {
    /// A model's answer, in this dialect.
    Answer(Dialect),
    /// `POST /v1/messages/count_tokens`: how long a prompt is.
    CountTokens,
    /// `GET /v1/models`: the union of what the targets offer.
    Models,
    /// `GET /v1/models/{id}`.
    Model(&'a str),
    /// An Ollama read endpoint, answered by an Ollama target.
    OllamaRead,
    /// An Ollama endpoint that changes what is on the box: refused unless configured.
    OllamaWrite,
    /// `/edgeward/health`: the process is alive.
    Health,
    /// `/edgeward/ready`: some target can answer.
    Ready,
    /// `/edgeward/status`.
    Status,
    /// `/edgeward/metrics`.
    Metrics,
    /// `DELETE /edgeward/requests/{id}`.
    Cancel(&'a str),
    /// `/edgeward/events`: the log's last lines.
    Events,
    /// `/edgeward/config`: every setting in use, without keys.
    Config,
    /// `POST /edgeward/trace`: what the memory watchdog saw since it was last asked.
    Trace,
    /// `/edgeward/drill`: `GET` shows it, `POST` begins one, `DELETE` ends it.
    Drill,
    /// `GET /`: Ollama's clients look for a sign of life here.
    Root,
    /// `/health`: what asks a model server whether it can answer asks here.
    ServerHealth,
    /// A known path, but not with this method; what it allows.
    WrongMethod(&'static str),
    /// Nothing here.
    Unknown,
}

impl Endpoint<'_> {
    /// The dialect of a request that is for a target.
    #[must_use]
    pub const fn dialect(&self) -> Option<Dialect> {
        match self {
            Endpoint::Answer(dialect) => Some(*dialect),
            Endpoint::CountTokens => Some(Dialect::Anthropic),
            Endpoint::OllamaRead | Endpoint::OllamaWrite => Some(Dialect::OllamaChat),
            _ => None,
        }
    }

    /// Whether it is for operators.
    #[must_use]
    pub const fn is_operators(&self) -> bool {
        matches!(
            self,
            Endpoint::Status
                | Endpoint::Metrics
                | Endpoint::Cancel(_)
                | Endpoint::Events
                | Endpoint::Config
                | Endpoint::Trace
                | Endpoint::Drill
        )
    }
}

/// Finds the endpoint of a request line.
#[must_use]
pub fn find<'a>(method: &Method, path: &'a str) -> Endpoint<'a> {
    let (allow, endpoint) = match path {
        "/v1/chat/completions" => ("POST", Endpoint::Answer(Dialect::OpenaiChat)),
        "/v1/completions" => ("POST", Endpoint::Answer(Dialect::OpenaiCompletions)),
        "/v1/responses" => ("POST", Endpoint::Answer(Dialect::OpenaiResponses)),
        "/v1/embeddings" => ("POST", Endpoint::Answer(Dialect::OpenaiEmbeddings)),
        "/v1/messages" => ("POST", Endpoint::Answer(Dialect::Anthropic)),
        "/v1/messages/count_tokens" => ("POST", Endpoint::CountTokens),
        "/api/chat" => ("POST", Endpoint::Answer(Dialect::OllamaChat)),
        "/api/generate" => ("POST", Endpoint::Answer(Dialect::OllamaGenerate)),
        "/api/embed" | "/api/embeddings" => ("POST", Endpoint::Answer(Dialect::OllamaEmbed)),
        "/api/show" => ("POST", Endpoint::OllamaRead),
        "/api/tags" | "/api/ps" | "/api/version" => ("GET, HEAD", Endpoint::OllamaRead),
        "/api/delete" => ("DELETE", Endpoint::OllamaWrite),
        "/api/pull" | "/api/push" | "/api/create" | "/api/copy" => ("POST", Endpoint::OllamaWrite),
        "/v1/models" => ("GET, HEAD", Endpoint::Models),
        "/edgeward/health" => ("GET, HEAD", Endpoint::Health),
        "/edgeward/ready" => ("GET, HEAD", Endpoint::Ready),
        "/edgeward/status" => ("GET, HEAD", Endpoint::Status),
        "/edgeward/metrics" => ("GET, HEAD", Endpoint::Metrics),
        "/edgeward/events" => ("GET, HEAD", Endpoint::Events),
        "/edgeward/config" => ("GET, HEAD", Endpoint::Config),
        "/edgeward/trace" => ("POST", Endpoint::Trace),
        "/edgeward/drill" => ("GET, POST, DELETE", Endpoint::Drill),
        "/" => ("GET, HEAD", Endpoint::Root),
        "/health" | "/v1/health" => ("GET, HEAD", Endpoint::ServerHealth),
        _ => {
            if let Some(id) = path.strip_prefix("/v1/models/").filter(|id| !id.is_empty()) {
                ("GET, HEAD", Endpoint::Model(id))
            } else if let Some(id) = path.strip_prefix("/edgeward/requests/").filter(|id| !id.is_empty()) {
                ("DELETE", Endpoint::Cancel(id))
            } else {
                return Endpoint::Unknown;
            }
        }
    };
    if allow.split(", ").any(|allowed| allowed == method.as_str()) {
        endpoint
    } else {
        Endpoint::WrongMethod(allow)
    }
}

/// The dialect in which errors on this path are written.
#[must_use]
pub fn dialect_of(path: &str) -> Dialect {
    match path {
        "/v1/messages" | "/v1/messages/count_tokens" => Dialect::Anthropic,
        _ if path.starts_with("/api/") => Dialect::OllamaChat,
        _ => Dialect::OpenaiChat,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_match_exactly() {
        assert_eq!(find(&Method::POST, "/v1/chat/completions"), Endpoint::Answer(Dialect::OpenaiChat));
        for path in [
            "/v1/chat/completions/",
            "//v1/chat/completions",
            "/v1/./chat/completions",
            "/v1/chat%2fcompletions",
            "/V1/chat/completions",
            "/edgeward/requests/",
            "",
        ] {
            assert_eq!(find(&Method::POST, path), Endpoint::Unknown, "{path}");
        }
        assert_eq!(find(&Method::HEAD, "/health"), Endpoint::ServerHealth);
        assert_eq!(find(&Method::GET, "/api/chat"), Endpoint::WrongMethod("POST"));
        assert_eq!(find(&Method::GET, "/v1/models/org/name:tag"), Endpoint::Model("org/name:tag"));
        assert_eq!(find(&Method::POST, "/v1/messages/count_tokens"), Endpoint::CountTokens);
        assert_eq!(find(&Method::DELETE, "/edgeward/requests/ab"), Endpoint::Cancel("ab"));
        for method in [Method::GET, Method::POST, Method::DELETE] {
            assert_eq!(find(&method, "/edgeward/drill"), Endpoint::Drill);
        }
        assert_eq!(find(&Method::PUT, "/edgeward/drill"), Endpoint::WrongMethod("GET, POST, DELETE"));
    }
}
