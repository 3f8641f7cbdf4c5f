//! What model servers say of themselves, read from their answers: what is resident, slots, queues, caches, shapes.

/// What a server said in one look. `None`: it did not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Which models are loaded: all of them.
    pub resident: Option<Vec<Resident>>,
    /// Answers at once: of the server, with Ollama of each model.
    pub slots: Option<u32>,
    /// Of those, how many are taken.
    pub busy: Option<u32>,
    /// Requests that wait for one.
    pub waiting: Option<u32>,
    /// Tokens that its cache holds, for all requests together.
    pub cache_tokens: Option<u64>,
    /// How full that is, in thousandths.
    pub cache_used: Option<u16>,
    /// Requests that it took back for lack of cache, ever.
    pub preemptions: Option<u64>,
}

/// A model that is loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// By the server's name.
    pub name: String,
    /// What it takes, in KiB; 0: not known.
    pub size: u32,
    /// Of that, in the GPU's memory.
    pub size_gpu: u32,
    /// Tokens of context a request has.
    pub context: Option<u32>,
    /// When it is unloaded if nobody asks for it, in seconds since 1970 by the server's clock.
    pub expires: Option<u64>,
}

/// `GET /api/ps` of Ollama: what is loaded.
#[must_use]
pub fn ollama_ps(body: &[u8]) -> Option<Vec<Resident>> {
    let _ = body;
    None
}

/// `POST /api/show` of Ollama, and a model's size by [`ollama_size`].
#[must_use]
pub fn ollama_show(body: &[u8]) -> Option<crate::memory::need::Shape> {
    let _ = body;
    None
}

/// A model's size in `GET /api/tags` of Ollama, in KiB.
#[must_use]
pub fn ollama_size(body: &[u8], model: &str) -> Option<u32> {
    let _ = (body, model);
    None
}

/// `GET /props` of llama.cpp: slots, and a slot's context.
pub fn llamacpp_props(body: &[u8], facts: &mut Facts) -> bool {
    let _ = (body, facts);
    false
}

/// `GET /slots` of llama.cpp: how many, how many are taken.
pub fn llamacpp_slots(body: &[u8], facts: &mut Facts) -> bool {
    let _ = (body, facts);
    false
}

/// `GET /v1/models` of llama.cpp or vLLM: names, sizes, context.
pub fn openai_models(body: &[u8], facts: &mut Facts) -> bool {
    let _ = (body, facts);
    false
}

/// `GET /metrics` of llama.cpp or vLLM: what runs, what waits, how full the cache is.
pub fn metrics(body: &[u8], facts: &mut Facts) -> bool {
    let _ = (body, facts);
    false
}

/// The head of a GGUF file, as much of it as is there.
#[must_use]
pub fn gguf(head: &[u8]) -> Option<crate::memory::need::Shape> {
    let _ = head;
    None
}
