//! The scenes: how the box dies, in the script language, and what the client must see of it.

use std::net::SocketAddr;

use crate::sim::model::Model;
use crate::sim::script::{self, Script};
use crate::sim::server::{Behaviour, SimRequest};

/// The model under which the box is healthy.
pub const HEALTHY: &str = "llama";

/// What the box says before it breaks in mid-answer.
pub const HALF: &str = "[box] half an answer is";

/// How a scene must end for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// The box's own answer, whole.
    Box,
    /// The cloud's answer, whole, and nothing of the box's.
    Cloud,
    /// The box's beginning, then an error that says so, and an unclean end.
    Broken,
}

/// One request: the model that the client asks for picks how the box dies.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// The model's name.
    pub model: &'static str,
    /// What happens, in a line.
    pub title: &'static str,
    /// What the box does, in the language of [`script`]; empty: it is healthy, or not there.
    script: &'static str,
    /// How it must end.
    pub promise: Promise,
    /// What `x-edgeward-attempts` must be.
    pub attempts: &'static str,
    /// Whether the box must have seen that it was hung up on.
    pub hung_up: bool,
    /// Whether the demo plays it. Each can be asked for afterwards.
    pub played: bool,
}

/// Every scene, in the order in which they are played.
pub const SCENES: [Scene; 11] = [
    Scene {
        title: "the box is healthy",
        promise: Promise::Box,
        attempts: "box:committed",
        ..dies(HEALTHY, "", "")
    },
    dies("die:refused", "nobody listens at the box's port", "box-off:refused,cloud:committed"),
    Scene {
        title: "the box runs out of memory: a 500 before its first token",
        script: r#"WAIT 30
REPLY 500 application/json | {"error":{"message":"CUDA out of memory. Tried to allocate 2.00 GiB","type":"server_error","code":500}}"#,
        ..dies("die:oom", "", "box:cuda_oom,cloud:committed")
    },
    Scene {
        title: "the box says 200, and then that it failed",
        script: r#"SSE
WAIT 30
D {"error":{"message":"failed to decode the batch","type":"server_error","code":500}}
END"#,
        ..dies("die:error", "", "box:error_in_stream,cloud:committed")
    },
    Scene {
        title: "the box is killed while it reads the prompt",
        script: "SSE\nWAIT 60\nRST",
        ..dies("die:killed", "", "box:reset,cloud:committed")
    },
    Scene {
        title: "the box gives its role, and hangs",
        script: r#"SSE
D {"id":"box-1","object":"chat.completion.chunk","created":1767225600,"model":"llama","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}
HANG 600000"#,
        hung_up: true,
        ..dies("die:silence", "", "box:timeout_first_token,cloud:committed")
    },
    Scene {
        title: "the box keeps the connection alive with comments, and never answers",
        script: "SSE\nEVERY 100 6000 C : keep-alive\\n\\n\nCUT",
        hung_up: true,
        ..dies("die:keepalive", "", "box:timeout_first_token,cloud:committed")
    },
    Scene {
        title: "the box breaks in mid-answer: too late for another, so the client is told",
        script: r#"SSE
D {"id":"box-1","object":"chat.completion.chunk","created":1767225600,"model":"llama","choices":[{"index":0,"delta":{"role":"assistant","content":"[box] half an"},"finish_reason":null}]}
WAIT 60
D {"id":"box-1","object":"chat.completion.chunk","created":1767225600,"model":"llama","choices":[{"index":0,"delta":{"content":" answer is"},"finish_reason":null}]}
WAIT 60
CUT"#,
        promise: Promise::Broken,
        ..dies("die:midway", "", "box:committed")
    },
    Scene {
        title: "the box ends cleanly, without a token",
        script: "SSE\nWAIT 30\nD [DONE]\nEND",
        played: false,
        ..dies("die:empty", "", "box:empty,cloud:committed")
    },
    Scene {
        title: "a login page instead of a stream",
        script: "REPLY 200 text/html | <!doctype html><title>Sign in</title>",
        played: false,
        ..dies("die:html", "", "box:protocol,cloud:committed")
    },
    Scene {
        title: "the box thinks first: thinking is a token too",
        script: r#"SSE
D {"id":"box-1","object":"chat.completion.chunk","created":1767225600,"model":"llama","choices":[{"index":0,"delta":{"role":"assistant","reasoning_content":"Hm."},"finish_reason":null}]}
WAIT 60
D {"id":"box-1","object":"chat.completion.chunk","created":1767225600,"model":"llama","choices":[{"index":0,"delta":{"content":"[box] yes"},"finish_reason":"stop"}]}
D [DONE]
END"#,
        promise: Promise::Box,
        played: false,
        ..dies("think", "", "box:committed")
    },
];

/// A played scene whose answer must come from the cloud.
const fn dies(model: &'static str, title: &'static str, attempts: &'static str) -> Scene {
    Scene { model, title, script: "", promise: Promise::Cloud, attempts, hung_up: false, played: true }
}

impl Scene {
    /// What the box does; `None`: it is healthy, or not there to be asked.
    #[must_use]
    pub fn script(&self) -> Option<Script> {
        // A test holds that each that there is can be read.
        script::parse(self.script).ok()
    }

    /// Nobody listens at the box's port.
    #[must_use]
    pub fn off(&self) -> bool {
        self.script.is_empty() && self.promise == Promise::Cloud
    }

    /// Who must answer.
    #[must_use]
    pub const fn target(&self) -> &'static str {
        match self.promise {
            Promise::Box | Promise::Broken => "box",
            Promise::Cloud => "cloud",
        }
    }
}

/// The models that can be asked for.
pub fn models() -> impl Iterator<Item = &'static str> {
    SCENES.iter().map(|scene| scene.model)
}

/// The box: it dies as the asked-for model says, and is healthy otherwise.
#[must_use]
pub fn boxes(healthy: Model) -> Behaviour {
    let scripted = |request: &SimRequest| {
        let body = request.json();
        let model = body.get("model")?.as_str()?;
        SCENES.iter().find(|scene| scene.model == model)?.script()
    };
    Behaviour::by(move |request| scripted(request).unwrap_or_else(|| healthy.answer(request)))
}

/// The gateway's configuration. At `off` nobody listens: a server cannot refuse by the model, so that model has
/// a target of its own.
#[must_use]
pub fn config(listen: SocketAddr, local: SocketAddr, off: SocketAddr, cloud: SocketAddr) -> String {
    format!(
        r#"listen = ["{listen}"]

[deadlines]
first_token = "600ms"
first_token_per_1k = "0s"

[[target]]
name = "box"
kind = "llamacpp"
url = "http://{local}"
place = "local"
group = "primary"

[[target]]
name = "box-off"
kind = "llamacpp"
url = "http://{off}"
place = "local"
group = "off"

[[target]]
name = "cloud"
kind = "openai"
url = "http://{cloud}/v1"
place = "cloud"
group = "fallback"
key = {{ env = "CLOUD_API_KEY" }}
models = {{ "*" = "cloud-large" }}

[router]
groups = ["primary", "fallback"]

[[route]]
model = "die:refused"
groups = ["off", "fallback"]
"#
    )
}

/// The environment for [`config`], and no other: a cloud has a key.
#[must_use]
pub fn env(name: &str) -> Option<String> {
    (name == "CLOUD_API_KEY").then(|| "sk-of-the-demo-only".to_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn scripts_can_be_read_and_names_differ() {
        for scene in SCENES {
            assert_eq!(scene.script().is_none(), scene.script.is_empty(), "{}", scene.model);
            assert_eq!(models().filter(|model| *model == scene.model).count(), 1);
            assert!(scene.title.len() + scene.model.len() < 90, "{}", scene.title);
        }
        assert!((6..=8).contains(&SCENES.iter().filter(|scene| scene.played).count()));
    }

    #[test]
    fn the_configuration_is_a_good_one() {
        let addr = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let text = config(addr(1), addr(2), addr(3), addr(4));
        let loaded = crate::config::parse(&text, Path::new("demo"), &env).unwrap();
        assert_eq!(loaded.config.targets.len(), 3);
        assert_eq!(loaded.warnings, []);
    }
}
